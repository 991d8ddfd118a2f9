"""What looks at the board while an anchor is recorded says what ended it, and keeps nothing afterwards."""

import weakref

import numpy as np
import pytest

from calibration.anchor_guide import AnchorGuide, AnchorLook
from calibration.capture.stream import PoseSample
from calibration.commands.capture.anchor_watch import AnchorClip, AnchorWatch
from calibration.commands.capture.rig import Rig
from calibration.commands.capture.streams import Arrival
from calibration.store import save
from calibration.trajectory import OK
from robot_runtime.core.values.state import Image
from sim.capture.board_scene import draw_board
from tests.calibration.test_anchor_guide import BOARD, CAMERAS, PERIOD_NS, stand

AROUND = 20
"""Poses before and after a picture."""


def arrivals(k: int, role: str) -> list[Arrival]:
    """A device that stands at one of many places: a picture, and poses around it."""
    X_CB = stand(tilt=0.6, side=1.3 * k, far=0.45)
    begin_ns = k * 100 * PERIOD_NS
    out = [
        Arrival(role=role, t_ns=t_ns, what=PoseSample(t_ns=t_ns, X_WC=X_CB.inverse(), tracking=OK))
        for t_ns in range(begin_ns, begin_ns + 2 * AROUND * PERIOD_NS, PERIOD_NS)
    ]
    t_ns = begin_ns + AROUND * PERIOD_NS
    grey = draw_board(BOARD, CAMERAS[role], X_CB)
    picture = Image(t_ns=t_ns, pixels=np.repeat(grey[..., None], 3, axis=2))
    out.insert(AROUND, Arrival(role=role, t_ns=t_ns, what=picture))
    return out


def ended_by(watch: AnchorWatch, error: str) -> None:
    """Waits for its thread."""
    watch._thread.join()
    assert watch.is_over
    assert str(watch.error) == error


def failing(guide: AnchorGuide, look: AnchorLook) -> None:
    raise OSError("nobody shows it")


def test_what_ends_the_looking_is_kept_and_what_comes_afterwards_is_not():
    watch = AnchorWatch(BOARD, CAMERAS, failing)
    for each in arrivals(0, "chest"):
        watch.tell(each)
    ended_by(watch, "nobody shows it")
    late = arrivals(1, "chest")
    for each in late:
        watch.tell(each)
    kept = [weakref.ref(each.what) for each in late if isinstance(each.what, PoseSample)]
    del late, each
    assert [ref() for ref in kept if ref() is not None] == []
    watch.close()


@pytest.mark.parametrize("told_after", [1, 30])
def test_a_clip_says_once_that_nobody_looks_any_more_and_goes_on(tmp_path, told_after):
    save(tmp_path / "board.json", BOARD)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        if "views" in text:
            raise ValueError("the terminal is gone")

    clip = AnchorClip(Rig(devices={}, more={"board": str(tmp_path / "board.json")}), CAMERAS, say)
    clip.begin()
    watch = clip._watch
    assert watch is not None
    for each in arrivals(0, "chest"):
        watch.tell(each)
    ended_by(watch, "the terminal is gone")
    for each in arrivals(1, "chest")[:told_after]:
        clip.tell(each)
    lines = [text for text in said if text.startswith("the anchor clip is no longer checked live")]
    assert lines == ["the anchor clip is no longer checked live: ValueError: the terminal is gone"]
    assert clip.end() is None
