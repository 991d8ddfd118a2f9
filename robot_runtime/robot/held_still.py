"""Parts that a policy does not move are held where they are: `HeldStill`, the robot of a control step.

policy      right_arm                       rows
robot       right_arm  left_arm  head       commands: left_arm and head stay at their first measured state
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

    An arm is sent the joints that it was first measured at, a base its first pose or zero velocity. A gripper
    is sent nothing: it keeps its last command, and its grip.
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
        schema: of the robot. spec: of the policy.
        whole_body: of the robot: the arms that it resolves are commanded in joints.
        """
        self._body = body
        unmoved = unmoved_fields(schema.action_fields, spec.fields)
        self.parts = tuple(f.part for f in unmoved)
        """The names of the held parts."""
        by_joints = {whole_body.part} if isinstance(whole_body, WholeBody) else set(whole_body or ())
        fields = [_held_field(f, schema, by_joints) for f in unmoved if not isinstance(f, _GRIPPERS)]
        self._spec = ActionSpec(fields=tuple(fields), horizon=1, dt_ns=spec.dt_ns) if fields else None
        self._held: dict[str, PartCommand] = {}
        self._watch = StateWatch(StateLimits())

    def read(self) -> RobotState:
        """Read the robot; the first state fixes the held positions. DriverError: a part has none."""
        state = self._body.read()
        if self._spec is not None and not self._held:
            try:
                self._held = dict(command_at_state(self._spec, state).parts)
            except ValueError as error:
                raise DriverError(f"a part that the policy does not move cannot be held: {error}") from error
        self._watch.look(state, state.t_ns)
        for part, (expected, x_WB) in self._watch.jumps.items():
            held = self._held.get(part)
            if isinstance(held, BasePoseCommand):
                start = held.x_WB if expected is None else expected
                rest = compose_planar(inverse_planar(start), held.x_WB)
                self._held[part] = BasePoseCommand(x_WB=compose_planar(x_WB, rest))
        return state

    def completed(self, command: Command) -> Command:
        """Return the command with the commands of the held parts added."""
        return command.with_parts(self._held) if self._held else command

    def write(self, command: Command) -> Command:
        """Send the command and hold the rest; return what was sent of the former."""
        if not self._held:
            return self._body.write(command)
        sent = self._body.write(self.completed(command))
        return Command({name: sent.parts[name] for name in command.parts})


_GRIPPERS = (GripperWidth, GripperFraction)


def _held_field(f: ActionField, schema: Schema, by_joints: Collection[str]) -> ActionField:
    is_hand = isinstance(f, EndEffectorPose | WorldEndEffectorPose)
    if is_hand and f.part in by_joints:
        return JointPosition(schema.arms[f.part].num_joints, part=f.part)
    return f
