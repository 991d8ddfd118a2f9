"""The page of a phone or a headset, in a real browser: a touch screen for real, a made-up XR device."""

import time
from dataclasses import replace

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from drivers.webxr import WebXrTeleoperator
from robot_runtime.core.orders import BeginEpisode, Reset, Stop
from robot_runtime.core.safety import Mode
from robot_runtime.core.teleop import LeadableParts, LedRun
from robot_runtime.errors import DriverError, InvalidValueError
from tests.process.waiting import wait_until

ROBOT = LeadableParts(
    arms=("left_arm", "right_arm"),
    hands=("left_arm", "right_arm"),
    grippers=("left_gripper", "right_gripper"),
    bases=("base",),
)
FAKE_XR = """
(() => {
  delete window.XRWebGLLayer;
  const world = window.xr = { left: [0, 1, 0], right: [0, 1, 0], squeeze: 0, trigger: 0,
    axes: [0, 0, 0, 0], runs: true };
  const source = (side) => ({ handedness: side, gripSpace: side, gamepad: {
    get buttons() { return [0, 1, 2, 3, 4, 5].map((i) => ({ pressed: i === 1 && world.squeeze > 0,
      value: i === 0 ? world.trigger : 0 })); }, get axes() { return world.axes; } } });
  const pose = (p) => ({ transform: { position: { x: p[0], y: p[1], z: p[2] },
    orientation: { w: 1, x: 0, y: 0, z: 0 } } });
  class Session extends EventTarget {
    inputSources = [source('left'), source('right')];
    visibilityState = 'visible';
    updateRenderState() {}
    requestReferenceSpace() { return Promise.resolve('local'); }
    requestAnimationFrame(f) { setTimeout(() => world.runs ? f(0, { getPose: (space) => pose(world[space]),
      getViewerPose: () => pose([0, 0, 0]) }) : this.requestAnimationFrame(f), 11); }
    end() { this.dispatchEvent(new Event('end')); return Promise.resolve(); }
  }
  Object.defineProperty(navigator, 'xr', { configurable: true, value: {
    isSessionSupported: (mode) => Promise.resolve(mode === 'immersive-vr'),
    requestSession: () => Promise.resolve(new Session()) } });
})();
"""


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as p:
        found = p.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def webxr():
    """Over https with the certificate that it makes."""
    made = WebXrTeleoperator(host="0.0.0.0", port=0, speed=0.2)
    made.open(ROBOT)
    yield made
    made.close()


@pytest.fixture
def opened(browser, webxr):
    """Pages of phones, closed in the end."""
    contexts = []

    def open_page(script=""):
        context = browser.new_context(
            ignore_https_errors=True, has_touch=True, viewport={"width": 740, "height": 360}
        )
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(script)
        page.goto(webxr.urls[-1])
        return page

    yield open_page
    for context in contexts:
        context.close()
    wait_until(lambda: webxr._child.report().page == "")


def state(page, text):
    wait_until(lambda: page.inner_text("#state") == text)


class Finger:
    """On a page's screen, through the browser's own input."""

    def __init__(self, page):
        self._session = page.context.new_cdp_session(page)

    def down(self, x, y):
        self._send("touchStart", {"x": x, "y": y})

    def move(self, x, y):
        self._send("touchMove", {"x": x, "y": y})

    def up(self):
        self._send("touchEnd")

    def _send(self, kind, *points):
        self._session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": list(points)})


def test_fingers_on_a_phone_without_webxr_lead_the_hand_and_let_it_go(opened, webxr):
    page = opened()
    state(page, "ready")
    box = page.locator("#left").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    finger = Finger(page)
    finger.down(x, y)
    finger.move(x, y - box["height"] / 2)
    lead = wait_until(lambda: (lead := webxr.read()).engaged.get("left_arm") and lead)
    wait_until(lambda: abs(webxr.read().parts["left_arm"].v[0] - 0.2) < 1e-3)
    assert time.monotonic_ns() - webxr.read().t_ns < 250_000_000
    assert lead.parts["left_gripper"].speed == 0.0
    state(page, "you lead")
    finger.up()
    wait_until(lambda: not webxr.read().engaged["left_arm"])
    page.click("#base")
    finger.down(x, y - box["height"] / 3)
    wait_until(lambda: webxr.read().engaged.get("base"))
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
                  "document.dispatchEvent(new Event('visibilitychange'))")  # fmt: skip
    wait_until(lambda: not webxr.read().engaged["base"])  # it fell asleep with a finger on it


def test_the_page_says_what_the_robot_does_and_not_what_a_finger_wants(opened, webxr):
    page = opened()
    state(page, "ready")
    stopped = LedRun(
        mode=Mode.STOP, cause="a stop was asked for", led=(), episode="kept, success", refused=""
    )
    webxr.show_run(stopped)
    state(page, "STOP: a stop was asked for")
    assert page.get_attribute("#state", "class") == "no"
    assert "kept, success" in page.inner_text("#note")
    page.click("[data-order=reset]")
    assert wait_until(lambda: webxr.read().orders) == (Reset(),)
    webxr.show_run(replace(stopped, mode=Mode.HOLD, cause="the robot is not armed", refused="it is warm"))
    state(page, "not armed")
    assert page.inner_text("#note").startswith("refused: it is warm")
    webxr.open(ROBOT)  # nothing is known of the next run
    state(page, "ready")


def test_a_second_page_is_told_and_drives_once_the_first_has_gone_and_anybody_may_stop(opened, webxr):
    first, second = opened(), None
    state(first, "ready")
    second = opened()
    state(second, "another page leads")
    second.click("[data-order=stop]")
    assert wait_until(lambda: webxr.read().orders) == (Stop(),)
    first.click("[data-order=begin]")
    assert wait_until(lambda: webxr.read().orders) == (BeginEpisode(),)
    first.close()
    state(second, "ready")


def test_controllers_lead_both_arms_and_the_base_and_a_headset_that_freezes_is_stale(opened, webxr):
    page = opened(FAKE_XR)
    state(page, "ready")
    page.click("#xr")
    page.evaluate("xr.squeeze = 1; xr.trigger = 0.25; xr.axes = [0, 0, -1, -1]")
    lead = wait_until(lambda: (lead := webxr.read()).engaged.get("right_arm") and lead)
    assert lead.engaged == dict.fromkeys((*ROBOT.hands, *ROBOT.grippers, "base"), True)
    assert lead.parts["right_gripper"].opening == 0.75
    np.testing.assert_allclose(lead.parts["base"].V_WB_B, [0.4, 0.4, 0.8], atol=1e-9)
    before = lead.parts["right_arm"].X_LH
    page.evaluate("xr.right = [0.0, 1.3, -0.2]")
    up_and_ahead = lambda: webxr.read().parts["right_arm"].X_LH.translation - before.translation  # noqa: E731
    wait_until(lambda: np.allclose(up_and_ahead(), [0.2, 0.0, 0.3]))
    page.evaluate("xr.runs = false")
    wait_until(lambda: time.monotonic_ns() - webxr.read().t_ns > 250_000_000)  # `Leading` lets go


def test_without_its_token_nobody_gets_in(browser, webxr):
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    for url in (webxr.urls[-1].split("?")[0], webxr.urls[-1] + "x"):
        assert page.goto(url).status == 403
    assert page.goto(webxr.urls[-1].replace("/?", "/other?")).status == 404
    context.close()


def test_what_is_no_option_and_a_port_that_is_taken_are_refused(webxr):
    port = int(webxr.urls[-1].split(":")[2].split("/")[0])
    with pytest.raises(DriverError, match=f"port {port} cannot be served: Address already in use"):
        WebXrTeleoperator(host="127.0.0.1", port=port)
    for options, words in (
        ({"port": -1}, "port is from 0"),
        ({"token": "short"}, "token is 8 letters"),
        ({"certificate": "a.pem"}, "given together"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            WebXrTeleoperator(**options)
