"""A session: calibration clips around demonstrations, without a jump between them."""

import numpy as np
import pinocchio as pin
import pytest

from sim.capture.clips import anchor_clip, lean_clip, sync_clip, visit, walk_between
from sim.capture.performance import PERIOD_NS, Performance
from sim.capture.person import person_of
from sim.capture.scene import BOARD, PersonScene
from sim.tasks import make_task


@pytest.fixture(scope="module")
def session() -> list[Performance]:
    scene, person = PersonScene(make_task("fetch")), person_of(3)
    start, later = [-1.5, 0.2, 1.0], [-1.2, -0.4, 0.3]
    clips = [anchor_clip(scene, person, 5, x=start, stations=3), sync_clip(scene, person, 5, x=start)]
    clips.append(lean_clip(scene, person, 5, x=later))
    return [*clips[:2], walk_between(scene, person, clips[1], clips[2]), clips[2]]


def _of(session: list[Performance], kind: str) -> list[Performance]:
    return [clip for clip in session if clip.kind == kind]


@pytest.mark.long
def test_nothing_jumps_from_clip_to_clip(session):
    for p in (np.concatenate([clip.X_WC.p for clip in session]), np.concatenate([c.X_WE.p for c in session])):
        speed = np.linalg.norm(np.diff(p, axis=0), axis=1) / (PERIOD_NS / 1e9)
        assert speed.max() < 2.0
        assert np.abs(np.diff(speed)).max() < 0.1


def test_both_cameras_see_the_board_from_aside(session):
    clip = _of(session, "anchor")[0]
    middle = clip.board.act(BOARD.centre_B)
    half = len(clip.t_ns) // 2
    for path, times in (
        (clip.X_WC, range(0, half, 50)),
        (clip.X_WH, range(half + 400, len(clip.t_ns) - 400, 50)),
    ):
        off = [
            np.degrees(np.arccos(path[i].actInv(middle)[2] / np.linalg.norm(path[i].actInv(middle))))
            for i in times
        ]
        to_camera = np.array([path[i].translation for i in times]) - middle
        tilt = np.degrees(np.arccos(to_camera[:, 2] / np.linalg.norm(to_camera, axis=1)))
        assert max(off) < 40.0
        assert np.median(tilt) > 20.0


def test_hand_and_chest_turn_alike_while_they_are_pressed_together(session):
    clip = _of(session, "sync")[0]
    for i in range(500, 2000, 250):
        turns = [pin.log3(path[i].rotation.T @ path[i + 1].rotation) for path in (clip.X_WC, clip.X_WH)]
        assert np.linalg.norm(turns[0]) == pytest.approx(np.linalg.norm(turns[1]), abs=1e-9)


def test_the_spine_leans_about_the_hips(session):
    clip = _of(session, "lean")[0]
    hips = np.array([(clip.X_WC[i] * clip.X_TC.inverse()).translation for i in range(0, len(clip.t_ns), 50)])
    assert np.ptp(hips, axis=0).max() < 0.01
    assert np.ptp(clip.X_WC.p[:, 0]) + np.ptp(clip.X_WC.p[:, 1]) > 0.15


def test_without_a_demonstration_there_is_no_session():
    with pytest.raises(ValueError, match="at least one demonstration"):
        visit("fetch", [])
