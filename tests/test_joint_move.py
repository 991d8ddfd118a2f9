"""Joints moved without a policy: home, and to and fro to find out how late they follow."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.latency import latency_of
from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm
from robot_runtime.commands.doctor.motion import measure_motion
from robot_runtime.core.robot import ArmState
from robot_runtime.core.values.action import ArmCommand, JointCommand
from robot_runtime.core.values.state import readonly
from robot_runtime.errors import DriverError, InvalidValueError
from robot_runtime.robot.joint_move import duration_s, go_home, min_jerk, move_joints
from robot_runtime.robot.robot import Robot
from sim.scene.clock import SimClock

LIMITS = FR3_LIMITS.arm()
HOME = (0.5, -0.5, 0.0, -2.0, 0.0, 1.5, 0.5)
PERIOD_NS = 2_000_000


class LateArm(IdealArm):
    """Goes to a share of where it was told to be, a whole number of ticks later."""

    def __init__(self, clock: SimClock, ticks: int, share: float = 1.0) -> None:
        super().__init__(clock=clock)
        self._start, self._share = self.q, share
        self._told = deque([self.q] * ticks)
        self.sent: list[np.ndarray] = []
        self.stops = 0

    def write(self, command: ArmCommand) -> ArmCommand:
        assert isinstance(command, JointCommand)
        self.sent.append(command.q)
        self._told.append(self._start + self._share * (command.q - self._start))
        self.q = self._told.popleft()
        return command

    def stop(self) -> None:
        self.stops += 1


def robot_of(arm: IdealArm) -> Robot:
    return Robot(arm=arm, limits=FR3_LIMITS)


def test_home_is_reached_within_a_fifth_of_the_speeds_and_the_driver_is_stopped_there() -> None:
    clock = SimClock()
    arm = LateArm(clock, ticks=20)
    go_home(robot_of(arm), {"arm": HOME}, clock=clock)
    np.testing.assert_allclose(arm.q, HOME, atol=1e-6)
    speeds = np.diff(arm.sent, axis=0) / 0.002
    assert (np.abs(speeds).max(axis=0) <= 0.2 * LIMITS.dq_max + 1e-6).all()
    assert arm.stops == 1


def test_who_stops_the_way_home_has_it_end_at_rest_on_the_way() -> None:
    clock = SimClock()
    arm = LateArm(clock, ticks=1)
    go_home(robot_of(arm), {"arm": HOME}, clock=clock, should_stop=lambda: len(arm.sent) > 300)
    assert 300 < len(arm.sent) < 700
    assert np.abs(arm.sent[-1] - np.array(HOME)).max() > 0.1
    steps = np.abs(np.diff(arm.sent, axis=0)).max(axis=1)
    assert steps[-1] < 1e-5


def test_an_arm_that_does_not_come_home_is_an_error_and_is_stopped() -> None:
    clock = SimClock()
    arm = LateArm(clock, ticks=1, share=0.5)
    with pytest.raises(DriverError, match=r"arm is 0\.\d+ rad from its home position"):
        go_home(robot_of(arm), {"arm": HOME}, clock=clock)
    assert arm.stops == 1


def test_a_driver_that_measures_nan_on_the_way_is_stopped_with_an_error() -> None:
    clock = SimClock()

    class Broken(LateArm):
        def read(self) -> ArmState:
            q = np.full(7, np.nan) if len(self.sent) > 10 else self.q
            return ArmState(t_ns=clock.now_ns(), q=readonly(q), dq=np.zeros(7))

    arm = Broken(clock, ticks=1)
    with pytest.raises(DriverError, match="NaN"):
        go_home(robot_of(arm), {"arm": HOME}, clock=clock)
    assert arm.stops == 1


def test_a_move_needs_limits() -> None:
    clock = SimClock()
    with pytest.raises(InvalidValueError, match="limits"):
        move_joints(
            Robot(arm=IdealArm(clock=clock)), lambda t_s: {"arm": np.zeros(7)}, clock=clock, control_hz=500
        )


@given(st.floats(0.01, 1.0), st.lists(st.floats(-2, 2), min_size=7, max_size=7))
def test_a_way_of_least_jerk_keeps_speed_and_acceleration_in_the_time_it_is_given(
    share: float, way: list[float]
) -> None:
    seconds = duration_s(np.array(way), LIMITS, share=share)
    t = np.linspace(0.0, 1.0, 401)
    if seconds > 1e-3:
        path = np.array([min_jerk(x) for x in t])[:, None] * np.array(way)
        speed = np.abs(np.diff(path, axis=0)).max(axis=0) / (seconds / 400)
        assert (speed <= share * LIMITS.dq_max * 1.001).all()
        acceleration = np.abs(np.diff(path, 2, axis=0)).max(axis=0) / (seconds / 400) ** 2
        assert (acceleration <= share * LIMITS.ddq_max * 1.01).all()


@pytest.mark.parametrize("ticks", [5, 40, 150])
def test_the_time_from_command_to_motion_is_found(ticks: int) -> None:
    clock = SimClock()
    arm = LateArm(clock, ticks=ticks, share=0.9)
    found, joint = measure_motion(robot_of(arm), "arm", clock=clock)
    # Sent at a tick, in force at the next reading.
    assert abs(found.delay_s - 0.002 * (ticks + 1)) < 0.001
    assert found.gain == pytest.approx(0.9, abs=0.01)
    np.testing.assert_allclose(arm.q, arm.sent[0], atol=1e-4)
    moved = np.ptp(arm.sent, axis=0)
    assert moved[joint] == pytest.approx(0.05, abs=1e-3)
    assert (np.delete(moved, joint) == 0).all()


def test_an_arm_that_stays_where_it_is_has_no_delay_to_be_found() -> None:
    clock = SimClock()
    with pytest.raises(InvalidValueError, match="nothing moved"):
        measure_motion(robot_of(LateArm(clock, ticks=1, share=0.0)), "arm", clock=clock)
    with pytest.raises(InvalidValueError, match="moved 10 % of the commanded distance"):
        measure_motion(robot_of(LateArm(clock, ticks=1, share=0.1)), "arm", clock=clock)
    with pytest.raises(InvalidValueError, match="parts with joints: arm"):
        measure_motion(robot_of(LateArm(clock, ticks=1)), "left_arm", clock=clock)


@given(st.floats(0.0, 0.5), st.integers(0, 2**31 - 1))
def test_a_delay_is_found_between_uneven_stamps_and_noise(delay_s: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sent_s = np.arange(0.0, 3.6, 0.002)
    wave = lambda t: np.where((t > 0) & (t < 3), 0.025 * (1 - np.cos(2 * np.pi * t)), 0.0)  # noqa: E731
    seen_s = np.sort(rng.uniform(0.0, 3.6, 200))
    seen = 0.8 * wave(seen_s - delay_s) + 1.0 + rng.normal(0.0, 2e-4, 200)
    found = latency_of(sent_s, wave(sent_s), seen_s, seen)
    assert not found.problem
    assert abs(found.delay_s - delay_s) < 0.003
    assert abs(found.gain - 0.8) < 0.02
