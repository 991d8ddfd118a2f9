"""Parts that a policy does not move are held where they are: `HeldStill`, a robot seen by a control step.

policy      right_arm                       rows
robot       right_arm  left_arm  head       commands: left_arm and head stay where they were at first
"""

from collections.abc import Collection, Mapping

from robot_runtime.core.plan.whole_body import WholeBody
from robot_runtime.core.state_watch import StateLimits, StateWatch
from robot_runtime.core.values.action import ActionSpec, Command, command_at_state
from robot_runtime.core.values.command import BasePoseCommand, PartCommand
from robot_runtime.core.values.fields import (
    ActionField,
    EndEffectorPose,
    GripperFraction,
    GripperWidth,
    JointPosition,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.mismatches import unmoved_fields
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import compose_planar, inverse_planar
from robot_runtime.errors import DriverError
from robot_runtime.robot.control import Body


class HeldStill:
    """The robot, with commands of its own for the parts that the policy does not move.

    An arm is told the joints that it was first measured at, a base to stand, wherever its odometry says that
    this is. A gripper is told nothing: it keeps what it was told last, and holds what it holds.
    """

    def __init__(
        self,
        body: Body,
        schema: Schema,
        spec: ActionSpec,
        *,
        whole_body: WholeBody | Mapping[str, WholeBody] | None = None,
    ) -> None:
        """
        schema: what the robot offers. spec: the policy's.
        whole_body: of the robot: the arms that it resolves are told joints.
        """
        self._body = body
        unmoved = unmoved_fields(schema.action_fields, spec.fields)
        self.parts = tuple(f.part for f in unmoved)
        """Their names."""
        by_joints = {whole_body.part} if isinstance(whole_body, WholeBody) else set(whole_body or ())
        fields = [_told(f, schema, by_joints) for f in unmoved if not isinstance(f, _GRIPPERS)]
        self._spec = ActionSpec(fields=tuple(fields), horizon=1, dt_ns=spec.dt_ns) if fields else None
        self._held: dict[str, PartCommand] = {}
        self._watch = StateWatch(StateLimits())

    def read(self) -> RobotState:
        """As the robot is; what is held stays where the first of these has it. DriverError: it is nowhere."""
        state = self._body.read()
        if self._spec is not None and not self._held:
            try:
                self._held = dict(command_at_state(self._spec, state).parts)
            except ValueError as error:
                raise DriverError(f"a part that the policy does not move cannot be held: {error}") from error
        self._watch.look(state, state.t_ns)
        for part, (expected, x_WB) in self._watch.jumps.items():
            told = self._held.get(part)
            if isinstance(told, BasePoseCommand):
                led = told.x_WB if expected is None else expected
                rest = compose_planar(inverse_planar(led), told.x_WB)
                self._held[part] = BasePoseCommand(x_WB=compose_planar(x_WB, rest))
        return state

    def completed(self, command: Command) -> Command:
        """The command with what the parts are told that are held."""
        return command.with_parts(self._held) if self._held else command

    def write(self, command: Command) -> Command:
        """Tell the robot that and to hold the rest; returns what was sent of the former."""
        if not self._held:
            return self._body.write(command)
        sent = self._body.write(self.completed(command))
        return Command({name: sent.parts[name] for name in command.parts})


_GRIPPERS = (GripperWidth, GripperFraction)


def _told(f: ActionField, schema: Schema, by_joints: Collection[str]) -> ActionField:
    is_hand = isinstance(f, EndEffectorPose | WorldEndEffectorPose)
    if is_hand and f.part in by_joints:
        return JointPosition(schema.arms[f.part].num_joints, part=f.part)
    return f
