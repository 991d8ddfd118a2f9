"""Each recipe's batch against its paper: which rows are clean, at which times, what bears loss."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
import torch

from policies.flow.batches import (
    horizon_aware_times,
    mixed_batch,
    offset_batch,
    plain_batch,
    prefix_batch,
    shared_batch,
)
from policies.flow.dataset import roll_forward
from policies.flow.recipes import MixedSchedule, Offset, Plain, Prefix
from robot_runtime.core.method.sampler_parts import HorizonAwareSchedule
from robot_runtime.core.method.schedule import flow_times
from robot_runtime.core.values.action import (
    ActionSpec,
    EndEffectorPose,
    GripperFraction,
    GripperWidth,
    JointPosition,
)
from robot_runtime.core.values.state import ArmState, GripperState, RobotState
from robot_runtime.errors import InvalidValueError
from tests.policies.draws import H, hand_pose, make_data, make_draw, make_samples
from tests.policies.toy import SPEC


def test_plain_shows_every_row_at_one_time_and_all_bear_loss() -> None:
    draw = make_draw(make_data(Plain()))
    batch = plain_batch(draw)
    assert (batch.t == batch.t[:, :1]).all()
    assert batch.weight.eq(1.0).all()
    assert not batch.is_prefix.any()
    expected = (1 - batch.t[..., None]) * draw.noise + batch.t[..., None] * draw.rows
    torch.testing.assert_close(batch.x, expected)
    torch.testing.assert_close(batch.target, draw.rows - draw.noise)


@pytest.mark.parametrize(
    "recipe", [Prefix(max_delay=5, noise=0.0, probability=0.7), MixedSchedule(max_delay=5)]
)
def test_a_prefix_is_clean_at_time_one_and_bears_no_loss(recipe: Prefix | MixedSchedule) -> None:
    draw = make_draw(make_data(recipe))
    batch = prefix_batch(draw, recipe) if isinstance(recipe, Prefix) else mixed_batch(draw, recipe)
    d = batch.is_prefix.sum(dim=1)
    assert set(d.tolist()) == set(range(6))
    assert torch.equal(batch.is_prefix, torch.arange(H) < d[:, None])
    assert torch.equal(batch.x[batch.is_prefix], draw.rows[batch.is_prefix])
    assert batch.t[batch.is_prefix].eq(1.0).all()
    assert torch.equal(batch.weight[..., 0] == 0, batch.is_prefix)


@pytest.mark.parametrize("recipe", [Prefix(), MixedSchedule()])
def test_a_commitment_of_the_demonstration_is_shown_as_it_is(recipe: Prefix | MixedSchedule) -> None:
    draw = make_draw(make_data(recipe, num_committed=3))
    batch = prefix_batch(draw, recipe) if isinstance(recipe, Prefix) else mixed_batch(draw, recipe)
    assert batch.is_prefix.sum(dim=1).eq(3).all()


def test_open_rows_of_the_mixed_schedule_are_at_one_time_or_on_the_horizon_aware_schedule() -> None:
    recipe = MixedSchedule(max_delay=2)
    batch = mixed_batch(make_draw(make_data(recipe)), recipe)
    last = batch.t[:, -1]  # u = 0 at the last row: its time is the chunk's own
    aware = horizon_aware_times(last, batch.is_prefix.sum(dim=1), H, alpha=0.6, num_steps=10)
    is_aware = torch.isclose(batch.t, aware, atol=1e-5).all(dim=1)
    is_constant = (torch.isclose(batch.t, last[:, None]) | batch.is_prefix).all(dim=1)
    assert (is_aware | is_constant).all()
    assert 0.2 < is_aware.float().mean() < 0.8
    assert batch.weight[~batch.is_prefix].eq(1.0).all()  # also rows that are clean already


def test_the_horizon_aware_schedule_finishes_rows_at_the_published_calls() -> None:
    """FASTER, H = 50, d = 3: the first s rows are finished after 1, 3, 4, 5, 8, 10 of 10 calls."""
    after = torch.arange(11) / 10
    t = horizon_aware_times(after, torch.full((11,), 3), 50, alpha=0.6, num_steps=10)
    assert t[:, :3].eq(1.0).all()
    assert t[0, 3:].eq(0.0).all()
    calls = [int((t[:, 3 : 3 + s] > 1 - 1e-5).all(dim=1).int().argmax()) for s in (1, 4, 8, 10, 25, 47)]
    assert calls == [1, 3, 4, 5, 8, 10]


@pytest.mark.parametrize("num_prefix", [0, 3, H - 1])
def test_training_shows_the_times_that_the_sampler_will_pass_through(num_prefix: int) -> None:
    recipe = MixedSchedule()
    part = HorizonAwareSchedule(num_steps=recipe.num_steps, alpha=recipe.alpha)
    sampled = flow_times(part, horizon=H, inference_delay=num_prefix)
    t, d = torch.arange(len(sampled)) / recipe.num_steps, torch.full((len(sampled),), num_prefix)
    shown = horizon_aware_times(t, d, H, alpha=recipe.alpha, num_steps=recipe.num_steps)
    np.testing.assert_allclose(shown, sampled, atol=1e-6)  # float32


def test_an_offset_chunk_begins_k_rows_later_where_the_robot_will_be() -> None:
    recipe = Offset(max_delay=3, tracking_lag_s=0.0)
    dataset, samples = make_data(recipe), make_samples()
    draw = make_draw(dataset)
    batch, statistics = offset_batch(draw, recipe, input_noise=0.0), dataset.statistics
    k = H - batch.weight[..., 0].sum(dim=1).int()  # rows past the end bear no loss
    assert set(k.tolist()) == {0, 1, 2, 3}
    assert torch.equal(batch.weight[..., 0] > 0, torch.arange(H) < (H - k)[:, None])
    action = statistics.rows.restore((batch.target + draw.noise).double().numpy())
    for i, offset in enumerate(k.tolist()):
        rows, state = samples[i].rows, samples[i].observation.state
        q = rows[offset, :7] if offset else state.q
        expected = rows[offset:] - np.append(q, 0.0)
        np.testing.assert_allclose(action[i, : H - offset], expected, atol=1e-5)
        features = batch.features[i].numpy()
        seen = features * statistics.features.std + statistics.features.mean
        np.testing.assert_allclose(seen[:7], q, atol=1e-5)
        np.testing.assert_allclose(features[-2:], dataset.features[i, -2:])  # the scene stays at t


def test_an_offset_chunk_after_a_commitment_begins_at_the_last_given_row() -> None:
    recipe = Offset(max_delay=5)
    batch = offset_batch(make_draw(make_data(recipe, num_committed=4)), recipe, input_noise=0.0)
    assert batch.weight[..., 0].sum(dim=1).eq(H - 3).all()


def test_a_rolled_forward_robot_follows_its_rows_like_a_servo_with_lag() -> None:
    sample, lag_s, step_s = make_samples()[0], 0.03, 1e-5
    state, rows = sample.observation.state, sample.rows
    states = roll_forward(state, rows, SPEC, num_rows=3, tracking_lag_s=lag_s, hand_pose=hand_pose)
    q, knots = state.q, np.arange(H) * SPEC.dt_s
    for step in range(round(3 * SPEC.dt_s / step_s)):  # the servo's equation in small steps
        at = (step + 0.5) * step_s
        setpoint = np.array([np.interp(at, knots, rows[:, joint]) for joint in range(7)])
        q = q + step_s * (setpoint - q) / lag_s
    np.testing.assert_allclose(states[3].q, q, atol=1e-3)
    np.testing.assert_allclose(states[3].dq, (rows[3, :7] - states[3].q) / lag_s)
    np.testing.assert_allclose(states[3].X_BE.translation, states[3].q[:3])
    assert states[3].t_ns == state.t_ns + 3 * SPEC.dt_ns
    assert states[3].gripper_width == rows[3, 7]
    assert states[0] is state


def test_two_arms_are_rolled_forward_each_by_its_own_rows() -> None:
    fields = (
        JointPosition(2, part="left_arm"), GripperWidth("left_gripper"),
        JointPosition(1, part="right_arm"), GripperFraction("right_gripper", low=0.0, high=0.1),
    )  # fmt: skip
    spec = ActionSpec(fields=fields, horizon=3, dt_ns=SPEC.dt_ns)
    here = RobotState(
        t_ns=5,
        parts={
            "left_arm": ArmState(q=np.zeros(2), dq=np.zeros(2)),
            "left_gripper": GripperState(width=0.0),
            "right_arm": ArmState(q=np.ones(1), dq=np.zeros(1)),
            "right_gripper": GripperState(width=0.0),
        },
    )
    rows = np.array([[0.0, 0.0, 0.01, 1.0, 0.0], [0.1, 0.2, 0.02, 0.9, 0.5], [0.2, 0.4, 0.03, 0.8, 1.0]])
    poses = {"left_arm": lambda q: pin.SE3(np.eye(3), np.array([*q, 0.0]))}
    _, _, there = roll_forward(here, rows, spec, num_rows=2, tracking_lag_s=0.0, hand_pose=poses)
    np.testing.assert_allclose(there.arm("left_arm").q, [0.2, 0.4])
    np.testing.assert_allclose(there.arm("right_arm").dq, [-0.1 / spec.dt_s])
    np.testing.assert_allclose(there.hand("left_arm").translation, [0.2, 0.4, 0.0])
    assert there.hand("right_arm") is None
    assert (there.gripper("left_gripper").width, there.gripper("right_gripper").width) == (0.03, 0.1)
    moved = replace(spec, fields=(*fields[:3], EndEffectorPose(part="third_arm")))
    with pytest.raises(InvalidValueError, match="needs rows of absolute joint positions"):
        roll_forward(here, np.zeros((3, 13)), moved, num_rows=1, tracking_lag_s=0.0, hand_pose=None)


def test_shared_branches_that_would_begin_with_a_given_row_bear_no_loss() -> None:
    recipe = Offset(max_delay=4, shared_observation=True)
    batch = shared_batch(make_draw(make_data(recipe, num_committed=3)), recipe, input_noise=0.0)
    assert batch.weight.sum(dim=(2, 3))[0].tolist() == [0.0, 0.0, H - 2, H - 3, H - 4]
