"""The page of a short run: it is up before anything moves, or the run says that it is not."""

import sys

import pytest

import robot_runtime as rr
from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from policies.scripted import SinePolicy
from robot_runtime.clock import MonotonicClock
from robot_runtime.log.config import LogConfig, Nothing
from robot_runtime.page import run_page
from robot_runtime.page.run_page import RunPage
from tests.process.toy import serving

pytest.importorskip("viser", reason="the page shows the robot with it")
pytestmark = pytest.mark.usefixtures("patient_time")


@pytest.fixture(scope="module")
def address():
    with serving(SinePolicy(), heartbeat_ns=2_000_000_000) as server:
        yield server.address


def run_with(command, address: str, folder) -> tuple[str, list[str], int]:
    """Where the page is when the run begins, what was said by then, and how many ticks there were."""
    said: list[str] = []
    robot = rr.Robot(arm=IdealArm(clock=MonotonicClock()), gripper=IdealGripper(), limits=FR3_LIMITS)
    options = {"control_hz": 100.0, "duration_s": 0.2, "use_fifo": False}
    log = LogConfig(folder=folder, keep=Nothing())
    with rr.Session(robot, policy=address, log=log, **options) as session:
        place = ("127.0.0.1", 0)
        with RunPage(command, session.runner.run_log, session.post, address=place, say=said.append) as page:
            url, before = page.url, list(said)
            for _ in session:
                pass
    return url, before, session.record.num_ticks


def test_the_page_is_up_before_a_short_run_moves(address, tmp_path):
    from robot_runtime.page.process import COMMAND

    url, said, num_ticks = run_with(COMMAND, address, tmp_path)
    assert url.startswith("http://127.0.0.1:")
    assert said == [f"page: {url}"]
    assert num_ticks > 0


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import time; time.sleep(60)", "the page is not up after 0.2 s: the run begins without it"),
        ("raise SystemExit('no screen')", "the page has ended, the run goes on without it: no screen"),
    ],
)
def test_a_run_whose_page_is_not_up_says_so_and_goes_on(address, tmp_path, monkeypatch, code, sentence):
    if "sleep" in code:
        monkeypatch.setattr(run_page, "WAITS_S", 0.2)
    url, said, num_ticks = run_with((sys.executable, "-c", code), address, tmp_path)
    assert (url, said) == ("", [sentence])
    assert num_ticks > 0
