"""Makes the command of each tick from the plan and from the parts that the operator drives: `Motion`.

ChunkTimeline ─► each part's own time ─► whole body ─┬─► limits ─► Command
operator's targets for parts taken over ─────────────┘   (in place of the plan's)
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from robot_runtime.core.authority import Handovers
from robot_runtime.core.plan.clip import Clip
from robot_runtime.core.plan.counts import Counts
from robot_runtime.core.plan.limiter import Limiter
from robot_runtime.core.plan.limits import BaseLimits, Limits
from robot_runtime.core.plan.part_latency import PartLatency
from robot_runtime.core.plan.timeline import ChunkTimeline, Phase, Sample
from robot_runtime.core.plan.whole_body import WholeBody
from robot_runtime.core.state_watch import Jump, StateWatch
from robot_runtime.core.values.action import NS_PER_S, ActionSpec, command_at_state, rests_of
from robot_runtime.core.values.command import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    JointCommand,
    JointVelocityCommand,
    NumbersCommand,
    PartCommand,
    PoseCommand,
)
from robot_runtime.core.values.fields import JointVelocity
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import quaternion_from_rotation
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class Moved:
    """What one tick sent, in `Motion.sent`, and where it came from."""

    sample: Sample
    clip: Clip
    policy_command: Command | None
    """What the plan would have sent, before the limits; None: the robot left it, or no policy wrote it."""


class Motion:
    """The last stage before the drivers; the executor owns it."""

    def __init__(
        self,
        *,
        action_spec: ActionSpec,
        timeline: ChunkTimeline,
        limits: Limits,
        parts: PartLatency,
        bodies: Mapping[str, WholeBody],
        counts: Counts,
        period_ns: int,
    ) -> None:
        """
        parts: how much earlier than they are due the rows of each part are sent.
        bodies: those of arms whose rows are end-effector poses and whose drivers take joints.
        period_ns: one of `planned`, `braked` and `shared` is called in each [ns].
        """
        self._spec, self._timeline, self._limits, self._parts = action_spec, timeline, limits, parts
        self._bodies, self._counts = dict(bodies), counts
        self._operator_bodies = {
            name: WholeBody(
                kinematics=body.kinematics,
                limits=body.limits,
                gains=body.gains,
                part=body.part,
                base=body.base,
            )
            for name, body in bodies.items()
        }
        self.limiter = Limiter(limits, period_ns=period_ns, rests=rests_of(action_spec))
        self._velocity_arms = [
            f.part for f in action_spec.fields if isinstance(f, JointVelocity) and not f.is_integrated
        ]
        bases = {part: each for part, each in limits.parts.items() if isinstance(each, BaseLimits)}
        self._differential = [part for part, base in bases.items() if base.is_differential]
        self._period_ns = period_ns
        self._moved_ns: int | None = None
        self._shared_ns: dict[str, int] = {}
        self.is_braking = False
        """Whether the robot has left the plan for good: only a fresh chunk or a reset brings another."""

    @property
    def sent(self) -> Command:
        """The last command."""
        return self.limiter.sent

    def reset(self, state: RobotState, now_ns: int, *, holds: Collection[str] = ()) -> None:
        """Begin at the measured state; a part in motion keeps its velocity and brakes.

        holds: parts that stay at their last command, also at rest: the steady-state error of their
            controllers does not become a step of the command.
        """
        self.begin_at(now_ns)
        for part, body in self._bodies.items():
            body.reset(state.arm(part).q, now_ns)
        here = command_at_state(self._spec, state)
        self.limiter.reset(self._resolved(here, state, now_ns), now_ns, holds=holds)
        self.stand(holds, now_ns)

    def find_bases(self, state: RobotState, watch: StateWatch) -> None:
        """Hold a base that is not where it was commanded at its measured pose."""
        for part, commanded in self.sent.parts.items():
            x_WB = state.base(part).x_WB
            if not isinstance(commanded, BasePoseCommand) or x_WB is None:
                continue
            if watch.is_lost(part, commanded, x_WB):
                self.limiter.move_odometry(commanded.x_WB, x_WB, part=part)

    def follow_odometry(self, jumps: Mapping[str, Jump], now_ns: int) -> None:
        """Let bases continue their motion in the frames that odometry has now."""
        followed = self._parts.followed(self.sent, now_ns)
        for part, (expected, x_WB) in jumps.items():
            commanded = followed.parts.get(part)
            if isinstance(commanded, BasePoseCommand):
                self.limiter.move_odometry(commanded.x_WB if expected is None else expected, x_WB, part=part)

    def has_followed(self, now_ns: int | None) -> bool:
        """Whether the robot has carried out by then the last command that moved it."""
        if self._moved_ns is None or now_ns is None:
            return True
        return now_ns - self._moved_ns >= self._parts.follows_ns

    def begin_at(self, now_ns: int) -> None:
        """Note that nothing has moved later than this: the clock may have gone back."""
        self._moved_ns = None if self._moved_ns is None else min(self._moved_ns, now_ns)
        self._shared_ns = {part: min(moved_ns, now_ns) for part, moved_ns in self._shared_ns.items()}

    def note_motion(self, now_ns: int, parts: Collection[str] | None = None) -> None:
        """Note that the command of this tick may move these parts, None: all."""
        if not (self.limiter.is_at_rest if parts is None else self.limiter.rests(parts)):
            self._moved_ns = now_ns

    # ---- one of them in each tick --------------------------------------------------------------

    def planned(self, state: RobotState, now_ns: int) -> Moved:
        """Follow the plan."""
        sample, wanted = self._plan_command(state, now_ns)
        _, clip = self.limiter.limit(wanted, now_ns)
        self.note_motion(now_ns)
        return Moved(sample=sample, clip=clip, policy_command=None if sample.source is None else wanted)

    def braked(self, now_ns: int) -> Moved:
        """Brake within the limits; the plan is to rest at whatever is sent."""
        self.limiter.brake(now_ns)
        self.note_motion(now_ns)
        return self._rested(now_ns, Clip(), is_at_rest=self.limiter.is_at_rest)

    def shared(self, state: RobotState, now_ns: int, hands: Handovers) -> Moved:
        """Drive the operator's parts by the operator's targets, and the others by the plan.

        A part that was taken over, or has just been handed back, and has no target comes to rest; its plan
        continues in the shadow.
        """
        moved = self._shared(state, now_ns, hands.wishes(), hands.off_plan)
        hands.went({part: short.distance for part, short in moved.clip.parts.items()}, now_ns)
        hands.resume([part for part in hands.taken if self.have_come_to_rest([part], now_ns)])
        return moved

    def _shared(
        self,
        state: RobotState,
        now_ns: int,
        wishes: Mapping[str, PartCommand],
        off_plan: Collection[str],
    ) -> Moved:
        on_plan = [part for part in self.sent.parts if part not in off_plan]
        driven = self._driven(wishes, state, now_ns)
        braking = [part for part in off_plan if part not in driven]
        if self.is_braking:
            sample, wanted, braking = None, self.sent, [*braking, *on_plan]
        else:
            sample, wanted = self._plan_command(state, now_ns, off_plan)
        _, clip = self.limiter.limit(wanted.with_parts(driven), now_ns, braking=braking)
        self.note_motion(now_ns, on_plan)
        self._note_shared(off_plan, now_ns)
        if sample is None:
            return self._rested(now_ns, clip, is_at_rest=self.limiter.rests(on_plan))
        return Moved(sample=sample, clip=clip, policy_command=None if sample.source is None else wanted)

    def _note_shared(self, off_plan: Collection[str], now_ns: int) -> None:
        for part in off_plan:
            if not self.limiter.rests([part]):
                self._shared_ns[part] = now_ns

    # ---- what the operator drives ----------------------------------------------------------------

    def checked(self, wishes: Mapping[str, PartCommand], parts: Collection[str]) -> dict[str, PartCommand]:
        """The wishes for `parts`. InvalidValueError: one has another kind or size than its part's
        commands."""
        own = {part: wish for part, wish in wishes.items() if part in parts}
        for part, wish in own.items():
            sent = self.sent.parts[part]
            is_hand = isinstance(wish, PoseCommand) and part in self._operator_bodies
            if not is_hand and (type(wish) is not type(sent) or _size(wish) != _size(sent)):
                also = " or PoseCommand" if part in self._operator_bodies else ""
                raise InvalidValueError(
                    f"expected {type(sent).__name__} of {_size(sent)} numbers{also} for {part}, as it is "
                    f"commanded; got {type(wish).__name__} of {_size(wish)} numbers"
                )
        return own

    def stand(self, parts: Collection[str], now_ns: int) -> None:
        """Hold these parts, in the plan, at their last command; the policy's joints begin there."""
        here = {name: commanded for name, commanded in self.as_planned().parts.items() if name in parts}
        for name in parts:
            if name in self._bodies and isinstance(commanded := self.sent.parts[name], JointCommand):
                self._bodies[name].reset(commanded.q, now_ns)
        if here:
            self._timeline.stand(Command(here))

    def as_planned(self) -> Command:
        """The last command in the plan's own terms, at rest."""
        own: dict[str, PartCommand] = {}
        for part, commanded in self.sent.parts.items():
            match commanded:
                case JointVelocityCommand(dq=dq):
                    own[part] = JointVelocityCommand(dq=np.zeros_like(dq))
                case BaseTwistCommand():
                    own[part] = BaseTwistCommand(V_WB_B=np.zeros(3))
        return self._with_hands(self.sent.with_parts(own) if own else self.sent)

    def have_come_to_rest(self, parts: Collection[str], now_ns: int) -> bool:
        """Whether these parts are stationary, and have carried out the last command that moved them."""
        return self.limiter.rests(parts) and all(
            now_ns - moved_ns >= self._parts.latency_ns(part)
            for part, moved_ns in self._shared_ns.items()
            if part in parts
        )

    def _driven(
        self, wishes: Mapping[str, PartCommand], state: RobotState, now_ns: int
    ) -> dict[str, PartCommand]:
        """The operator's targets as they are sent: end-effector poses as joints where the arm takes
        joints."""
        out = dict(wishes)
        for part, wish in wishes.items():
            sent = self.sent.parts[part]
            if isinstance(wish, PoseCommand) and isinstance(sent, JointCommand):
                body = self._operator_bodies[part]
                body.reset(sent.q, now_ns - self._period_ns)
                out[part] = body.resolve(Command({part: wish}), state, now_ns).parts[part]
        commanded = self._slowed(Command(out), state) if self._velocity_arms and state.is_finite else {}
        return {**out, **commanded}

    # ---- what the plan commands ------------------------------------------------------------------

    def _plan_command(
        self, state: RobotState, now_ns: int, off_plan: Collection[str] = ()
    ) -> tuple[Sample, Command]:
        sample = self._timeline.sample(now_ns + self._parts.lead_ns)
        commanded = self._parts.commanded(self._timeline, sample.command)
        if self._differential:
            commanded = self._without_sideways(commanded)
        return sample, self._resolved(commanded, state, now_ns, off_plan)

    def _without_sideways(self, command: Command) -> Command:
        """Set the sideways velocity of differential bases to 0, and count the ticks in which it was not."""
        ahead: dict[str, PartCommand] = {}
        for part in self._differential:
            twist = command.parts.get(part)
            if isinstance(twist, BaseTwistCommand) and twist.V_WB_B[1] != 0.0:
                ahead[part] = BaseTwistCommand(V_WB_B=twist.V_WB_B * np.array([1.0, 0.0, 1.0]))
        self._counts.sideways_ticks += bool(ahead)
        return command.with_parts(ahead) if ahead else command

    def _rested(self, now_ns: int, clip: Clip, *, is_at_rest: bool) -> Moved:
        """Let the plan rest at the last command."""
        for part, body in self._bodies.items():
            if isinstance(sent := self.sent.parts.get(part), JointCommand):
                body.reset(sent.q, now_ns)
        command = self._with_hands(self.sent)
        settled_ns = now_ns + self._parts.lead_ns
        has_stopped = is_at_rest and self.has_followed(now_ns)
        self._timeline.rest_at(command, now_ns if has_stopped else settled_ns, claimed_ns=settled_ns)
        phase = Phase.REST if is_at_rest else Phase.COAST
        sample = Sample(command=command, phase=phase, source=None, row=None)
        return Moved(sample=sample, clip=clip, policy_command=None)

    def _with_hands(self, command: Command) -> Command:
        """The command with end-effector poses for arms with a whole body, as the plan has them."""
        poses: dict[str, PartCommand] = {}
        for part, body in self._bodies.items():
            if isinstance(commanded := command.parts.get(part), JointCommand):
                X_BE = body.kinematics.forward(commanded.q)
                quat_BE = quaternion_from_rotation(X_BE.rotation)
                poses[part] = PoseCommand(p_BE=np.array(X_BE.translation), quat_BE=quat_BE)
        return command.with_parts(poses) if poses else command

    def _resolved(
        self, command: Command, state: RobotState, now_ns: int, off_plan: Collection[str] = ()
    ) -> Command:
        """The command as it is sent. An arm on a base that the plan does not drive goes where the plan has it
        relative to that base."""
        if self._velocity_arms and state.is_finite:
            command = command.with_parts(self._slowed(command, state))
        if not self._bodies:
            return command
        for part, body in self._bodies.items():
            due = self._parts.due_with(part, command, self._timeline)
            if body.base in off_plan:
                due = Command({name: commanded for name, commanded in due.parts.items() if name != body.base})
            resolved = body.resolve(due, state, now_ns, doing=self._parts.doing(part, self._timeline))
            command = command.with_parts({part: resolved.parts[part]})
        are_reached = all(body.error.is_reached for body in self._bodies.values())
        self._counts.unreached_ticks += not are_reached
        return command

    def _slowed(self, command: Command, state: RobotState) -> dict[str, PartCommand]:
        """Joint velocities, reduced so that the joints stop before the ends of their ranges."""
        out: dict[str, PartCommand] = {}
        for part in self._velocity_arms:
            commanded = command.parts.get(part)
            if isinstance(commanded, JointVelocityCommand):
                arm, latency_s = state.arm(part), self._parts.latency_ns(part) / NS_PER_S
                q = arm.q + latency_s * arm.dq if latency_s > 0.0 else arm.q
                dq = self._limits.arm(part).slowed(commanded.dq, q)
                out[part] = JointVelocityCommand(dq=dq)
        return out


def _size(command: PartCommand) -> int:
    """How many numbers the command holds."""
    match command:
        case JointCommand(q=values) | JointVelocityCommand(dq=values) | NumbersCommand(values=values):
            return int(values.size)
        case PoseCommand(p_BE=p, quat_BE=quat):
            return int(p.size + quat.size)
        case BasePoseCommand(x_WB=values) | BaseTwistCommand(V_WB_B=values):
            return int(values.size)
    return 1
