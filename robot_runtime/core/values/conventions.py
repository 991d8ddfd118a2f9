"""Conventions of other projects for a robot's numbers, and their conversion to ours: `Convention`.

    gripper   theirs  closed ---------- open        ours  0 m ---------- finger distance when open
    6D        theirs  two columns, two rows, or two columns interleaved      ours  two columns
    joints    theirs  rad, degrees                  ours  rad

An ambiguous number is declared or refused, never guessed: 1 is a closed gripper for DROID, an open one for
ALOHA.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

import numpy as np

from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.transforms import rotation_from_6d, rotation_to_6d
from robot_runtime.errors import InvalidValueError

RAD_PER_DEGREE = math.pi / 180.0


@dataclass(frozen=True)
class Linear:
    """ours = theirs * scale + offset"""

    scale: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        if (
            not math.isfinite(self.scale)
            or not math.isfinite(self.offset)
            or not 1e-9 < abs(self.scale) < 1e9
        ):
            raise InvalidValueError(
                f"a scale is finite and not 0, an offset finite, got {self.scale:g}, {self.offset:g}"
            )

    def ours(self, theirs: float) -> float:
        return theirs * self.scale + self.offset

    def theirs(self, ours: float) -> float:
        return (ours - self.offset) / self.scale


AS_IT_IS = Linear()


@dataclass(frozen=True, kw_only=True)
class GripperNumber:
    """The values of a gripper's number when it is closed and when it is open."""

    closed: float
    open: float
    open_m: float | None = None
    """Distance of the fingers when the number equals `open` [m]; None: the stroke of the gripper in use."""

    def to_width(self, stroke_m: float) -> Linear:
        """The map from the number to the distance of the fingers [m], for a gripper of stroke `stroke_m`."""
        if not 0.0 < stroke_m < 1.0:
            raise InvalidValueError(f"a gripper's stroke is above 0 and below 1 m, got {stroke_m:g}")
        scale = (stroke_m if self.open_m is None else self.open_m) / (self.open - self.closed)
        return Linear(scale=scale, offset=0.0 - self.closed * scale)  # and not -0.0


class Rotation6d(Enum):
    """The six numbers of a rotation matrix R that are sent, and their order."""

    COLUMNS = "columns"
    """R00 R10 R20 R01 R11 R21: Zhou et al. 2019, and ours."""
    ROWS = "rows"
    """R00 R01 R02 R10 R11 R12: pytorch3d, and so UMI, Diffusion Policy, GR00T's eef_9d."""
    INTERLEAVED = "interleaved"
    """R00 R01 R10 R11 R20 R21: two columns read row by row, X-VLA."""

    def to_columns(self, numbers: Float[np.ndarray, "*n 6"]) -> Float[np.ndarray, "*n 6"]:
        """The same rotations in our convention, orthonormal; ValueError: six numbers are not a rotation."""
        match self:
            case Rotation6d.COLUMNS:
                R = rotation_from_6d(numbers)
            case Rotation6d.ROWS:
                R = rotation_from_6d(numbers).swapaxes(-1, -2)
            case Rotation6d.INTERLEAVED:
                R = rotation_from_6d(numbers[..., [0, 2, 4, 1, 3, 5]])
        return rotation_to_6d(R)

    def from_columns(self, columns: Float[np.ndarray, "*n 6"]) -> Float[np.ndarray, "*n 6"]:
        """Inverse of `to_columns`."""
        match self:
            case Rotation6d.COLUMNS:
                return columns
            case Rotation6d.ROWS:
                return rotation_to_6d(rotation_from_6d(columns).swapaxes(-1, -2))
            case Rotation6d.INTERLEAVED:
                return columns[..., [0, 3, 1, 4, 2, 5]]


@dataclass(frozen=True, kw_only=True)
class Convention:
    """The meaning of the numbers of one family of robots or datasets."""

    gripper_state: GripperNumber
    gripper_action: GripperNumber
    rotation: Rotation6d | None = None
    """Order of the six numbers of a rotation; None: it has no such rotations."""
    rad: float = 1.0
    """The unit of joint positions [rad]."""
    keys: tuple[str, ...] = ()
    """Names of its observations and actions, by which it is recognized."""


METRES = GripperNumber(closed=0.0, open=1.0, open_m=1.0)
_PER_FINGER = GripperNumber(closed=0.0, open=1.0, open_m=2.0)
_ONE_IS_CLOSED = GripperNumber(closed=1.0, open=0.0)
_ONE_IS_OPEN = GripperNumber(closed=0.0, open=1.0)
_PER_CENT = GripperNumber(closed=0.0, open=100.0)
CONVENTIONS: Mapping[str, Convention] = MappingProxyType(
    {
        "si": Convention(
            gripper_state=METRES,
            gripper_action=METRES,
            rotation=Rotation6d.COLUMNS,
            keys=("gripper_width",),
        ),
        "droid": Convention(  # a Robotiq, 0 open and 1 closed, in observations and in actions
            gripper_state=_ONE_IS_CLOSED,
            gripper_action=_ONE_IS_CLOSED,
            keys=("observation/gripper_position", "observation/exterior_image_1_left"),
        ),
        "libero": Convention(  # position of each of two fingers [m]; an action of 1 closes, of -1 opens
            gripper_state=_PER_FINGER,
            gripper_action=GripperNumber(closed=1.0, open=-1.0),
            keys=("robot0_gripper_qpos", "agentview_image", "observation/wrist_image"),
        ),
        "rlds": Convention(  # as OpenVLA and Octo convert all datasets: 1 open
            gripper_state=_ONE_IS_OPEN, gripper_action=_ONE_IS_OPEN
        ),
        "aloha": Convention(  # from the fingers' positions, 0 closed and 1 open
            gripper_state=_ONE_IS_OPEN,
            gripper_action=_ONE_IS_OPEN,
            keys=("cam_high", "left_gripper", "right_gripper", "images/cam_high"),
        ),
        "umi": Convention(  # a distance, and rows as in Diffusion Policy
            gripper_state=METRES,
            gripper_action=METRES,
            rotation=Rotation6d.ROWS,
            keys=("robot0_gripper_width", "robot0_eef_rot_axis_angle", "camera0_rgb"),
        ),
        "groot": Convention(  # its DROID embodiment: the gripper as DROID's, the end effector in rows
            gripper_state=_ONE_IS_CLOSED,
            gripper_action=_ONE_IS_CLOSED,
            rotation=Rotation6d.ROWS,
            keys=("state/gripper_position", "state/eef_9d", "state.gripper_position", "state.eef_9d"),
        ),
        "so101": Convention(  # LeRobot's own arms, with use_degrees; per cent of the gripper's range
            gripper_state=_PER_CENT,
            gripper_action=_PER_CENT,
            rad=RAD_PER_DEGREE,
            keys=("gripper.pos",),
        ),
    }
)


def convention_named(name: str) -> Convention:
    """The convention of that name; InvalidValueError lists the names."""
    if name not in CONVENTIONS:
        raise InvalidValueError(f"there is no convention {name!r}; there are {', '.join(CONVENTIONS)}")
    return CONVENTIONS[name]


def convention_of(keys: Iterable[str]) -> str | None:
    """Name of the convention that uses these keys; None if none does, or more than one."""
    given = set(keys)
    found = [name for name, convention in CONVENTIONS.items() if not given.isdisjoint(convention.keys)]
    return found[0] if len(found) == 1 else None
