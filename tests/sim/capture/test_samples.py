"""What a robot learns of a person's demonstration."""

from dataclasses import replace

import numpy as np
import pytest

from calibration.labels.grip import commanded_width
from policies.flow.features import FeatureConfig, state_features
from robot_runtime.core.values.transforms import compose_planar, rotation_from_6d
from sim.capture.retargeted import RetargetedDemonstration
from sim.capture.samples import BACK_LOW_ROWS, BACK_ROWS, DOWN_ROWS, HAND_ASIDE, samples
from sim.experts.mobile import SQUEEZE
from sim.scene.kinematics import R_DOWN
from sim.tasks import make_task
from sim.tasks.household import TABLE_Z

N = 60


@pytest.fixture(scope="module")
def told() -> RetargetedDemonstration:
    """Somebody who walks along x with her hand before her, fingers open."""
    s = np.linspace(0.0, 1.5, N)
    o = np.zeros(N)
    points = ("cup", "tray", "door", "door>through", "door>table_a", "door>table_b")
    return RetargetedDemonstration(
        words="bring the cup",
        task="fetch",
        x_WB=np.column_stack([s, o, o]),
        p_WE=np.column_stack([s + 0.5, o, o + 1.0]),
        R_BE=np.tile(R_DOWN, (N, 1, 1)),
        width=np.full(N, 0.08),
        things={name: np.tile([2.0 + i, 1.0, 0.77], (N, 1)) for i, name in enumerate(points)},
        is_known=np.ones(N, dtype=bool),
    )


def _world(sample, i):
    x = compose_planar(np.asarray(sample.observation.state.x_WB), sample.rows[i, :3])
    return x, compose_planar(x, np.array([*sample.rows[i, 3:5], 0.0]))[:2]


def test_rows_tell_the_way_that_was_gone(told):
    sample = samples(told, np.random.default_rng(0))[10]
    for i in (0, 7, 31):
        x, hand = _world(sample, i)
        np.testing.assert_allclose(x, told.x_WB[10 + i], atol=1e-9)
        np.testing.assert_allclose(hand[1], 0.0, atol=1e-9)


def test_a_frame_told_from_beside_leads_back_to_the_way(told):
    beside = samples(told, np.random.default_rng(0), beside=1)[N + 5]
    x, _ = _world(beside, 0)
    assert np.abs(x - told.x_WB[5]).max() > 0.005
    x, hand = _world(beside, BACK_ROWS)
    np.testing.assert_allclose(x, told.x_WB[5 + BACK_ROWS], atol=1e-9)
    np.testing.assert_allclose(hand[1], 0.0, atol=1e-9)


def test_a_hand_is_told_turned_and_turns_back(told):
    leans = []
    for sample in samples(told, np.random.default_rng(0), beside=1)[N:]:
        R_BE, told_rows = sample.observation.state.arm("arm").X_BE.rotation, sample.rows[:, 6:12]
        np.testing.assert_allclose(rotation_from_6d(told_rows[0]), R_BE, atol=1e-9)
        np.testing.assert_allclose(rotation_from_6d(told_rows[BACK_ROWS]), R_DOWN, atol=1e-9)
        leans.append(np.linalg.norm(R_BE[:2, 2]))  # of the axis that points straight down
    assert 0.02 < np.median(leans) < 0.15


def test_a_robot_off_its_plan_is_shown_that_plan_and_where_it_is_itself(told):
    off = samples(told, np.random.default_rng(0), off_plan=1)[N:]
    assert {sample.num_committed for sample in off} == set(range(1, 13))
    bases, hands = [], []
    for k, sample in enumerate(off):
        x, hand = _world(sample, 0)
        np.testing.assert_allclose(x, told.x_WB[k], atol=1e-9)  # the plan is her way
        np.testing.assert_allclose(hand[1], 0.0, atol=1e-9)
        bases.append(np.linalg.norm(np.asarray(sample.observation.state.x_WB) - x))
        hands.append(np.linalg.norm(sample.observation.state.arm("arm").X_BE.translation - [0.5, 0.0, 1.0]))
    assert 0.01 < np.median(bases) < 0.08
    assert 0.005 < np.median(hands) < 0.06


def test_frames_are_left_out_whose_rows_are_not_known(told):
    known = np.ones(N, dtype=bool)
    known[40] = False
    lost = RetargetedDemonstration(**{**told.__dict__, "is_known": known})
    assert len(samples(lost, np.random.default_rng(0))) == N - 32


def test_fingers_that_something_stops_are_told_to_squeeze():
    closing = np.concatenate([np.full(20, 0.08), np.linspace(0.08, 0.06, 4), np.full(20, 0.06)])
    width = np.concatenate([closing, np.linspace(0.06, 0.08, 4), np.full(10, 0.08)])
    command = commanded_width(width, 0.05)
    np.testing.assert_allclose(command[30:40], 0.06 - SQUEEZE)
    np.testing.assert_allclose(command[[5, -5]], 0.08)


def test_fingers_whose_width_trembles_squeeze_until_they_let_go():
    closing = np.concatenate([np.full(20, 0.08), np.linspace(0.08, 0.06, 4)])
    held = 0.06 + 0.001 * np.random.default_rng(0).standard_normal(400)
    opening = np.concatenate([np.linspace(0.06, 0.08, 6), np.full(10, 0.08)])
    command = commanded_width(np.concatenate([closing, held, opening]), 0.05)
    assert (command[26:424] < 0.06 - 0.5 * SQUEEZE).all()
    np.testing.assert_allclose(command[-13:], np.concatenate([closing, held, opening])[-13:])


def test_fingers_whose_width_is_not_known_for_a_while_squeeze_on():
    width = np.concatenate([np.full(20, 0.08), np.linspace(0.08, 0.06, 4), np.full(60, 0.06)])
    width[40:45] = np.nan
    command = commanded_width(width, 0.05)
    assert np.isnan(command[40:45]).all()
    np.testing.assert_allclose(command[[*range(26, 40), *range(46, 84)]], 0.06 - SQUEEZE)


def test_fingers_that_open_a_little_and_stop_have_let_go_until_they_close_again():
    closing = np.concatenate([np.full(20, 0.08), np.linspace(0.08, 0.06, 4), np.full(20, 0.06)])
    opening = np.concatenate([np.linspace(0.06, 0.07, 4), np.full(20, 0.07)])
    again = np.concatenate([np.linspace(0.07, 0.06, 4), np.full(20, 0.06)])
    command = commanded_width(np.concatenate([closing, opening, again]), 0.05)
    np.testing.assert_allclose(command[50:66], 0.07)
    np.testing.assert_allclose(command[-18:], 0.06 - SQUEEZE)


@pytest.mark.parametrize("opened", [0.065, 0.08])
def test_fingers_that_open_slowly_let_go(opened):
    closing = np.concatenate([np.full(20, 0.08), np.linspace(0.08, 0.04, 8), np.full(30, 0.04)])
    opening = np.arange(0.04, opened, 0.001)
    command = commanded_width(np.concatenate([closing, opening, np.full(20, opened)]), 0.05)
    np.testing.assert_allclose(command[58 + 12 : -20], opening[12:])
    np.testing.assert_allclose(command[-20:], opened)


def test_fingers_that_close_slowly_do_not_squeeze_before_something_stops_them():
    closing = np.arange(0.08, 0.04, -0.0009)
    command = commanded_width(np.concatenate([np.full(20, 0.08), closing, np.full(20, 0.04)]), 0.05)
    np.testing.assert_allclose(command[: 20 + len(closing) - 10], [*np.full(20, 0.08), *closing[:-10]])
    np.testing.assert_allclose(command[-15:], 0.04 - SQUEEZE)


def test_fingers_that_never_opened_hold_what_they_hold():
    np.testing.assert_array_equal(commanded_width(np.full(30, 0.03), 0.05), np.full(30, 0.03))


def test_a_policy_of_people_does_not_see_joints(told):
    sample, schema = samples(told, np.random.default_rng(0))[0], make_task("fetch").schema
    seen = FeatureConfig(use_joints=False, use_joint_velocity=False)
    without = state_features(sample.observation, schema, seen)
    assert len(without) == len(state_features(sample.observation, schema, FeatureConfig())) - 14
    assert without[0] == 0.08


def _reaching(told: RetargetedDemonstration, **changes) -> RetargetedDemonstration:
    """The same with a cup at the hand, which is low over the table from the first row to the last."""
    p = np.column_stack([told.p_WE[:, :2], np.full(N, 0.80)])
    return replace(told, **{"p_WE": p, "things": {**told.things, "cup": p - [0.0, 0.0, 0.02]}, **changes})


def _hand_and_cup(sample) -> tuple[np.ndarray, np.ndarray]:
    """Places in the base."""
    return sample.observation.state.arm("arm").X_BE.translation, sample.observation.environment_state[:3]


def test_a_low_open_hand_is_told_a_little_off_and_led_back_before_its_fingers_close(told):
    closing = np.concatenate([np.full(45, 0.08), np.linspace(0.08, 0.0, 8), np.full(7, 0.0)])
    low = _reaching(told, width=closing)
    beside = samples(low, np.random.default_rng(0), beside=1)[N:]
    offs = []
    for k, sample in enumerate(beside[:40]):
        hand, cup = _hand_and_cup(sample)
        offs.append(np.linalg.norm((hand - cup)[:2]))
        base = compose_planar(np.asarray(sample.observation.state.x_WB), sample.rows[BACK_ROWS, :3])
        np.testing.assert_allclose(base, low.x_WB[min(k + BACK_ROWS, N - 1)], atol=1e-9)
        there = compose_planar(base, np.array([*sample.rows[BACK_ROWS, 3:5], 0.0]))
        np.testing.assert_allclose(there[1], 0.0, atol=1e-9)
    assert 0.008 < np.median(offs) < 0.025


def test_a_hand_that_wipes_is_told_far_off_and_is_down_again_before_it_is_back(told):
    wiping = replace(told, p_WE=told.p_WE * [1.0, 1.0, 0.0] + [0.0, 0.0, TABLE_Z + 0.04])
    off = []
    for sample in samples(wiping, np.random.default_rng(0), beside=4)[N:]:
        k = sample.observation.state.t_ns // 50_000_000
        x_now = np.asarray(sample.observation.state.x_WB)
        up = sample.rows[:, 5] - (TABLE_Z + 0.04)
        assert up[0] >= -1e-9
        assert np.abs(up[DOWN_ROWS:]).max() < 1e-9
        at = compose_planar(x_now, np.array([*sample.observation.state.X_BE.translation[:2], 0.0]))[:2]
        off.append(at - wiping.p_WE[k, :2])
        _, hand = _world(sample, BACK_LOW_ROWS)
        np.testing.assert_allclose(hand[1], 0.0, atol=1e-9)
    assert 0.5 * HAND_ASIDE < np.std(off) < HAND_ASIDE


def test_a_robot_off_its_plan_does_not_press_deeper_than_a_low_plan_does(told):
    wiping = replace(told, p_WE=told.p_WE * [1.0, 1.0, 0.0] + [0.0, 0.0, TABLE_Z + 0.04])
    off = samples(wiping, np.random.default_rng(0), off_plan=4)[N:]
    heights = np.array([sample.observation.state.X_BE.translation[2] for sample in off]) - (TABLE_Z + 0.04)
    assert heights.min() >= -1e-9
    assert heights.max() > 0.02


def test_what_is_held_goes_with_a_hand_that_is_told_elsewhere(told):
    grips = np.concatenate([np.full(10, 0.08), np.linspace(0.08, 0.06, 4), np.full(N - 14, 0.06)])
    carried = replace(told, width=grips, things={**told.things, "cup": told.p_WE - [0.0, 0.0, 0.02]})
    asides = []
    for sample in samples(carried, np.random.default_rng(0), beside=1)[N + 20 :]:
        hand, cup = _hand_and_cup(sample)
        np.testing.assert_allclose(hand - cup, [0.0, 0.0, 0.02], atol=1e-9)
        asides.append(abs(hand[1]))
    assert np.max(asides) > 0.01
