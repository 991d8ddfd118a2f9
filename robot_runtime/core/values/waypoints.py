"""From a policy's rows to absolute targets and back: `Waypoints`.

A policy speaks in rows of numbers; a robot obeys absolute targets. `Waypoints.from_chunk` goes from the one
to the other with the pose the robot had when it looked, and `encode` goes back, which is how a committed
prefix is shown to a policy in its own language.
"""

from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin

from robot_runtime.core.values.action import (
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
    Numbers,
    NumbersCommand,
    PoseCommand,
    Reference,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.pose_rows import (
    quaternions_from_rotations,
    rotations_from_quaternions,
    turns_about_vertical,
)
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import (
    compose_planar,
    inverse_planar,
    rotation_from_6d,
    rotation_to_6d,
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
    numbers: Float[np.ndarray, "n K"] | None = None
    """Places on a path between rows."""
    held_numbers: Float[np.ndarray, "n K"] | None = None
    """Each until the next row is due."""

    @property
    def num_rows(self) -> int:
        for part in (
            self.q,
            self.p_BE,
            self.gripper,
            self.x_WB,
            self.V_WB_B,
            self.numbers,
            self.held_numbers,
        ):
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
        numbers = None
        if self.numbers is not None:
            numbers = NumbersCommand(values=self.numbers[i], is_held=False)
        elif self.held_numbers is not None:
            numbers = NumbersCommand(values=self.held_numbers[i])
        return Command(arm=arm, gripper=gripper, base=base, numbers=numbers)

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
                case Numbers(is_held=is_held):
                    out["held_numbers" if is_held else "numbers"] = rows
        if in_world is not None:
            p_WB, R_WB = _bases(out.get("x_WB"), chunk.anchor, len(in_world))
            R_BW = R_WB.transpose(0, 2, 1)
            out["p_BE"] = _turned(R_BW, in_world[:, :3] - p_WB)
            out["quat_BE"] = quaternions_from_rotations(R_BW @ rotation_from_6d(in_world[:, 3:]))
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
                    parts += _encode_poses(*self._hands(), f.reference, anchor)
                case WorldEndEffectorPose():
                    p_WB, R_WB = _bases(self.x_WB, anchor, self.num_rows)
                    p_BE, R_BE = self._hands()
                    parts += [p_WB + _turned(R_WB, p_BE), rotation_to_6d(R_WB @ R_BE)]
                case GripperWidth():
                    parts.append(_need(self.gripper, "gripper")[:, None])
                case BasePose():
                    parts.append(_encode_planar(_need(self.x_WB, "x_WB"), f.reference, anchor))
                case BaseTwist():
                    parts.append(_need(self.V_WB_B, "V_WB_B"))
                case Numbers(is_held=is_held):
                    parts.append(_need(self.held_numbers if is_held else self.numbers, "numbers"))
        return np.concatenate(parts, axis=1)

    def _hands(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions (n, 3) and rotations (n, 3, 3)."""
        return _need(self.p_BE, "p_BE"), rotations_from_quaternions(_need(self.quat_BE, "quat_BE"))

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
            if command.numbers is not None:
                name = "held_numbers" if command.numbers.is_held else "numbers"
                out.setdefault(name, []).append(command.numbers.values)
            if command.gripper is not None:
                out.setdefault("gripper", []).append(command.gripper.width)
        return cls(**{name: np.array(values) for name, values in out.items()})


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


def _anchor_hand(anchor: RobotState) -> pin.SE3:
    if anchor.X_BE is None:
        raise ValueError("hand rows relative to the observation need X_BE in the robot state")
    return anchor.X_BE


def _resolve_poses(
    rows: np.ndarray, reference: Reference, anchor: RobotState
) -> tuple[np.ndarray, np.ndarray]:
    p, R = rows[:, :3], rotation_from_6d(rows[:, 3:])
    if reference is Reference.RELATIVE:
        origin = _anchor_hand(anchor)
        p, R = origin.translation + p @ origin.rotation.T, origin.rotation @ R
    elif reference is Reference.DELTA:
        origin, p = _anchor_hand(anchor), p.copy()
        p_BE, R_BE = origin.translation, origin.rotation
        for i in range(len(rows)):
            p[i], R[i] = p_BE, R_BE = p_BE + R_BE @ p[i], R_BE @ R[i]
    return p, quaternions_from_rotations(R)


def _encode_poses(p: np.ndarray, R: np.ndarray, reference: Reference, anchor: RobotState) -> list[np.ndarray]:
    """Columns of positions and of rotations."""
    if reference is not Reference.ABSOLUTE:
        origin = _anchor_hand(anchor)
        p_0, R_0 = origin.translation, origin.rotation
        if reference is Reference.DELTA:
            p_0, R_0 = np.vstack([p_0, p[:-1]]), np.concatenate([R_0[None], R[:-1]])
        R_0 = np.broadcast_to(R_0, R.shape).transpose(0, 2, 1)
        p, R = _turned(R_0, p - p_0), R_0 @ R
    return [p, rotation_to_6d(R)]


def _turned(rotations: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Every vector (n, 3) by its rotation (n, 3, 3)."""
    return (rotations @ vectors[:, :, None])[:, :, 0]


def _bases(x_WB: np.ndarray | None, anchor: RobotState, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Position and rotation of the base when a row is due: of the row itself, or at the observation."""
    if x_WB is None:
        x_WB = np.tile(_anchor_base(anchor), (num_rows, 1))
    p_WB = np.column_stack([x_WB[:, :2], np.zeros(len(x_WB))])
    return p_WB, turns_about_vertical(x_WB[:, 2])


def _anchor_base(anchor: RobotState) -> np.ndarray:
    if anchor.x_WB is None:
        raise ValueError("base rows relative to the observation, and hands in the world, need x_WB")
    return anchor.x_WB


def _resolve_planar(rows: np.ndarray, reference: Reference, anchor: RobotState) -> np.ndarray:
    if reference is Reference.ABSOLUTE:
        return rows
    origin = _anchor_base(anchor)
    if reference is Reference.RELATIVE:
        return compose_planar(origin, rows)
    out = []
    for row in rows:
        origin = compose_planar(origin, row)
        out.append(origin)
    return np.array(out)


def _encode_planar(targets: np.ndarray, reference: Reference, anchor: RobotState) -> np.ndarray:
    if reference is Reference.ABSOLUTE:
        near = 0.0 if anchor.x_WB is None else anchor.x_WB[2]
        return np.column_stack([targets[:, :2], near + wrap_angle(targets[:, 2] - near)])
    inverse = inverse_planar(_anchor_base(anchor))
    if reference is Reference.RELATIVE:
        return compose_planar(inverse, targets)
    out = []
    for target in targets:
        out.append(compose_planar(inverse, target))
        inverse = inverse_planar(target)
    return np.array(out)
