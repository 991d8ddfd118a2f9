"""A pose stream is read or refused with a reason, and lost tracking is said at once."""

import json

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.capture.stream import DoubleClose, Offset, PictureWatch, PoseSample, TrackingWatch, sample_of
from calibration.trajectory import LOST, OK
from robot_runtime.errors import InvalidValueError

MS = 1_000_000
GOOD = {"t_ns": 5, "p": [1.0, 2.0, 3.0], "q_wxyz": [1.0, 0.0, 0.0, 0.0]}
EYE = np.eye(4).ravel().tolist()


def sample(tracking: int = OK) -> PoseSample:
    return PoseSample(t_ns=0, X_WC=pin.SE3.Identity(), tracking=tracking)


def test_both_forms_of_a_message_are_read():
    found = sample_of(json.dumps(GOOD | {"tracking": "lost", "width_m": 0.05, "w": [1, 2, 3]}).encode())
    assert (found.t_ns, found.tracking, found.width_m, found.w) == (5, LOST, 0.05, (1.0, 2.0, 3.0))
    assert found.X_WC.translation.tolist() == [1.0, 2.0, 3.0]
    X = pin.SE3(np.eye(3), np.array([1.0, 2.0, 3.0]))  # ARKit: y up
    said = {"timestamp": 0.25, "transform": X.homogeneous.T.ravel().tolist(), "trackingState": "normal"}
    found = sample_of(json.dumps(said).encode())
    assert found.t_ns == 250 * MS
    assert found.X_WC.translation.tolist() == pytest.approx([1.0, -3.0, 2.0])


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"\xff\x00", "JSON"),
        (b"[1]", "a JSON object"),
        (json.dumps(GOOD | {"t_ns": 1.5}).encode(), "whole nanoseconds"),
        (json.dumps(GOOD | {"q_wxyz": [1, 1, 1, 1]}).encode(), "unit quaternion"),
        (json.dumps(GOOD | {"p": [1, 2]}).encode(), "p of 3"),
        (json.dumps(GOOD | {"tracking": "fine"}).encode(), "ok"),
        (json.dumps(GOOD | {"width_m": 80}).encode(), "0 to 0.5 m"),
        (b'{"timestamp": 1, "transform": [1, 2]}', "16 numbers"),
        (b"[" * 60_000, "JSON"),
        (json.dumps(GOOD | {"tracking": []}).encode(), "ok"),
        (json.dumps(GOOD | {"w": [float("nan"), 0, 0]}).encode(), "w of 3 finite"),
        (json.dumps(GOOD | {"p": [10**400, 0, 0]}).encode(), "p of 3"),
        (json.dumps(GOOD | {"w": [10**400, 0, 0]}).encode(), "w of 3"),
        (json.dumps(GOOD | {"t_ns": 2**63 - 1}).encode(), "whole nanoseconds"),
        (json.dumps({"transform": EYE}).encode(), "timestamp in seconds"),
        (json.dumps({"timestamp": 1e300, "transform": EYE}).encode(), "timestamp in seconds"),
        (json.dumps({"timestamp": 10**400, "transform": EYE}).encode(), "timestamp in seconds"),
        (json.dumps({"timestamp": 1, "transform": EYE, "trackingState": []}).encode(), "trackingState"),
    ],
)
def test_a_message_that_is_no_pose_is_refused_with_a_reason(message, said):
    with pytest.raises(InvalidValueError, match=said):
        sample_of(message)


@given(st.binary(max_size=60))
def test_garbage_raises_only_what_is_meant_for_people(message):
    with pytest.raises(InvalidValueError):
        sample_of(message)


def test_lost_tracking_silence_and_its_end_are_said_once_each():
    watch, said = TrackingWatch("hand"), []
    steps = [
        (0, sample()),
        (10, sample(LOST)),
        (20, sample(LOST)),
        (30, sample()),
        *((t_ms, None) for t_ms in range(80, 481, 100)),
        (500, sample()),
    ]
    for t_ms, seen in steps:
        line = watch.look(seen, t_ms * MS + 1)
        said += [(t_ms, line)] if line else []
    assert said == [
        (10, "hand: TRACKING LOST"),
        (30, "hand: tracking is back"),
        (380, "hand: NO POSES"),
        (500, "hand: tracking is back"),
    ]


def test_who_looks_late_himself_does_not_call_a_device_silent():
    watch = TrackingWatch("hand")
    assert watch.look(sample(), 10 * MS) is None
    assert watch.look(None, 3000 * MS) is None
    assert watch.look(sample(), 3010 * MS) is None


def test_a_camera_that_gives_no_pictures_any_more_is_said_once_and_so_is_its_return():
    watch, said = PictureWatch("chest"), []
    for t_ms in range(0, 4000, 100):
        line = watch.look(0 if 500 < t_ms < 3000 else 3, t_ms * MS)
        said += [(t_ms, line)] if line else []
    assert said == [(1600, "chest: NO IMAGES"), (3000, "chest: images are back")]


def test_a_place_that_no_person_gets_to_is_refused():
    far = json.dumps({"t_ns": 1, "p": [1e200, 0, 0], "q_wxyz": [1, 0, 0, 0]}).encode()
    with pytest.raises(InvalidValueError, match="within 10000 m"):
        sample_of(far)


def test_the_gripper_closed_twice_is_a_gesture_and_once_or_slowly_is_none():
    def finished(widths: list[tuple[int, float]]) -> list[int]:
        gesture = DoubleClose()
        return [t for t, width in widths if gesture.look(t * MS, width)]

    once = [(0, 0.08), (100, 0.0), (200, 0.08)]
    assert finished(once) == []
    assert finished([*once, (500, 0.0), (600, 0.08)]) == [500]
    assert finished([*once, (1500, 0.0)]) == []
    assert finished([(0, 0.08), (100, 0.0), (200, 0.015), (300, 0.0)]) == []  # it trembles, closed


def test_the_quickest_message_says_how_far_the_clocks_are_apart_and_then_it_stays():
    offset = Offset(for_ns=100 * MS)
    for t_ms, late_ms in ((0, 9), (50, 3), (95, 7), (200, 1)):
        offset.hear(t_ms * MS, (1000 + t_ms + late_ms) * MS)
    assert offset.is_known(1201 * MS)
    assert offset.here(0) == 1003 * MS
