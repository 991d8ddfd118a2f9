"""A simulated robot that executes rows of numbers, tick by tick and within limits, as an executor does.

    plan, seen from an observation  --- to_world --->  executed rows, independent of the robot's pose
                                    <-- from_world --

For an arm on a table rows are joint positions, which do not depend on the observation; of a mobile robot's
rows the base poses do.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from jaxtyping import Float
from msgspec import structs

from robot_runtime.core.plan.limiter import Limiter
from robot_runtime.core.values.action import (
    ActionSpec,
    BasePoseCommand,
    Command,
    GripperCommand,
    JointCommand,
    PartCommand,
    PoseCommand,
    command_at_state,
)
from robot_runtime.core.values.columns import command_numbers
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import ARM, Image, Observation, RobotState
from robot_runtime.core.values.transforms import (
    compose_planar,
    interpolate_planar,
    inverse_planar,
    quaternion_from_rotation,
    rotation_from_6d,
)
from sim.experts.mobile import MOBILE_SPEC
from sim.experts.motion import DT_NS
from sim.experts.two_hands import COLUMNS, TWO_HAND_SPEC
from sim.scene.arms import FACING_MOUNTS
from sim.scene.clock import SimClock
from sim.scene.drivers import sim_limits, sim_robot, sim_whole_body
from sim.scene.task import Scorer
from sim.scene.world import World

TICK_NS = 10_000_000
"""Spacing of the interpolated commands [ns]."""
TICKS_PER_ROW = DT_NS // TICK_NS
Rows = Float[np.ndarray, "n D"]
Numbers = Float[np.ndarray, " D"]


class RobotRollout(Protocol):
    """Executes rows for demonstrations; `to_world` gives executed rows."""

    world: World

    def observe(self) -> tuple[Observation, Observation]:
        """The robot's current observation, and the same without its tracker's errors."""
        ...

    def at_rest(self) -> Numbers:
        """The executed row that keeps the robot stationary."""
        ...

    def to_world(self, rows: Rows, observation: Observation) -> Rows:
        """Convert rows seen from an observation to executed rows."""
        ...

    def from_world(self, rows: Rows, observation: Observation) -> Rows:
        """Inverse of `to_world`."""
        ...

    def off_course(
        self, rows: Rows, drift: Float[np.ndarray, " m"], *, num_rows: int, first: int = 0
    ) -> Rows:
        """Executed rows with an offset that reaches `drift` `num_rows` rows after the row `first`."""
        ...

    def between(self, row: Numbers, next_row: Numbers, alpha: float) -> Numbers:
        """Interpolate between executed rows; fingers change only at the next row."""
        ...

    def command(self, numbers: Numbers) -> Command:
        """Convert an executed row to a command."""
        ...

    def send(self, scorer: Scorer, numbers: Numbers, t_obs_ns: int | None) -> Numbers:
        """Command one tick; returns the numbers after limiting."""
        ...


Cameras = Callable[[World], Mapping[str, Image]]
"""Takes an image with every camera."""


def robot_rollout(world: World, cameras: Cameras | None = None) -> RobotRollout:
    """The robot of a world that has just been reset; cameras: take its observations' images."""
    if len(world.arms) > 1:
        return HandsRollout(world, cameras)
    return MobileRollout(world, cameras) if world.has_base else ArmRollout(world, cameras)


def _with_images(observation: Observation, world: World, cameras: Cameras | None) -> Observation:
    return observation if cameras is None else structs.replace(observation, images=cameras(world))


def execute_row(robot: RobotRollout, scorer: Scorer, row: Numbers, next_row: Numbers) -> None:
    """Command one row: linear to the next row, with a constant gripper, within limits."""
    t_obs_ns = robot.world.t_ns
    for k in range(TICKS_PER_ROW):
        robot.send(scorer, robot.between(row, next_row, k / TICKS_PER_ROW), t_obs_ns)


def _rise(num: int, *, num_rows: int, first: int) -> Float[np.ndarray, " n"]:
    """Share of an offset in each of `num` rows: 0 up to row `first`, 1 after `num_rows` more."""
    return np.sin(0.5 * np.pi * np.clip((np.arange(num) - first) / num_rows, 0.0, 1.0)) ** 2


def row_at_rest(spec: ActionSpec, state: RobotState) -> Numbers:
    """The row of absolute targets that keeps a robot at its measured state."""
    numbers = command_numbers(command_at_state(spec, state), Schema(action_fields=spec.fields))
    return np.array([numbers[name] for name in spec.names])


class ArmRollout:
    """The arm on its table; rows are joint positions (7) [rad] and gripper width [m]."""

    def __init__(self, world: World, cameras: Cameras | None = None) -> None:
        self.world, self._cameras = world, cameras
        self._limiter = Limiter(sim_limits(world), period_ns=TICK_NS)
        self._limiter.reset(self.command(np.array([*world.q, world.gripper_width])), world.t_ns)

    def observe(self) -> tuple[Observation, Observation]:
        observation = _with_images(self.world.observe(), self.world, self._cameras)
        return observation, observation

    def at_rest(self) -> Numbers:
        return np.array([*self.world.q, self.world.gripper_width])

    def to_world(self, rows: Rows, observation: Observation) -> Rows:
        return rows

    def from_world(self, rows: Rows, observation: Observation) -> Rows:
        return rows

    def off_course(self, rows: Rows, drift: Float[np.ndarray, "3"], *, num_rows: int, first: int = 0) -> Rows:
        """drift: of the end effector, in B [m]."""
        J = self.world.kinematics.jacobian(rows[first, :7])
        offset = np.linalg.pinv(J) @ np.concatenate([drift, np.zeros(3)])
        out = rows.copy()
        out[:, :7] += np.outer(_rise(len(rows), num_rows=num_rows, first=first), offset)
        return out

    def between(self, row: Numbers, next_row: Numbers, alpha: float) -> Numbers:
        return np.array([*((1.0 - alpha) * row[:7] + alpha * next_row[:7]), row[7]])

    def command(self, numbers: Numbers) -> Command:
        return Command(arm=JointCommand(q=numbers[:7]), gripper=GripperCommand(width=float(numbers[7])))

    def send(self, scorer: Scorer, numbers: Numbers, t_obs_ns: int | None) -> Numbers:
        world = self.world
        command, _ = self._limiter.limit(self.command(numbers), world.t_ns)
        assert isinstance(command.arm, JointCommand)
        assert command.gripper is not None
        world.set_joint_target(command.arm.q)
        world.set_gripper_target(command.gripper.width)
        scorer.on_tick(world.t_ns, world, command, t_obs_ns)
        world.advance_to(world.t_ns + TICK_NS)
        return np.array([*command.arm.q, command.gripper.width])


class MobileRollout:
    """Arm and base; rows as in `MOBILE_SPEC`, executed ones with base poses in the odometry frame."""

    def __init__(self, world: World, cameras: Cameras | None = None) -> None:
        self.world, self._clock, self._cameras = world, SimClock(), cameras
        self._clock.sleep_until_ns(world.t_ns)
        self._robot, self._whole_body = sim_robot(world, self._clock), sim_whole_body(world)[ARM]
        self._state = self._robot.read()
        self._whole_body.reset(self._state.q, world.t_ns)
        self._limiter = Limiter(sim_limits(world), period_ns=TICK_NS)
        here = self._whole_body.resolve(command_at_state(MOBILE_SPEC, self._state), self._state, world.t_ns)
        self._limiter.reset(here, world.t_ns)

    def observe(self) -> tuple[Observation, Observation]:
        seen = _with_images(self.world.observe(self._state), self.world, self._cameras)
        return seen, self.world.observe(self._state, exact=True)

    def at_rest(self) -> Numbers:
        return row_at_rest(MOBILE_SPEC, self._state)

    def to_world(self, rows: Rows, observation: Observation) -> Rows:
        return self._moved(rows, np.asarray(observation.state.x_WB))

    def from_world(self, rows: Rows, observation: Observation) -> Rows:
        return self._moved(rows, inverse_planar(np.asarray(observation.state.x_WB)))

    def _moved(self, rows: Rows, x: Float[np.ndarray, "3"]) -> Rows:
        out = rows.copy()
        out[:, :3] = [compose_planar(x, row) for row in rows[:, :3]]
        return out

    def off_course(self, rows: Rows, drift: Float[np.ndarray, "6"], *, num_rows: int, first: int = 0) -> Rows:
        """drift: of the end effector in B [m], then of the base (x, y, yaw) [m, m, rad]."""
        out, rise = rows.copy(), _rise(len(rows), num_rows=num_rows, first=first)
        out[:, 3:6] += np.outer(rise, drift[:3])
        out[:, :3] += np.outer(rise, drift[3:])
        return out

    def between(self, row: Numbers, next_row: Numbers, alpha: float) -> Numbers:
        out = (1.0 - alpha) * row + alpha * next_row
        out[:3], out[12] = interpolate_planar(row[:3], next_row[:3], alpha), row[12]
        return out

    def command(self, numbers: Numbers) -> Command:
        R_BE = rotation_from_6d(numbers[6:12])
        return Command(
            arm=PoseCommand(p_BE=numbers[3:6], quat_BE=quaternion_from_rotation(R_BE)),
            base=BasePoseCommand(x_WB=numbers[:3]),
            gripper=GripperCommand(width=float(numbers[12])),
        )

    def send(self, scorer: Scorer, numbers: Numbers, t_obs_ns: int | None) -> Numbers:
        now_ns = self.world.t_ns
        resolved = self._whole_body.resolve(self.command(numbers), self._state, now_ns)
        sent, _ = self._limiter.limit(resolved, now_ns)
        self._robot.write(sent)
        scorer.on_tick(now_ns, self.world, sent, t_obs_ns)
        self._clock.sleep_until_ns(now_ns + TICK_NS)
        self._state = self._robot.read()
        return numbers


class HandsRollout:
    """Two arms; rows as in `TWO_HAND_SPEC`: end-effector poses in B, and gripper widths."""

    def __init__(self, world: World, cameras: Cameras | None = None) -> None:
        self.world, self._clock, self._cameras = world, SimClock(), cameras
        self._clock.sleep_until_ns(world.t_ns)
        self._robot, self._bodies = sim_robot(world, self._clock), sim_whole_body(world)
        self._state = self._robot.read()
        for name, body in self._bodies.items():
            body.reset(self._state.arm(name).q, world.t_ns)
        self._limiter = Limiter(sim_limits(world), period_ns=TICK_NS)
        self._limiter.reset(self._resolved(command_at_state(TWO_HAND_SPEC, self._state)), world.t_ns)

    def _resolved(self, command: Command) -> Command:
        for body in self._bodies.values():
            command = body.resolve(command, self._state, self.world.t_ns)
        return command

    def observe(self) -> tuple[Observation, Observation]:
        seen = _with_images(self.world.observe(self._state), self.world, self._cameras)
        return seen, self.world.observe(self._state, exact=True)

    def at_rest(self) -> Numbers:
        return row_at_rest(TWO_HAND_SPEC, self._state)

    def to_world(self, rows: Rows, observation: Observation) -> Rows:
        return rows

    def from_world(self, rows: Rows, observation: Observation) -> Rows:
        return rows

    def off_course(self, rows: Rows, drift: Float[np.ndarray, "3"], *, num_rows: int, first: int = 0) -> Rows:
        """drift: of one end effector in B [m]; the other's is rotated by 90 degrees about the vertical."""
        out, rise = rows.copy(), _rise(len(rows), num_rows=num_rows, first=first)
        other = np.array([-drift[1], drift[0], drift[2]])
        for columns, offset in zip(COLUMNS.values(), (drift, other), strict=True):
            out[:, columns.start : columns.start + 3] += np.outer(rise, offset)
        return out

    def between(self, row: Numbers, next_row: Numbers, alpha: float) -> Numbers:
        out = (1.0 - alpha) * row + alpha * next_row
        for columns in COLUMNS.values():
            out[columns.stop - 1] = row[columns.stop - 1]
        return out

    def command(self, numbers: Numbers) -> Command:
        parts: dict[str, PartCommand] = {}
        for mount in FACING_MOUNTS:
            own = numbers[COLUMNS[mount.arm]]
            quat_BE = quaternion_from_rotation(rotation_from_6d(own[3:9]))
            parts[mount.arm] = PoseCommand(p_BE=own[:3], quat_BE=quat_BE)
            parts[mount.gripper] = GripperCommand(width=float(own[9]))
        return Command(parts)

    def send(self, scorer: Scorer, numbers: Numbers, t_obs_ns: int | None) -> Numbers:
        now_ns = self.world.t_ns
        sent, _ = self._limiter.limit(self._resolved(self.command(numbers)), now_ns)
        self._robot.write(sent)
        scorer.on_tick(now_ns, self.world, sent, t_obs_ns)
        self._clock.sleep_until_ns(now_ns + TICK_NS)
        self._state = self._robot.read()
        return numbers
