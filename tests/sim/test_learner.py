"""What an expert would do where a policy leads."""

from dataclasses import replace

import numpy as np
import pytest

from policies.flow.checkpoint import load
from policies.flow.policy import FlowPolicy
from policies.flow.recipes import Plain
from policies.flow.support import declared
from policies.load import load_policy
from policies.shipped import shipped_checkpoints
from robot_runtime.cli import main
from robot_runtime.errors import InvalidValueError, SchemaMismatchError
from sim.demonstrations.demonstrations import collect, disturbed_episode
from sim.demonstrations.learner import Learner
from sim.demonstrations.perturbations import PerturbationSegment, run_segment
from sim.demonstrations.rollout_robot import robot_rollout
from sim.demonstrations.training_data import by_labels
from sim.experts import make_expert
from sim.scene.model import MAX_WIDTH
from sim.scene.world import World
from sim.tasks import make_task
from sim.tasks.fetch import Fetch

SEGMENT = PerturbationSegment(num_rows=16, every_rows=4, delay_rows=3, is_learners=True)


class _Expert:
    """The expert, and what it was asked."""

    def __init__(self, seed: int) -> None:
        self._expert, self.asked = make_expert("fetch", seed=seed), []

    def plan(self, observation, committed=None):
        self.asked.append((observation, committed))
        return self._expert.plan(observation, committed)


def learner(seed: int) -> Learner:
    return Learner(load_policy("fetch"), robot=make_task("fetch").schema, seed=seed)


def test_the_robot_goes_where_the_policy_leads_and_is_told_what_the_expert_would_do_there():
    world = World(make_task("fetch"), seed=4)
    expert, rng = _Expert(4), np.random.default_rng(0)
    samples = run_segment(
        robot_rollout(world), expert, world.task.make_scorer(world), SEGMENT, rng, learner(1)
    )
    assert len(samples) == SEGMENT.num_rows
    again = make_expert("fetch", seed=4)
    for sample, (exact, committed) in zip(samples, expert.asked[1:], strict=True):
        np.testing.assert_allclose(sample.rows, again.plan(exact, committed), atol=1e-6)
    drives, other = (
        World(make_task("fetch"), seed=4),
        PerturbationSegment(num_rows=16, every_rows=4, delay_rows=3),
    )
    told = run_segment(robot_rollout(drives), expert, drives.task.make_scorer(drives), other, rng)
    assert np.abs(samples[-1].observation.state.q - told[-1].observation.state.q).max() > 1e-3


def test_a_learner_is_asked_every_s_rows_and_goes_on_from_what_is_committed():
    world = World(make_task("fetch"), seed=4)
    asked, plans = [], learner(1).plan

    class Listening:
        def plan(self, observation, committed=None):
            rows = plans(observation, committed)
            np.testing.assert_allclose(rows[: len(committed)], committed, atol=1e-5)
            asked.append(observation.state.t_ns)
            return rows

    expert, rng = make_expert("fetch", seed=4), np.random.default_rng(0)
    samples = run_segment(
        robot_rollout(world), expert, world.task.make_scorer(world), SEGMENT, rng, Listening()
    )
    assert asked == [sample.observation.state.t_ns for sample in samples[::4]]


def test_the_same_seed_gives_the_same_plans():
    world = World(make_task("fetch"), seed=4)
    observation, _ = robot_rollout(world).observe()
    one, same, other = (learner(seed).plan(observation) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_policy_that_cannot_drive_this_robot_or_knows_no_commitments_is_refused():
    with pytest.raises(SchemaMismatchError, match="cannot drive this robot: environment state size"):
        Learner(load_policy("fetch"), robot=make_task("wipe").schema, seed=0)
    blind = replace(make_task("fetch").schema, cameras={})
    with pytest.raises(SchemaMismatchError, match="camera 'chest': the policy needs it"):
        Learner(load_policy("fetch-seeing"), robot=blind, seed=0)
    fetch = load("fetch")
    can = declared(Plain(), horizon=fetch.info.action_spec.horizon, prefix_at_rest=True)
    plain = FlowPolicy(replace(fetch, info=replace(fetch.info, capabilities=can)))
    with pytest.raises(InvalidValueError, match="to go on from committed rows"):
        Learner(plain, robot=plain.info.schema, seed=0)


@pytest.mark.long
def test_a_policys_own_way_is_recorded_as_a_user_asks_for_it(tmp_path, capfd):
    pytest.importorskip("datasets", reason="writes LeRobot datasets")
    from policies.lerobot.data import load_dataset

    command = ["record", "--task", "fetch", "--episodes", "1", "--seed", "1", "--cameras", "--output"]
    assert main([*command, str(tmp_path / "own"), "--policy", "fetch"]) == 0
    assert main([*command, str(tmp_path / "experts")]) == 0
    assert "1 of 1 episodes of fetch, no cameras" in capfd.readouterr().out
    own, experts = load_dataset(tmp_path / "own"), load_dataset(tmp_path / "experts")
    assert len(own) != len(experts)


class _OpenHanded:
    """Does what the expert does, but never closes its fingers."""

    def __init__(self) -> None:
        self._expert = make_expert("fetch", seed=0)

    def plan(self, observation, committed=None):
        rows = self._expert.plan(observation, committed)
        rows[0 if committed is None else len(committed) :, 12] = MAX_WIDTH
        return rows


@pytest.mark.long
def test_where_a_learner_fails_is_kept_and_where_only_disturbances_lead_is_not(monkeypatch):
    world = World(make_task("fetch"))
    assert any(disturbed_episode(world, seed=0, episode=i) is None for i in range(10))
    monkeypatch.setattr(Fetch, "episode_s", 15.0)  # by then it is at the cup
    kept = disturbed_episode(world, seed=1, episode=0, learner=_OpenHanded())
    cup, tray = np.split(kept[-1].observation.environment_state[:6], 2)
    assert np.linalg.norm(cup - tray) > 0.3
    is_open = [sample.observation.state.gripper_width > 0.07 for sample in kept]
    closes = [sample.rows[-1, 12] < 0.05 for sample in kept]
    assert np.mean(np.logical_and(is_open, closes)) > 0.05  # it is told what it ought to do


@pytest.mark.parametrize("name", shipped_checkpoints())
def test_a_shipped_policy_knows_the_scene_quantities_of_its_task_by_name(name):
    seen, task = load(name).info.schema, make_task(name.split("-")[0])
    if not name.endswith("-seeing"):
        assert seen.environment_state_names == task.schema.environment_state_names
    assert len(task.schema.environment_state_names) == len(task.environment_state(World(task, seed=0)))


@pytest.mark.long
def test_a_network_of_two_tasks_has_no_names_for_its_scene_quantities():
    samples = [collect(name, num_episodes=2, seed=0)[0] for name in ("track", "strike")]
    data = by_labels("track", samples, "base")
    assert data.schema.environment_state_names == ()
