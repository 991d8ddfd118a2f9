"""Who drove, and how far a handover had come, tick by tick, against tables that were written by hand.

The policy holds the measured state, and its answers take 60 ms, six ticks; the operator drives each part to
where it is. So all is at rest, and each change comes at the tick in the table.
"""

import numpy as np
import pytest

from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.values.action import command_at_state
from robot_runtime.core.values.state import Observation
from tests.core.shared_robot import ARMS, HOME, SPEC, TICK, SharedRobot

POLICY, HUMAN, HOLD, SAFETY = Authority.POLICY, Authority.HUMAN, Authority.HOLD, Authority.SAFETY
P = HandoverPhase
STARTS = [(0, HOLD, P.NONE), (6, POLICY, P.NONE)]


def standing(observation: Observation) -> np.ndarray:
    here = [*(observation.state.arm(part).q for part in ARMS), [0.08]]
    return np.tile(np.concatenate(here), (SPEC.horizon, 1))


def driven(events, *, until: int, parts=(), leads=lambda i: True) -> SharedRobot:
    """events: tick -> what happens before it."""

    def act(robot: SharedRobot, t: int):
        i = t // TICK
        if (event := events.get(i)) is not None:
            event(robot, t)
        taken = robot.executor.taken_over
        sent = robot.sent or command_at_state(SPEC, robot.state(t))
        return {part: sent.parts[part] for part in taken} if leads(i) else None

    robot = SharedRobot(act, rows_of=standing)
    robot.run(until * TICK)
    return robot


def takes(*parts):
    return lambda robot, t: robot.executor.take_over(parts, t)


def gives(*parts):
    return lambda robot, t: robot.executor.hand_back(parts, t)


def table(robot: SharedRobot, part: str) -> list:
    """(first tick, authority, phase) of each span."""
    rows = [(i, tick.authority[part], tick.phase_of[part]) for i, tick in enumerate(robot.ticks)]
    return [row for i, row in enumerate(rows) if i == 0 or rows[i - 1][1:] != row[1:]]


def test_no_takeover():
    robot = driven({}, until=200)
    assert table(robot, "left_arm") == STARTS
    assert [tick.policy_command is None for tick in robot.ticks[:8]] == [True] * 6 + [False] * 2


ONE = [(50, HUMAN, P.ADAPT), (100, HUMAN, P.CORRECT), (150, HOLD, P.RELEASE), (157, POLICY, P.NONE)]


def test_one_takeover():
    robot = driven({50: takes(), 150: gives()}, until=250)
    assert table(robot, "left_arm") == table(robot, "gripper") == STARTS + ONE
    wanted = [tick.policy_command is not None for tick in robot.ticks]
    assert wanted == [False] * 6 + [True] * 145 + [False] * 6 + [True] * 93
    assert {tick.mode for tick in robot.ticks[6:150]} == {Mode.RUN}, "the plan continues in the shadow"
    assert {tick.cause for tick in robot.ticks[151:157]} == {Cause.HANDED_BACK}


def test_two_takeovers():
    robot = driven({50: takes(), 150: gives(), 200: takes(), 220: gives()}, until=300)
    two = [(200, HUMAN, P.ADAPT), (220, HOLD, P.RELEASE), (227, POLICY, P.NONE)]
    assert table(robot, "right_arm") == STARTS + ONE + two


def test_a_takeover_at_the_first_tick():
    robot = driven({0: takes(), 80: gives()}, until=150)
    assert table(robot, "left_arm") == [
        (0, HUMAN, P.ADAPT),
        (50, HUMAN, P.CORRECT),
        (80, HOLD, P.RELEASE),
        (87, POLICY, P.NONE),
    ]


def test_an_episode_that_ends_in_a_takeover():
    robot = driven({50: takes()}, until=120)
    assert table(robot, "left_arm") == STARTS + ONE[:2]


def test_a_takeover_with_a_pause():
    """The operator gives no target for 20 ticks: a pause is recorded as one."""
    robot = driven({50: takes()}, until=140, leads=lambda i: not 110 <= i < 130)
    pause = [(110, HOLD, P.CORRECT), (130, HUMAN, P.CORRECT)]
    assert table(robot, "left_arm") == STARTS + ONE[:2] + pause


def test_a_takeover_with_a_late_first_target():
    robot = driven({50: takes()}, until=90, leads=lambda i: i >= 70)
    assert table(robot, "left_arm") == [*STARTS, (50, HOLD, P.REQUEST), (70, HUMAN, P.ADAPT)]


def test_a_pause_without_a_takeover():
    """The server is gone from tick 60 on and back at 300; the plan ends 23 rows after the last capture."""

    def goes(robot, t):
        robot.is_answered = False
        robot.executor.on_server_lost()

    def comes(robot, t):
        robot.is_answered = True
        robot.executor.on_server_lost()  # what was asked meanwhile is lost, too

    robot = driven({60: goes, 300: comes}, until=400)
    answered = [t for t, _ in robot.requests if t < 60 * TICK][-2:]
    ends = [(t + 23 * SPEC.dt_ns) // TICK for t in answered]
    starts, runs, holds, again = table(robot, "left_arm")
    assert [starts, runs] == STARTS
    assert holds[0] in ends
    assert holds[1:] == (HOLD, P.NONE)
    assert again[1:] == (POLICY, P.NONE)
    assert again[0] > 300


def test_one_arm_of_two():
    robot = driven({50: takes("right_arm"), 150: gives("right_arm")}, until=250)
    assert table(robot, "right_arm") == STARTS + ONE
    assert table(robot, "left_arm") == table(robot, "gripper") == STARTS


def test_an_abort_in_a_takeover():
    robot = driven({50: takes(), 120: lambda robot, t: robot.executor.stop()}, until=200)
    assert table(robot, "left_arm") == [*STARTS, *ONE[:2], (120, SAFETY, P.CORRECT)]
    assert all(np.array_equal(tick.command.parts["left_arm"].q, HOME) for tick in robot.ticks[120:])


@pytest.mark.parametrize("kind", ["streamed", "pipelined-prefix"])
def test_the_table_of_one_takeover_is_the_same_for_other_methods(kind):
    robot = SharedRobot(
        lambda robot, t: _holding(robot, t, 50, 150),
        rows_of=standing,
        **({"chunks_of": 4} if kind == "streamed" else {"method": kind}),
    )
    robot.run(250 * TICK)
    assert table(robot, "left_arm") == STARTS + ONE


def _holding(robot: SharedRobot, t: int, start: int, end: int):
    if t == start * TICK:
        robot.executor.take_over((), t)
    if t == end * TICK:
        robot.executor.hand_back((), t)
    return None if not robot.executor.taken_over else dict(robot.sent.parts)
