"""What the numbers of an action mean: `ActionSpec` and `ActionChunk` for policies, `Command` for robots."""

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import ClassVar

import numpy as np
import pinocchio as pin
from msgspec import Struct

from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import RobotState, readonly
from robot_runtime.core.values.transforms import (
    pose_from_quaternion,
    quaternion_from_rotation,
)
from robot_runtime.errors import InvalidValueError

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
MAX_JOINTS, MAX_HORIZON, MAX_DT_NS = 128, 4096, 60 * NS_PER_S
"""More than any robot or policy has: what comes from a file or a peer beyond it is a mistake, or worse."""


class Reference(Enum):
    """What a position in a row is measured from."""

    ABSOLUTE = "absolute"
    """The robot's own frame (joint zero, B for the hand, W for the base)."""
    RELATIVE = "relative"
    """The value at the observation: `X_B,row = X_BE_obs * row`."""
    DELTA = "delta"
    """The row before it; row 0 counts from the value at the observation."""


@dataclass(frozen=True)
class JointPosition:
    """Arm joints: `num_joints` columns [rad]."""

    num_joints: int
    reference: Reference = Reference.ABSOLUTE

    @property
    def dim(self) -> int:
        return self.num_joints


@dataclass(frozen=True)
class EndEffectorPose:
    """Hand in the mobile base, `X_BE`: 9 columns, position (3) [m] then the first two columns of R_BE (6)."""

    reference: Reference = Reference.ABSOLUTE
    dim: int = 9


@dataclass(frozen=True)
class WorldEndEffectorPose:
    """Hand in the world, `X_WE`: 9 columns as of `EndEffectorPose`, absolute.

    What it means for the arm follows from where the same row has the base, `X_BE = X_WB^-1 * X_WE`, or from
    where the base was at the observation if no field moves it by poses.
    """

    dim: int = 9


@dataclass(frozen=True)
class GripperWidth:
    """Distance between the fingers: 1 column [m], held from row to row and never interpolated."""

    dim: int = 1


@dataclass(frozen=True)
class BasePose:
    """Mobile base in the world, `x_WB`: 3 columns (x, y, yaw) [m, m, rad]."""

    reference: Reference = Reference.ABSOLUTE
    dim: int = 3


@dataclass(frozen=True)
class BaseTwist:
    """Velocity of the mobile base expressed in B: 3 columns (vx, vy, wz) [m/s, m/s, rad/s]."""

    dim: int = 3


@dataclass(frozen=True)
class Numbers:
    """Plain numbers, as a simulator's action vector: they go through as they are, in their own units."""

    names: tuple[str, ...]
    is_held: bool = True
    """Each until the next row is due; or interpolated, as places are."""
    scale: float = 1.0
    """What counts as a whole unit of them: distances are told as shares of it."""
    at_rest: tuple[float, ...] = ()
    """What keeps everything as it is, where nothing is measured under the same names; zeros if not said."""
    part: ClassVar[str] = "action"

    def __post_init__(self) -> None:
        names = tuple(self.names)
        if not 1 <= len(names) <= MAX_JOINTS or len(set(names)) < len(names):
            raise InvalidValueError(f"numbers need 1 to {MAX_JOINTS} names, each for one, got {list(names)}")
        rest = tuple(map(float, self.at_rest)) or (0.0,) * len(names)
        if len(rest) != len(names) or not self.scale > 0.0:
            raise InvalidValueError(
                f"{len(names)} numbers rest at as many and have a scale above 0, got {rest}, {self.scale}"
            )
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "at_rest", rest)

    @property
    def dim(self) -> int:
        return len(self.names)


ActionField = (
    JointPosition | EndEffectorPose | WorldEndEffectorPose | GripperWidth | BasePose | BaseTwist | Numbers
)
_FIELD_KINDS: dict[str, type] = {
    "joint_position": JointPosition,
    "end_effector_pose": EndEffectorPose,
    "world_end_effector_pose": WorldEndEffectorPose,
    "gripper_width": GripperWidth,
    "base_pose": BasePose,
    "base_twist": BaseTwist,
    "numbers": Numbers,
}
_KIND_NAMES = {kind: name for name, kind in _FIELD_KINDS.items()}


MAX_NUMBER = 1e9
"""Rows hold metres, radians and their rates: anything larger is no action, and would overflow further on."""


class RowTiming(Enum):
    """What a row means in time. In both, row k is for t_k = t_0 + k dt.

    REACHED   the place to be at t_k: between two rows the robot is on its way, and the last is come to
              with the motion dying away
    SENT      the command sent at t_k, as by LeRobot, ACT and every Gymnasium loop: it stands until t_k+1,
              the last one too, and the first is sent at once
    """

    REACHED = "reached"
    SENT = "sent"


@dataclass(frozen=True, kw_only=True)
class ActionSpec:
    """The meaning of an action chunk: the fields its columns hold, in order; how many rows, how far apart."""

    fields: tuple[ActionField, ...]
    horizon: int
    """Rows in a chunk, H."""
    dt_ns: int
    """Time from row to row [ns]."""
    timing: RowTiming | None = None
    """What a row means in time; if not given, SENT for held numbers alone, REACHED for all others."""

    def __post_init__(self) -> None:
        if self.timing is None:
            object.__setattr__(self, "timing", _usual_timing(self.fields))
        if not 1 <= self.horizon <= MAX_HORIZON or not 1 <= self.dt_ns <= MAX_DT_NS or not self.fields:
            raise InvalidValueError(
                f"an action spec needs fields, horizon in 1..{MAX_HORIZON} and dt_ns in 1..{MAX_DT_NS}, "
                f"got {self}"
            )
        joints = [f.num_joints for f in self.fields if isinstance(f, JointPosition)]
        if any(not 1 <= n <= MAX_JOINTS for n in joints):
            raise InvalidValueError(f"an arm has 1 to {MAX_JOINTS} joints, got {joints}")
        arms = [
            f for f in self.fields if isinstance(f, JointPosition | EndEffectorPose | WorldEndEffectorPose)
        ]
        bases = [f for f in self.fields if isinstance(f, BasePose | BaseTwist)]
        grippers = [f for f in self.fields if isinstance(f, GripperWidth)]
        numbers = [f for f in self.fields if isinstance(f, Numbers)]
        if max(len(arms), len(bases), len(grippers), len(numbers)) > 1:
            raise InvalidValueError(
                f"at most one field each for arm, base, gripper and numbers, got {self.fields}"
            )

    @cached_property
    def dim(self) -> int:
        """Columns of a row, D."""
        return sum(f.dim for f in self.fields)

    @property
    def dt_s(self) -> float:
        return self.dt_ns / NS_PER_S

    def columns(self) -> list[tuple[ActionField, slice]]:
        """Each field with the columns it owns."""
        out, start = [], 0
        for f in self.fields:
            out.append((f, slice(start, start + f.dim)))
            start += f.dim
        return out

    def absolute(self) -> "ActionSpec":
        """The same columns with every position absolute."""
        counted = JointPosition | EndEffectorPose | BasePose
        fields = (
            replace(f, reference=Reference.ABSOLUTE) if isinstance(f, counted) else f for f in self.fields
        )
        return replace(self, fields=tuple(fields))

    def to_dict(self) -> dict:
        """Plain values for the wire and for files."""
        data: dict = {"fields": fields_to_dicts(self.fields), "horizon": self.horizon, "dt_ns": self.dt_ns}
        if self.timing is not None and self.timing is not _usual_timing(self.fields):
            data["timing"] = self.timing.value
        return data

    @classmethod
    def from_dict(cls, data: dict) -> "ActionSpec":
        """Inverse of `to_dict`; ValueError, KeyError or TypeError on anything else."""
        return cls(
            fields=fields_from_dicts(data["fields"]),
            horizon=whole(data["horizon"], "horizon"),
            dt_ns=whole(data["dt_ns"], "dt_ns"),
            timing=RowTiming(data["timing"]) if "timing" in data else None,
        )


def _usual_timing(fields: tuple[ActionField, ...]) -> RowTiming:
    is_sent = all(isinstance(f, Numbers) and f.is_held for f in fields)
    return RowTiming.SENT if is_sent else RowTiming.REACHED


def fields_to_dicts(fields: tuple[ActionField, ...]) -> list[dict]:
    """Action fields as plain values."""
    out = []
    for f in fields:
        entry: dict = {"kind": _KIND_NAMES[type(f)], "dim": f.dim}
        if isinstance(f, JointPosition | EndEffectorPose | BasePose):
            entry["reference"] = f.reference.value
        if isinstance(f, Numbers):
            entry |= {name: value for name, value in vars(f).items() if name != "names"}
            entry |= {"names": list(f.names), "at_rest": list(f.at_rest)}
        out.append(entry)
    return out


def fields_from_dicts(entries: list[dict]) -> tuple[ActionField, ...]:
    """Inverse of `fields_to_dicts`; ValueError, KeyError or TypeError on anything else."""
    fields: list[ActionField] = []
    for entry in entries:
        kind = _FIELD_KINDS.get(entry["kind"])
        if kind is None:
            raise ValueError(f"unknown action field {entry['kind']!r}; valid: {', '.join(_FIELD_KINDS)}")
        dim = whole(entry["dim"], "dim")
        if kind is JointPosition:
            if not 1 <= dim <= MAX_JOINTS:
                raise ValueError(f"an arm has 1 to {MAX_JOINTS} joints, got {dim}")
            fields.append(JointPosition(dim, Reference(entry["reference"])))
        elif kind is Numbers:
            fields.append(_numbers_from_dict(entry))
        elif "reference" in entry:
            fields.append(kind(Reference(entry["reference"])))
        else:
            fields.append(kind())
        if fields[-1].dim != dim:
            raise ValueError(f"{entry['kind']} has {fields[-1].dim} columns, got {dim}")
    return tuple(fields)


def _numbers_from_dict(entry: dict) -> Numbers:
    names, is_held, rest = entry["names"], entry["is_held"], entry["at_rest"]
    if not isinstance(is_held, bool) or not all(
        isinstance(name, str) and name.isprintable() for name in names
    ):
        raise ValueError(f"numbers have printable names and are held or not, got {entry!r:.200}")
    return Numbers(
        names=tuple(names), is_held=is_held, scale=float(entry["scale"]), at_rest=tuple(map(float, rest))
    )


def whole(value: object, name: str) -> int:
    """A whole number out of a file or from a peer; ValueError: it is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is a whole number, got {value!r:.100}")
    return value


class ChunkPart(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """Rows of one answer as they become final; a chunk comes in one part or in several, in row order."""

    request_id: int
    epoch: int
    t_obs_ns: int
    """Capture time of the observation it answers, echoed [ns]."""
    first_row: int
    rows: Float[np.ndarray, "n D"]
    is_last: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class ActionChunk:
    """Up to H rows predicted from one observation, as the policy wrote them.

    row     0      1       2            n-1
    time    t0     t0+dt   t0+2dt  ...  t0+(n-1)dt
    """

    spec: ActionSpec
    rows: Float[np.ndarray, "n D"]
    """The rows known so far: n = H, or fewer while the chunk still streams in."""
    anchor: RobotState
    """State at the observation: what relative and delta rows count from."""
    request_id: int
    epoch: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", readonly(self.rows))
        n = self.rows.shape[0] if self.rows.ndim == 2 else 0
        if self.rows.ndim != 2 or self.rows.shape[1] != self.spec.dim or not 1 <= n <= self.spec.horizon:
            raise ValueError(
                f"a chunk needs 1 to {self.spec.horizon} rows of {self.spec.dim} numbers, "
                f"got an array of shape {self.rows.shape}"
            )
        if not np.isfinite(self.rows).all():
            raise ValueError(f"chunk {self.request_id} holds NaN or infinite numbers")
        if not (np.abs(self.rows) <= MAX_NUMBER).all():
            raise ValueError(f"chunk {self.request_id} holds numbers beyond {MAX_NUMBER:g}")

    @property
    def t_obs_ns(self) -> int:
        """Capture time of the observation [ns]."""
        return self.anchor.t_ns


@dataclass(frozen=True, kw_only=True, eq=False)
class JointCommand:
    """Joint position setpoint."""

    q: Float[np.ndarray, " N"]
    """(N,) [rad]"""


@dataclass(frozen=True, kw_only=True, eq=False)
class PoseCommand:
    """End-effector setpoint."""

    p_BE: Float[np.ndarray, "3"]
    """(3,) [m] in the mobile base."""
    quat_BE: Float[np.ndarray, "4"]
    """(4,) unit, wxyz."""

    @property
    def X_BE(self) -> pin.SE3:
        return pose_from_quaternion(self.p_BE, self.quat_BE)


@dataclass(frozen=True, kw_only=True, eq=False)
class BasePoseCommand:
    """Base pose setpoint (x, y, yaw) in the world [m, m, rad]."""

    x_WB: Float[np.ndarray, "3"]


@dataclass(frozen=True, kw_only=True, eq=False)
class BaseTwistCommand:
    """Base velocity setpoint (vx, vy, wz) expressed in B [m/s, m/s, rad/s]."""

    V_WB_B: Float[np.ndarray, "3"]


ArmCommand = JointCommand | PoseCommand
BaseCommand = BasePoseCommand | BaseTwistCommand


@dataclass(frozen=True, kw_only=True)
class GripperCommand:
    """Finger distance setpoint [m]."""

    width: float


@dataclass(frozen=True, kw_only=True, eq=False)
class NumbersCommand:
    """Plain numbers, in their own units."""

    values: Float[np.ndarray, " K"]
    is_held: bool = True
    """Until the next row is due; or a place on a path between two."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Command:
    """One instant's absolute setpoint for every part of the robot; None leaves a part alone."""

    arm: ArmCommand | None = None
    gripper: GripperCommand | None = None
    base: BaseCommand | None = None
    numbers: NumbersCommand | None = None


def command_at_state(spec: ActionSpec, state: RobotState) -> Command:
    """The command that keeps the robot where it was measured; ValueError if the state lacks a part."""
    arm: JointCommand | PoseCommand | None = None
    base: BasePoseCommand | BaseTwistCommand | None = None
    gripper = numbers = None
    for f in spec.fields:
        match f:
            case JointPosition(num_joints=n):
                if state.q.shape != (n,):
                    raise ValueError(f"the policy moves {n} joints, the state has {state.q.shape[0]}")
                arm = JointCommand(q=state.q)
            case EndEffectorPose() | WorldEndEffectorPose():
                if state.X_BE is None:
                    raise ValueError("the policy moves the hand, but the state has no X_BE")
                quat_BE = quaternion_from_rotation(state.X_BE.rotation)
                arm = PoseCommand(p_BE=np.array(state.X_BE.translation), quat_BE=quat_BE)
            case BasePose():
                if state.x_WB is None:
                    raise ValueError("the policy moves the base, but the state has no x_WB")
                base = BasePoseCommand(x_WB=state.x_WB)
            case BaseTwist():
                base = BaseTwistCommand(V_WB_B=np.zeros(3))
            case GripperWidth():
                if state.gripper_width is None:
                    raise ValueError("the policy moves a gripper, but the state has no gripper_width")
                gripper = GripperCommand(width=state.gripper_width)
            case Numbers():
                values = state.measured.get(f.part, np.array(f.at_rest))
                numbers = NumbersCommand(values=values, is_held=f.is_held)
    return Command(arm=arm, gripper=gripper, base=base, numbers=numbers)
