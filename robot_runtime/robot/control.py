"""One control step, the same under the real clock and the virtual one.

    look   read ─► take answers ─► ask                         the link: a server over a network,
    act    take answers ─► correct ─► tick ─► write ─► record            or a virtual one

A request is made before the tick, so an answer that takes no time runs at the tick that asked for it.
Requests leave the control thread after the command (`Link.flush`), because sending one would delay the
command.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Protocol

from robot_runtime.core.executor import Executor
from robot_runtime.core.history import ObservationHistory
from robot_runtime.core.plan.whole_body import WholeBody
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.state_watch import StateLimits, StateWatch
from robot_runtime.core.tick import Tick
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
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.core.values.transforms import compose_planar, inverse_planar
from robot_runtime.distribution import Distribution
from robot_runtime.errors import DriverError
from robot_runtime.log.entries import Sent
from robot_runtime.log.writer import RunLogWriter
from robot_runtime.robot.telemetry import RunRecord
from robot_runtime.signals import Ended


class Body(Protocol):
    """What is measured and moved: a `Robot`, or a simulated one."""

    def read(self) -> RobotState: ...

    def write(self, command: Command) -> Command:
        """Send a command; return what was actually sent."""
        ...


class Link(Protocol):
    """The policy that is asked, and the observations that it gets."""

    def take(self, now_ns: int) -> None:
        """Pass what has arrived to the executor."""
        ...

    def can_ask(self, now_ns: int) -> bool:
        """Whether a policy is available, and every image that it needs."""
        ...

    def observe(self, state: RobotState) -> Observation:
        """Make the observation of a request, images included."""
        ...

    def observe_scene(self, state: RobotState) -> Observation:
        """Make the same without images, for a correction on the robot."""
        ...

    def send(self, request: ChunkRequest, now_ns: int) -> None:
        """Accept a request that was made now."""
        ...

    def flush(self) -> None:
        """Send the request: the command of this step is on its way."""
        ...


class ControlStep:
    """Steps executor, robot and link; one thread owns it."""

    def __init__(
        self,
        executor: Executor,
        robot: Body,
        link: Link,
        record: RunRecord,
        *,
        history: ObservationHistory | None = None,
        keeps_errors: bool = False,
        log: RunLogWriter | None = None,
    ) -> None:
        """
        history: keeps past observations for a policy that needs several; None for a policy of one.
        keeps_errors: an error of the link is kept in `error`, and no more requests are made: the robot comes
            to rest first. Otherwise it is raised at once, as errors of the robot are.
        log: receives the sent commands, in addition to what the executor notes.
        """
        self.executor, self.record = executor, record
        self.error: BaseException | None = None
        self.read_s = Distribution()
        """How long reading the robot takes [s]."""
        self._robot, self._link, self._keeps_errors = robot, link, keeps_errors
        self._history, self._log = history, log
        self._state: RobotState | None = None

    @property
    def state(self) -> RobotState | None:
        """The state measured at the last look."""
        return self._state

    def begin(self, now_ns: int) -> None:
        """Start from the measured state."""
        self.executor.reset(self._robot.read(), now_ns)

    def look(self, now_ns: int) -> None:
        """Measure, take what has arrived, and make a request if it is time."""
        begun_s = time.perf_counter()
        self._state = self._robot.read()
        self.read_s.add(time.perf_counter() - begun_s)
        self._guarded(self._ask, self._state, now_ns)

    def act(self, now_ns: int) -> Tick:
        """Command the robot: return the tick, with what the drivers actually sent."""
        assert self._state is not None
        self._guarded(self._correct, self._state, now_ns)
        tick = self.executor.tick(self._state, now_ns)
        sent = self._robot.write(tick.command)
        tick = replace(tick, sent=sent)
        if self._log is not None:
            self._log.note(Sent(sent))
        self._guarded(self._flush, self._state, now_ns)
        self.record.on_tick(tick, self.executor.last_splice)
        return tick

    def _ask(self, state: RobotState, now_ns: int) -> None:
        self._link.take(now_ns)
        if not self._link.can_ask(now_ns):
            return
        if self.executor.wants_request(now_ns):
            seen = self._link.observe(state)
            if self._history is not None:
                seen = self._history.asked(seen)
            self._link.send(self.executor.make_request(seen), now_ns)
        elif self._history is not None and self._history.is_due(state.t_ns):
            self._history.note(self._link.observe(state))

    def _correct(self, state: RobotState, now_ns: int) -> None:
        self._link.take(now_ns)
        if self.executor.wants_correction(now_ns):
            self.executor.correct(self._link.observe_scene(state), now_ns)

    def _flush(self, state: RobotState, now_ns: int) -> None:
        self._link.flush()

    def _guarded(self, part: "_Part", state: RobotState, now_ns: int) -> None:
        if self.error is not None:
            return
        try:
            part(state, now_ns)
        except Ended:  # a second signal does not wait for rest
            raise
        except BaseException as error:  # Ctrl-C and exit() too, because the robot is moving
            if not self._keeps_errors:
                raise
            self.error = error


class _Part(Protocol):
    def __call__(self, state: RobotState, now_ns: int) -> None: ...


class HeldStill:
    """The robot, with commands of its own for the parts that the policy does not move.

    policy      right_arm                       rows
    robot       right_arm  left_arm  head       commands: left_arm and head stay at their first measured state

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
