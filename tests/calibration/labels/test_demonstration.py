"""Labels of a whole capture: exact re-composition, and the same in every world."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.labels.demonstration import from_base, in_base, labels_of, recomposition_error
from calibration.labels.joined import join
from calibration.labels.smoothing import Pace, Smoothing
from calibration.labels.values import HandClock, LabelConfig, Labels
from calibration.trajectory import LOST, Trajectory
from robot_runtime.core.values.transforms import wrap_angle
from robot_runtime.errors import InvalidValueError
from tests.calibration.labels.walk import X_HE, Walk, capture_of, odometry, tie, walk, world
from tests.examples import examples

CONFIG = LabelConfig(use_tags=False)


def labelled(path, truth: Walk, seed: int = 0, *, config=CONFIG, worlds=None, lean=False, **more) -> Labels:
    rng = np.random.default_rng(seed)
    X_chest, X_hand = worlds or (world(rng), world(rng))
    chest, hand = odometry(truth.chest, X_chest, rng), odometry(truth.camera, X_hand, rng)
    ties = [tie(truth, chest, hand, 0, rng=rng)]
    capture = capture_of(path, truth, chest, hand, lean=lean, **more)
    joined = join(capture, ties, config, HandClock(sigma_s=1e-3))
    return labels_of(joined, capture.demonstrations()[0])


@pytest.fixture(scope="module")
def labels(tmp_path_factory) -> Labels:
    return labelled(tmp_path_factory.mktemp("labels") / "capture", walk(2, seconds=12.0))


def test_base_and_hand_give_back_the_hand_in_the_room(labels):
    metres, radians = recomposition_error(labels)
    assert metres < 1e-9
    assert radians < 1e-6


paths = st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=5)


@examples(50)
@given(bases=paths, seed=st.integers(0, 1000))
def test_any_base_and_the_hand_in_it_give_back_the_hand(bases, seed):
    rng = np.random.default_rng(seed)
    X_WE = Trajectory.of(np.arange(len(bases)), [pin.SE3.Random() for _ in bases])
    X_WE = X_WE.before(pin.SE3(pin.exp3(rng.normal(size=3)), rng.normal(size=3)))
    x_WG = np.array(bases)
    again = from_base(x_WG, in_base(x_WG, X_WE))
    np.testing.assert_allclose(again.p, X_WE.p, atol=1e-9)
    np.testing.assert_allclose(np.abs((again.q * X_WE.q).sum(axis=1)), 1.0, atol=1e-12)


def test_the_hand_in_the_room_stands_over_the_floor_as_it_did(labels):
    truth = walk(2, seconds=12.0)
    hand = truth.camera.sampled(labels.t_ns).then(X_HE)
    np.testing.assert_allclose(labels.X_WE.p[:, 2], hand.p[:, 2], atol=1e-3)


def test_labels_are_the_same_in_every_world(tmp_path):
    truth = walk(2, seconds=6.0)
    moved = pin.SE3(pin.utils.rotate("z", 2.0), np.array([3.0, -1.0, 0.4]))
    near = labelled(tmp_path / "a", truth, worlds=(pin.SE3.Identity(), pin.SE3.Identity()))
    far = labelled(tmp_path / "b", truth, worlds=(moved, pin.SE3(pin.utils.rotate("z", -1.0), np.ones(3))))
    np.testing.assert_allclose(far.X_GE.p, near.X_GE.p, atol=2e-4)
    np.testing.assert_allclose(far.X_CE.p, near.X_CE.p, atol=1e-6)
    turn = moved.rotation[:2, :2]
    np.testing.assert_allclose(far.x_WG[:, :2], near.x_WG[:, :2] @ turn.T + [3.0, -1.0], atol=2e-4)
    np.testing.assert_allclose(wrap_angle(far.x_WG[:, 2] - near.x_WG[:, 2] - 2.0), 0.0, atol=2e-4)


def test_leaning_moves_the_chest_and_not_the_base(tmp_path):
    truth = walk(9, seconds=10.0, speed=0.0, lean=0.8, sway=False)
    found = labelled(tmp_path / "capture", truth, lean=True)
    assert np.ptp(truth.chest.p[:, 0]) > 0.10
    assert np.ptp(found.x_WP[:, :2], axis=0).max() < 0.015
    assert np.abs(found.x_WG[:, :2] - found.x_WG[0, :2]).max() < 0.015


def test_the_base_is_where_the_person_was(tmp_path):
    truth = walk(2, seconds=12.0)
    found = labelled(tmp_path / "capture", truth, worlds=(pin.SE3.Identity(), pin.SE3.Identity()), lean=False)
    x = np.column_stack([np.interp(found.t_ns, truth.t_ns, column) for column in truth.x_WG.T])
    turn = found.x_WG[:, 2] - x[:, 2]
    assert np.sqrt((wrap_angle(turn) ** 2).mean()) < np.deg2rad(1.5)


def test_what_was_seen_stays_where_it_is_in_the_room(labels):
    cup = labels.glimpses["cup"]
    assert cup.known.all()
    c, s = np.cos(labels.x_WG[:, 2]), np.sin(labels.x_WG[:, 2])
    x = c * cup.p_G[:, 0] - s * cup.p_G[:, 1] + labels.x_WG[:, 0]
    assert np.ptp(x) < 1e-3
    np.testing.assert_allclose(cup.p_G[:, 2], 0.8, atol=2e-3)


def test_rows_stand_on_a_grid_and_show_the_newest_picture(labels):
    assert np.unique(np.diff(labels.t_ns)).tolist() == [50_000_000]
    age = labels.t_ns - labels.picture_ns["chest"]
    assert (age >= 0).all()
    assert age.max() < 34_000_000


def test_a_robot_that_takes_longer_goes_the_same_way_in_more_rows(tmp_path, labels):
    slow = labelled(tmp_path / "capture", walk(2, seconds=12.0), config=replace(CONFIG, slower=2.0))
    assert abs(len(slow) - 2 * len(labels)) <= 1
    assert slow.period_s == pytest.approx(labels.period_s)
    assert slow.figures["duration_s"] == pytest.approx(labels.figures["duration_s"], abs=0.05)
    metres, radians = recomposition_error(slow)
    assert (metres < 1e-9, radians < 1e-6) == (True, True)
    both = min(len(labels), (len(slow) + 1) // 2)
    assert (slow.t_ns[::2][:both] == labels.t_ns[:both]).all()
    np.testing.assert_allclose(slow.X_WE.p[::2][:both], labels.X_WE.p[:both], atol=1e-9)
    np.testing.assert_allclose(slow.x_WG[::2][:both], labels.x_WG[:both], atol=0.02)
    fast, calm = (np.abs(each.base_twist()[:, 0]).max() for each in (labels, slow))
    assert calm == pytest.approx(0.5 * fast, rel=0.05)


def test_a_base_that_takes_longer_keeps_to_its_own_pace(tmp_path):
    pace = Pace(speed=0.3, acceleration=0.4)
    config = replace(CONFIG, smoothing=Smoothing(pace=pace), slower=2.0)
    found = labelled(tmp_path / "capture", walk(2, seconds=8.0), config=config)
    twist = found.base_twist()
    assert 0.25 < np.linalg.norm(twist[:, :2], axis=1).max() < 0.3 * 1.01
    kept = labelled(tmp_path / "again", walk(2, seconds=8.0), config=replace(config, slower=1.0))
    assert found.figures["base_off_person_m"] < kept.figures["base_off_person_m"]


@pytest.mark.parametrize("slower", [0.0, -1.0, float("nan"), 1e3])
def test_a_robot_that_takes_no_such_time_is_refused(slower):
    with pytest.raises(InvalidValueError, match=r"a robot takes 0\.2 to 10 times as long as the person"):
        LabelConfig(slower=slower)


def test_a_device_that_lost_its_way_is_named_in_the_verdict(tmp_path):
    truth = walk(2, seconds=6.0)
    rng = np.random.default_rng(0)
    chest, hand = truth.chest, truth.camera
    tracking = hand.tracking.copy()
    tracking[60:100] = LOST
    hand = Trajectory(t_ns=hand.t_ns, p=hand.p, q=hand.q, tracking=tracking)
    capture = capture_of(tmp_path / "capture", truth, chest, hand)
    joined = join(capture, [tie(truth, chest, hand, 0, rng=rng)], CONFIG, HandClock())
    found = labels_of(joined, capture.demonstrations()[0])
    assert not found.verdict.ok
    assert "hand-lost" in found.verdict.names
    assert not found.valid["hand"].all()
    assert found.valid["chest"].all()


def test_a_hand_that_may_be_anywhere_is_refused_and_one_that_drifted_is_warned_of(tmp_path):
    truth, rng = walk(2, seconds=6.0), np.random.default_rng(0)
    hand = odometry(truth.camera, world(rng), rng)
    moved = np.where(np.arange(len(hand)) < 60, 0.0, 0.05)[:, None] * [1.0, 0.0, 0.0]
    jumped = Trajectory(t_ns=hand.t_ns, p=hand.p + moved, q=hand.q, tracking=hand.tracking)
    for name, said, drift, is_usable in (
        ("jumped", jumped, CONFIG.hand_drift, False),
        ("drifted", hand, replace(CONFIG.hand_drift, walk_m=0.04), True),
    ):
        capture = capture_of(tmp_path / name, truth, truth.chest, said)
        config = replace(CONFIG, hand_drift=drift)
        joined = join(capture, [tie(truth, truth.chest, said, 0, rng=rng)], config, HandClock())
        verdict = labels_of(joined, capture.demonstrations()[0]).verdict
        assert "unsure" in verdict.names
        assert verdict.ok == is_usable, verdict


def test_without_a_floor_nothing_can_be_used_and_the_verdict_says_how_to_give_it(tmp_path):
    found = labelled(tmp_path / "capture", walk(2, seconds=4.0), more={})
    assert "floor-unknown" in found.verdict.names
    assert not found.verdict.ok
    given = labelled(
        tmp_path / "again",
        walk(2, seconds=4.0),
        more={},
        config=LabelConfig(use_tags=False, chest_height_m=1.4),
    )
    assert "floor-unknown" not in given.verdict.names


@pytest.mark.parametrize("height", [1e9, "1.2", float("inf"), [1]])
def test_a_height_in_the_capture_that_is_none_is_refused(tmp_path, height):
    with pytest.raises(InvalidValueError, match="expected board_height_m from"):
        labelled(tmp_path / "capture", walk(2, seconds=4.0), more={"board_height_m": height})


def test_an_anchor_of_another_capture_or_of_worlds_that_lean_is_refused(tmp_path):
    truth, rng = walk(2, seconds=4.0), np.random.default_rng(0)
    own = tie(truth, truth.chest, truth.camera, 0, rng=rng)
    capture = capture_of(tmp_path / "capture", truth, truth.chest, truth.camera)
    lean = pin.SE3(pin.utils.rotate("x", 0.2), np.zeros(3))
    for wrong, name in (
        (replace(own, chest_ns=own.chest_ns + 10**13, hand_ns=own.hand_ns + 10**13), "anchor-elsewhere"),
        (replace(own, X_WcWh=lean * own.X_WcWh), "anchor-tilted"),
    ):
        joined = join(capture, [wrong], CONFIG, HandClock())
        found = labels_of(joined, capture.demonstrations()[0])
        assert name in found.verdict.names
        assert not found.verdict.ok
    with pytest.raises(InvalidValueError, match="anchor's covariance"):
        replace(own, covariance=np.full((6, 6), np.nan))
