"""The driver protocols on a simulated `World`: reading makes the world catch up with the clock."""

import mujoco

from drivers.protocols import ArmState
from robot_runtime.clock import Clock
from robot_runtime.core.action import ArmCommand, GripperCommand, JointCommand, PoseCommand
from robot_runtime.core.state import Image
from robot_runtime.core.transforms import quaternion_from_rotation
from sim.kinematics import NUM_JOINTS
from sim.render import Renderer
from sim.task import CAMERA_SIZE
from sim.world import World


class SimArm:
    """The FR3; lives in the one thread that steps the world."""

    num_joints = NUM_JOINTS

    def __init__(self, world: World, clock: Clock) -> None:
        self._world, self._clock = world, clock

    def read(self) -> ArmState:
        """The arm now, that is at most one physics step ago."""
        now_ns = self._clock.now_ns()
        self._world.advance_to(now_ns)
        q = self._world.q
        return ArmState(t_ns=now_ns, q=q, dq=self._world.dq, X_BE=self._world.kinematics.forward(q))

    def write(self, command: ArmCommand) -> ArmCommand:
        """Set the servos; a pose out of reach comes back as the pose that is sent instead."""
        self._world.advance_to(self._clock.now_ns())
        match command:
            case JointCommand(q=q):
                return JointCommand(q=self._world.set_joint_target(q))
            case PoseCommand():
                start = self._world.data.ctrl[:NUM_JOINTS]
                q = self._world.set_joint_target(self._world.kinematics.solve(command.X_BE, start))
                X_BE = self._world.kinematics.forward(q)
                return PoseCommand(p_BE=X_BE.translation, quat_BE=quaternion_from_rotation(X_BE.rotation))

    def stop(self) -> None:
        """Hold the position the arm has now."""
        self._world.advance_to(self._clock.now_ns())
        self._world.set_joint_target(self._world.q)


class SimGripper:
    """The two fingers; lives in the thread of the arm."""

    def __init__(self, world: World, clock: Clock) -> None:
        self._world, self._clock = world, clock

    def read(self) -> float:
        """Distance between the fingers now [m]."""
        self._world.advance_to(self._clock.now_ns())
        return self._world.gripper_width

    def write(self, command: GripperCommand) -> GripperCommand:
        """Close or open towards a width; returns the width the fingers will try to reach."""
        self._world.advance_to(self._clock.now_ns())
        return GripperCommand(width=self._world.set_gripper_target(command.width))

    def stop(self) -> None:
        """Keep the setpoint: an object that is held stays held."""


class SimCamera:
    """One camera of the scene at a fixed rate; lives in a thread of its own if you like.

    frame   0        1             2
    time    start    start+period  start+2*period   ...

    A late reader skips frames and never gets a burst. The picture shows what the world last computed; the
    camera never steps it. The OpenGL context is made by the first `read`, in the thread that reads.
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
            raise ValueError(f"the scene has cameras overview and wrist, not {name!r}")
        self._period_ns = round(1e9 / rate_hz)
        self._next_ns = world.t_start_ns
        self._renderer: Renderer | None = None

    def read(self) -> Image:
        """Wait until the next frame is due, then draw it; RenderingUnavailableError without OpenGL."""
        self._clock.sleep_until_ns(self._next_ns)
        now_ns = self._clock.now_ns()
        num_late = max(0, (now_ns - self._next_ns) // self._period_ns)
        self._next_ns += (num_late + 1) * self._period_ns
        if self._renderer is None:
            self._renderer = Renderer(self._world.model, size=self.size)
        return Image(t_ns=now_ns, pixels=self._renderer.render(self._world.snapshot(), self.name))

    def close(self) -> None:
        """Give the OpenGL context back; call it in the thread that read."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
