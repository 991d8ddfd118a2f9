"""What the numbers of an action mean: `ActionSpec`, `ActionChunk`, and absolute `Waypoints` and `Command`.

A policy speaks in rows of numbers; a robot obeys absolute targets. `Waypoints.from_chunk` goes from the one
to the other with the pose the robot had when it looked, and `encode` goes back, which is how a committed
prefix is shown to a policy in its own language.
"""

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pinocchio as pin

from robot_runtime.core.shapes import Float
from robot_runtime.core.state import RobotState, readonly
from robot_runtime.core.transforms import (
    compose_planar,
    interpolate_planar,
    inverse_planar,
    pose_from_quaternion,
    quaternion_from_rotation,
    rotation_from_6d,
    rotation_to_6d,
    slerp,
    wrap_angle,
)

NS_PER_S = 1_000_000_000


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


ActionField = JointPosition | EndEffectorPose | GripperWidth | BasePose | BaseTwist
_FIELD_KINDS: dict[str, type] = {
    "joint_position": JointPosition,
    "end_effector_pose": EndEffectorPose,
    "gripper_width": GripperWidth,
    "base_pose": BasePose,
    "base_twist": BaseTwist,
}
_KIND_NAMES = {kind: name for name, kind in _FIELD_KINDS.items()}


@dataclass(frozen=True, kw_only=True)
class ActionSpec:
    """The meaning of an action chunk: the fields its columns hold, in order; how many rows, how far apart."""

    fields: tuple[ActionField, ...]
    horizon: int
    """Rows in a chunk, H."""
    dt_ns: int
    """Time from row to row [ns]."""

    def __post_init__(self) -> None:
        if self.horizon < 1 or self.dt_ns < 1 or not self.fields:
            raise ValueError(f"an action spec needs fields, horizon >= 1 and dt_ns >= 1, got {self}")
        arms = [f for f in self.fields if isinstance(f, JointPosition | EndEffectorPose)]
        bases = [f for f in self.fields if isinstance(f, BasePose | BaseTwist)]
        grippers = [f for f in self.fields if isinstance(f, GripperWidth)]
        if max(len(arms), len(bases), len(grippers)) > 1:
            raise ValueError(f"at most one field each for arm, base and gripper, got {self.fields}")

    @property
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

    def to_dict(self) -> dict:
        """Plain values for the wire and for files."""
        return {"fields": fields_to_dicts(self.fields), "horizon": self.horizon, "dt_ns": self.dt_ns}

    @classmethod
    def from_dict(cls, data: dict) -> "ActionSpec":
        """Inverse of `to_dict`; ValueError, KeyError or TypeError on anything else."""
        return cls(
            fields=fields_from_dicts(data["fields"]), horizon=int(data["horizon"]), dt_ns=int(data["dt_ns"])
        )


def fields_to_dicts(fields: tuple[ActionField, ...]) -> list[dict]:
    """Action fields as plain values."""
    out = []
    for f in fields:
        entry: dict = {"kind": _KIND_NAMES[type(f)], "dim": f.dim}
        if not isinstance(f, GripperWidth | BaseTwist):
            entry["reference"] = f.reference.value
        out.append(entry)
    return out


def fields_from_dicts(entries: list[dict]) -> tuple[ActionField, ...]:
    """Inverse of `fields_to_dicts`; ValueError, KeyError or TypeError on anything else."""
    fields: list[ActionField] = []
    for entry in entries:
        kind = _FIELD_KINDS.get(entry["kind"])
        if kind is None:
            raise ValueError(f"unknown action field {entry['kind']!r}; valid: {', '.join(_FIELD_KINDS)}")
        if kind is JointPosition:
            fields.append(JointPosition(int(entry["dim"]), Reference(entry["reference"])))
        elif "reference" in entry:
            fields.append(kind(Reference(entry["reference"])))
        else:
            fields.append(kind())
    return tuple(fields)


@dataclass(frozen=True, kw_only=True, eq=False)
class ChunkPart:
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
class Command:
    """One instant's absolute setpoint for every part of the robot; None leaves a part alone."""

    arm: ArmCommand | None = None
    gripper: GripperCommand | None = None
    base: BaseCommand | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Waypoints:
    """The absolute targets of n rows; a part the policy does not command is None."""

    q: Float[np.ndarray, "n N"] | None = None
    p_BE: Float[np.ndarray, "n 3"] | None = None
    quat_BE: Float[np.ndarray, "n 4"] | None = None
    gripper: Float[np.ndarray, " n"] | None = None
    x_WB: Float[np.ndarray, "n 3"] | None = None
    V_WB_B: Float[np.ndarray, "n 3"] | None = None

    @property
    def num_rows(self) -> int:
        for part in (self.q, self.p_BE, self.gripper, self.x_WB, self.V_WB_B):
            if part is not None:
                return part.shape[0]
        return 0

    def head(self, num_rows: int) -> "Waypoints":
        """The first `num_rows` rows."""
        if num_rows >= self.num_rows:
            return self
        parts = {name: value for name, value in vars(self).items() if value is not None}
        return replace(self, **{name: value[:num_rows] for name, value in parts.items()})

    def row(self, i: int) -> Command:
        """Row i as a command."""
        arm: ArmCommand | None = None
        if self.q is not None:
            arm = JointCommand(q=self.q[i])
        elif self.p_BE is not None and self.quat_BE is not None:
            arm = PoseCommand(p_BE=self.p_BE[i], quat_BE=self.quat_BE[i])
        base: BaseCommand | None = None
        if self.x_WB is not None:
            base = BasePoseCommand(x_WB=self.x_WB[i])
        elif self.V_WB_B is not None:
            base = BaseTwistCommand(V_WB_B=self.V_WB_B[i])
        gripper = None if self.gripper is None else GripperCommand(width=float(self.gripper[i]))
        return Command(arm=arm, gripper=gripper, base=base)

    @classmethod
    def from_chunk(cls, chunk: ActionChunk) -> "Waypoints":
        """Absolute targets of a chunk; ValueError if its anchor lacks what relative rows count from."""
        out: dict[str, np.ndarray] = {}
        for f, columns in chunk.spec.columns():
            rows = chunk.rows[:, columns]
            match f:
                case JointPosition():
                    out["q"] = _resolve_vectors(rows, f.reference, chunk.anchor.q)
                case EndEffectorPose():
                    out["p_BE"], out["quat_BE"] = _resolve_poses(rows, f.reference, chunk.anchor)
                case GripperWidth():
                    out["gripper"] = rows[:, 0]
                case BasePose():
                    out["x_WB"] = _resolve_planar(rows, f.reference, chunk.anchor)
                case BaseTwist():
                    out["V_WB_B"] = rows
        return cls(**out)

    def encode(self, spec: ActionSpec, anchor: RobotState) -> Float[np.ndarray, "n D"]:
        """The rows that `from_chunk` would turn into these targets, given the same anchor."""
        parts = []
        for f, _ in spec.columns():
            match f:
                case JointPosition():
                    parts.append(_encode_vectors(_need(self.q, "q"), f.reference, anchor.q))
                case EndEffectorPose():
                    poses = zip(_need(self.p_BE, "p_BE"), _need(self.quat_BE, "quat_BE"), strict=True)
                    parts.append(_encode_poses([pose_from_quaternion(p, q) for p, q in poses], f, anchor))
                case GripperWidth():
                    parts.append(_need(self.gripper, "gripper")[:, None])
                case BasePose():
                    parts.append(_encode_planar(_need(self.x_WB, "x_WB"), f.reference, anchor))
                case BaseTwist():
                    parts.append(_need(self.V_WB_B, "V_WB_B"))
        return np.concatenate(parts, axis=1)

    @classmethod
    def from_commands(cls, commands: list[Command]) -> "Waypoints":
        """Rows made of commands, all of one kind."""
        out: dict[str, list] = {}
        for command in commands:
            match command.arm:
                case JointCommand(q=q):
                    out.setdefault("q", []).append(q)
                case PoseCommand(p_BE=p, quat_BE=quat):
                    out.setdefault("p_BE", []).append(p)
                    out.setdefault("quat_BE", []).append(quat)
            match command.base:
                case BasePoseCommand(x_WB=x):
                    out.setdefault("x_WB", []).append(x)
                case BaseTwistCommand(V_WB_B=twist):
                    out.setdefault("V_WB_B", []).append(twist)
            if command.gripper is not None:
                out.setdefault("gripper", []).append(command.gripper.width)
        return cls(**{name: np.array(values) for name, values in out.items()})


def interpolate(a: Command, b: Command, alpha: float) -> Command:
    """The command a fraction `alpha` of the way from `a` to `b`, field by field.

    Joints, positions and twists go straight, rotations on the geodesic, yaw the shorter way round; the
    gripper keeps `a`'s width until `b` is reached, because a half-open hand is nobody's plan.
    """
    arm, base = b.arm, b.base
    match a.arm, b.arm:
        case JointCommand(q=q_a), JointCommand(q=q_b):
            arm = JointCommand(q=q_a + alpha * (q_b - q_a))
        case PoseCommand() as pose_a, PoseCommand() as pose_b:
            p = pose_a.p_BE + alpha * (pose_b.p_BE - pose_a.p_BE)
            arm = PoseCommand(p_BE=p, quat_BE=slerp(pose_a.quat_BE, pose_b.quat_BE, alpha))
    match a.base, b.base:
        case BasePoseCommand(x_WB=x_a), BasePoseCommand(x_WB=x_b):
            base = BasePoseCommand(x_WB=interpolate_planar(x_a, x_b, alpha))
        case BaseTwistCommand(V_WB_B=v_a), BaseTwistCommand(V_WB_B=v_b):
            base = BaseTwistCommand(V_WB_B=v_a + alpha * (v_b - v_a))
    gripper = b.gripper if alpha >= 1.0 or a.gripper is None else a.gripper
    return Command(arm=arm, gripper=gripper, base=base)


def _need(part: np.ndarray | None, name: str) -> np.ndarray:
    if part is None:
        raise ValueError(f"the plan has no {name}, which the action spec asks for")
    return part


def _resolve_vectors(rows: np.ndarray, reference: Reference, origin: np.ndarray) -> np.ndarray:
    if reference is Reference.ABSOLUTE:
        return rows
    if origin.shape != rows.shape[1:]:
        raise ValueError(f"relative rows of {rows.shape[1]} columns on an anchor of shape {origin.shape}")
    return origin + (rows if reference is Reference.RELATIVE else np.cumsum(rows, axis=0))


def _encode_vectors(targets: np.ndarray, reference: Reference, origin: np.ndarray) -> np.ndarray:
    if reference is Reference.ABSOLUTE:
        return targets
    if reference is Reference.RELATIVE:
        return targets - origin
    return np.diff(targets, axis=0, prepend=origin[None])


def _pose_from_row(row: np.ndarray) -> pin.SE3:
    return pin.SE3(rotation_from_6d(row[3:]), row[:3])


def _anchor_hand(anchor: RobotState) -> pin.SE3:
    if anchor.X_BE is None:
        raise ValueError("hand rows relative to the observation need X_BE in the robot state")
    return anchor.X_BE


def _resolve_poses(
    rows: np.ndarray, reference: Reference, anchor: RobotState
) -> tuple[np.ndarray, np.ndarray]:
    poses = [_pose_from_row(row) for row in rows]
    if reference is not Reference.ABSOLUTE:
        origin = _anchor_hand(anchor)
        for i, pose in enumerate(poses):
            poses[i] = origin * pose
            if reference is Reference.DELTA:
                origin = poses[i]
    quats = [quaternion_from_rotation(pose.rotation) for pose in poses]
    return np.array([pose.translation for pose in poses]), np.array(quats)


def _encode_poses(poses: list[pin.SE3], f: EndEffectorPose, anchor: RobotState) -> np.ndarray:
    if f.reference is not Reference.ABSOLUTE:
        origin = _anchor_hand(anchor)
        relative = []
        for pose in poses:
            relative.append(origin.inverse() * pose)
            if f.reference is Reference.DELTA:
                origin = pose
        poses = relative
    return np.array([np.concatenate([x.translation, rotation_to_6d(x.rotation)]) for x in poses])


def _anchor_base(anchor: RobotState) -> np.ndarray:
    if anchor.x_WB is None:
        raise ValueError("base rows relative to the observation need x_WB in the robot state")
    return anchor.x_WB


def _resolve_planar(rows: np.ndarray, reference: Reference, anchor: RobotState) -> np.ndarray:
    if reference is Reference.ABSOLUTE:
        return rows
    origin, out = _anchor_base(anchor), []
    for row in rows:
        out.append(compose_planar(origin, row))
        if reference is Reference.DELTA:
            origin = out[-1]
    return np.array(out)


def _encode_planar(targets: np.ndarray, reference: Reference, anchor: RobotState) -> np.ndarray:
    if reference is Reference.ABSOLUTE:
        return np.column_stack([targets[:, :2], [wrap_angle(yaw) for yaw in targets[:, 2]]])
    inverse, out = inverse_planar(_anchor_base(anchor)), []
    for target in targets:
        out.append(compose_planar(inverse, target))
        if reference is Reference.DELTA:
            inverse = inverse_planar(target)
    return np.array(out)
