from itertools import pairwise

import numpy as np
import pytest

from sim.demonstrations.demonstrations import collect
from sim.demonstrations.perturbations import LATE_ERROR_MAX, MISS_WIDTH, PerturbationSegment, run_segment
from sim.demonstrations.rollout_robot import robot_rollout
from sim.experts import ACTION_SPEC, make_expert
from sim.scene.world import World
from sim.tasks import make_task
from sim.tasks.drawer import HANDLE_RADIUS
from sim.tasks.household import CUP_RADIUS


@pytest.mark.long
def test_demonstrations_do_not_depend_on_the_number_of_processes():
    alone = collect("pick_place", num_episodes=2, seed=5, num_workers=1)
    together = collect("pick_place", num_episodes=2, seed=5, num_workers=2)
    assert len(alone) == len(together) > 50
    for a, b in zip(alone, together, strict=True):
        assert np.array_equal(a.rows, b.rows)
        assert np.array_equal(a.observation.state.q, b.observation.state.q)
        assert np.array_equal(a.observation.environment_state, b.observation.environment_state)


@pytest.mark.long
def test_label_is_what_the_expert_plans_from_the_stored_observation():
    calls: list[tuple[int, int]] = []
    samples = collect(
        "track", num_episodes=2, seed=1, progress=lambda done, total: calls.append((done, total))
    )
    assert calls == [(1, 2), (2, 2)]
    expert = make_expert("track", seed=0)
    assert {sample.num_committed > 0 for sample in samples} == {True, False}
    for sample in samples[::13]:
        d = sample.num_committed
        plan = expert.plan(sample.observation, sample.rows[:d].astype(float) if d else None)
        assert plan.shape == (ACTION_SPEC.horizon, ACTION_SPEC.dim)
        np.testing.assert_allclose(sample.rows, plan, atol=1e-6)


def test_row_zero_continues_the_motion_the_arm_is_in():
    for sample in collect("pick_place", num_episodes=1, seed=2)[::10]:
        if sample.num_committed:
            continue
        state = sample.observation.state
        assert np.abs(sample.rows[0, :7] - state.q - 0.03 * state.dq).max() < 0.1


@pytest.mark.long
def test_what_is_committed_is_what_the_robot_was_commanded_and_some_of_it_is_to_stand():
    samples = collect("track", num_episodes=6, seed=3)
    at_start = [sample for sample in samples if sample.observation.state.t_ns == 0 and sample.num_committed]
    assert at_start
    for sample in at_start:
        committed = sample.rows[: sample.num_committed, :7]
        assert np.ptp(committed, axis=0).max() < 1e-6
        assert np.abs(committed[0] - sample.observation.state.q).max() < 0.05


@pytest.mark.parametrize(("every", "delay"), [(1, 4), (2, 6), (5, 3)])
def test_under_latency_each_plan_goes_on_from_what_the_ones_before_it_will_command(every, delay):
    world = World(make_task("conveyor"), seed=4)
    expert, scorer = make_expert("conveyor", seed=4), world.task.make_scorer(world)
    segment = PerturbationSegment(num_rows=16, is_hold=True, every_rows=every, delay_rows=delay)
    samples = run_segment(robot_rollout(world), expert, scorer, segment, np.random.default_rng(0))
    planned = samples[::every]
    assert all(sample.num_committed == delay for sample in planned)
    assert np.ptp(planned[0].rows[:delay, :7], axis=0).max() == 0.0  # it stands until the first takes effect
    for before, after in pairwise(planned):
        hand = [[world.kinematics.forward(q[:7]).translation for q in rows]
                for rows in (before.rows[every : every + delay], after.rows[:delay])]  # fmt: skip
        assert np.linalg.norm(np.subtract(*hand), axis=1).max() < 1.2 * LATE_ERROR_MAX
    stood = np.abs(samples[-1].observation.state.q - samples[0].observation.state.q).max() < 0.01
    assert not stood


def test_fingers_that_close_on_nothing_are_seen_so_and_told_to_open():
    world = World(make_task("fetch"), seed=4)
    expert, scorer = make_expert("fetch", seed=4), world.task.make_scorer(world)
    drift = np.array([0.02, 0.0, 0.1, 0.0, 0.0, 0.0])
    segment = PerturbationSegment(num_rows=10, drift=drift, width=0.03)
    samples = run_segment(robot_rollout(world), expert, scorer, segment, np.random.default_rng(0))
    shut = [sample for sample in samples if sample.observation.state.gripper_width < 0.04]
    assert shut
    assert {sample.num_committed > 0 for sample in shut} == {True, False}
    for sample in shut:
        assert np.all(sample.rows[: sample.num_committed, 12] < 0.04)  # so it was told before
        assert np.all(sample.rows[sample.num_committed + 1 :, 12] > 0.07)


@pytest.mark.parametrize("radius", [CUP_RADIUS, HANDLE_RADIUS])
def test_fingers_that_missed_are_not_where_fingers_that_hold_are(radius):
    """Or those that hold would be told to open: by their width alone they look the same."""
    assert abs(MISS_WIDTH - 2 * radius) > 0.01
