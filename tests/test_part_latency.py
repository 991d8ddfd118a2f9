"""Latencies as a robot declares them."""

import math

import numpy as np
import pytest

from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from robot_runtime import Robot
from robot_runtime.core.values.command import GripperCommand
from robot_runtime.errors import InvalidValueError, UnknownNameError
from sim.scene.clock import SimClock
from sim.scene.late_part import LatePart


def robot(latency_s) -> Robot:
    return Robot(
        arm=IdealArm(clock=SimClock()), gripper=IdealGripper(), limits=FR3_LIMITS, latency_s=latency_s
    )


def test_a_robot_declares_how_late_its_parts_are_in_seconds():
    assert dict(robot({"arm": 0.1, "gripper": 0.2}).latency_ns) == {
        "arm": 100_000_000,
        "gripper": 200_000_000,
    }
    assert not robot(None).latency_ns


def test_the_latency_of_a_part_that_it_has_not_is_refused_with_those_that_it_has():
    with pytest.raises(UnknownNameError, match=r"part with a latency 'grippper'.*arm, gripper"):
        robot({"grippper": 0.2})


@pytest.mark.parametrize("latency_s", [-0.1, 1.5, 100, math.nan, math.inf, True, "0.1", None])
def test_a_latency_that_is_none_is_refused(latency_s):
    with pytest.raises(InvalidValueError, match=r"latency of arm has to be between 0 and 1 s"):
        robot({"arm": latency_s})


def test_a_late_part_gets_each_command_after_its_dead_time_and_is_measured_at_once():
    clock, gripper = SimClock(), IdealGripper()
    late = LatePart(gripper, clock, 30)
    widths = []
    for t in range(0, 80, 10):
        clock.sleep_until_ns(t)
        late.write(GripperCommand(width=t / 1000))
        widths.append(round(1000 * late.read()))
    assert widths[3:] == [0, 10, 20, 30, 40]
    late.stop()
    clock.sleep_until_ns(1000)
    assert np.isclose(late.read(), 0.04)
