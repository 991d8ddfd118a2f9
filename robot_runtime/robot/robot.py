"""A robot is the drivers it has: `Robot` reads them into one state and writes one command to all of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from robot_runtime.core.plan.limits import Limits
from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.plan.whole_body import WholeBody
from robot_runtime.core.robot import Arm, ArmState, BaseState, Camera, Gripper, MobileBase
from robot_runtime.core.values.action import ActionField, BaseTwist, Command, GripperWidth, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import RobotState
from robot_runtime.errors import DriverError


@dataclass(frozen=True, kw_only=True, eq=False)
class Robot:
    """Arm, gripper, mobile base and cameras, each optional, and what they may be told; owned by the control
    thread, all but the cameras."""

    arm: Arm | None = None
    gripper: Gripper | None = None
    base: MobileBase | None = None
    cameras: Mapping[str, Camera] = field(default_factory=dict)
    """Name, as policies know it -> camera; each is read in a thread of its own."""
    limits: Limits | None = None
    """What its parts may be told; nothing moves without."""
    actions: tuple[ActionField, ...] = ()
    """What commands it takes; empty: positions of its joints, the gripper's width, the base's twist."""
    hand_pose: HandPose | None = None
    """The arm's forward kinematics, for methods that roll a plan of joints forward."""
    whole_body: WholeBody | None = None
    """Resolves hand poses against the measured base; None leaves them to the arm's driver."""

    def schema(self, *, environment_state_dim: int = 0) -> Schema:
        """What it offers a policy. environment_state_dim: scene quantities that come with its states."""
        num_joints = 0 if self.arm is None else self.arm.num_joints
        parts: list[ActionField] = [] if self.arm is None else [JointPosition(num_joints)]
        if self.gripper is not None:
            parts.append(GripperWidth())
        if self.base is not None:
            parts.append(BaseTwist())
        return Schema(
            action_fields=self.actions or tuple(parts),
            num_joints=num_joints,
            has_gripper=self.gripper is not None,
            has_base=self.base is not None,
            environment_state_dim=environment_state_dim,
            cameras={name: (camera.size[0], camera.size[1]) for name, camera in self.cameras.items()},
        )

    def read(self) -> RobotState:
        """The state now; stamped with the oldest of its measurements. DriverError: a part gave none."""
        arm = None if self.arm is None else self.arm.read()
        base = None if self.base is None else self.base.read()
        if self.arm is not None and (fault := arm_fault(arm, self.arm.num_joints)) is not None:
            raise DriverError(f"arm.{fault}")
        if self.base is not None and (fault := base_fault(base)) is not None:
            raise DriverError(f"base.{fault}")
        times = [part.t_ns for part in (arm, base) if part is not None]
        if not times:
            raise DriverError("a robot needs an arm or a mobile base")
        try:
            return RobotState(
                t_ns=min(times),
                t_newest_ns=max(times),
                q=np.zeros(0) if arm is None else arm.q,
                dq=np.zeros(0) if arm is None else arm.dq,
                X_BE=None if arm is None else arm.X_BE,
                gripper_width=None if self.gripper is None else self.gripper.read(),
                x_WB=None if base is None else base.x_WB,
                V_WB_B=None if base is None else base.V_WB_B,
            )
        except ValueError as error:
            raise DriverError(f"what the robot's drivers read is no state: {error}") from error

    def write(self, command: Command) -> Command:
        """Send the command to every part it speaks of; returns what the drivers really sent."""
        arm, gripper, base = command.arm, command.gripper, command.base
        if arm is not None and self.arm is not None:
            arm = _sent("arm", arm, self.arm.write(arm))
        if gripper is not None and self.gripper is not None:
            gripper = _sent("gripper", gripper, self.gripper.write(gripper))
        if base is not None and self.base is not None:
            base = _sent("base", base, self.base.write(base))
        return Command(arm=arm, gripper=gripper, base=base)

    def stop(self) -> None:
        """Make every part safe; one that fails keeps none of the others from it."""
        errors = []
        for part in (self.base, self.arm, self.gripper):
            if part is not None:
                try:
                    part.stop()
                except Exception as error:
                    errors.append(error)
        if errors:
            raise errors[0]


def arm_fault(state: object, num_joints: int) -> str | None:
    """What is wrong with what an arm's `read` returned; None if nothing is."""
    if not isinstance(state, ArmState):
        return f"read() returned {_kind(state)}, expected ArmState(t_ns=..., q=..., dq=...)"
    return _shapes_fault({"q": state.q, "dq": state.dq}, num_joints, "one number for each of its num_joints")


def base_fault(state: object) -> str | None:
    """What is wrong with what a base's `read` returned; None if nothing is."""
    if not isinstance(state, BaseState):
        return f"read() returned {_kind(state)}, expected BaseState(t_ns=..., x_WB=..., V_WB_B=...)"
    return _shapes_fault({"x_WB": state.x_WB, "V_WB_B": state.V_WB_B}, 3, "x, y and yaw")


def _shapes_fault(arrays: Mapping[str, object], size: int, meaning: str) -> str | None:
    for name, value in arrays.items():
        shape = np.asarray(value).shape
        if shape != (size,):
            return f"read() gave {name} of shape {shape}, expected ({size},), {meaning}"
    return None


def _sent[T](part: str, asked: T, sent: T | None) -> T:
    if sent is None:
        return asked
    if type(sent) is not type(asked):
        raise DriverError(
            f"{part}.write() returned {_kind(sent)}, expected what was really sent, {_kind(asked)}, or None"
        )
    return sent


def _kind(value: object) -> str:
    return type(value).__name__
