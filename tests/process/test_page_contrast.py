"""Whether a person sees the robot, its plan and its target: pixels of the run page in a real browser."""

import io
import json
import time
from collections.abc import Iterator

import numpy as np
import pytest
import trimesh
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from robot_runtime.page.body import Shape
from robot_runtime.page.picture import BROWSERS
from robot_runtime.page.scene import Scene, _add
from robot_runtime.page.state import PageState
from robot_runtime.page.view import view_of
from robot_runtime.page.web import PageServer

LEAST_RATIO = 3.0
"""Of luminances, for what is no text: WCAG 2.2, 1.4.11."""
WHITE = (0.92, 0.92, 0.9, 1.0)


class NoRun:
    """A page without news."""

    def view(self) -> str:
        return json.dumps(view_of(PageState(), quiet_s=None))

    def pictures(self) -> dict:
        return {}

    def order(self, order: object) -> None: ...

    def play(self, told: object) -> None: ...

    def refuse(self, what: str, why: str) -> None: ...


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as started:
        yield started.chromium.launch(
            executable_path=f"/usr/bin/{BROWSERS[0]}",
            args=["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"],
        )


def luminance(rgb: np.ndarray) -> np.ndarray:
    """Relative, of sRGB (..., 3) from 0 to 255: WCAG 2.2."""
    share = rgb / 255.0
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def pixels(page: Page) -> np.ndarray:
    """The 3D view without what lies over it (H, W, 3)."""
    png = page.locator("#view").screenshot(timeout=120_000.0)
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), float)[60:-20, 20:-180]


def changed(page: Page, before: np.ndarray) -> np.ndarray:
    """The view once something new is drawn in it, and has stayed as it is."""
    deadline_s, last = time.monotonic() + 120.0, before
    while time.monotonic() < deadline_s:
        time.sleep(0.5)
        now = pixels(page)
        if (np.abs(now - before).max(axis=-1) > 12).sum() > 50 and np.array_equal(now, last):
            return now
        last = now
    pytest.fail("nothing new was drawn in 120 s")


def ratio(before: np.ndarray, after: np.ndarray) -> float:
    """Of what is drawn now to what was there, over the pixels of its middle: edges are blended."""
    is_new = np.abs(after - before).max(axis=-1) > 12
    a, b = luminance(before[is_new]), luminance(after[is_new])
    return float(np.median((np.maximum(a, b) + 0.05) / (np.minimum(a, b) + 0.05)))


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_robot_plan_and_target_stand_out_from_the_background(browser: Browser, scheme):
    line = np.linspace([-0.4, -0.5, 0.1], [-0.4, 0.5, 0.6], 20)
    box = trimesh.creation.box((0.25, 0.25, 0.6))
    robot = Shape(link="world", vertices=box.vertices, faces=box.faces, rgba=WHITE)
    with Scene(None) as scene, PageServer("127.0.0.1", 0, NoRun(), scene) as server:
        page = browser.new_page(viewport={"width": 1000, "height": 700}, color_scheme=scheme)
        page.goto(server.url)
        seen = changed(page, np.full_like(pixels(page), -100.0))
        drawn = {
            "plan": lambda: scene.show_plan({"hand/settled": line}),
            "target": lambda: scene.show_plan(
                {"hand/settled": line, "hand/fresh": line + np.array([0.2, 0.0, 0.0])}
            ),
            "robot": lambda: _add(scene._server.scene, "/world/robot", robot),
        }
        found = {}
        for name, draw in drawn.items():
            before = seen
            draw()
            seen = changed(page, before)
            found[name] = ratio(before, seen)
        page.close()
    assert min(found.values()) >= LEAST_RATIO, found
