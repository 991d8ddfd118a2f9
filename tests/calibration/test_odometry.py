"""A board tells of odometry: its scale, its drift, and whether the board itself was moved."""

from types import SimpleNamespace

import numpy as np
import pinocchio as pin
import pytest

from calibration.capture.odometry import moved_between, moved_in_clip, scales, switch
from calibration.trajectory import OK, Trajectory

S = 1_000_000_000
MOVE = np.array([0.05, 0.0, 0.0])


def path(metres: float, *, jump_s: float | None = None) -> Trajectory:
    """A device that walks ahead within 60 s."""
    t_ns = np.arange(0, 60 * S, S // 50)
    p = np.zeros((len(t_ns), 3))
    p[:, 0] = metres * t_ns / (60 * S)
    if jump_s is not None:
        p[t_ns >= jump_s * S] += MOVE
    q = np.tile([1.0, 0.0, 0.0, 0.0], (len(t_ns), 1))
    return Trajectory(t_ns=t_ns, p=p, q=q, tracking=np.full(len(t_ns), OK, dtype=np.uint8))


def seen(at: int, num: int, scatter_m: float = 0.003) -> np.ndarray:
    """The board's positions by num views, moved from view number `at` on."""
    p = np.random.default_rng(num).normal(0.0, scatter_m, (num, 3))
    p[at:] += MOVE
    return p


@pytest.mark.parametrize("at", [4, 10, 20])
def test_the_view_from_which_on_a_board_is_elsewhere_is_found(at):
    found = switch(np.arange(30), seen(at, 30))
    assert found is not None
    row, move = found
    assert row == at
    np.testing.assert_allclose(move, MOVE, atol=0.006)


def test_views_that_scatter_or_are_few_are_no_move():
    assert switch(np.arange(30), seen(30, 30)) is None
    assert switch(np.arange(30), seen(10, 30, scatter_m=0.03)) is None
    assert switch(np.arange(6), seen(3, 6)) is None


@pytest.mark.parametrize(("jump_s", "name"), [(None, "board-moved"), (10.0, "odometry-jump")])
def test_a_jump_of_the_pose_is_told_from_a_board_that_was_moved(jump_s, name):
    t_ns = np.arange(30) * S // 2 + 5 * S
    reason = moved_in_clip("hand", 0, t_ns, seen(10, 30), path(0.1, jump_s=jump_s), int(t_ns[0]))
    assert reason is not None
    assert reason.name == name
    assert "from 5.0 s into anchor clip 1 on" in reason.what


def between(of_chest: np.ndarray, of_hand: np.ndarray, *, metres: float = 2.0) -> set[str]:
    """What is said of a board that each device saw elsewhere in the second clip."""
    X_WcWh = pin.SE3(pin.utils.rotate("z", 1.0), np.array([1.0, 2.0, 0.0]))
    boards = {
        role: {0: (S, pin.SE3.Identity()), 1: (59 * S, pin.SE3(np.eye(3), move))}
        for role, move in (("chest", of_chest), ("hand", X_WcWh.rotation.T @ of_hand))
    }
    devices = {role: SimpleNamespace(role=role, poses=path(metres)) for role in boards}
    return {reason.name for reason in moved_between(boards, devices, {"hand": X_WcWh})}


def test_a_move_that_both_devices_saw_is_the_board_s_and_one_that_one_saw_is_drift():
    none = np.zeros(3)
    assert between(none, none) == set()
    assert between(MOVE, MOVE + np.array([0.0, 0.01, 0.0])) == {"board-moved"}
    assert between(3.0 * MOVE, none) == {"odometry-drift"}
    assert between(none, 3.0 * MOVE) == {"odometry-drift"}
    assert between(none, MOVE, metres=20.0) == set()  # usual after 20 m


@pytest.mark.parametrize(
    ("found", "name", "role"),
    [
        ({"chest": [1.0, 1.01], "hand": [1.01]}, None, None),
        ({"chest": [0.97, 0.97], "hand": [0.97, 0.98]}, None, None),  # a board that was printed smaller
        ({"chest": [1.0], "hand": [0.94, 0.94]}, "odometry-scale", "hand"),
        ({"chest": [1.08], "hand": [1.0]}, "odometry-scale", "chest"),
        ({"chest": [1.0], "hand": [1.03, 1.11]}, "scale-drift", "hand"),
    ],
)
def test_a_scale_that_is_one_device_s_alone_is_its_odometry_s(found, name, role):
    reasons = scales(found)
    assert [reason.name for reason in reasons] == ([name] if name else [])
    assert all(reason.what.startswith(f"{role}:") and reason.is_fatal for reason in reasons)
