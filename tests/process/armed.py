"""Sessions that a person arms, for tests of what she does and of who else drives the robot."""

from contextlib import contextmanager

import pytest

import robot_runtime as rr
from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from robot_runtime.clock import MonotonicClock


def robot_at(device: str | None = None, arm_class=IdealArm) -> rr.Robot:
    arm = arm_class(clock=MonotonicClock())
    arm.address = device
    return rr.Robot(arm=arm, gripper=IdealGripper(), limits=FR3_LIMITS)


def session_at(address, robot=None, **options) -> rr.Session:
    return rr.Session(robot or robot_at(), policy=address, control_hz=200.0, duration_s=20.0, **options)


@contextmanager
def driving(address, robot=None, **options):
    """A session whose loop has begun."""
    with session_at(address, robot, **options) as session:
        yield iter(session)


def until(session, is_so):
    """Go on until it is; the last tick."""
    while (tick := next(session, None)) is not None:
        if is_so(tick):
            return tick
    pytest.fail(f"the run ended before: {[text for _, text in session.record.log]}")


def rest_of(session) -> list[rr.Tick]:
    return list(iter(lambda: next(session, None), None))


def lines(session) -> str:
    return "\n".join(text for _, text in session.record.log)
