"""An env of the user's: stepped, checked, and told bit for bit what its own loop would tell it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from robot_runtime import evaluate
from robot_runtime.core.env import EnvInfo, EnvStep, EpisodeScore
from robot_runtime.core.method.table import METHODS, method_named
from robot_runtime.core.plan.limits import Limits
from robot_runtime.core.policy import policy
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import JointPosition, RowTiming
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import EnvError, InvalidValueError, SchemaMismatchError
from tests.evaluation.points import HORIZON, NumbersPolicy, Point, goal_policy, point_info, whole_chunks

ROOT = Path(__file__).parent.parent.parent
SAMPLERS = goal_policy().info.capabilities.samplers
PLAIN = [
    name
    for name, method in sorted(METHODS.items())
    if isinstance(method.sampler, SAMPLERS) and "vlash" not in name and name != "a2c2"
]


@pytest.mark.parametrize("is_held", [True, False])
def test_without_latency_whole_chunks_are_sent_as_a_gymnasium_loop_sends_them_to_the_last_bit(is_held):
    info = point_info(is_held=is_held)
    policy = goal_policy(is_held=is_held, timing=RowTiming.SENT)
    ours, theirs = Point(info), Point(info)
    evaluate(policy, ours, method="synchronous", seeds=[5])
    assert np.array_equal(ours.told, whole_chunks(theirs, policy, seed=5))


def test_asked_at_every_row_without_latency_it_sends_the_first_row_of_each_chunk():
    policy, ours, theirs = goal_policy(), Point(), Point()
    evaluate(policy, ours, method="time-aligned", execution_horizon=1, seeds=[5])
    step = theirs.reset(5)
    for told in ours.told:
        expected = policy.rows(np.asarray(step.state))[0]
        assert np.array_equal(told, expected)
        step = theirs.step(expected)


def test_latency_costs_the_steps_it_would_have_cost():
    env = Point()
    evaluate(goal_policy(), env, method="synchronous", trace=300.0, seeds=[5])
    start = env.told[0]
    assert all(np.array_equal(told, start) for told in env.told[:3])
    assert not np.array_equal(env.told[3], start)


@pytest.mark.parametrize("method", PLAIN)
def test_a_policy_with_its_columns_in_another_order_sends_the_same_actions(method):
    """In simulation as over the wire: rows, and the prefix that it is shown, are matched by name."""
    sent = []
    for names in (("x", "y"), ("y", "x")):
        env = Point()
        evaluate(goal_policy(names=names), env, method=method, trace=200.0, seeds=[3])
        sent.append(np.array(env.told))
    assert np.array_equal(*sent)


def test_before_the_first_answer_a_place_is_held_where_it_was_measured():
    env = Point()
    evaluate(goal_policy(), env, trace=300.0, seeds=[5])
    at = Point().reset(5).state[:2]
    assert np.array_equal(env.told[0], at)


@pytest.mark.long
@pytest.mark.parametrize("method", PLAIN)
def test_every_plain_method_runs_and_the_same_seeds_give_the_same_actions(method):
    done = [evaluate(goal_policy(), Point, method=method, trace="spikes", seeds=range(3)) for _ in range(2)]
    assert [e.digest for e in done[0].episodes] == [e.digest for e in done[1].episodes]
    assert len({e.digest for e in done[0].episodes}) == 3


def test_a_goal_is_reached_and_told_with_its_figures():
    done = evaluate(goal_policy(), Point(), method=method_named("synchronous"), trace=100.0, seeds=range(4))
    assert done.success == 1.0
    assert 0.0 < done.summary()["completion_s_median"] < 5.0
    assert '"env": "point"' in done.to_json()


def test_actions_beyond_the_range_are_clipped_to_it():
    fields = goal_policy().info.action_spec.fields
    wild = NumbersPolicy(lambda s: np.full((HORIZON, 2), 7.0), fields, num_state=4)
    env = Point()
    evaluate(wild, env, method="synchronous", seeds=[1])
    assert np.abs(env.told).max() == 1.0


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (EnvStep(state=[0.0, 0.0, np.nan, 0.0]), "step 1: its state is not finite: goal_x"),
        (
            EnvStep(state=[0.0, 0.0]),
            r"step 1: its state has shape \(2,\), expected \(4,\): x, y",
        ),
        ([0.0, 0.0, 0.0, 0.0], "step 1: expected an EnvStep, got list"),
    ],
)
def test_what_an_env_did_not_declare_is_named(shown, words):
    env = Point()
    env.step = lambda action: shown
    with pytest.raises(EnvError, match=words):
        evaluate(goal_policy(), env, method="synchronous", seeds=[1])


def test_an_env_that_never_says_is_success_has_none_instead_of_failures():
    class Silent(Point):
        def shown(self) -> EnvStep:
            return EnvStep(state=super().shown().state)

    done = evaluate(goal_policy(), Silent, seeds=range(2))
    assert done.summary()["success"] is None
    assert not any(result.score.has_success for result in done.episodes)


@given(done=st.lists(st.booleans(), min_size=5, max_size=5), any_success=st.booleans())
@example(done=[False, True, True, False, False], any_success=False)
def test_an_episode_succeeds_by_its_last_step_or_by_any_of_them_as_the_env_declares(done, any_success):
    class Listed(Point):
        info = EnvInfo.of_numbers(
            "listed", actions=("x", "y"), low=-1.0, high=1.0, state=("x", "y", "goal_x", "goal_y"),
            control_hz=10.0, max_steps=5, any_success=any_success,
        )  # fmt: skip

        def __init__(self) -> None:
            super().__init__(self.info)

        def shown(self) -> EnvStep:
            k = len(self.told)
            return EnvStep(state=super().shown().state, is_success=k > 0 and done[k - 1])

    out = evaluate(goal_policy(), Listed(), seeds=[3])
    succeeded = any(done) if any_success else done[-1]
    assert out.success == float(succeeded)
    assert out.config["success"] == ("in any step" if any_success else "at the end")
    if any_success:
        begun = done.index(True) if succeeded else 0
    else:
        begun = max((k for k in range(5) if not done[k]), default=-1) + 1
    completion_s = out.summary()["completion_s_median"]
    assert completion_s == (pytest.approx((begun + 1) / 10.0) if succeeded else None)


@pytest.mark.parametrize("is_success", [0.5, 1, "yes", [True, False]])
def test_a_success_that_is_no_boolean_is_refused(is_success):
    class Unsure(Point):
        def shown(self) -> EnvStep:
            step = super().shown()
            object.__setattr__(step, "is_success", is_success if self.told else None)  # not checked in a run
            return step

    with pytest.raises(EnvError, match="is_success is True, False or None, got"):
        evaluate(goal_policy(), Unsure(), seeds=[3])


def test_an_env_whose_reset_takes_no_seed_is_refused_before_the_first_episode():
    class Unseeded(Point):
        def reset(self) -> EnvStep:
            return super().reset(0)

    with pytest.raises(InvalidValueError, match=r"Unseeded\.reset takes the seed of the episode"):
        evaluate(goal_policy(), Unseeded(), seeds=[3])


def test_pictures_are_declared_by_env_and_policy_in_the_same_words():
    spec, top = goal_policy().info.action_spec, {"top": (6, 8)}
    seen = []

    class Filmed(Point):
        info = EnvInfo.of_numbers(
            "filmed", actions=("x", "y"), low=-1.0, high=1.0, state=("x", "y", "goal_x", "goal_y"),
            control_hz=10.0, max_steps=10, cameras=top,
        )  # fmt: skip

        def __init__(self) -> None:
            super().__init__(self.info)

        def shown(self) -> EnvStep:
            pixels = np.full((6, 8, 3), len(self.told), np.uint8)
            return EnvStep(state=super().shown().state, images={"top": pixels})

    @policy(PolicyInfo(name="looks", action_spec=spec, schema=Schema.of(spec, cameras=top)))
    def looks(observation):
        seen.append(int(observation.images["top"].pixels[0, 0, 0]))
        return np.zeros((HORIZON, 2))

    evaluate(looks, Filmed(), method="synchronous", seeds=[1])
    assert seen == [0, 8]


def test_what_is_no_env_is_told_what_it_lacks():
    with pytest.raises(InvalidValueError, match="int lacks info, reset, step"):
        evaluate(goal_policy(), 3, seeds=[1])


def test_a_policy_with_other_columns_is_refused():
    other = NumbersPolicy(
        lambda s: np.zeros((HORIZON, 2)), goal_policy().info.action_spec.fields[:1], num_state=6
    )
    with pytest.raises(SchemaMismatchError, match="environment state"):
        evaluate(other, Point(), seeds=[1])


def test_a_negative_delay_and_an_env_without_time_are_refused():
    with pytest.raises(InvalidValueError, match="not negative"):
        evaluate(goal_policy(), Point(), trace=-1.0)
    with pytest.raises(InvalidValueError, match=r"0\.0 Hz"):
        EnvInfo.of_numbers("x", actions=("a",), low=0.0, high=1.0, control_hz=0.0, max_steps=5)


def test_evaluate_needs_neither_mujoco_nor_torch():
    code = (
        "import sys; from robot_runtime import evaluate; from tests.evaluation.points import Point, policy;"
        "evaluate(policy, Point(), seeds=[1]);"
        "print([m for m in ('mujoco', 'torch', 'gymnasium', 'franky_sim', 'sim') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


class JointEnv:
    """Two joints that are where they were told to be, as a robot with parts."""

    def __init__(self) -> None:
        wide = np.full(2, 1e6)
        self.info = EnvInfo(
            name="joints",
            schema=Schema(action_fields=(JointPosition(2),), num_joints=2, has_gripper=False, has_base=False),
            control_period_ns=100_000_000,
            episode_ns=3_000_000_000,
            limits=Limits(
                q_min=-wide,
                q_max=wide,
                dq_max=wide,
                ddq_max=100 * wide,
                dddq_max=10_000 * wide,
                unusual=True,
            ),
        )

    def reset(self, seed: int) -> None:
        self.q, self.t_ns, self.told = np.zeros(2), 0, []

    def read(self) -> RobotState:
        return RobotState(t_ns=self.t_ns, q=self.q, dq=np.zeros(2))

    def observe(self, state, cameras) -> Observation:
        return Observation(state=state, environment_state=state.q)

    def write(self, command):
        self.told.append(command.arm.q.copy())
        return command

    def advance(self, command, t_obs_ns) -> bool:
        self.q, self.t_ns = command.arm.q, self.t_ns + 100_000_000
        return False

    def score(self) -> EpisodeScore:
        return EpisodeScore(success=True, completion_s=None, metrics={})


def test_joints_that_are_sent_row_by_row_are_told_every_row_when_it_is_due():
    def rows(q):
        return q + 0.01 * np.sin(np.arange(HORIZON) + 1.0 + 9.0 * q[0])[:, None]

    policy = NumbersPolicy(rows, (JointPosition(2),), num_state=0, timing=RowTiming.SENT)
    env = JointEnv()
    evaluate(policy, env, method="synchronous", seeds=[1])
    q, expected = np.zeros(2), []
    while len(expected) < 30:
        expected += list(rows(q))
        q = expected[-1]
    assert np.array_equal(env.told, expected[:30])
