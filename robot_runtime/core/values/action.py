"""The meaning of action chunks: `ActionSpec` and `ActionChunk` for policies.

The kinds of columns are in `fields`, commands in `command`; this module exports their names as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

import numpy as np
from msgspec import Struct

from robot_runtime.core.values.command import (
    ArmCommand,
    BaseCommand,
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    GripperCommand,
    JointCommand,
    JointVelocityCommand,
    NumbersCommand,
    PartCommand,
    PoseCommand,
)
from robot_runtime.core.values.fields import (
    MAX_JOINTS,
    ActionField,
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperFraction,
    GripperWidth,
    JointPosition,
    JointVelocity,
    Numbers,
    Reference,
    WorldEndEffectorPose,
    absolute,
    fields_from_dicts,
    fields_to_dicts,
    whole,
)
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import RobotState, readonly
from robot_runtime.core.values.transforms import quaternion_from_rotation
from robot_runtime.errors import InvalidValueError

__all__ = [
    "MAX_DT_NS",
    "MAX_HORIZON",
    "MAX_JOINTS",
    "MAX_NUMBER",
    "NS_PER_MS",
    "NS_PER_S",
    "ActionChunk",
    "ActionField",
    "ActionSpec",
    "ArmCommand",
    "BaseCommand",
    "BasePose",
    "BasePoseCommand",
    "BaseTwist",
    "BaseTwistCommand",
    "ChunkPart",
    "Command",
    "EndEffectorPose",
    "GripperCommand",
    "GripperFraction",
    "GripperWidth",
    "JointCommand",
    "JointPosition",
    "JointVelocity",
    "JointVelocityCommand",
    "Numbers",
    "NumbersCommand",
    "PartCommand",
    "PoseCommand",
    "Reference",
    "RowTiming",
    "WorldEndEffectorPose",
    "at_rest_or",
    "command_at_state",
    "fields_from_dicts",
    "fields_to_dicts",
    "rests_of",
    "scales_of",
    "whole",
]

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
MAX_HORIZON, MAX_DT_NS = 4096, 60 * NS_PER_S
"""Upper bounds beyond any policy: a larger value from a file or a peer is a mistake, or an attack."""

MAX_NUMBER = 1e9
"""Rows hold metres, radians and their rates: anything larger is invalid, and would overflow later."""


class RowTiming(Enum):
    """Meaning of a row in time. In both, row k is for t_k = t_0 + k dt.

    REACHED   the target to be at by t_k: between two rows the robot moves, and it coasts to rest at the last
    SENT      the command sent at t_k, as by LeRobot, ACT and every Gymnasium loop: it holds until t_k+1,
              the last one too, and the first is sent at once
    """

    REACHED = "reached"
    SENT = "sent"


@dataclass(frozen=True, kw_only=True)
class ActionSpec:
    """The meaning of an action chunk: the fields of its columns, in order; number and spacing of its rows."""

    fields: tuple[ActionField, ...]
    horizon: int
    """Rows in a chunk, H."""
    dt_ns: int
    """Time from row to row [ns]."""
    timing: RowTiming | None = None
    """Meaning of a row in time; by default SENT for held numbers alone, REACHED for all others."""

    def __post_init__(self) -> None:
        if self.timing is None:
            object.__setattr__(self, "timing", _usual_timing(self.fields))
        for name, value in (("horizon", self.horizon), ("dt_ns", self.dt_ns)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer):
                hint = ", nanoseconds: 50 ms are 50_000_000" if name == "dt_ns" else ""
                raise InvalidValueError(f"{name} is a whole number{hint}; got {value!r:.60}")
        if not 1 <= self.horizon <= MAX_HORIZON or not 1 <= self.dt_ns <= MAX_DT_NS or not self.fields:
            raise InvalidValueError(
                f"an action spec needs fields, horizon in 1..{MAX_HORIZON} and dt_ns in 1..{MAX_DT_NS}, "
                f"got {self}"
            )
        object.__setattr__(self, "fields", tuple(self.fields))
        parts = [f.part for f in self.fields]
        if len(set(parts)) < len(parts):
            raise InvalidValueError(f"at most one field each for a part of the robot, got {self.fields}")
        if len(set(self.names)) < self.dim:
            raise InvalidValueError(f"every column needs a name of its own, got {list(self.names)}")

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

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order: `left_arm.joint_3`, `gripper.width`, ..."""
        return tuple(name for f in self.fields for name in f.column_names)

    def absolute(self) -> "ActionSpec":
        """The same columns with every position absolute."""
        return replace(self, fields=tuple(map(absolute, self.fields)))

    def with_gripper_ranges(self, ranges: Mapping[str, tuple[float, float]]) -> "ActionSpec":
        """The spec with the range of each gripper fraction set to (smallest, largest) width [m]."""
        fields = tuple(
            replace(f, low=ranges[f.part][0], high=ranges[f.part][1])
            if isinstance(f, GripperFraction) and f.part in ranges
            else f
            for f in self.fields
        )
        return self if fields == self.fields else replace(self, fields=fields)

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


class ChunkPart(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """Rows of one answer as they become final; a chunk comes in one part or in several, in row order."""

    request_id: int
    epoch: int
    t_obs_ns: int
    """Capture time of the observation it answers, echoed [ns]."""
    first_row: int
    rows: Float[np.ndarray, "n D"]
    is_last: bool
    queue_ns: int = 0
    """On the server: from receipt of the request to the start of inference [ns]."""
    infer_ns: int = 0
    """On the server: from there until these rows were final [ns]."""


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
    """State at the observation, the reference of relative and delta rows."""
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


def scales_of(spec: ActionSpec) -> dict[str, float]:
    """The scales of plain numbers, by part."""
    return {f.part: f.scale for f in spec.fields if isinstance(f, Numbers)}


def command_at_state(spec: ActionSpec, state: RobotState) -> Command:
    """The command that holds the robot where it was measured; ValueError if the state lacks a part."""
    return Command({f.part: _at_rest(f, state) for f in spec.fields})


def _at_rest(f: ActionField, state: RobotState) -> PartCommand:
    match f:
        case JointPosition() | JointVelocity():
            q = state.arm(f.part).q
            if q.shape != (f.dim,):
                raise ValueError(f"the policy moves {f.dim} joints of {f.part!r}, the state has {q.size}")
            is_velocity = isinstance(f, JointVelocity) and not f.is_integrated
            return JointVelocityCommand(dq=np.zeros(f.dim)) if is_velocity else JointCommand(q=q)
        case EndEffectorPose() | WorldEndEffectorPose():
            X_BE = state.hand(f.part)
            if X_BE is None:
                raise ValueError(f"the policy moves the hand, but the state has no X_BE of {f.part!r}")
            quat_BE = quaternion_from_rotation(X_BE.rotation)
            return PoseCommand(p_BE=np.array(X_BE.translation), quat_BE=quat_BE)
        case GripperWidth() | GripperFraction():
            return GripperCommand(width=state.gripper(f.part).width)
        case BasePose():
            x_WB = state.base(f.part).x_WB
            if x_WB is None:
                raise ValueError(f"the policy moves {f.part!r}, but the state has no x_WB")
            return BasePoseCommand(x_WB=x_WB)
        case BaseTwist():
            return BaseTwistCommand(V_WB_B=np.zeros(3))
        case Numbers():
            values = state.measured.get(f.part)
            if values is None or values.shape != (f.dim,):
                values = np.zeros(f.dim)
            return NumbersCommand(values=at_rest_or(values, f.at_rest), is_held=f.is_held)


def rests_of(spec: ActionSpec) -> dict[str, tuple[float | None, ...]]:
    """`Numbers.at_rest` of the parts that declare it."""
    return {f.part: f.at_rest for f in spec.fields if isinstance(f, Numbers) and f.at_rest}


def at_rest_or(values: Float[np.ndarray, " K"], at_rest: Sequence[float | None]) -> Float[np.ndarray, " K"]:
    """The numbers, with those that have a value at rest set to it."""
    if not at_rest:
        return values
    return np.array([x if rest is None else rest for x, rest in zip(values, at_rest, strict=True)])
