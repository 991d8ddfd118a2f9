"""Episodes of `pick_place` on franky-sim through the Franka driver, and how well it follows a sine.

    policy server ═ ZeroMQ ═► Session ─► FrankaArm ═ shared memory ═► its process ═ FCI ═► franky-sim

franky-sim's time runs as fast as the machine lets it, so the clock of the control loop is the robot's, and
that clock stops whenever a process is late: this measures the driver and the policy, not a busy machine.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from drivers.fr3 import FR3_LIMITS
from drivers.franka import FrankaArm, FrankaGripper
from robot_runtime.core.robot import ArmState
from robot_runtime.core.values.action import ArmCommand, GripperCommand, JointCommand
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.run import Session
from scripts.lab.fci.scene import FrankaScene
from sim.scene.world import World
from sim.tasks import make_task
from sim.tasks.pick_place import MAX_WALL_FORCE_N, is_placed

_STUCK_S = 5.0
"""Time after which the robot's clock counts as stopped [s]."""
_SETTLED_NS = 200_000_000
_LIMITS = FR3_LIMITS.replace(dq_max=0.8 * FR3_LIMITS.dq_max, ddq_max=0.6 * FR3_LIMITS.ddq_max)
"""An impedance gives way by inertia times acceleration: see docs/franka.md."""


@dataclass(frozen=True, kw_only=True)
class FciEpisode:
    """Result of an episode."""

    seed: int
    success: bool
    completion_s: float | None
    """In the robot's time [s]."""
    wall_force: float
    """Strongest contact with the wall [N]."""
    fault: str
    num_chunks: int
    lag_max: float
    """Farthest that any joint was from its setpoint [rad]."""
    wall_s: float
    """That it took [s]."""


class _RobotClock:
    """The robot's own time; a `robot_runtime.clock.Clock`."""

    def __init__(self, arm: FrankaArm) -> None:
        self._arm = arm

    def now_ns(self) -> int:
        return self._arm.robot_time_ns

    def sleep_until_ns(self, deadline_ns: int) -> None:
        end_s = time.monotonic() + _STUCK_S
        while self._arm.robot_time_ns < deadline_ns and time.monotonic() < end_s:
            time.sleep(0.0004)


class _ArmInRobotTime:
    """The arm, stamped with the robot's own clock."""

    num_joints = 7

    def __init__(self, arm: FrankaArm) -> None:
        self._arm = arm

    def read(self) -> ArmState:
        t_ns = self._arm.robot_time_ns
        return structs.replace(self._arm.read(), t_ns=t_ns)

    def write(self, command: ArmCommand) -> ArmCommand:
        return self._arm.write(command)

    def stop(self) -> None:
        self._arm.stop()


class _HandInRobotTime:
    def __init__(self, hand: FrankaGripper) -> None:
        self._hand = hand

    def read(self) -> float:
        return self._hand.read().width

    def write(self, command: GripperCommand) -> GripperCommand:
        return self._hand.write(command)

    def stop(self) -> None:
        self._hand.stop()


def run_episode(seed: int, policy: str, *, duration_s: float = 15.0) -> FciEpisode:
    """One episode of pick_place, from the start that belongs to the seed.

    policy: address of a server of a policy for it.
    """
    task = make_task("pick_place")
    began_s = time.monotonic()
    with FrankaScene(World(task, seed=seed), seed) as scene:
        arm = FrankaArm(scene.host, needs_real_time=False, state_timeout_s=3.0, silence_s=0.2)
        try:
            hand = FrankaGripper(scene.host, speed=0.1, force=20.0, state_timeout_s=5.0)
            try:
                return _run(scene, arm, hand, seed, policy, duration_s, began_s)
            finally:
                hand.close()
        finally:
            arm.close()


def _run(
    scene: FrankaScene,
    arm: FrankaArm,
    hand: FrankaGripper,
    seed: int,
    policy: str,
    duration_s: float,
    began_s: float,
) -> FciEpisode:
    robot = Robot(arm=_ArmInRobotTime(arm), gripper=_HandInRobotTime(hand), limits=_LIMITS)

    def observe(state: RobotState) -> Observation:
        world = scene.mirror(state.q, state.gripper("gripper").width)
        seen = world.task.environment_state(world)
        return Observation(state=state, environment_state=seen, task=world.task.instruction)

    session = Session(
        robot,
        policy=policy,
        task=make_task("pick_place").instruction,
        observe=observe,
        clock=_RobotClock(arm),
        seed=seed,
        duration_s=duration_s,
        name="FR3 in franky-sim",
    )
    start_ns: int | None = None
    held_ns: int | None = None
    done_ns: int | None = None
    lag = 0.0
    with session:
        for tick in session:
            scene.tick(tick.now_ns)
            start_ns = tick.now_ns if start_ns is None else start_ns
            measured = arm.read().q
            command = tick.command.parts.get("arm")
            if isinstance(command, JointCommand):
                lag = max(lag, float(np.abs(measured - command.q).max()))
            is_there = is_placed(scene.mirror(measured, hand.read().width))
            held_ns = (tick.now_ns if held_ns is None else held_ns) if is_there else None
            if done_ns is None and held_ns is not None and tick.now_ns - held_ns >= _SETTLED_NS:
                done_ns = tick.now_ns
                session.stop()
    is_done = done_ns is not None and scene.wall_force <= MAX_WALL_FORCE_N
    assert start_ns is not None
    return FciEpisode(
        seed=seed,
        success=is_done,
        completion_s=None if done_ns is None else (done_ns - start_ns) / 1e9,
        wall_force=scene.wall_force,
        fault=session.record.fault,
        num_chunks=session.record.num_splices,
        lag_max=lag,
        wall_s=time.monotonic() - began_s,
    )


def sine_error(
    *, amplitude: float = 0.15, hz: float = 0.25, targets_hz: float = 20.0, duration_s: float = 5.0
) -> float:
    """Return the largest error of joint 1 against a commanded sine after the first second of robot time
    [rad]."""
    with FrankaScene(World(make_task("pick_place"), seed=0), 0) as scene:
        arm = FrankaArm(scene.host, needs_real_time=False, state_timeout_s=3.0, silence_s=0.2)
        try:
            start, due_s, worst = arm.read().q, 0.0, 0.0
            for t_s in _robot_time(arm, duration_s):
                sine = amplitude * np.sin(2.0 * np.pi * hz * t_s)
                if t_s >= due_s:
                    arm.write(JointCommand(q=start + np.array([sine, 0, 0, 0, 0, 0, 0])))
                    due_s += 1.0 / targets_hz
                if t_s > 1.0:
                    worst = max(worst, abs(float(arm.read().q[0] - start[0] - sine)))
            return worst
        finally:
            arm.close()


def _robot_time(arm: FrankaArm, duration_s: float) -> Iterator[float]:
    """Moments of the robot's own time, from 0 to the end [s]."""
    began_ns = arm.robot_time_ns
    while (t_s := (arm.robot_time_ns - began_ns) / 1e9) <= duration_s:
        yield t_s
        time.sleep(0.0004)
