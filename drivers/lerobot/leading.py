"""A leader arm or another teleoperator of LeRobot drives a robot: `LeRobotLeader`.

joints, grippers, bases of the leader     drive the parts of the same names, joint by joint
deltas (LeRobot's gamepad, keyboard)      velocities of one end effector: delta_x, delta_y, delta_z, -1 to 1
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from drivers.input_device import InputSwitch
from drivers.lerobot.tables import Base, Gripper, Joints, Unit
from drivers.lerobot.teleoperator import LeRobotTeleoperator
from robot_runtime.core.robot import Switch
from robot_runtime.core.teleop import (
    BaseLead,
    GripperLead,
    JointLead,
    Lead,
    LeadableParts,
    PartLead,
    TwistLead,
)
from robot_runtime.errors import InvalidValueError

_DELTAS = {"base": ["delta_x", "delta_y", "delta_z"], "angle_unit": "rad"}
"""Three numbers that are read unchanged."""
_FINGERS = {"gripper": "gripper", "closed": 0.0, "open": 2.0, "stroke_m": 2.0}
"""0 closes, 1 stays, 2 opens."""


class LeRobotLeader:
    """Drives while its clutch is held; without a clutch, from the first tick to the last."""

    def __init__(
        self,
        type: str,
        *,
        config: Mapping[str, Any] | None = None,
        plugins: Sequence[str] = (),
        parts: Mapping[str, Mapping[str, Any]] | None = None,
        joint_unit: Unit | None = None,
        joint_ranges: Mapping[str, Sequence[float]] | None = None,
        stroke_m: float | None = None,
        rate_hz: float = 60.0,
        state_timeout_s: float = 0.25,
        deltas: str | None = None,
        speed: float = 0.2,
        clutch: Switch | None = None,
        clutch_device: str | None = None,
        clutch_code: str = "KEY_B",
    ) -> None:
        """
        type to state_timeout_s: as for `LeRobotTeleoperator`.
        deltas: the arm that a gamepad's or keyboard's deltas drive, with its gripper; excludes `parts`.
        speed: of the end effector at a delta of 1 [m/s].
        clutch: drives while this is pressed. clutch_device, clutch_code: a Linux pedal or button as clutch.
        """
        if deltas is not None and parts:
            raise InvalidValueError("lerobot: deltas drive one arm; parts are for joints, grippers and bases")
        if not 0.0 < speed <= 5.0:
            raise InvalidValueError(f"lerobot: speed is above 0, up to 5, got {speed!r:.60}")
        self.name, self._deltas, self._speed = f"LeRobot's {type}", deltas, speed
        if clutch_device is not None:
            clutch = InputSwitch(clutch_device, clutch_code)
        self._clutch = clutch
        if deltas is not None:
            gripper = deltas.removesuffix("arm") + "gripper"
            parts = {deltas: _DELTAS, gripper: _FINGERS}
        self.device = LeRobotTeleoperator(
            type,
            config=config,
            plugins=plugins,
            parts=parts,
            joint_unit=joint_unit,
            joint_ranges=joint_ranges,
            stroke_m=stroke_m,
            rate_hz=rate_hz,
            state_timeout_s=state_timeout_s,
        )

    def open(self, parts: LeadableParts) -> None:
        """InvalidValueError: the leader has a part that the robot lacks, or that cannot be driven so."""
        known = {**dict.fromkeys(parts.arms, Joints), **dict.fromkeys(parts.grippers, Gripper)}
        known |= dict.fromkeys(parts.bases, Base)
        for part, table in self.device.tables.items():
            kind = Joints if part == self._deltas else type(table)
            if known.get(part) is not kind:
                raise InvalidValueError(
                    f"{self.name} drives {part}, and the robot's parts that can be driven are "
                    f"{', '.join(parts.names) or 'none'}: parts={{...}} names those of the leader"
                )
        if self._deltas is not None and self._deltas not in parts.hands:
            raise InvalidValueError(
                f"{self._deltas} cannot be driven by velocities: its kinematics are unknown"
            )
        if callable(begin := getattr(self._clutch, "open", None)):
            begin()

    def read(self) -> Lead:
        """Return the newest lead; never waits. DriverError: it is too old, or there is a fault."""
        target = self.device.read()
        leads: dict[str, PartLead] = {}
        for part, table in self.device.tables.items():
            numbers = np.array([target.values[name] for name in self.device.columns[part]])
            leads[part] = self._lead(part, table, numbers)
        is_held = self._clutch is None or self._clutch.read()
        return Lead(t_ns=target.t_ns, parts=leads, engaged=dict.fromkeys(leads, is_held))

    def close(self) -> None:
        """Disconnect it; may be called twice."""
        self.device.close()
        if self._clutch is not None:
            self._clutch.close()

    def _lead(self, part: str, table: Joints | Gripper | Base, numbers: np.ndarray) -> PartLead:
        match table:
            case Base() if part == self._deltas:
                return TwistLead(v=self._speed * np.clip(numbers, -1.0, 1.0))
            case Gripper() if self._deltas is not None:
                return GripperLead(speed=float(np.clip(numbers[0] - 1.0, -1.0, 1.0)))
            case Joints():
                return JointLead(q=numbers)
            case Gripper(stroke_m=stroke_m):
                return GripperLead(opening=float(numbers[0]) / stroke_m)
        return BaseLead(V_WB_B=numbers)
