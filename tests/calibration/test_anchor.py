"""An anchor is found by two devices that look at one board, is as sure as it says, and says what is wrong."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest

from calibration.anchor import Anchor, AnchorConfig, DeviceViews, View, closure, solve_anchor
from calibration.board import Board
from calibration.store import load, save
from robot_runtime.errors import InvalidValueError
from tests.calibration.board_views import FISHEYE, PINHOLE, corners_from

BOARD = Board(columns=7, rows=5, square_m=0.05, marker_m=0.035)
UP = pin.exp3(np.array([np.pi, 0.0, 0.0]))
"""A board that lies on the floor, z into it."""
SOME = [0, 1, 2, 5]


def looks(rng, camera, X_VB, *, num, tilts, noise_px, vio_m=0.0, printed=BOARD) -> DeviceViews:
    """A device that holds still at five places; vio_m: its odometry trembles by that [m], half as [rad]."""
    views = []
    for k in range(num):
        if k % 5 == 0:
            tilt, side, spin = rng.uniform(*tilts), rng.uniform(-np.pi, np.pi), rng.uniform(-0.4, 0.4)
            far = rng.uniform(0.4, 0.7) * (1.0 if camera is PINHOLE else 0.5)
        R = pin.exp3(np.array([0, 0, spin])) @ pin.exp3(tilt * np.array([np.cos(side), np.sin(side), 0.0]))
        X_CB = pin.SE3(R, np.array([*rng.normal(0, 0.02, 2), far]) - R @ BOARD.centre_B)
        corners = corners_from(camera, printed, X_CB, rng, noise_px=noise_px)
        trembling = pin.SE3(pin.exp3(rng.normal(0, vio_m / 2, 3)), rng.normal(0, vio_m, 3))
        views.append(View(t_ns=k * 100_000_000, corners=corners, X_WC=X_VB * X_CB.inverse() * trembling))
    return DeviceViews(camera=camera, views=views)


def made(
    seed, *, num=20, tilts=(0.45, 0.85), noise_px=0.1, vio_m=0.0, printed=BOARD, camera=FISHEYE, tilt_hand=0.0
):
    """(what the chest saw, what the hand saw, X_WcWh)"""
    rng = np.random.default_rng(seed)
    X_WB = pin.SE3(UP @ pin.exp3(rng.normal(0, 0.05, 3)), np.array([0.5, 0.2, 0.0]))
    worlds = [
        pin.SE3(pin.exp3(np.array([0, 0, rng.uniform(-3, 3)])), rng.uniform(-2, 2, 3)) for _ in range(2)
    ]
    worlds[1] = pin.SE3(pin.exp3(np.array([tilt_hand, 0, 0])), np.zeros(3)) * worlds[1]
    sides = [
        looks(rng, c, X_VW * X_WB, num=num, tilts=tilts, noise_px=noise_px, vio_m=vio_m, printed=printed)
        for c, X_VW in zip((PINHOLE, camera), worlds, strict=True)
    ]
    return *sides, worlds[0] * worlds[1].inverse()


def error(anchor: Anchor, X_WcWh: pin.SE3) -> np.ndarray:
    there = X_WcWh * anchor.X_WcWh.inverse()
    o = anchor.X_WcB.translation
    return np.concatenate([there.act(o) - o, pin.log3(there.rotation)])


def test_an_anchor_of_clean_views_is_exact_and_trusted():
    chest, hand, X_WcWh = made(1, num=30, noise_px=0.06)
    anchor = solve_anchor(BOARD, chest, hand)
    e = error(anchor, X_WcWh)
    assert np.linalg.norm(e[:3]) < 5e-4  # m
    assert np.linalg.norm(e[3:]) < np.deg2rad(0.05)
    assert anchor.verdict.ok, str(anchor.verdict)
    assert anchor.residuals["held_out_px"] < 0.2


def test_an_anchor_is_as_sure_as_it_says():
    nees = []
    for seed in range(4):
        chest, hand, X_WcWh = made(seed, noise_px=0.3, vio_m=0.002)
        anchor = solve_anchor(BOARD, chest, hand)
        e = error(anchor, X_WcWh)[SOME]
        nees.append(e @ np.linalg.solve(anchor.covariance[np.ix_(SOME, SOME)], e) / 4)
    assert 0.4 < np.mean(nees) < 2.5  # of 4 draws


def test_views_from_the_front_are_refused_by_name():
    chest, hand, _ = made(2, tilts=(0.0, 0.12), noise_px=0.3, vio_m=0.001)
    verdict = solve_anchor(BOARD, chest, hand).verdict
    assert not verdict.ok
    assert "frontal-views" in verdict.names


def test_a_print_at_98_per_cent_is_seen_by_odometry():
    printed = replace(BOARD, square_m=0.049, marker_m=0.0343)
    chest, hand, _ = made(3, printed=printed, noise_px=0.2, vio_m=0.001)
    anchor = solve_anchor(BOARD, chest, hand)
    reason = next(each for each in anchor.verdict.reasons if each.name == "board-scale")
    assert "2.0 % smaller" in reason.what or "1.9 % smaller" in reason.what
    assert not anchor.verdict.ok
    assert "board-scale" not in solve_anchor(BOARD.measured(0.098, 0.1), chest, hand).verdict.names


@pytest.mark.parametrize("by_m", [0.02, 0.3])
def test_a_board_that_was_moved_between_two_views_is_named(by_m):
    chest, hand, _ = made(4, noise_px=0.1)
    moved = pin.SE3(np.eye(3), np.array([by_m, 0.0, 0.0]))
    views = [replace(v, X_WC=moved * v.X_WC) if v.t_ns > 1_200_000_000 else v for v in hand.views]
    verdict = solve_anchor(BOARD, chest, replace(hand, views=views)).verdict
    assert not verdict.ok
    assert "board-moved" in verdict.names


def test_a_board_that_was_moved_between_the_two_looks_is_seen_in_pictures_of_the_same_time():
    chest, hand, _ = made(4, noise_px=0.1)
    again = replace(hand, views=[replace(v, t_ns=v.t_ns + 10**10) for v in hand.views])
    moved = pin.SE3(np.eye(3), np.array([0.05, 0.0, 0.0]))
    late = [replace(v, X_WC=moved * v.X_WC) for v in hand.views]
    config = AnchorConfig(hand_time=lambda t_ns: t_ns)
    assert "forms-differ" not in solve_anchor(BOARD, chest, hand, config).verdict.names
    both = replace(hand, views=[*late[:8], *again.views])  # a few at the same time, most later
    assert "forms-differ" in solve_anchor(BOARD, chest, both, config).verdict.names


def test_pictures_of_the_same_time_alone_give_an_anchor_while_the_board_is_moved_about():
    chest, hand, X_WcWh = made(5, num=40, noise_px=0.1)
    ways = [pin.SE3(pin.exp3(np.array([0, 0, 0.01 * k])), np.array([0.01 * k, 0.0, 0.0])) for k in range(40)]
    X_WhWc = X_WcWh.inverse()
    moving_chest = [replace(v, X_WC=way * v.X_WC) for way, v in zip(ways, chest.views, strict=True)]
    moving_hand = [
        replace(v, X_WC=X_WhWc * way * X_WcWh * v.X_WC) for way, v in zip(ways, hand.views, strict=True)
    ]
    anchor = solve_anchor(
        BOARD,
        replace(chest, views=moving_chest),
        replace(hand, views=moving_hand),
        AnchorConfig(hand_time=lambda t_ns: t_ns, at_the_same_time=True),
    )
    assert np.linalg.norm(error(anchor, X_WcWh)[:3]) < 2e-3  # m
    assert "board-moved" not in anchor.verdict.names


def test_worlds_whose_verticals_differ_are_refused_and_kept_with_why(tmp_path):
    chest, hand, _ = made(6, tilt_hand=np.deg2rad(2.0))
    anchor = solve_anchor(BOARD, chest, hand)
    assert "gravity" in anchor.verdict.names
    assert not anchor.verdict.ok
    save(tmp_path / "anchor.json", anchor)
    assert load(tmp_path / "anchor.json", Anchor, even_refused=True).verdict == anchor.verdict


def test_two_anchors_close_and_drift_between_them_is_measured():
    first = solve_anchor(BOARD, *made(7, noise_px=0.1)[:2])
    chest, hand, _ = made(7, noise_px=0.1)
    drift = pin.SE3(pin.exp3(np.array([0.0, 0.0, 0.01])), np.array([0.02, 0.0, 0.0]))
    last = solve_anchor(
        BOARD, replace(chest, views=[replace(v, X_WC=drift * v.X_WC) for v in chest.views]), hand
    )
    assert closure(first, first).distance_m == pytest.approx(0.0, abs=1e-9)
    found = closure(first, last)
    assert found.yaw == pytest.approx(0.01, abs=1e-3)
    assert found.sigmas > 3


def test_an_anchor_is_the_same_after_its_file(tmp_path):
    chest, hand, _ = made(1)
    anchor = solve_anchor(BOARD, chest, hand)
    save(tmp_path / "anchor.json", anchor)
    again = load(tmp_path / "anchor.json", Anchor)
    assert again.X_WcWh.isApprox(anchor.X_WcWh, 1e-12)
    np.testing.assert_allclose(again.covariance, anchor.covariance)
    assert again.to_dict()["residuals"] == anchor.to_dict()["residuals"]


def test_no_valid_view_and_a_wrong_size_are_said():
    chest, hand, _ = made(1)
    with pytest.raises(InvalidValueError, match="hand: no valid view of the board among 0 images"):
        solve_anchor(BOARD, chest, replace(hand, views=[]))
    with pytest.raises(InvalidValueError, match="hand: the camera was calibrated at 240x240"):
        solve_anchor(BOARD, chest, replace(hand, camera=FISHEYE.resized((240, 240))))


def test_a_device_that_looks_from_one_side_alone_is_said():
    chest, hand, _ = made(1, num=30, noise_px=0.2)
    both = solve_anchor(BOARD, chest, hand).verdict
    assert "one-side" not in both.names
    from_there = replace(hand, views=[replace(view, t_ns=k) for k, view in enumerate(6 * hand.views[:5])])
    reason = next(r for r in solve_anchor(BOARD, chest, from_there).verdict.reasons if r.name == "one-side")
    assert "The hand looked from one side" in reason.what
    assert not reason.is_fatal
