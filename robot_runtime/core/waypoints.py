"""From a policy's rows to absolute targets and back: `Waypoints`, and the commands between two of them.

A policy speaks in rows of numbers; a robot obeys absolute targets. `Waypoints.from_chunk` goes from the one
to the other with the pose the robot had when it looked, and `encode` goes back, which is how a committed
prefix is shown to a policy in its own language.
"""

from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin

from robot_runtime.core.action import (
    ActionChunk,
    ActionSpec,
    ArmCommand,
    BaseCommand,
    BasePose,
    BasePoseCommand,
    BaseTwist,
    BaseTwistCommand,
    Command,
    EndEffectorPose,
    GripperCommand,
    GripperWidth,
    JointCommand,
    JointPosition,
    PoseCommand,
    Reference,
    WorldEndEffectorPose,
)
from robot_runtime.core.shapes import Float
from robot_runtime.core.state import RobotState
from robot_runtime.core.transforms import (
    compose_planar,
    interpolate_planar,
    inverse_planar,
    pose_from_planar,
    pose_from_quaternion,
    quaternion_from_rotation,
    rotation_from_6d,
    rotation_to_6d,
    slerp,
    wrap_angle,
)


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
        in_world: np.ndarray | None = None
        for f, columns in chunk.spec.columns():
            rows = chunk.rows[:, columns]
            match f:
                case JointPosition():
                    out["q"] = _resolve_vectors(rows, f.reference, chunk.anchor.q)
                case EndEffectorPose():
                    out["p_BE"], out["quat_BE"] = _resolve_poses(rows, f.reference, chunk.anchor)
                case WorldEndEffectorPose():
                    in_world = rows
                case GripperWidth():
                    out["gripper"] = rows[:, 0]
                case BasePose():
                    out["x_WB"] = _resolve_planar(rows, f.reference, chunk.anchor)
                case BaseTwist():
                    out["V_WB_B"] = rows
        if in_world is not None:
            bases = _bases(out.get("x_WB"), chunk.anchor, len(in_world))
            poses = [X_WB.actInv(X_WE) for X_WB, X_WE in zip(bases, _poses(in_world), strict=True)]
            out["p_BE"], out["quat_BE"] = _as_arrays(poses)
        return cls(**out)

    def encode(self, spec: ActionSpec, anchor: RobotState) -> Float[np.ndarray, "n D"]:
        """The rows that `from_chunk` would turn into these targets, given the same anchor.

        An absolute yaw is told at most half a turn from the anchor's, so that rows do not jump in mid-chunk.
        """
        parts = []
        for f, _ in spec.columns():
            match f:
                case JointPosition():
                    parts.append(_encode_vectors(_need(self.q, "q"), f.reference, anchor.q))
                case EndEffectorPose():
                    parts.append(_encode_poses(self._hands(), f, anchor))
                case WorldEndEffectorPose():
                    bases = _bases(self.x_WB, anchor, self.num_rows)
                    hands = zip(bases, self._hands(), strict=True)
                    parts.append(_as_rows([X_WB * X_BE for X_WB, X_BE in hands]))
                case GripperWidth():
                    parts.append(_need(self.gripper, "gripper")[:, None])
                case BasePose():
                    parts.append(_encode_planar(_need(self.x_WB, "x_WB"), f.reference, anchor))
                case BaseTwist():
                    parts.append(_need(self.V_WB_B, "V_WB_B"))
        return np.concatenate(parts, axis=1)

    def _hands(self) -> list[pin.SE3]:
        poses = zip(_need(self.p_BE, "p_BE"), _need(self.quat_BE, "quat_BE"), strict=True)
        return [pose_from_quaternion(p, q) for p, q in poses]

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


def _poses(rows: np.ndarray) -> list[pin.SE3]:
    return [pin.SE3(R, p) for R, p in zip(rotation_from_6d(rows[:, 3:]), rows[:, :3], strict=True)]


def _anchor_hand(anchor: RobotState) -> pin.SE3:
    if anchor.X_BE is None:
        raise ValueError("hand rows relative to the observation need X_BE in the robot state")
    return anchor.X_BE


def _resolve_poses(
    rows: np.ndarray, reference: Reference, anchor: RobotState
) -> tuple[np.ndarray, np.ndarray]:
    poses = _poses(rows)
    if reference is not Reference.ABSOLUTE:
        origin = _anchor_hand(anchor)
        for i, pose in enumerate(poses):
            poses[i] = origin * pose
            if reference is Reference.DELTA:
                origin = poses[i]
    return _as_arrays(poses)


def _as_arrays(poses: list[pin.SE3]) -> tuple[np.ndarray, np.ndarray]:
    quats = [quaternion_from_rotation(pose.rotation) for pose in poses]
    return np.array([pose.translation for pose in poses]), np.array(quats)


def _as_rows(poses: list[pin.SE3]) -> np.ndarray:
    return np.array([np.concatenate([x.translation, rotation_to_6d(x.rotation)]) for x in poses])


def _bases(x_WB: np.ndarray | None, anchor: RobotState, num_rows: int) -> list[pin.SE3]:
    """Where the base is when a row is due: where the row has it, or where it was at the observation."""
    if x_WB is None:
        return [pose_from_planar(_anchor_base(anchor))] * num_rows
    return [pose_from_planar(x) for x in x_WB]


def _encode_poses(poses: list[pin.SE3], f: EndEffectorPose, anchor: RobotState) -> np.ndarray:
    if f.reference is not Reference.ABSOLUTE:
        origin = _anchor_hand(anchor)
        relative = []
        for pose in poses:
            relative.append(origin.inverse() * pose)
            if f.reference is Reference.DELTA:
                origin = pose
        poses = relative
    return _as_rows(poses)


def _anchor_base(anchor: RobotState) -> np.ndarray:
    if anchor.x_WB is None:
        raise ValueError("base rows relative to the observation, and hands in the world, need x_WB")
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
        near = 0.0 if anchor.x_WB is None else anchor.x_WB[2]
        return np.column_stack([targets[:, :2], [near + wrap_angle(yaw - near) for yaw in targets[:, 2]]])
    inverse, out = inverse_planar(_anchor_base(anchor)), []
    for target in targets:
        out.append(compose_planar(inverse, target))
        if reference is Reference.DELTA:
            inverse = inverse_planar(target)
    return np.array(out)
