"""A robot as a set of drivers: `Robot` reads them into one state and writes one command to all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import structs

from robot_runtime.core.plan.limits import BaseLimits, GripperLimits, Limits
from robot_runtime.core.plan.part_latency import latencies_ns
from robot_runtime.core.plan.predict import HandPose, hand_pose_of
from robot_runtime.core.plan.whole_body import WholeBody
from robot_runtime.core.robot import (
    Arm,
    ArmState,
    BaseState,
    Camera,
    Gripper,
    GripperState,
    MobileBase,
    Sensor,
)
from robot_runtime.core.values.action import (
    ActionField,
    BaseTwist,
    Command,
    GripperWidth,
    JointPosition,
    JointVelocity,
)
from robot_runtime.core.values.command import PartCommand
from robot_runtime.core.values.fields import check_part
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, PartSchema, Schema
from robot_runtime.core.values.state import ARM, BASE, GRIPPER, PartState, RobotState
from robot_runtime.errors import DriverError

Driver = Arm | Gripper | MobileBase


@dataclass(frozen=True, eq=False, init=False)
class Robot:
    """Named parts, each with its driver, sensors and cameras, and their limits; owned by the control thread,
    except for the cameras.

        Robot(arm=MyArm(), gripper=MyGripper(), front=MyCamera(), wrist_force=MySensor(), limits=limits)
        Robot(left_arm=MyArm("left"), right_arm=MyArm("right"), head=MyHead(), base=MyBase(), limits=limits)
    """

    parts: Mapping[str, Driver]
    """Name -> driver of an arm or other group of joints, a gripper or a mobile base."""
    sensors: Mapping[str, Sensor]
    """Name -> sensor of further measurements."""
    cameras: Mapping[str, Camera]
    """Name, as policies know it -> camera; each is read in its own thread."""
    limits: Limits | None
    """The limits of commands to its parts; nothing moves without them."""
    actions: tuple[ActionField, ...]
    """The commands it takes; parts that are not named here take the usual: positions of joints, grippers'
    widths, bases' twists."""
    hand_pose: HandPose | Mapping[str, HandPose] | None
    """Forward kinematics of "arm", or by part: the pose of the end effector where the driver does not read
    it, and where it will be, for methods that roll a plan of joints forward."""
    whole_body: WholeBody | Mapping[str, WholeBody] | None
    """Resolves end-effector poses against the measured base; None leaves them to the arms' drivers."""
    latency_s: Mapping[str, float]
    """From a command to the motion, by part; 0 where undeclared [s]."""

    def __init__(
        self,
        parts: Mapping[str, Any] | None = None,
        *,
        sensors: Mapping[str, Sensor] | None = None,
        cameras: Mapping[str, Camera] | None = None,
        limits: Limits | None = None,
        actions: tuple[ActionField, ...] = (),
        hand_pose: HandPose | Mapping[str, HandPose] | None = None,
        whole_body: WholeBody | Mapping[str, WholeBody] | None = None,
        latency_s: Mapping[str, float] | None = None,
        **named: Any,
    ) -> None:
        """named: further parts, sensors and cameras; None: it has no such part. A sensor has `num_values`, a
        camera `size` and `close`; neither is written to.
        latency_s: from a command to the motion, by part [s]: its rows are sent that much earlier.

        InvalidValueError: a part's name is invalid, or a latency is not from 0 to 1 s. UnknownNameError: it
        has no part of that name.
        """
        mine = {} if parts is None else dict(parts)
        mine |= {name: driver for name, driver in named.items() if driver is not None}
        for name in (*mine, *(sensors or {})):
            check_part(name)
        found = {name: driver for name, driver in mine.items() if is_sensor(driver)}
        seeing = {name: driver for name, driver in mine.items() if is_camera(driver)}
        mine = {name: driver for name, driver in mine.items() if name not in found and name not in seeing}
        own = self.__dict__
        own["parts"], own["cameras"] = MappingProxyType(mine), seeing | dict(cameras or {})
        own["sensors"] = MappingProxyType(found | dict(sensors or {}))
        own["limits"], own["actions"], own["hand_pose"] = limits, actions, hand_pose
        own["whole_body"] = whole_body
        own["latency_s"] = MappingProxyType(dict(latency_s or {}))
        own["_latency_ns"] = MappingProxyType(latencies_ns(self.latency_s, mine))
        own["_kinds"] = {name: self._kind(name) for name in mine}

    @property
    def latency_ns(self) -> Mapping[str, int]:
        """The latency from a command to the motion, by part [ns]."""
        out: Mapping[str, int] = self.__dict__["_latency_ns"]
        return out

    @property
    def arm(self) -> Arm | None:
        """The part named "arm"."""
        return self.parts.get(ARM)  # type: ignore[return-value]

    @property
    def gripper(self) -> Gripper | None:
        """The part named "gripper"."""
        return self.parts.get(GRIPPER)  # type: ignore[return-value]

    @property
    def base(self) -> MobileBase | None:
        """The part named "base"."""
        return self.parts.get(BASE)  # type: ignore[return-value]

    @property
    def measured(self) -> dict[str, int]:
        """Sensor -> how many numbers it reads."""
        return {name: sensor.num_values for name, sensor in self.sensors.items()}

    def kind(self, part: str) -> str:
        """Return "arm" if the part has joints, else "gripper" or "base" by its limits, or by its name."""
        kinds: dict[str, str] = self.__dict__["_kinds"]
        return kinds[part]

    def _kind(self, part: str) -> str:
        limits = None if self.limits is None else self.limits.parts.get(part)
        if part == ARM or hasattr(self.parts[part], "num_joints"):
            return ARM
        if isinstance(limits, BaseLimits):
            return BASE
        if isinstance(limits, GripperLimits):
            return GRIPPER
        return BASE if part.endswith(BASE) else GRIPPER if part.endswith(GRIPPER) else ARM

    def schema(self, state: RobotState | None = None, *, environment_state_dim: int = 0) -> Schema:
        """Return what the robot offers a policy.

        state: as read: an arm has an end effector if its pose is measured; None reads it now.
        environment_state_dim: scene quantities that come with its states.
        DriverError: it cannot be read.
        """
        state = self.read() if state is None else state
        parts: dict[str, PartSchema] = {}
        fields: list[ActionField] = []
        joint_names = {f.part: f.names for f in self.actions if isinstance(f, JointPosition | JointVelocity)}
        for name in self.parts:
            match self.kind(name):
                case "arm":
                    has_hand, num_joints = state.hand(name) is not None, state.arm(name).q.size
                    parts[name] = ArmSchema(num_joints, joint_names.get(name, ()), has_hand)
                    fields.append(JointPosition(num_joints, part=name))
                case "gripper":
                    parts[name] = GripperSchema()
                    fields.append(GripperWidth(name))
                case "base":
                    parts[name] = BaseSchema()
                    fields.append(BaseTwist(name))
        named = {f.part for f in self.actions}
        return Schema(
            action_fields=(*self.actions, *(f for f in fields if f.part not in named)),
            parts=parts,
            measured=self.measured,
            environment_state_dim=environment_state_dim,
            cameras={name: (camera.size[0], camera.size[1]) for name, camera in self.cameras.items()},
        )

    def read(self) -> RobotState:
        """Read the state, stamped with its oldest measurement. DriverError: a part gave none."""
        states: dict[str, PartState] = {}
        times: list[int] = []
        try:
            for name, driver in self.parts.items():
                measured: Any = driver.read()
                if (fault := part_fault(self.kind(name), measured, driver)) is not None:
                    raise DriverError(f"{name}.{fault}")
                if not isinstance(measured, ArmState | BaseState | GripperState):
                    measured = GripperState(width=measured)
                elif measured.t_ns is not None:
                    times.append(measured.t_ns)
                if isinstance(measured, ArmState) and measured.X_BE is None:
                    measured = self._with_hand(name, measured)
                states[name] = measured
            if not times:
                raise DriverError("a robot needs an arm or a mobile base")
            return RobotState(t_ns=min(times), t_newest_ns=max(times), parts=states, measured=self._sensed())
        except ValueError as error:
            raise DriverError(f"what the robot's drivers read is no state: {error}") from error

    def _with_hand(self, part: str, arm: ArmState) -> ArmState:
        hand_pose = hand_pose_of(self.hand_pose, part)
        return arm if hand_pose is None else structs.replace(arm, X_BE=hand_pose(arm.q))

    def _sensed(self) -> dict[str, np.ndarray]:
        out = {}
        for name, sensor in self.sensors.items():
            values = sensor.read()
            if (fault := sensor_fault(values, sensor)) is not None:
                raise DriverError(f"{name}.{fault}")
            out[name] = np.array(values, dtype=float, ndmin=1)
        return out

    def write(self, command: Command) -> Command:
        """Send the command to every part it names; return what the drivers actually sent."""
        sent: dict[str, PartCommand] = {}
        for name, commanded in command.parts.items():
            driver: Any = self.parts.get(name)
            sent[name] = commanded if driver is None else _sent(name, commanded, driver.write(commanded))
        return Command(sent)

    def stop(self) -> None:
        """Make every part safe, the base first; a failure of one does not prevent the others."""
        errors = []
        for _, driver in sorted(self.parts.items(), key=lambda each: self.kind(each[0]) != BASE):
            try:
                driver.stop()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


def is_sensor(driver: object) -> bool:
    """Whether it is a sensor: it declares how many numbers it reads, takes no commands and has no joints."""
    return hasattr(driver, "num_values") and not (hasattr(driver, "write") or hasattr(driver, "num_joints"))


def is_camera(driver: object) -> bool:
    """Whether it is a camera: it declares its image size, can be closed, and is no part and no sensor."""
    others = ("num_values", "num_joints", "write", "stop")
    return (
        hasattr(driver, "size")
        and hasattr(driver, "close")
        and not any(hasattr(driver, name) for name in others)
    )


def sensor_fault(values: object, sensor: Sensor) -> str | None:
    """Describe the fault in what a sensor's `read` returned; None if there is none."""
    try:
        shape = np.asarray(values, dtype=float).shape
    except (TypeError, ValueError):
        return f"read() returned {_kind(values)}, expected {sensor.num_values} numbers"
    if shape == (sensor.num_values,) or (shape == () and sensor.num_values == 1):
        return None
    return f"read() returned an array of shape {shape}, expected ({sensor.num_values},), its num_values"


def part_fault(kind: str, state: object, driver: object) -> str | None:
    """Describe the fault in what a driver's `read` returned; None if there is none."""
    match kind:
        case "arm":
            return arm_fault(state, getattr(driver, "num_joints", 0))
        case "base":
            return base_fault(state)
    return None


def arm_fault(state: object, num_joints: int) -> str | None:
    """Describe the fault in what an arm's `read` returned; None if there is none."""
    if not isinstance(state, ArmState):
        return f"read() returned {_kind(state)}, expected ArmState(t_ns=..., q=..., dq=...)"
    return _shapes_fault({"q": state.q, "dq": state.dq}, num_joints, "one number for each of its num_joints")


def base_fault(state: object) -> str | None:
    """Describe the fault in what a base's `read` returned; None if there is none."""
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
            f"{part}.write() returned {_kind(sent)}, expected what was actually sent, {_kind(asked)}, or None"
        )
    return sent


def _kind(value: object) -> str:
    return type(value).__name__
