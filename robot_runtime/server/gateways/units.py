"""Units of foreign numbers: `Units`, declared and never guessed."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from msgspec import Struct

from robot_runtime.core.values.conventions import (
    CONVENTIONS,
    METRES,
    RAD_PER_DEGREE,
    GripperNumber,
    Linear,
    Rotation6d,
    convention_named,
)
from robot_runtime.core.values.state import ARM
from robot_runtime.errors import InvalidValueError
from robot_runtime.server.gateways.values import Fit

WIDEST_M = 0.3
"""No gripper opens wider."""
HINT = 'declare "convention" in the file of --names: ' + ", ".join(CONVENTIONS)


@dataclass(frozen=True)
class Affine:
    """ours = theirs * scale + offset, for several numbers."""

    scale: np.ndarray
    offset: np.ndarray

    @classmethod
    def of(cls, linear: Linear) -> "Affine":
        return cls(np.array(linear.scale), np.array(linear.offset))

    def ours(self, theirs: np.ndarray) -> np.ndarray:
        return theirs * self.scale + self.offset

    def theirs(self, ours: np.ndarray) -> np.ndarray:
        return (ours - self.offset) / self.scale


class Units(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Units of the numbers and images of a robot; see `key_map`."""

    convention: str | None = None
    stroke_m: float | None = None
    joint_unit: Literal["rad", "deg", "percent"] | None = None
    joint_range: tuple[tuple[float, float], ...] | None = None
    """Joint positions at -100 % and 100 % [rad]; of all arms, unless `joint_ranges` has those of one."""
    joint_ranges: dict[str, tuple[tuple[float, float], ...]] | None = None
    """The same by part."""
    rotation: Literal["columns", "rows", "interleaved", "vector"] | None = None
    """Form of an end effector's rotation: which six numbers, or a rotation vector of three."""
    fit: Fit | None = None
    """None: images of another size are refused."""
    channels: Literal["first", "last"] | None = None
    """Position of the colour channels in an image; None: last."""

    def __post_init__(self) -> None:
        ranges = [*(self.joint_ranges or {}).values(), *([self.joint_range] if self.joint_range else ())]
        if (self.joint_unit == "percent") != bool(ranges):
            raise InvalidValueError('declare "joint_unit": "percent" and "joint_range" together')
        for low, high in (ends for each in ranges for ends in each):
            Linear(scale=high - low, offset=low)
        if self.stroke_m is not None:
            METRES.to_width(self.stroke_m)
        self.gripper("state")
        self.gripper("action")

    def gripper(self, which: Literal["state", "action"]) -> Linear | None:
        """From its number to its width [m]; None if undeclared. InvalidValueError: half declared."""
        if self.convention is None:
            return None
        convention = convention_named(self.convention)
        number: GripperNumber = convention.gripper_state if which == "state" else convention.gripper_action
        if number.open_m is None and self.stroke_m is None:
            raise InvalidValueError(
                f'convention {self.convention!r} gives a gripper as a share of its stroke: declare "stroke_m"'
            )
        return number.to_width(self.stroke_m or WIDEST_M)

    def joints(self, num_joints: int, part: str = ARM) -> Affine:
        """From the numbers of an arm to rad."""
        ends = (self.joint_ranges or {}).get(part, self.joint_range)
        if ends is not None:
            if len(ends) != num_joints:
                raise ValueError(f"joint_range has {len(ends)} joints, {part} has {num_joints}")
            low, high = np.array(ends).T
            return Affine((high - low) / 200.0, (high + low) / 2.0)
        if self.joint_unit == "percent":
            raise ValueError(f'the range of the joints of {part} is undeclared: declare "joint_ranges"')
        rad = 1.0 if self.convention is None else convention_named(self.convention).rad
        if self.joint_unit is not None:
            rad = RAD_PER_DEGREE if self.joint_unit == "deg" else 1.0
        return Affine(np.full(num_joints, rad), np.zeros(num_joints))

    def layout(self) -> Rotation6d:
        """Layout of six rotation numbers; ValueError if undeclared."""
        layout = None if self.convention is None else convention_named(self.convention).rotation
        if self.rotation == "vector":
            raise ValueError(
                '"rotation": "vector" has three numbers, and the pose in the action has six: declare '
                '"rotation": "vector" of its field in "action_spec", too'
            )
        if self.rotation is not None:
            layout = Rotation6d(self.rotation)
        if layout is None:
            raise ValueError(
                'six rotation numbers are columns, rows or interleaved: declare "rotation" in the file of '
                "--names"
            )
        return layout
