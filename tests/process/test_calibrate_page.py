"""`calibrate intrinsics --live --page` as it is run: a camera in the network, a real browser, Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from playwright.sync_api import Page, expect, sync_playwright

from calibration.camera import Intrinsics
from calibration.coverage import SIDES
from calibration.detection import detect
from calibration.store import load, save
from sim.capture.board_scene import Look, draw_board
from tests.calibration.board_views import BOARD, PINHOLE
from tests.calibration.test_view_guide import board_at
from tests.process.picture_server import PictureServer, jpeg

CHROMIUM = "/usr/bin/chromium"
PATIENT_MS = 60_000.0
NUM = 14
LOOK = Look(blur_px=0.6, supersample=2)


@contextmanager
def calibrating(folder: Path, camera: PictureServer) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and where its page is."""
    save(folder / "board.json", BOARD)
    with (folder / "said").open("w") as said:
        command = [sys.executable, "-m", "robot_runtime.cli", "calibrate", "intrinsics", camera.url, "--live"]
        command += ["--board", "board.json", "--output", "camera.json", "--page", "127.0.0.1:*"]
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, text=True)
    try:
        yield process, wait_for(folder, process, r"page: (\S+)")
    finally:
        process.kill()
        process.wait()


def wait_for(folder: Path, process: subprocess.Popen[str], words: str) -> str:
    """Until the command has said it; what is in its brackets."""
    end_s = time.monotonic() + 60.0
    while (found := re.search(words, (folder / "said").read_text())) is None:
        assert process.poll() is None, (folder / "said").read_text()
        assert time.monotonic() < end_s, (folder / "said").read_text()
        time.sleep(0.05)
    return found.group(found.re.groups)


def show(camera: PictureServer, grey: np.ndarray) -> int:
    """From now on the camera sees this; how many corners are found in it."""
    picture = jpeg(np.repeat(grey[..., None], 3, axis=2))
    camera.spoil = lambda pixels, last: picture
    return len(detect(BOARD, simplejpeg.decode_jpeg(picture)))


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])  # as root
        expect.set_options(timeout=PATIENT_MS)
        page = chromium.new_page()
        page.set_default_timeout(PATIENT_MS)
        yield page
        chromium.close()


@pytest.mark.long
def test_a_browser_shows_view_after_view_and_after_ctrl_c_the_verdict(tmp_path: Path, page: Page):
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    with PictureServer(hz=15.0) as camera:
        show(camera, np.full(PINHOLE.size, 90, np.uint8))
        with calibrating(tmp_path, camera) as (process, url):
            page.goto(url)
            expect(page.locator("#do")).to_have_text(re.compile("show the whole board"))
            expect(page.locator("#problem")).to_have_text(re.compile("not seen"))
            for k in range(NUM):
                place = (0.25 + 0.5 * (k % 4) / 3, 0.25 + 0.5 * (k // 4) / 3)
                X_CB = board_at(place, SIDES[(k + k // 4) % 4], 0.55, far_m=0.3 + 0.01 * k)
                num_corners = show(camera, draw_board(BOARD, PINHOLE, X_CB, look=LOOK))
                expect(page.locator("#taken")).to_have_text(str(k + 1))
            expect(page.locator("#problem")).to_be_hidden()
            expect(page.locator("#wanted")).to_have_text("of 30")
            expect(page.locator("#corners i")).to_have_count(num_corners)
            expect(page.locator("#marks li.there")).to_have_count(4)
            expect(page.locator("#picture")).to_have_js_property("naturalWidth", PINHOLE.size[1])
            filled = page.evaluate("shown.cells.are_filled.filter((is_there) => is_there).length")
            expect(page.locator("#cells rect")).to_have_count(48 - filled)

            process.send_signal(signal.SIGINT)
            assert process.wait(60.0) == 0, (tmp_path / "said").read_text()
            expect(page.locator("#do")).to_have_text("usable")
            expect(page.locator("#reasons")).to_contain_text("few-views")
            expect(page.locator("#banner")).to_have_text("The command has ended.")
    assert f"ended with {NUM} views" in (tmp_path / "said").read_text()
    found = load(tmp_path / "camera.json", Intrinsics).camera
    assert found.fx == pytest.approx(PINHOLE.fx, rel=0.01)
    assert wrong == []


@pytest.mark.long
def test_a_calibration_goes_on_without_its_page(tmp_path: Path):
    with PictureServer(hz=15.0) as camera:
        show(camera, draw_board(BOARD, PINHOLE, board_at((0.4, 0.5), "left", 0.4), look=LOOK))
        with calibrating(tmp_path, camera) as (process, _):
            wait_for(tmp_path, process, "1 taken")
            (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(child), signal.SIGKILL)
            wait_for(tmp_path, process, "the calibration goes on without it")
            show(camera, draw_board(BOARD, PINHOLE, board_at((0.6, 0.5), "right", 0.4), look=LOOK))
            wait_for(tmp_path, process, "2 taken")
