"""An anchor looked at live, as it is run: cameras in the network, pose streams, a browser, a terminal."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
import zmq
from playwright.sync_api import Page, expect, sync_playwright

from calibration.anchor import Anchor
from calibration.camera import Intrinsics
from calibration.store import load, save
from robot_runtime.cli import main
from sim.capture.board_scene import Look, draw_board
from tests.calibration.board_views import FISHEYE, PINHOLE
from tests.calibration.test_anchor import error
from tests.calibration.test_anchor_guide import BOARD, X_WB, X_WcWh, stand
from tests.process.picture_server import PictureServer, jpeg

CAMERAS = {"chest": PINHOLE, "hand": FISHEYE}
CHROMIUM = "/usr/bin/chromium"
PATIENT_MS = 60_000.0
LOOK = Look(blur_px=0.6, supersample=2)
SETTLED_S = 0.6
"""In which the picture of a new place has come from the camera for sure."""


class Worn:
    """A chest and a hand that stand somewhere, or are on their way."""

    def __init__(self, folder: Path) -> None:
        self.cameras = {role: PictureServer(hz=30.0) for role in CAMERAS}
        self.addresses = {role: f"ipc://{folder}/{role}" for role in CAMERAS}
        self._said = {role: (pin.SE3.Identity(), "lost") for role in CAMERAS}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._stream, daemon=True)

    def __enter__(self) -> "Worn":
        for role, camera in self.cameras.items():
            self._show(role, np.full(CAMERAS[role].size, 90, np.uint8))
            camera.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()
        for camera in self.cameras.values():
            camera.__exit__(*error)

    def stand(self, k: int) -> None:
        """At one of many places around the board."""
        self._said = {role: (X, "lost") for role, (X, _) in self._said.items()}
        there = {}
        for role, lens in CAMERAS.items():
            X_CB = stand(tilt=0.6, side=1.3 * k, far=0.6 if role == "chest" else 0.45)
            self._show(role, draw_board(BOARD, lens, X_CB, look=LOOK))
            there[role] = (X_WB if role == "chest" else X_WcWh.inverse() * X_WB) * X_CB.inverse()
        time.sleep(SETTLED_S)
        self._said = {role: (X, "ok") for role, X in there.items()}

    def _show(self, role: str, grey: np.ndarray) -> None:
        picture = jpeg(np.repeat(grey[..., None], 3, axis=2))
        self.cameras[role].spoil = lambda pixels, last: picture

    def _stream(self) -> None:
        context = zmq.Context()
        sockets = {role: context.socket(zmq.PUSH) for role in self.addresses}
        for role, socket in sockets.items():
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.IMMEDIATE, 1)  # nothing is sent before somebody listens
            socket.connect(self.addresses[role])
        while not self._is_over.is_set():
            for role, socket in sockets.items():
                X, tracking = self._said[role]
                q = pin.Quaternion(X.rotation).coeffs()
                said = {
                    "t_ns": time.monotonic_ns(),
                    "p": X.translation.tolist(),
                    "q_wxyz": [q[3], *q[:3]],
                    "tracking": tracking,
                }
                with contextlib.suppress(zmq.Again):  # nobody listens yet, or any more
                    socket.send(json.dumps(said).encode(), zmq.NOBLOCK)
            time.sleep(0.01)
        context.destroy(0)


def rig(folder: Path, worn: Worn) -> Path:
    save(folder / "board.json", BOARD)
    lines = ['board = "board.json"\n']
    for role, lens in CAMERAS.items():
        save(folder / f"{role}.json", Intrinsics(camera=lens))
        url, (h, w) = worn.cameras[role].url, lens.size
        lines.append(
            f'[{role}]\nposes = "{worn.addresses[role]}"\nintrinsics = "{role}.json"\n'
            f'camera = {{driver = "opencv", device = "{url}", size = [{h}, {w}]}}\n'
        )
    (folder / "rig.toml").write_text("".join(lines))
    return folder / "rig.toml"


class Said:
    """What a command has said so far, from a terminal of its own or a pipe."""

    def __init__(self, fd: int) -> None:
        self.text = ""
        self._thread = threading.Thread(target=self._read, args=(fd,), daemon=True)
        self._thread.start()

    def wait(self, words: str, *, begin: int = 0, seconds: float = 60.0) -> str:
        end_s = time.monotonic() + seconds
        while (found := re.search(words, self.text[begin:])) is None:
            assert time.monotonic() < end_s, self.text
            time.sleep(0.02)
        return found.group(found.re.groups)

    def _read(self, fd: int) -> None:
        with contextlib.suppress(OSError):  # the command has ended
            while data := os.read(fd, 4096):
                self.text += data.decode(errors="replace")


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])  # as root
        expect.set_options(timeout=PATIENT_MS)
        page = chromium.new_page()
        page.set_default_timeout(PATIENT_MS)
        yield page
        chromium.close()


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "robot_runtime.cli", *words]


@pytest.mark.long
def test_who_looks_as_a_browser_says_gets_an_anchor(tmp_path: Path, page: Page):
    with Worn(tmp_path) as worn:
        words = ["calibrate", "anchor", "--live", str(rig(tmp_path, worn)), "--page", "127.0.0.1:*"]
        with subprocess.Popen(
            command(*words), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            try:
                assert process.stdout is not None
                said = Said(process.stdout.fileno())
                page.goto(said.wait(r"page: (\S+)"))
                expect(page.locator("#do")).to_have_text(re.compile("chest: look at the board"))
                k = 0
                enough = [rf"{role}: \d+ of 30 views; enough" for role in CAMERAS]
                while process.poll() is None and not all(re.search(each, said.text) for each in enough):
                    before = len(said.text)
                    worn.stand(k)
                    with contextlib.suppress(AssertionError):
                        said.wait("enough|another side", begin=before, seconds=5.0)
                    k += 1
                    assert k < 40, said.text
                expect(page.locator("#do")).to_have_text("usable")
                expect(page.locator("#marks li.there")).to_have_count(2)
                assert process.wait(60.0) == 0, said.text
            finally:
                process.kill()
    off = error(load(tmp_path / "anchor.json", Anchor), X_WcWh)
    assert np.linalg.norm(off[:3]) < 2e-3
    assert "chest: 30 of 30 views" in said.text
    assert "hand: TRACKING LOST" in said.text or "chest: TRACKING LOST" in said.text


@contextlib.contextmanager
def recording(folder: Path, file: Path) -> Iterator[tuple[subprocess.Popen[bytes], Said, int]]:
    """`capture record` in a terminal of its own, and where its keys go."""
    here, there = pty.openpty()
    words = ["capture", "record", str(file), "--output", str(folder / "out")]
    with subprocess.Popen(command(*words), stdin=there, stdout=there, stderr=there) as process:
        try:
            os.close(there)
            yield process, Said(here), here
        finally:
            process.kill()
            os.close(here)


@pytest.mark.long
def test_a_clip_of_a_recording_is_guided_and_judged_when_it_ends(tmp_path: Path):
    with Worn(tmp_path) as worn, recording(tmp_path, rig(tmp_path, worn)) as (process, said, keys):
        said.wait("hand: the rig's file names no tcp")
        said.wait("recording into")
        os.write(keys, b"za")
        said.wait("key z: n begin")
        said.wait("chest: look at the board")
        worn.stand(0)
        said.wait("chest: 5 of 30 views")
        said.wait("hand: 5 of 30 views", seconds=20.0)
        os.write(keys, b"q")  # ends the clip as well
        assert "few-views" in said.wait(r"anchor of hand: (.*\s.*)")
        assert process.wait(60.0) == 1  # no demonstration
    marks = (tmp_path / "out" / "marks.csv").read_text()
    assert re.search("anchor_begin.*\n.*anchor_end,the recording's end", marks), marks


@pytest.mark.long
def test_a_stream_that_does_not_come_is_named_and_key_q_ends_the_waiting(tmp_path: Path):
    with Worn(tmp_path) as worn:
        worn.addresses["hand"] = f"ipc://{tmp_path}/nobody"
        file = rig(tmp_path, worn)
        worn.addresses["hand"] = f"ipc://{tmp_path}/other"
        with recording(tmp_path, file) as (process, said, keys):
            said.wait("hand: no pose yet at ipc://.*nobody")
            os.write(keys, b"q")
            said.wait("nothing was recorded: hand: no pose yet")
            assert process.wait(60.0) == 1
    assert not (tmp_path / "out").exists()


def test_what_is_missing_for_a_live_anchor_is_named_all_at_once(tmp_path: Path, capsys):
    tables = [
        f'[{role}]\nposes = "ipc://{role}"\ncamera = {{driver = "opencv", device = "nothing.mp4"}}\n'
        for role in CAMERAS
    ]
    (tmp_path / "rig.toml").write_text("".join(tables))
    words = ["calibrate", "anchor", "--live", str(tmp_path / "rig.toml")]
    assert main(words) == 1
    error = capsys.readouterr().err
    assert all(f"[{role}] names no intrinsics" in error for role in CAMERAS)
    assert "no board is named" in error
    assert main([*words, "--hand", "left_hand"]) == 1
    assert "left_hand" in capsys.readouterr().err
    assert main([*words, "--same-time"]) == 1
    assert "--same-time is of a capture" in capsys.readouterr().err
    for both_or_none in (["calibrate", "anchor"], [*words, str(tmp_path)]):
        assert main(both_or_none) == 1
        assert "give a capture's folder, or --live" in capsys.readouterr().err
    assert main(["calibrate", "anchor", str(tmp_path), "--page"]) == 1
    assert "--page shows what is seen now" in capsys.readouterr().err
