"""What both odometries are off by, by anchors, tags and how far the devices went."""

import numpy as np
import pinocchio as pin
import pytest

from calibration.camera import Pinhole
from calibration.labels.demonstration import in_frame
from calibration.labels.graph import Corrected, correct, jumps
from calibration.labels.sightings import TagSights
from calibration.labels.values import Drift
from calibration.trajectory import LOST, Trajectory
from robot_runtime.errors import InvalidValueError
from tests.calibration.labels.walk import Walk, odometry, tie, walk, world

DRIFT = Drift(walk_m=0.005, walk_rad=0.002, tilt_rad=1e-3, noise_m=1e-4, noise_rad=1e-4)
CAMERA = Pinhole(size=(960, 1280), fx=640.0, fy=640.0, cx=639.5, cy=479.5)
SQUARE = 0.024 * np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]])


def corrected(chest, hand, ties, tags=None, drift=DRIFT) -> Corrected:
    return correct(chest, hand, ties, tags, drifts=(drift, drift), node_s=0.2, clock_sigma_s=1e-3)


def hand_in_chest(chest, hand, ties, found: Corrected) -> Trajectory:
    return in_frame(found.chest.of(chest), found.hand.of(hand.before(ties[0].level)))


def devices(
    truth: Walk, seed: int, drift: Drift = DRIFT
) -> tuple[Trajectory, Trajectory, np.random.Generator]:
    rng = np.random.default_rng(seed)
    walked = {"walk_m": drift.walk_m, "walk_rad": drift.walk_rad}
    chest = odometry(truth.chest, world(rng), rng, **walked)
    return chest, odometry(truth.camera, world(rng), rng, **walked), rng


def off(truth: Walk, found: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """[m] and [rad], of each pose."""
    true = in_frame(truth.chest, truth.camera)
    turned = [np.linalg.norm(pin.log3(a @ b.T)) for a, b in zip(found.R, true.R, strict=True)]
    return np.linalg.norm(found.p - true.p, axis=1), np.array(turned)


def test_without_drift_the_hand_in_the_chest_is_what_it_was():
    truth = walk(3, seconds=8.0)
    chest, hand, rng = devices(truth, 3, Drift(walk_m=0.0, walk_rad=0.0))
    ties = [tie(truth, chest, hand, 0, rng=rng)]
    metres, turned = off(truth, hand_in_chest(chest, hand, ties, corrected(chest, hand, ties)))
    assert metres.max() < 1e-4
    assert turned.max() < 1e-4


def test_an_anchor_at_the_end_is_met_and_what_it_contradicts_is_spread_by_the_way():
    truth = walk(4, seconds=20.0)
    chest, hand, rng = devices(truth, 4)
    ties = [tie(truth, chest, hand, i, rng=rng) for i in (0, len(truth.t_ns) - 1)]
    alone, both = (
        off(truth, hand_in_chest(chest, hand, ties, corrected(chest, hand, used)))[0]
        for used in (ties[:1], ties)
    )
    assert both[-1] < 2e-3 < 0.2 * alone[-1]
    assert np.sqrt((both**2).mean()) < 0.7 * np.sqrt((alone**2).mean())
    added = np.linalg.norm(np.diff(corrected(chest, hand, ties).hand.dp, axis=0), axis=1)
    gone = np.linalg.norm(np.diff(corrected(chest, hand, ties).hand.p, axis=0), axis=1)
    assert np.corrcoef(added, gone)[0, 1] > 0.5


def tags_of(truth: Walk, rng: np.random.Generator, *, late_s: float = 0.0, px: float = 0.3) -> TagSights:
    """A square on the hand's camera, seen by the chest five times a second."""
    rows = np.arange(0, len(truth.t_ns), 6)
    t_ns = truth.t_ns[rows]
    moved = truth.camera.sampled(np.clip(t_ns + round(late_s * 1e9), t_ns[0], t_ns[-1]))
    corners_W = np.einsum("nij,cj->nci", moved.R, SQUARE) + moved.p[:, None]
    chest = truth.chest.sampled(t_ns)
    corners_C = np.einsum("nji,ncj->nci", chest.R, corners_W - chest.p[:, None])
    uv = CAMERA.project(corners_C.reshape(-1, 3)).reshape(-1, 4, 2) + rng.normal(0.0, px, (len(rows), 4, 2))
    seen = np.isfinite(uv).all(axis=(1, 2)) & (corners_C[:, :, 2] > 0.1).all(axis=1)
    corners_H = np.broadcast_to(SQUARE, (len(rows), 4, 3))
    return TagSights(t_ns=t_ns, corners_H=corners_H, uv=uv, camera=CAMERA, sigma_px=px).taken(seen)


def test_tags_that_the_chest_sees_hold_the_hand_where_it_is():
    truth = walk(5, seconds=20.0)
    chest, hand, rng = devices(truth, 5)
    ties = [tie(truth, chest, hand, 0, rng=rng)]
    tags = tags_of(truth, rng)
    alone, seen = (
        off(truth, hand_in_chest(chest, hand, ties, corrected(chest, hand, ties, used)))[0]
        for used in (None, tags)
    )
    assert len(tags) > 30
    assert np.quantile(seen, 0.95) < 0.01 < np.quantile(alone, 0.95)


def test_tags_of_another_gripper_are_left_out():
    truth = walk(5, seconds=10.0)
    chest, hand, rng = devices(truth, 5)
    ties = [tie(truth, chest, hand, 0, rng=rng)]
    tags = tags_of(truth, rng)
    uv = tags.uv.copy()
    uv[::7] += 120.0
    wrong = TagSights(t_ns=tags.t_ns, corners_H=tags.corners_H, uv=uv, camera=CAMERA, sigma_px=0.3)
    found = corrected(chest, hand, ties, wrong)
    assert found.num_refused_tags >= len(uv[::7])
    assert np.quantile(off(truth, hand_in_chest(chest, hand, ties, found))[0], 0.95) < 0.01


def test_a_clock_that_is_a_little_off_shows_in_the_tags_of_a_hand_that_moves():
    truth = walk(6, seconds=20.0)
    chest, hand, rng = devices(truth, 6, Drift(walk_m=1e-4, walk_rad=1e-4))
    ties = [tie(truth, chest, hand, 0, rng=rng)]
    slow = Drift(walk_m=5e-4, walk_rad=5e-4)
    found = corrected(chest, hand, ties, tags_of(truth, rng, late_s=0.002), slow)
    assert found.dt_s == pytest.approx(0.002, abs=1e-3)
    assert found.dt_sigma_s < 5e-4


def test_the_covariance_says_how_wrong_it_is():
    share = []
    for seed in range(6):
        truth = walk(seed, seconds=12.0)
        chest, hand, rng = devices(truth, seed + 50)
        ties = [tie(truth, chest, hand, 0, sigma=(0.002, 0.002), rng=rng)]
        found = corrected(chest, hand, ties)
        e = found.hand.of(hand.before(ties[0].level)).p - found.chest.of(chest).p
        world_turn = truth.chest.R[0] @ found.chest.of(chest).R[0].T
        e = e - (truth.camera.p - truth.chest.p) @ world_turn
        P, _ = found.covariance(truth.t_ns)
        Q = P[:, :3, :3] + P[:, 6:9, 6:9] - P[:, :3, 6:9] - P[:, 6:9, :3]
        rows = np.arange(30, len(e), 30)
        share.append(np.einsum("ni,nij,nj->n", e[rows], np.linalg.inv(Q[rows]), e[rows]) / 3.0)
    assert 0.4 < np.mean(share) < 2.0


def test_a_jump_of_an_odometry_is_seen_and_a_quick_hand_is_none():
    truth = walk(7, seconds=10.0)
    moved = truth.camera.p.copy()
    moved[150:] += [0.05, 0.0, 0.0]
    jumped = Trajectory(t_ns=truth.t_ns, p=moved, q=truth.camera.q, tracking=truth.camera.tracking)
    assert np.flatnonzero(jumps(jumped)).tolist() == [149]
    assert not jumps(truth.camera).any()
    assert not jumps(truth.chest).any()


def test_an_odometry_that_jumped_is_mended_by_an_anchor_after_it():
    truth = walk(7, seconds=10.0)
    chest, hand, rng = devices(truth, 8, Drift(walk_m=1e-4, walk_rad=1e-5))
    p, tracking = hand.p.copy(), hand.tracking.copy()
    p[150:] += [0.10, -0.05, 0.0]
    tracking[140:150] = LOST
    broken = Trajectory(t_ns=hand.t_ns, p=p, q=hand.q, tracking=tracking)
    ties = [tie(truth, chest, broken, i, rng=rng) for i in (0, len(truth.t_ns) - 1)]
    slow = Drift(walk_m=1e-4, walk_rad=1e-5)
    metres, _ = off(truth, hand_in_chest(chest, broken, ties, corrected(chest, broken, ties, drift=slow)))
    assert metres[:135].max() < 3e-3
    assert metres[155:].max() < 3e-3


def test_devices_without_an_anchor_or_a_common_time_are_refused():
    truth = walk(1, seconds=3.0)
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidValueError, match="at least one anchor"):
        corrected(truth.chest, truth.camera, [])
    ties = [tie(truth, truth.chest, truth.camera, 0, rng=rng)]
    with pytest.raises(InvalidValueError, match="clocks not joined"):
        corrected(truth.chest, truth.camera.shifted(10**12), ties)
