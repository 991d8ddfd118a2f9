"""Plain numbers that are velocities or steps stop when a plan has ended; positions stay as it left them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from robot_runtime import evaluate
from robot_runtime.core.configuration import Configuration
from robot_runtime.core.env import EnvInfo, EnvStep
from robot_runtime.core.executor import Executor
from robot_runtime.core.method.table import method_named
from robot_runtime.core.plan.limits import Limits, MotionLimits, NumbersLimits
from robot_runtime.core.values.action import ActionSpec, ChunkPart, Numbers
from robot_runtime.core.values.alignment import Alignment
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import InvalidValueError, UnknownNameError
from tests.evaluation.points import NumbersPolicy

DT, TICK = 50_000_000, 2_000_000
WHEEL_AND_GRIP = Numbers(("wheel", "grip"), at_rest=(0.0, None))
WIDE = NumbersLimits(low=np.full(2, -9.0), high=np.full(2, 9.0))
SLOW = MotionLimits(speed=np.full(2, 2.0), acceleration=np.full(2, 10.0), jerk=np.full(2, 1000.0))


def given_rows(numbers: Numbers, limits: NumbersLimits, rows: np.ndarray) -> Executor:
    """A robot with a chunk whose row 0 is due at 0."""
    robot = Executor(
        Configuration(
            action_spec=ActionSpec(fields=(numbers,), horizon=len(rows), dt_ns=DT),
            method=method_named("time-aligned", execution_horizon=1),
            limits=Limits({numbers.part: limits}),
            control_period_ns=TICK,
        )
    )
    state = RobotState(t_ns=0)
    robot.reset(state, 0)
    asked = robot.make_request(Observation(state=state))
    part = ChunkPart(
        request_id=asked.request_id, epoch=1, t_obs_ns=0, first_row=0, rows=np.array(rows), is_last=True
    )
    robot.on_part(part, 0)
    return robot


def commanded(robot: Executor, times_ns: Sequence[int]) -> list[list[float]]:
    commands = [robot.tick(RobotState(t_ns=t_ns), t_ns).command for t_ns in times_ns]
    return [command.parts["action"].values.tolist() for command in commands]


def test_velocities_stop_when_their_last_row_has_run_and_positions_stay():
    robot = given_rows(WHEEL_AND_GRIP, WIDE, [[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])
    sent = commanded(robot, (0, DT, 2 * DT, 3 * DT - TICK, 3 * DT, 9 * DT))
    assert sent == [[1.0, 5.0], [2.0, 6.0], [3.0, 7.0], [3.0, 7.0], [0.0, 7.0], [0.0, 7.0]]


def test_the_plan_shown_to_a_policy_is_at_rest_beyond_its_end():
    robot = given_rows(WHEEL_AND_GRIP, WIDE, [[1.0, 5.0], [2.0, 6.0]])
    rows = robot.timeline.waypoints_at([0, DT, 2 * DT, 3 * DT]).rows_of["action", "held"]
    assert rows.tolist() == [[1.0, 5.0], [2.0, 6.0], [0.0, 6.0], [0.0, 6.0]]


def test_velocities_on_a_path_between_rows_fade_to_rest():
    robot = given_rows(replace(WHEEL_AND_GRIP, is_held=False), WIDE, [[4.0, 5.0], [4.0, 5.0]])
    wheel = [numbers[0] for numbers in commanded(robot, range(0, 6 * DT, TICK))]
    assert wheel[DT // TICK] == 4.0
    assert 0.0 < wheel[2 * DT // TICK] < 4.0
    assert wheel[-1] == 0.0


@pytest.mark.parametrize("motion", [None, SLOW])
def test_a_stop_brings_velocities_to_rest_within_the_limits_and_leaves_positions(motion):
    robot = given_rows(WHEEL_AND_GRIP, replace(WIDE, motion=motion), [[0.5, 0.4]] * 100)
    commanded(robot, range(0, 40 * DT, TICK))
    robot.stop()
    sent = np.array(commanded(robot, range(40 * DT, 80 * DT, TICK)))
    assert robot.is_at_rest
    np.testing.assert_allclose(sent[-1], [0.0, 0.4], atol=1e-9)
    assert motion is None or np.abs(np.diff(sent[:, 0])).max() <= 2.0 * TICK / 1e9 + 1e-9


def test_the_robot_declares_what_stops_it_and_that_travels_with_its_columns():
    robot = Schema(action_fields=(WHEEL_AND_GRIP,))
    assert Schema.from_dict(robot.to_dict()).action_fields == robot.action_fields
    numbers = Numbers(("grip", "wheel"))
    spec = ActionSpec(fields=(numbers,), horizon=2, dt_ns=DT)
    found = Alignment.between(robot=robot, policy=Schema(action_fields=(numbers,)), action_spec=spec)
    assert found.spec.fields == (WHEEL_AND_GRIP,)


def test_rest_needs_one_number_for_each_column_and_a_name_that_there_is():
    with pytest.raises(InvalidValueError, match="2 numbers rest at as many"):
        Numbers(("wheel", "grip"), at_rest=(0.0,))
    with pytest.raises(UnknownNameError, match="whel"):
        EnvInfo.of_numbers(
            "x", actions=("wheel",), low=0.0, high=1.0, control_hz=1.0, max_steps=5, at_rest={"whel": 0.0}
        )


class Cart:
    """A simulated cart commanded by steps, at their sum; keeps them."""

    info = EnvInfo.of_numbers(
        "cart",
        actions=("step",),
        low=-1.0,
        high=1.0,
        state=("place",),
        control_hz=10.0,
        max_steps=20,
        at_rest={"step": 0.0},
    )

    def reset(self, seed: int) -> EnvStep:
        self.sent: list[float] = []
        return EnvStep(state=[0.0])

    def step(self, action: np.ndarray) -> EnvStep:
        self.sent.append(float(action[0]))
        return EnvStep(state=[sum(self.sent)])


@pytest.mark.parametrize("fields", [Cart.info.schema.action_fields, (Numbers(("step",)),)])
def test_a_simulator_that_waits_for_an_answer_holds_for_as_many_steps_and_resumes_from_there(fields):
    """Whether the policy knows that its numbers are steps or not."""
    policy = NumbersPolicy(lambda s: np.full((4, 1), 0.5), fields, num_state=1, horizon=4)
    cart = Cart()
    evaluate(policy, cart, method="synchronous", trace=300.0, seeds=[1])
    assert cart.sent == ([0.0] * 3 + [0.5] * 4) * 2 + [0.0] * 3 + [0.5] * 3
