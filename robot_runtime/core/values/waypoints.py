"""Converts a policy's rows to absolute targets and back: `Waypoints`.

A policy predicts rows of numbers; a robot follows absolute targets. `Waypoints.from_chunk` converts the
former to the latter with the robot's pose at the observation, and `encode` converts back, which is how a
committed prefix is shown to a policy in its own columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

import numpy as np

from robot_runtime.core.values.action import ActionChunk, ActionSpec
from robot_runtime.core.values.command import (
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
)
from robot_runtime.core.values.pose_rows import (
    quaternions_from_rotations,
    rotations_from_columns,
    rotations_from_quaternions,
    rotations_to_columns,
)
from robot_runtime.core.values.references import (
    bases_when_due,
    encode_planar,
    encode_poses,
    encode_vectors,
    resolve_planar,
    resolve_poses,
    resolve_vectors,
    turned,
)
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import ARM, BASE, GRIPPER, RobotState

Quantity = tuple[str, str]
"""(part, quantity): the part's name and a name from the table below.

    q         (n, N) joints [rad]              width      (n,)   fingers [m], held from row to row
    dq        (n, N) joint speeds [rad/s]      x_WB       (n, 3) base (x, y, yaw) [m, m, rad]
    p_BE      (n, 3) end effector [m]          V_WB_B     (n, 3) its twist [m/s, m/s, rad/s]
    quat_BE   (n, 4) the same, unit, wxyz      numbers    (n, K) plain numbers
                                               held       (n, K) the same, held from row to row
"""
HELD = ("width", "held")
"""Quantities that are not interpolated."""


class _OfDefaultParts(TypedDict, total=False):
    q: Any
    p_BE: Any
    quat_BE: Any
    gripper: Any
    x_WB: Any
    V_WB_B: Any


@dataclass(frozen=True, eq=False, init=False)
class Waypoints:
    """The absolute targets of n rows, for every part that the policy commands."""

    rows_of: Mapping[Quantity, np.ndarray]

    def __init__(
        self,
        rows_of: Mapping[Quantity, np.ndarray] | None = None,
        **of_default_parts: Unpack[_OfDefaultParts],
    ) -> None:
        """of_default_parts: `q`, `p_BE`, `quat_BE` of "arm", `gripper` (widths), `x_WB`, `V_WB_B`."""
        mine = {} if rows_of is None else dict(rows_of)
        for name, values in of_default_parts.items():
            quantity = _DEFAULT_QUANTITIES[name]
            if values is None:
                mine.pop(quantity, None)
            else:
                mine[quantity] = values
        self.__dict__["rows_of"] = MappingProxyType(mine)

    @property
    def q(self) -> Float[np.ndarray, "n N"] | None:
        return self.rows_of.get((ARM, "q"))

    @property
    def p_BE(self) -> Float[np.ndarray, "n 3"] | None:
        return self.rows_of.get((ARM, "p_BE"))

    @property
    def quat_BE(self) -> Float[np.ndarray, "n 4"] | None:
        return self.rows_of.get((ARM, "quat_BE"))

    @property
    def gripper(self) -> Float[np.ndarray, " n"] | None:
        return self.rows_of.get((GRIPPER, "width"))

    @property
    def x_WB(self) -> Float[np.ndarray, "n 3"] | None:
        return self.rows_of.get((BASE, "x_WB"))

    @property
    def V_WB_B(self) -> Float[np.ndarray, "n 3"] | None:
        return self.rows_of.get((BASE, "V_WB_B"))

    @property
    def num_rows(self) -> int:
        for values in self.rows_of.values():
            return len(values)
        return 0

    def head(self, num_rows: int) -> "Waypoints":
        """The first `num_rows` rows."""
        if num_rows >= self.num_rows:
            return self
        return Waypoints({what: values[:num_rows] for what, values in self.rows_of.items()})

    def row(self, i: int) -> Command:
        """Row i as a command."""
        return command_of({what: values[i] for what, values in self.rows_of.items()})

    @classmethod
    def from_chunk(cls, chunk: ActionChunk) -> "Waypoints":
        """Absolute targets of a chunk; ValueError if its anchor lacks the state that relative rows count
        from."""
        out: dict[Quantity, np.ndarray] = {}
        in_world: list[tuple[WorldEndEffectorPose, np.ndarray]] = []
        for f, columns in chunk.spec.columns():
            rows = chunk.rows[:, columns]
            if isinstance(f, WorldEndEffectorPose):
                in_world.append((f, rows))
            else:
                out |= {(f.part, name): values for name, values in _resolved(f, rows, chunk).items()}
        for f, rows in in_world:
            p_WB, R_WB = bases_when_due(out.get((f.base, "x_WB")), chunk.anchor, f.base, len(rows))
            R_BW = R_WB.transpose(0, 2, 1)
            out[f.part, "p_BE"] = turned(R_BW, rows[:, :3] - p_WB)
            out[f.part, "quat_BE"] = quaternions_from_rotations(R_BW @ rotations_from_columns(rows[:, 3:]))
        return cls(out)

    def encode(self, spec: ActionSpec, anchor: RobotState) -> Float[np.ndarray, "n D"]:
        """The rows that `from_chunk` would turn into these targets, given the same anchor.

        An absolute yaw is at most half a turn from the anchor's, so that rows do not jump in mid-chunk.
        """
        return np.concatenate(
            [columns for f in spec.fields for columns in self._columns(f, spec, anchor)], axis=1
        )

    def _columns(self, f: ActionField, spec: ActionSpec, anchor: RobotState) -> list[np.ndarray]:
        """The columns of one field."""
        match f:
            case JointPosition():
                q = self._need(f.part, "q")
                return [encode_vectors(q, f.reference, _joints(f, anchor))]
            case JointVelocity(is_integrated=True):
                moved = encode_vectors(self._need(f.part, "q"), Reference.DELTA, _joints(f, anchor))
                return [moved / spec.dt_s]
            case JointVelocity():
                return [self._need(f.part, "dq")]
            case EndEffectorPose():
                return encode_poses(*self._hands(f.part), f.reference, anchor, f.part, f.rotation)
            case WorldEndEffectorPose():
                x_WB = self.rows_of.get((f.base, "x_WB"))
                p_WB, R_WB = bases_when_due(x_WB, anchor, f.base, self.num_rows)
                p_BE, R_BE = self._hands(f.part)
                return [p_WB + turned(R_WB, p_BE), rotations_to_columns(R_WB @ R_BE, f.rotation)]
            case GripperWidth():
                return [self._need(f.part, "width")[:, None]]
            case GripperFraction():
                return [f.share(self._need(f.part, "width"))[:, None]]
            case BasePose():
                return [encode_planar(self._need(f.part, "x_WB"), f.reference, anchor, f.part)]
            case BaseTwist():
                return [self._need(f.part, "V_WB_B")]
            case Numbers():
                return [self._need(f.part, "held" if f.is_held else "numbers")]

    def _hands(self, part: str) -> tuple[np.ndarray, np.ndarray]:
        """End-effector positions (n, 3) and rotations (n, 3, 3)."""
        return self._need(part, "p_BE"), rotations_from_quaternions(self._need(part, "quat_BE"))

    def _need(self, part: str, name: str) -> np.ndarray:
        values = self.rows_of.get((part, name))
        if values is None:
            raise ValueError(f"the plan has no {name} of {part!r}, which the action spec asks for")
        return values

    @classmethod
    def from_commands(cls, commands: list[Command]) -> "Waypoints":
        """Waypoints from commands, which are of one kind for each part."""
        out: dict[Quantity, list] = {}
        for command in commands:
            for part, setpoint in command.parts.items():
                for name, value in _quantities(setpoint):
                    out.setdefault((part, name), []).append(value)
        return cls({what: np.array(values) for what, values in out.items()})


_DEFAULT_QUANTITIES: dict[str, Quantity] = {
    "q": (ARM, "q"),
    "p_BE": (ARM, "p_BE"),
    "quat_BE": (ARM, "quat_BE"),
    "gripper": (GRIPPER, "width"),
    "x_WB": (BASE, "x_WB"),
    "V_WB_B": (BASE, "V_WB_B"),
}


def command_of(at: Mapping[Quantity, Any]) -> Command:
    """The command made from one row of every quantity."""
    out: dict[str, PartCommand] = {}
    for (part, name), value in at.items():
        if name == "q":
            out[part] = JointCommand(q=value)
        elif name == "width":
            out[part] = GripperCommand(width=float(value))
        elif name == "p_BE":
            out[part] = PoseCommand(p_BE=value, quat_BE=at[part, "quat_BE"])
        elif name == "x_WB":
            out[part] = BasePoseCommand(x_WB=value)
        elif name == "V_WB_B":
            out[part] = BaseTwistCommand(V_WB_B=value)
        elif name == "dq":
            out[part] = JointVelocityCommand(dq=value)
        elif name != "quat_BE":
            out[part] = NumbersCommand(values=value, is_held=name == "held")
    return Command(out)


def _quantities(setpoint: PartCommand) -> list[tuple[str, Any]]:
    """The numbers of a part's command, by name."""
    match setpoint:
        case JointCommand(q=q):
            return [("q", q)]
        case GripperCommand(width=width):
            return [("width", width)]
        case PoseCommand(p_BE=p, quat_BE=quat):
            return [("p_BE", p), ("quat_BE", quat)]
        case BasePoseCommand(x_WB=x):
            return [("x_WB", x)]
        case BaseTwistCommand(V_WB_B=twist):
            return [("V_WB_B", twist)]
        case JointVelocityCommand(dq=dq):
            return [("dq", dq)]
        case NumbersCommand(values=values, is_held=is_held):
            return [("held" if is_held else "numbers", values)]


def _resolved(f: ActionField, rows: np.ndarray, chunk: ActionChunk) -> dict[str, np.ndarray]:
    """The targets of one field, by name."""
    anchor = chunk.anchor
    match f:
        case JointPosition():
            return {"q": resolve_vectors(rows, f.reference, _joints(f, anchor))}
        case JointVelocity(is_integrated=True):
            return {"q": resolve_vectors(rows * chunk.spec.dt_s, Reference.DELTA, _joints(f, anchor))}
        case JointVelocity():
            return {"dq": rows}
        case EndEffectorPose():
            p_BE, quat_BE = resolve_poses(rows, f.reference, anchor, f.part)
            return {"p_BE": p_BE, "quat_BE": quat_BE}
        case GripperWidth():
            return {"width": rows[:, 0]}
        case GripperFraction():
            return {"width": f.width(rows[:, 0])}
        case BasePose():
            return {"x_WB": resolve_planar(rows, f.reference, anchor, f.part)}
        case BaseTwist():
            return {"V_WB_B": rows}
        case Numbers():
            return {"held" if f.is_held else "numbers": rows}
        case WorldEndEffectorPose():
            raise TypeError("a hand in the world depends on the base")


def _joints(f: JointPosition | JointVelocity, anchor: RobotState) -> np.ndarray:
    """The measured joint positions that rows count from; empty for absolute rows."""
    if isinstance(f, JointPosition) and f.reference is Reference.ABSOLUTE:
        return _NO_NUMBERS
    return anchor.arm(f.part).q


_NO_NUMBERS = np.zeros(0)
