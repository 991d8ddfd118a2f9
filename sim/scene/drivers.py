"""Drivers of a simulated `World`: reading advances the world to the clock's time."""

from collections.abc import Mapping

import mujoco
import numpy as np

from drivers.fr3 import FR3_LIMITS
from robot_runtime.clock import Clock
from robot_runtime.core.plan.limits import Limits, MotionLimits
from robot_runtime.core.plan.part_latency import latencies_ns
from robot_runtime.core.plan.whole_body import WholeBody, WholeBodyGains
from robot_runtime.core.robot import ArmState, BaseState
from robot_runtime.core.values.action import (
    NS_PER_S,
    ArmCommand,
    BaseCommand,
    BasePoseCommand,
    BaseTwistCommand,
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
    PoseCommand,
)
from robot_runtime.core.values.state import ARM, BASE, GRIPPER, Image
from robot_runtime.core.values.transforms import quaternion_from_rotation, wrap_angle
from robot_runtime.robot.robot import Driver, Robot
from sim.scene.kinematics import NUM_JOINTS
from sim.scene.late_part import LatePart
from sim.scene.mobile_base import (
    ACCELERATION_MAX,
    POSE_GAIN,
    SETPOINT_ACCELERATION,
    SETPOINT_JERK,
    SETPOINT_SPEED,
    SPEED_MAX,
    Odometry,
    OdometryErrors,
    twist_towards,
)
from sim.scene.model import SERVO_LAG_S
from sim.scene.render import Renderer
from sim.scene.task import CAMERA_SIZE
from sim.scene.world import World

NOISE_FRAMES = 64
"""Number of images after which a simulated sensor's noise repeats."""


class SimArm:
    """Driver of an FR3; lives in the thread that steps the world."""

    num_joints = NUM_JOINTS

    def __init__(self, world: World, clock: Clock, name: str | None = None) -> None:
        """name: of the arm in the world; None: the one arm."""
        self._world, self._clock = world, clock
        self._arm = world.arm if name is None else world.arms[name]

    def read(self) -> ArmState:
        """The current state, at most one physics step old."""
        now_ns = self._clock.now_ns()
        self._world.advance_to(now_ns)
        q = self._arm.q
        return ArmState(t_ns=now_ns, q=q, dq=self._arm.dq, X_BE=self._arm.kinematics.forward(q))

    def write(self, command: ArmCommand) -> ArmCommand:
        """Set the servos; returns what is sent, for a pose out of reach the pose sent instead."""
        self._world.advance_to(self._clock.now_ns())
        match command:
            case JointCommand(q=q):
                return JointCommand(q=self._arm.set_joint_target(q))
            case PoseCommand():
                start = self._arm.joint_target
                q = self._arm.set_joint_target(self._arm.kinematics.solve(command.X_BE, start))
                X_BE = self._arm.kinematics.forward(q)
                return PoseCommand(p_BE=X_BE.translation, quat_BE=quaternion_from_rotation(X_BE.rotation))
            case JointVelocityCommand():
                raise TypeError("the simulated arm follows joint positions and hand poses, not velocities")

    def stop(self) -> None:
        """Hold the current position."""
        self._world.advance_to(self._clock.now_ns())
        self._arm.set_joint_target(self._arm.q)


class SimTorques:
    """Sensor of an arm's joint torques; lives in the thread of the arm."""

    num_values = NUM_JOINTS

    def __init__(self, world: World, clock: Clock, name: str | None = None) -> None:
        """name: of the arm in the world; None: the one arm."""
        self._world, self._clock = world, clock
        self._arm = world.arm if name is None else world.arms[name]

    def read(self) -> np.ndarray:
        """Current servo torques (7,) [Nm], without gravity compensation."""
        self._world.advance_to(self._clock.now_ns())
        return self._arm.torques


class SimGripper:
    """Driver of an arm's two fingers; lives in the thread of the arm."""

    def __init__(self, world: World, clock: Clock, name: str | None = None) -> None:
        """name: of its arm in the world; None: the one arm."""
        self._world, self._clock = world, clock
        self._arm = world.arm if name is None else world.arms[name]

    def read(self) -> float:
        """Current distance between the fingers [m]."""
        self._world.advance_to(self._clock.now_ns())
        return self._arm.gripper_width

    def write(self, command: GripperCommand) -> GripperCommand:
        """Close or open towards a width; returns the width the fingers will try to reach."""
        self._world.advance_to(self._clock.now_ns())
        return GripperCommand(width=self._arm.set_gripper_target(command.width))

    def stop(self) -> None:
        """Keep the setpoint, so that a held object stays held."""


class SimBase:
    """Driver of the mobile base; lives in the thread of the arm.

    Setpoints are kept within the base's limits. A pose setpoint is followed by its own velocity plus a gain
    on the odometry error. Without a setpoint for `watchdog_ns` the base brakes by itself.
    """

    def __init__(
        self,
        world: World,
        clock: Clock,
        *,
        errors: OdometryErrors | None = None,
        watchdog_ns: int = 80_000_000,
    ) -> None:
        """errors: of the odometry, drawn from the world's seed; it then starts at the origin.
        None: odometry is the truth.
        watchdog_ns: 40 ticks at 500 Hz, 8 at 100; with a loop of 12 Hz or less the base never moves.
        """
        self._world, self._clock, self._watchdog_ns = world, clock, watchdog_ns
        self.silence_s = watchdog_ns / NS_PER_S
        none = OdometryErrors(scale=0.0, yaw_scale=0.0, noise=0.0)
        start = None if errors is None else np.zeros(3)
        self._odometry = Odometry(errors or none, seed=world.seed, x_WB=world.x_WB, start=start)
        self._twist, self._sent_ns = np.zeros(3), world.t_ns
        self._target: tuple[int, np.ndarray] | None = None

    def read(self) -> BaseState:
        """Current odometry."""
        now_ns = self._clock.now_ns()
        self._world.advance_to(now_ns)
        x_WB = self._odometry.update(self._world.x_WB)
        return BaseState(t_ns=now_ns, x_WB=x_WB, V_WB_B=self._odometry.twist(self._world.V_WB_B))

    def write(self, command: BaseCommand) -> BaseCommand:
        """Drive; returns the command that is sent: twists within the limits, poses unchanged."""
        now_ns = self._clock.now_ns()
        self._world.advance_to(now_ns)
        match command:
            case BaseTwistCommand(V_WB_B=wanted):
                self._target = None
                return BaseTwistCommand(V_WB_B=self._drive(wanted, now_ns))
            case BasePoseCommand(x_WB=target):
                measured = self._odometry.update(self._world.x_WB)
                wanted = twist_towards(target, measured, self._speed_of(target, now_ns), gain=POSE_GAIN)
                self._drive(wanted, now_ns)
                return command

    def stop(self) -> None:
        """Brake to a stop."""
        self._world.advance_to(self._clock.now_ns())
        self._twist, self._target = np.zeros(3), None
        self._world.brake_base()

    def _drive(self, wanted: np.ndarray, now_ns: int) -> np.ndarray:
        """Send a desired twist within the limits; returns what is sent."""
        since_ns = now_ns - self._sent_ns
        before = self._twist if since_ns < self._watchdog_ns else np.zeros(3)
        change = ACCELERATION_MAX * min(since_ns, self._watchdog_ns) / NS_PER_S
        twist = np.clip(wanted, -SPEED_MAX, SPEED_MAX)
        self._twist, self._sent_ns = np.clip(twist, before - change, before + change), now_ns
        self._world.set_base_twist(self._twist, until_ns=now_ns + self._watchdog_ns)
        return self._twist

    def _speed_of(self, target: np.ndarray, now_ns: int) -> np.ndarray:
        """Velocity in the world of a pose setpoint, from the previous one."""
        before, self._target = self._target, (now_ns, target)
        if before is None or not 0 < now_ns - before[0] < self._watchdog_ns:
            return np.zeros(3)
        step = target - before[1]
        step[2] = wrap_angle(step[2])
        return step * (NS_PER_S / (now_ns - before[0]))


def sim_robot(
    world: World,
    clock: Clock,
    *,
    cameras: Mapping[str, tuple[int, int]] | None = None,
    has_torques: bool = False,
    dead_time_s: Mapping[str, float] | None = None,
    latency_s: Mapping[str, float] | None = None,
) -> Robot:
    """The robot of a world, with the default `OdometryErrors`.

    cameras: names and sizes of its cameras; None: no cameras.
    has_torques: whether it measures the torques of its arms, as "arm_torques" and so on.
    dead_time_s: by part, the delay of its motors' commands [s].
    latency_s: by part, the latency that the robot declares, see `Robot`.
    UnknownNameError: it has no such part.
    """
    drivers: dict[str, Driver] = {}
    for name, arm in world.arms.items():
        drivers[name] = SimArm(world, clock, name)
        drivers[arm.mount.gripper] = SimGripper(world, clock, name)
    if world.has_base:
        drivers[BASE] = SimBase(world, clock, errors=OdometryErrors())
    for name, dead_ns in latencies_ns(dead_time_s or {}, drivers).items():
        drivers[name] = LatePart(drivers[name], clock, dead_ns)
    sizes = cameras or {}
    return Robot(
        drivers,
        sensors={f"{name}_torques": SimTorques(world, clock, name) for name in world.arms if has_torques},
        cameras={name: SimCamera(world, clock, name=name, size=size) for name, size in sizes.items()},
        limits=sim_limits(world),
        actions=world.task.schema.action_fields,
        hand_pose=world.hand_poses,
        whole_body=sim_whole_body(world),
        latency_s=latency_s,
    )


def sim_limits(world: World) -> Limits:
    """Command limits of a simulated robot: the FR3's for each arm, and those of its base if it has one.

    The base keeps to its own speed and acceleration (`SimBase`), whatever its setpoint does. The setpoint's
    limits are far wider: plans start from the measured base, and a base held back by both would backtrack at
    every chunk.
    """
    if len(world.arms) > 1:
        each = FR3_LIMITS.parts
        arms = dict.fromkeys(world.arms, each[ARM])
        return Limits(arms | {arm.mount.gripper: each[GRIPPER] for arm in world.arms.values()})
    if not world.has_base:
        return FR3_LIMITS
    base = MotionLimits(speed=SETPOINT_SPEED, acceleration=SETPOINT_ACCELERATION, jerk=SETPOINT_JERK)
    return FR3_LIMITS.replace(base=base, unusual=True)


def sim_whole_body(world: World) -> dict[str, WholeBody]:
    """The resolver of each arm's end-effector pose, against the measured base if any; empty for an arm on a
    table, which is commanded by joints."""
    if not world.has_base and len(world.arms) == 1:
        return {}
    out, limits = {}, sim_limits(world)
    for name, arm in world.arms.items():
        gains = WholeBodyGains(posture=np.array(arm.mount.posture), arm_lag_s=SERVO_LAG_S)
        out[name] = WholeBody(kinematics=arm.kinematics, limits=limits, gains=gains, part=name)
    return out


class SimCamera:
    """One camera of the scene at a fixed rate; may live in its own thread.

    frame   0        1             2
    time    start    start+period  start+2*period   ...

    The lowest bit of every pixel is noise: as from a sensor, consecutive images of a still scene differ.
    A late reader skips frames and never gets a burst. The image shows the last computed state; the camera
    never steps the world. The first `read` makes the OpenGL context, in its thread.
    """

    def __init__(
        self,
        world: World,
        clock: Clock,
        *,
        name: str,
        size: tuple[int, int] = CAMERA_SIZE,
        rate_hz: float = 20.0,
    ) -> None:
        self._world, self._clock = world, clock
        self.name, self.size = name, size
        self._camera_id = mujoco.mj_name2id(world.model, mujoco.mjtObj.mjOBJ_CAMERA, name)
        if self._camera_id < 0:
            names = [world.model.camera(i).name for i in range(world.model.ncam)]
            raise ValueError(f"the scene has cameras {', '.join(names)}, not {name!r}")
        self._period_ns = round(1e9 / rate_hz)
        self._next_ns = world.t_start_ns
        self._renderer: Renderer | None = None
        draws = np.random.default_rng(list(name.encode()))
        self._noise = draws.integers(0, 2, (size[0], size[1] + NOISE_FRAMES, 3), dtype=np.uint8)
        self._num_read = 0

    def read(self) -> Image:
        """Wait until the next frame is due, then render it; RenderingUnavailableError without OpenGL."""
        self._clock.sleep_until_ns(self._next_ns)
        now_ns = self._clock.now_ns()
        num_late = max(0, (now_ns - self._next_ns) // self._period_ns)
        self._next_ns += (num_late + 1) * self._period_ns
        if self._renderer is None:
            self._renderer = Renderer(self._world.model, size=self.size)
        pixels = self._renderer.render(self._world.snapshot(), self.name)
        return Image(t_ns=now_ns, pixels=pixels ^ self._next_noise())

    def _next_noise(self) -> np.ndarray:
        first, self._num_read = self._num_read % NOISE_FRAMES, self._num_read + 1
        return self._noise[:, first : first + self.size[1]]

    def close(self) -> None:
        """Free the OpenGL context; call it in the thread of `read`."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
