"""Matches a robot's order of columns with a policy's, by name: `Alignment`, used at their interface alone.

    robot     left_arm.shoulder   left_arm.elbow   left_arm.wrist   left_gripper.width
                      |  \\________________|________________|________________
    policy    left_gripper.width     left_arm.wrist   left_arm.elbow   left_arm.shoulder

Behind it everything is in the robot's order: the policy's action spec, its rows, their statistics; the
policy's input is in its own order. Where both agree, everything passes unchanged.
"""

from dataclasses import dataclass, replace

import numpy as np
from msgspec import structs

from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.fields import ActionField, JointPosition, JointVelocity, Numbers
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.core.values.schema import ArmSchema, Schema
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import ArmState, Observation, PartState


@dataclass(frozen=True, kw_only=True, eq=False)
class Alignment:
    """The permutations from a robot's columns to a policy's; built at the handshake, by `between`."""

    spec: ActionSpec
    """The policy's action spec with joints in the robot's order."""
    rows: tuple[int, ...] | None
    """For every column of `spec`, its index in the policy's rows; None: the same."""
    joints: dict[str, tuple[int, ...]]
    """For every joint of the policy's input, its index in the robot's state; for parts that differ."""
    numbers: dict[str, tuple[int, ...]]
    """The same for plain numbers that are measured under their part's name."""

    scene: tuple[int, ...] = ()
    """For every scene quantity of the policy's input, its index in the robot's; empty: the same."""

    @classmethod
    def between(cls, *, robot: Schema, policy: Schema, action_spec: ActionSpec) -> "Alignment":
        """The alignment of two sides without `mismatches`."""
        theirs = {f.part: f for f in robot.action_fields}
        fields = tuple(_in_order_of(theirs.get(f.part), f) for f in action_spec.fields)
        spec = replace(action_spec, fields=fields)
        rows = tuple(action_spec.names.index(name) for name in spec.names)
        joints = {}
        moved = {f.part: f.names for f in action_spec.fields if isinstance(f, JointPosition | JointVelocity)}
        for name, names in (moved | {name: arm.names for name, arm in policy.arms.items()}).items():
            ours = robot.parts.get(name)
            if isinstance(ours, ArmSchema) and ours.names != names:
                joints[name] = tuple(ours.names.index(joint) for joint in names)
        numbers = {
            f.part: tuple(theirs[f.part].names.index(name) for name in f.names)
            for f in action_spec.fields
            if isinstance(f, Numbers)
            and robot.measured.get(f.part) == f.dim
            and theirs[f.part].names != f.names
        }
        has, needs = robot.environment_state_names, policy.environment_state_names
        return cls(
            spec=spec,
            rows=None if rows == tuple(range(spec.dim)) else rows,
            joints=joints,
            numbers=numbers,
            scene=tuple(map(has.index, needs)) if has and needs and has != needs else (),
        )

    @property
    def is_plain(self) -> bool:
        """Whether both sides agree on every order."""
        return self.rows is None and not (self.joints or self.numbers or self.scene)

    def shown(self, observation: Observation) -> Observation:
        """The observation in the policy's order."""
        if not (self.joints or self.numbers or self.scene):
            return observation
        seen = tuple(map(self.shown, observation.history))
        parts: dict[str, PartState] = {}
        for name, order in self.joints.items():
            arm = observation.state.arm(name)
            take = list(order)
            parts[name] = ArmState(q=arm.q[take], dq=arm.dq[take], X_BE=arm.X_BE, t_ns=arm.t_ns)
        state = observation.state.with_parts(parts)
        if self.numbers:
            turned = {name: state.measured[name][list(order)] for name, order in self.numbers.items()}
            state = replace(state, measured={**state.measured, **turned})
        scene = observation.environment_state
        scene = scene[list(self.scene)] if self.scene and len(scene) else scene
        return structs.replace(observation, state=state, environment_state=scene, history=seen)

    def ours(self, rows: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
        """A policy's rows in the robot's order."""
        return rows if self.rows is None else rows[:, list(self.rows)]

    def theirs(self, rows: Float[np.ndarray, "n D"]) -> Float[np.ndarray, "n D"]:
        """Inverse of `ours`."""
        if self.rows is None:
            return rows
        out = np.empty_like(rows)
        out[:, list(self.rows)] = rows
        return out

    def statistics(self, statistics: RowStatistics | None) -> RowStatistics | None:
        """Statistics of a policy's rows, in the robot's order."""
        if statistics is None or self.rows is None:
            return statistics
        return replace(statistics, mean=self.ours(statistics.mean), std=self.ours(statistics.std))


def _in_order_of(robot: ActionField | None, policy: ActionField) -> ActionField:
    """The policy's field with its columns in the robot's order."""
    if isinstance(policy, Numbers) and isinstance(robot, Numbers):
        rest = robot.at_rest or tuple(
            policy.at_rest[policy.names.index(name)] for name in robot.names if policy.at_rest
        )
        return replace(policy, names=robot.names, at_rest=rest)
    if isinstance(policy, JointPosition | JointVelocity) and isinstance(robot, JointPosition | JointVelocity):
        return replace(policy, names=robot.names)
    return policy
