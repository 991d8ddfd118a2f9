"""An operator takes parts over and hands them back: at any time, whatever the targets, without a jump."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.arming import ArmingRules
from robot_runtime.core.authority import ADAPT_NS, Authority, HandoverPhase
from robot_runtime.core.method.table import METHODS
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.values.action import JointPosition, Reference
from robot_runtime.core.values.command import GripperCommand, JointCommand, PoseCommand
from robot_runtime.errors import InvalidValueError, NotArmedError, UnknownNameError
from tests.core.shared_robot import ARMS, DT, FIELDS, HOME, LIMITS, MS, SPEC, TICK, SharedRobot
from tests.examples import examples

POLICY, HUMAN, HOLD, SAFETY = Authority.POLICY, Authority.HUMAN, Authority.HOLD, Authority.SAFETY
KINDS = {
    "time-aligned": {},
    "streamed": {"chunks_of": 4},
    "committed-prefix": {"method": "committed-prefix"},
    "pipelined": {"method": "pipelined-prefix"},
    "delta rows": {
        "spec": replace(
            SPEC, fields=(*(JointPosition(7, Reference.DELTA, part=part) for part in ARMS), FIELDS[-1])
        )
    },
    "rolled forward": {"method": "vlash"},
    "ensembled": {"method": "temporal-ensembling"},
    "corrected": {"method": "a2c2"},
    "synchronous": {"method": "synchronous"},
    "late parts": {"part_latency_ns": {"left_arm": 30 * MS, "right_arm": 60 * MS, "gripper": 100 * MS}},
}
ONE_TICK = float(LIMITS.arm("left_arm").ddq_max.max()) * (TICK / 1e9) ** 2 * (1.0 + 1e-6)
"""How far the acceleration limits let a command deviate from constant speed in a tick: 1e-3 rad."""
FAR = StateLimits(max_arm_error=10.0)


def person(start: int, end: int, target, *, parts=(), leads_from: int = 0):
    """Takes over at a time, drives the part from `leads_from` later, hands back at another time."""

    def act(robot: SharedRobot, t: int):
        if t == start:
            robot.executor.take_over(parts, t)
        if t == end:
            robot.executor.hand_back(parts, t)
        if start + leads_from <= t < end:
            return {part: target(part, t) for part in parts or (*ARMS, "gripper")}
        return None

    return act


def stays_at(q, width: float = 0.05):
    return lambda part, t: GripperCommand(width=width) if part == "gripper" else JointCommand(q=np.array(q))


def paths(ticks, part: str) -> np.ndarray:
    first = ticks[0].command.parts[part]
    return np.array([first.q] * 3 + [tick.command.parts[part].q for tick in ticks])


def assert_within_limits(ticks):
    for part in ARMS:
        limits, path = LIMITS.arm(part), paths(ticks, part)
        assert (path >= limits.q_min - 1e-9).all()
        assert (path <= limits.q_max + 1e-9).all()
        for most in (limits.dq_max, limits.ddq_max, limits.dddq_max):
            path = np.diff(path, axis=0) / (TICK / 1e9)
            assert (np.abs(path) <= most * (1.0 + 1e-6)).all()


def led_on(ticks, part: str, i: int) -> float:
    """How far command i is from the one before it, extrapolated at its speed [rad]."""
    path = paths(ticks[: i + 1], part)
    return float(np.abs(path[-1] - (2.0 * path[-2] - path[-3])).max())


moments = st.integers(0, 100)
angles = st.lists(st.floats(-4.0, 4.0), min_size=7, max_size=7)


@pytest.mark.parametrize("kind", KINDS)
@given(start=moments, lasts=st.integers(1, 60), q=angles, leads_from=st.integers(0, 30), some=st.booleans())
@examples(2)
def test_neither_way_there_is_a_jump_and_no_limit_is_passed(kind, start, lasts, q, leads_from, some):
    found = handover(kind, start=start, lasts=lasts, q=q, leads_from=leads_from, some=some)
    assert found["off"] <= ONE_TICK
    assert found["back"] <= ONE_TICK, "it starts from where it held"


def handover(kind: str, *, start: int, lasts: int, q, leads_from: int, some: bool) -> dict[str, float]:
    """One takeover of a kind: how far the first commands were from where the robot was driven [rad]."""
    begin, end = start * TICK, (start + lasts) * TICK
    parts = ("right_arm",) if some else ()
    act = person(begin, end, stays_at(q), parts=parts, leads_from=leads_from * TICK)
    robot = SharedRobot(act, state_limits=FAR, **KINDS[kind])
    ticks = robot.run(end + 1200 * MS)
    assert_within_limits(ticks)
    found = {"off": 0.0, "back": 0.0}
    for part in parts or ARMS:
        found["off"] = max(found["off"], led_on(ticks, part, start), led_on(ticks, part, start + lasts))
        back = next(i for i in range(start + lasts, len(ticks)) if ticks[i].authority[part] is POLICY)
        step = np.abs(paths(ticks, part)[back + 3] - paths(ticks, part)[back + 2]).max()
        found["back"] = max(found["back"], float(step))
        assert ticks[back].source.t_obs_ns >= end, "with a chunk that was asked for afterwards"
    shadow = [request for t, request in robot.requests if begin < t <= end]
    assert all(r.prev_action_chunk is None and r.inference_delay == 0 for r in shadow)
    for t, request in robot.requests:
        if begin < t <= end:  # from where the robot is, not from where the plan has it
            sent = ticks[t // TICK - 1].command.parts["right_arm"].q
            assert np.allclose(request.observation.state.arm("right_arm").q, sent, atol=1e-9)
    assert ticks[-1].mode is Mode.RUN or kind == "synchronous"
    return found


def test_the_operator_is_followed_and_the_plan_continues_in_the_shadow():
    target = HOME + 0.2
    robot = SharedRobot(person(500 * MS, 3000 * MS, stays_at(target)))
    ticks = robot.run(3000 * MS)
    assert np.allclose(ticks[-1].command.parts["left_arm"].q, target, atol=1e-6)
    assert ticks[-1].command.parts["gripper"].width == pytest.approx(0.05, abs=1e-6)
    assert ticks[-1].authority == dict.fromkeys((*ARMS, "gripper"), HUMAN)
    wanted = [tick.policy_command.parts["left_arm"].q[0] for tick in ticks[150:]]
    assert max(wanted) - min(wanted) > 0.1, "it wants to swing"
    assert max(abs(q - target[0]) for q in wanted) < 0.9, "about where the robot is"
    assert all(tick.mode is Mode.RUN for tick in ticks[150:])


def test_one_arm_of_two_is_taken_over_and_the_other_follows_its_plan():
    target = HOME + 0.1
    alone = SharedRobot().run(2500 * MS)
    act = person(600 * MS, 1500 * MS, stays_at(target), parts=("right_arm",))
    shared = SharedRobot(act).run(2500 * MS)
    others = [
        (a.command.parts["left_arm"].q, b.command.parts["left_arm"].q)
        for a, b in zip(alone, shared, strict=True)
    ]
    assert all(np.array_equal(a, b) for a, b in others[:60])
    assert max(np.abs(a - b).max() for a, b in others) < 0.15, "asked without a prefix it differs a little"
    moving = [np.abs(b - a).max() for (_, a), (_, b) in pairwise(others[60:150])]
    assert np.median(moving) > 1e-4, "it did not wait"
    seen = {tick.authority["left_arm"] for tick in shared[20:]}
    assert seen == {POLICY}
    assert {tick.authority["right_arm"] for tick in shared[60:150]} == {HUMAN}


def test_the_phases_follow_by_rule_and_the_operator_declares_recovering():
    def act(robot, t):
        if t == 500 * MS:
            robot.executor.take_over((), t)
        if t == 1900 * MS:
            robot.executor.say_phase((), HandoverPhase.RECOVER)
        if t == 2200 * MS:
            robot.executor.say_phase((), HandoverPhase.CORRECT)
        if t == 2500 * MS:
            robot.executor.hand_back((), t)
        return None if t < 700 * MS else {part: stays_at(HOME)(part, t) for part in robot.executor.authority}

    ticks = SharedRobot(act).run(3200 * MS)
    runs = [(tick.phase_of["left_arm"], tick.authority["left_arm"]) for tick in ticks[20:]]
    order = [each for i, each in enumerate(runs) if i == 0 or runs[i - 1] != each]
    P = HandoverPhase
    assert order == [
        (P.NONE, POLICY),
        (P.REQUEST, HOLD),
        (P.ALIGN, HUMAN),
        (P.ADAPT, HUMAN),
        (P.CORRECT, HUMAN),
        (P.RECOVER, HUMAN),
        (P.CORRECT, HUMAN),
        (P.RELEASE, HOLD),
        (P.NONE, POLICY),
    ]
    adapts = sum(phase is P.ADAPT for phase, _ in runs)
    assert adapts == ADAPT_NS // TICK


def test_the_operator_drives_on_while_the_policy_is_gone_and_its_parts_hold():
    act = person(
        600 * MS, 4000 * MS, lambda part, t: JointCommand(q=HOME + 0.1 * np.sin(t / 3e8)), parts=ARMS[1:]
    )
    robot = SharedRobot(act)
    robot.run(600 * MS)
    robot.is_answered = False
    robot.executor.on_server_lost()
    ticks = robot.run(4000 * MS)
    assert ticks[-1].mode is Mode.HOLD
    assert ticks[-1].cause is Cause.PLAN_ENDED
    assert (ticks[-1].authority["left_arm"], ticks[-1].authority["right_arm"]) == (HOLD, HUMAN)
    assert np.ptp(paths(ticks[300:], "left_arm"), axis=0).max() < 1e-9
    assert np.ptp(paths(ticks[300:], "right_arm"), axis=0).max() > 0.1


def test_stop_takes_precedence_and_nothing_is_taken_over_until_a_reset():
    act = person(500 * MS, 9000 * MS, lambda part, t: stays_at(HOME + np.sin(t / 3e8))(part, t))
    robot = SharedRobot(act, state_limits=FAR)
    robot.run(1000 * MS)
    robot.executor.stop()
    ticks = robot.run(2500 * MS)
    assert set(ticks[-1].authority.values()) == {SAFETY}
    assert np.ptp(paths(ticks[200:], "left_arm"), axis=0).max() == 0.0
    assert_within_limits(ticks)
    with pytest.raises(InvalidValueError, match="a stop was asked for"):
        robot.executor.take_over((), 2500 * MS)
    robot.executor.reset(robot.state(2500 * MS), 2500 * MS)
    assert set(robot.run(3000 * MS)[-1].authority.values()) == {POLICY}


def test_a_bad_state_brakes_the_operator_too_who_resumes_from_where_it_holds():
    act = person(500 * MS, 9000 * MS, lambda part, t: stays_at(HOME + 0.3 * np.sin(t / 3e8))(part, t))
    robot = SharedRobot(act, state_limits=FAR)
    robot.run(1000 * MS)
    good = robot.state
    robot.state = lambda t: replace_time(good(t), 800 * MS)
    robot.run(1500 * MS)
    assert set(robot.ticks[-1].authority.values()) == {SAFETY}
    assert robot.ticks[-1].cause is Cause.STATE_STALE
    assert robot.executor.is_at_rest
    robot.state, robot.is_answered = good, False
    ticks = robot.run(2500 * MS)
    assert set(ticks[-1].authority.values()) == {HUMAN}, "driving needs no policy"
    assert np.ptp(paths(ticks[200:], "left_arm"), axis=0).max() > 0.05
    assert_within_limits(ticks)


def replace_time(state, t_ns: int):
    return type(state)(t_ns=t_ns, parts=state.parts)


def test_a_robot_that_is_not_armed_cannot_be_taken_over():
    robot = SharedRobot(arming=ArmingRules())
    robot.run(200 * MS)
    with pytest.raises(NotArmedError):
        robot.executor.take_over((), 200 * MS)
    assert set(robot.ticks[-1].authority.values()) == {HOLD}


def test_after_handing_back_without_a_policy_it_holds_and_reports_why():
    robot = SharedRobot(person(500 * MS, 1000 * MS, stays_at(HOME + 0.2)))
    robot.run(1000 * MS)
    robot.is_answered = False
    ticks = robot.run(3000 * MS)
    assert ticks[-1].cause is Cause.HANDED_BACK
    assert {tick.phase_of["left_arm"] for tick in ticks[110:]} == {HandoverPhase.RELEASE}
    assert np.ptp(paths(ticks[150:], "left_arm"), axis=0).max() < 1e-9


def test_an_invalid_target_is_refused_and_the_parts_taken_over_come_to_rest():
    robot = SharedRobot()
    robot.run(500 * MS)
    executor = robot.executor
    with pytest.raises(UnknownNameError, match="left_arm, right_arm"):
        executor.take_over(("tail",), 500 * MS)
    executor.take_over(("left_arm",), 500 * MS)
    bad = [
        JointCommand(q=np.zeros(6)),
        GripperCommand(width=0.0),
        PoseCommand(p_BE=np.zeros(3), quat_BE=np.array([1.0, 0, 0, 0])),
    ]
    for wish in bad:
        with pytest.raises(InvalidValueError, match="expected JointCommand of 7 numbers for"):
            executor.lead({"left_arm": wish}, 500 * MS)
    executor.lead({"right_arm": JointCommand(q=np.zeros(7))}, 500 * MS)  # not taken over: ignored
    tick = robot.step(500 * MS)
    assert (tick.authority["left_arm"], tick.authority["right_arm"]) == (HOLD, POLICY)
    for phase in (HandoverPhase.ALIGN, HandoverPhase.RELEASE):
        with pytest.raises(InvalidValueError, match="RECOVER or CORRECT"):
            executor.say_phase(("left_arm",), phase)
    with pytest.raises(InvalidValueError, match="no operator has taken over right_arm"):
        executor.say_phase(("right_arm",), HandoverPhase.RECOVER)
    executor.hand_back((), 500 * MS)
    with pytest.raises(InvalidValueError, match="no operator has taken over anything"):
        executor.say_phase((), HandoverPhase.RECOVER)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e300])
def test_numbers_that_are_none_move_nothing(number):
    robot = SharedRobot(
        person(500 * MS, 2000 * MS, stays_at(np.full(7, number), width=number)), state_limits=FAR
    )
    assert_within_limits(robot.run(2500 * MS))


def test_what_was_asked_before_the_handing_back_does_not_move_what_was_handed_back():
    """An answer that comes late, for a pose that the robot has left."""
    robot = SharedRobot(person(500 * MS, 1000 * MS, stays_at(HOME + 0.3)), delay_ns=200 * MS)
    ticks = robot.run(2000 * MS)
    released = [tick for tick in ticks if tick.phase_of["left_arm"] is HandoverPhase.RELEASE]
    assert len(released) >= 200 * MS // TICK
    first = next(tick for tick in ticks[100:] if tick.authority["left_arm"] is POLICY)
    assert first.source.t_obs_ns >= 1000 * MS


def test_every_method_is_of_some_kind_that_was_tried():
    tried = {options.get("method", "time-aligned") for options in KINDS.values()}
    assert {type(METHODS[name].request) for name in METHODS} == {
        type(METHODS[name].request) for name in tried
    }
    assert DT > TICK
