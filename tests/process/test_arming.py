"""Real runs over ZeroMQ that a person arms, holds, lets go and arms again; her switches are real files."""

import os
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import robot_runtime as rr
from drivers.ideal import IdealArm
from policies.scripted import SinePolicy
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.errors import (
    DriverError,
    InvalidValueError,
    NotArmedError,
    RobotRuntimeError,
)
from robot_runtime.robot.watched_switch import await_operator
from tests.process.armed import driving, lines, rest_of, robot_at, session_at, until
from tests.process.pedal import Pedal
from tests.process.toy import serving

pytestmark = pytest.mark.real_time
EXAMPLE = Path(__file__).parents[2] / "examples" / "own_robot.py"
ENV = os.environ | {"PYTHONPATH": str(EXAMPLE.parents[1])}


@pytest.fixture(scope="module")
def address():
    with serving(SinePolicy(amplitude=0.3)) as server:
        yield server.address


@pytest.fixture
def pedal(tmp_path):
    made = Pedal(tmp_path)
    yield made
    made.unplug()


@pytest.fixture
def button(tmp_path):
    made = Pedal(tmp_path, "BTN_SOUTH")
    yield made
    made.unplug()


def test_nothing_moves_until_chunks_have_come_and_the_button_is_pressed(address, button):
    robot, said = robot_at(), []
    start = robot.arm.q.copy()
    with driving(address, robot, arm=button.switch(), say=said.append) as session:
        assert until(session, lambda tick: session.record.num_ticks > 100).cause is Cause.NOT_ARMED
        np.testing.assert_array_equal(robot.arm.q, start)
        assert session.why_not_armed == ""
        assert f"waits to be armed: press BTN_SOUTH of {button.path}" in said
        button.press()
        until(session, lambda tick: tick.mode is Mode.RUN)
        assert session.is_armed
    assert [by for _, by in session.record.armed] == [f"BTN_SOUTH of {button.path}"]


def test_who_arms_too_early_is_told_what_is_missing(address):
    with driving(address, arming=rr.ArmingRules(fresh_chunks=5)) as session:
        next(session)
        assert session.why_not_armed == "0 of 5 fresh chunks have come"
        with pytest.raises(NotArmedError, match="cannot be armed: 0 of 5 fresh chunks have come"):
            session.arm_now()
        until(session, lambda tick: session.why_not_armed == "")
        session.arm_now()
        until(session, lambda tick: tick.mode is Mode.RUN)
        session.reset()
        assert not session.is_armed
    assert session.record.armed[0][1] == "Session.arm_now()"


def test_a_policy_that_answers_too_late_is_not_armed(address):
    with driving(address, arming=rr.ArmingRules(latency_budget_s=1e-6)) as session:
        until(session, lambda tick: "latency" in session.why_not_armed)
        with pytest.raises(NotArmedError, match=r"answers are too late: latency p95 \d+ ms, budget 0 ms"):
            session.arm_now()
        until(session, lambda tick: "cannot be armed yet: answers are too late" in lines(session))


def test_hold_to_run_let_go_is_stop_in_the_next_tick_and_the_robot_is_armed_anew(address, pedal, button):
    with driving(address, arm=button.switch(), hold_to_run=pedal.switch()) as session:
        until(session, lambda tick: session.why_not_armed == "")
        button.press()
        until(session, lambda tick: "hold-to-run is not held" in lines(session))
        button.let_go()
        pedal.press()
        until(session, lambda tick: session.runner.operator._hold.look().is_pressed)
        button.press()
        until(session, lambda tick: tick.mode is Mode.RUN)
        pedal.let_go()
        time.sleep(0.002)  # less than half a tick
        tick = next(session)
        assert (tick.mode, tick.cause) == (Mode.STOP, Cause.RELEASED)
        button.let_go()
        until(session, lambda tick: session.runner.executor.is_at_rest)
        assert next(session).mode is Mode.STOP  # it stands, and the run goes on
        pedal.press()
        button.press()
        until(session, lambda tick: tick.cause is Cause.NOT_ARMED)
        button.let_go()
        until(session, lambda tick: session.why_not_armed == "")
        button.press()
        until(session, lambda tick: tick.mode is Mode.RUN)
    assert len(session.record.armed) == 2
    assert "RUN -> STOP: hold-to-run was let go" in lines(session)


def test_a_session_that_was_stopped_goes_on_after_a_reset(address):
    with driving(address) as session:
        until(session, lambda tick: tick.mode is Mode.RUN)
        session.stop()
        assert next(session).mode is Mode.STOP
        session.reset()
        until(session, lambda tick: tick.mode is Mode.RUN)


@pytest.mark.parametrize("is_entered", [True, False])
def test_switches_are_closed_whether_or_not_the_session_ever_ran(address, is_entered):
    switch = Hanging()
    with (
        pytest.raises(RobotRuntimeError) if not is_entered else nullcontext(),
        session_at(address if is_entered else "tcp://127.0.0.1:9", hold_to_run=switch, connect_timeout_s=0.1),
    ):
        pass
    assert switch.freed


def test_held_alone_it_arms_and_resets_too(address, pedal):
    with driving(address, hold_to_run=pedal.switch()) as session:
        for _ in range(2):
            pedal.press()
            until(session, lambda tick: tick.mode is Mode.RUN)
            pedal.let_go()
            until(session, lambda tick: tick.mode is Mode.STOP and session.runner.executor.is_at_rest)
    assert len(session.record.armed) == 2


def test_a_pedal_that_is_pressed_from_the_start_has_to_be_let_go_first(address, pedal):
    pedal.press()
    with driving(address, hold_to_run=pedal.switch()) as session:
        until(session, lambda tick: session.record.num_ticks > 100)
        assert not session.is_armed


def test_a_pedal_that_is_unplugged_is_stop_and_ends_the_run(address, pedal):
    with driving(address, hold_to_run=pedal.switch()) as session:
        pedal.press()
        until(session, lambda tick: tick.mode is Mode.RUN)
        pedal.unplug()
        rest = rest_of(session)
    assert rest[-1].cause is Cause.SWITCH_LOST
    assert session.record.num_ticks < 2000


def test_a_pedal_that_is_let_go_and_then_unplugged_ends_the_run_that_waits_for_it(address, pedal):
    with driving(address, hold_to_run=pedal.switch()) as session:
        pedal.press()
        until(session, lambda tick: tick.mode is Mode.RUN)
        pedal.let_go()
        until(session, lambda tick: tick.mode is Mode.STOP and session.runner.executor.is_at_rest)
        pedal.unplug()
        assert len(rest_of(session)) < 200
    assert "is lost" in lines(session)


class Vague:
    """Says something else than True or False."""

    name = "a pedal"

    def read(self):
        return "let go"

    def close(self) -> None: ...


def test_what_is_no_switch_neither_arms_nor_holds(address, pedal):
    with driving(address, hold_to_run=Vague()) as session:
        assert rest_of(session)[-1].cause is Cause.SWITCH_LOST
    assert "expected True or False from read() of a pedal, got str" in lines(session)
    for name in ("arm", "hold_to_run"):
        with pytest.raises(InvalidValueError, match=rf"{name} is a switch, with read\(\).*, got IdealArm"):
            session_at(address, **{name: IdealArm()})
    both = pedal.switch()
    with pytest.raises(InvalidValueError, match="one that does both is hold_to_run"):
        session_at(address, arm=both, hold_to_run=both)
    both.close()


def test_a_key_that_was_struck_before_the_pedal_was_pressed_is_no_wish_to_move(pedal, button):
    arm, hold, said, polls = button.switch(), pedal.switch(), [], iter(range(100))

    def should_stop():
        poll = next(polls)
        if poll == 2:
            button.press()
        if poll == 4:
            button.let_go()
        if poll == 6:
            pedal.press()
        return poll > 20

    await_operator(arm, hold, "home", say=said.append, should_stop=should_stop)
    assert next(polls) > 20  # it waited until it was told to wait no more
    with pytest.raises(InvalidValueError, match="hold_to_run is a switch"):
        await_operator(None, IdealArm(), "home", say=said.append, should_stop=lambda: True)


class Hanging:
    """Its driver is stuck after a while."""

    name = "a pedal"

    def __init__(self) -> None:
        self.reads, self.freed = 0, False

    def read(self) -> bool:
        self.reads += 1
        while self.reads > 500 and not self.freed:
            time.sleep(0.001)
        return self.reads > 10

    def close(self) -> None:
        self.freed = True


def test_a_pedal_whose_driver_hangs_is_lost_after_a_tenth_of_a_second(address):
    pedal = Hanging()
    with driving(address, hold_to_run=pedal) as session:
        until(session, lambda tick: tick.mode is Mode.RUN)
        ticks = rest_of(session)
        pedal.close()
    assert ticks[-1].cause is Cause.SWITCH_LOST


def test_ctrl_c_ends_a_robot_that_waits_to_be_armed(address, pedal):
    robot = robot_at()
    session = session_at(address, robot, hold_to_run=pedal.switch())

    def interrupted():
        with session:
            for _ in session:
                if session.why_not_armed == "":
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert session.runner.executor.mode is Mode.STOP
    assert session.record.fault == "the robot did not move: it is not armed: no operator has armed it"


class Latching(IdealArm):
    """Refuses to move after a reflex, until its operator has looked at it."""

    fault = ""

    def write(self, command):
        if self.fault:
            raise DriverError(self.fault)
        return super().write(command)

    def recover(self) -> None:
        self.fault = ""


def test_a_latched_fault_ends_the_run_and_the_one_after_recovery_is_armed_anew(address):
    robot = robot_at(arm_class=Latching)

    def moved(**options):
        with driving(address, robot, arming=rr.ArmingRules(), **options) as session:
            assert not session.is_armed
            until(session, lambda tick: session.why_not_armed == "")
            session.arm_now()
            until(session, lambda tick: tick.mode is Mode.RUN)
            yield session

    def broken():
        for session in moved():
            robot.arm.fault = "cartesian_reflex: look at the robot, then call recover"
            rest_of(session)

    with pytest.raises(DriverError, match="cartesian_reflex"):
        broken()
    robot.arm.recover()
    assert len(list(moved())) == 1


# ---- one controller --------------------------------------------------------------------------------------
