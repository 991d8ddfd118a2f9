"""The robot's heart: `Executor`. One tick reads top to bottom; it never waits, and time is an argument.

Observation ─► make_request ─► (wire, policy) ─► on_part ─► ChunkTimeline ─► tick ─► limits ─► Command
"""

from collections.abc import Mapping

import numpy as np

from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.method.request_parts import Synchronous
from robot_runtime.core.method.splice_parts import FromRowZero, NotBeforePlanned
from robot_runtime.core.method.table import Method
from robot_runtime.core.plan.answers import Answers, PartOutcome, Pending, Splice
from robot_runtime.core.plan.blend import Blender
from robot_runtime.core.plan.clip import Clip, ClipTally
from robot_runtime.core.plan.correction import Corrector, ResidualHead
from robot_runtime.core.plan.counts import Counts
from robot_runtime.core.plan.limiter import Limiter
from robot_runtime.core.plan.limits import Limits
from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.plan.request_planner import RequestPlanner
from robot_runtime.core.plan.standing import PATIENCE_NS, Standstill
from robot_runtime.core.plan.timeline import ChunkTimeline, Phase, Sample
from robot_runtime.core.plan.whole_body import WholeBody, bodies_for
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.safety import Cause, Mode, next_mode
from robot_runtime.core.state_watch import StateLimits, StateWatch
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import (
    NS_PER_S,
    ActionSpec,
    ChunkPart,
    RowTiming,
    command_at_state,
    rests_of,
    scales_of,
)
from robot_runtime.core.values.command import (
    BasePoseCommand,
    Command,
    JointCommand,
    JointVelocityCommand,
    PartCommand,
    PoseCommand,
)
from robot_runtime.core.values.fields import JointVelocity
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.core.values.transforms import quaternion_from_rotation

COAST_ROWS = 2
"""Rows it takes to come to rest after the last one."""


class Executor:
    """Turns chunks and measured states into commands. One thread owns it."""

    def __init__(
        self,
        *,
        action_spec: ActionSpec,
        method: Method,
        limits: Limits,
        control_period_ns: int,
        seed: int = 0,
        state_limits: StateLimits | None = None,
        request_deadline_ns: int = 5 * NS_PER_S,
        max_inference_delay: int | None = None,
        prefix_at_rest: bool = True,
        hand_pose: HandPose | Mapping[str, HandPose] | None = None,
        correction_head: ResidualHead | None = None,
        whole_body: WholeBody | Mapping[str, WholeBody] | None = None,
        latency: LatencyEstimator | None = None,
        row_statistics: RowStatistics | None = None,
    ) -> None:
        """
        limits: of every part that the policy commands; nothing passes them, whatever is asked for.
        control_period_ns: `tick` is called once in each [ns]; a command goes as far as the limits allow in
            one, however long ago the last one was.
        seed: of the noise the policy draws; request k is asked with a seed made from it and k.
        state_limits: what makes the robot hold or stop because of what it measures; None: the defaults.
        request_deadline_ns: an answer that takes longer is given up [ns].
        max_inference_delay: most rows of delay the policy was trained for; a longer latency is treated as
            that many rows and counted (`counts.delays_clamped`). None: the method needs no such training.
        prefix_at_rest: whether the policy was shown prefixes of a robot that stands; if not, it is asked
            without one as long as the robot stands.
        hand_pose: forward kinematics of "arm", or by part, for methods that roll a plan of joints forward.
        correction_head: for methods that correct rows on the robot; others leave it alone.
        whole_body: resolves hand poses into joints against the measured base, of one arm or by part; None
            leaves that to the driver. Arms that the policy moves otherwise do without.
        latency: the estimator of the inference delay; None takes the default quantile and window.
        row_statistics: of the rows the policy was trained on: they tell a prefix that is foreign to it.
        InvalidValueError: the method's numbers do not fit the chunks of this policy, or it lacks a part; the
            policy commands a part that the limits do not declare.
        """
        bodies = bodies_for(action_spec, whole_body)
        limits.check(action_spec, resolves_hand=bodies)
        as_trained, action_spec = action_spec, action_spec.with_gripper_ranges(limits.gripper_ranges)
        self.action_spec = action_spec
        self.method = method
        self.latency = LatencyEstimator() if latency is None else latency
        self.counts = Counts()
        self._are_sent = action_spec.timing is RowTiming.SENT
        coast_rows = 1 if self._are_sent else COAST_ROWS
        self.timeline = ChunkTimeline(
            coast_ns=coast_rows * action_spec.dt_ns,
            scales=scales_of(action_spec),
            rests=rests_of(action_spec),
            holds_last=self._are_sent,
        )
        self.epoch = 0
        self._planner = RequestPlanner(
            part=method.request,
            action_spec=action_spec,
            max_inference_delay=max_inference_delay,
            prefix_at_rest=prefix_at_rest,
            hand_pose=hand_pose,
            counts=self.counts,
            coast_rows=coast_rows,
            row_statistics=row_statistics,
            starts_on_arrival=isinstance(method.splice, FromRowZero | NotBeforePlanned),
        )
        self._standstill = Standstill()
        self._still_since_ns = 0
        self._blender = Blender(method.blend, dt_ns=action_spec.dt_ns)
        self._corrector = Corrector(
            method.correction, correction_head, action_spec=as_trained, counts=self.counts
        )
        self._answers = Answers(
            action_spec,
            splice=method.splice,
            timeline=self.timeline,
            blender=self._blender,
            corrector=self._corrector,
            counts=self.counts,
        )
        self._waits_on_purpose = isinstance(method.request, Synchronous)
        self._state: RobotState | None = None
        self._ticked_ns: int | None = None
        self._limiter = Limiter(limits, period_ns=control_period_ns, rests=rests_of(action_spec))
        self._period_ns = control_period_ns
        self._is_braking = False
        self._whole_bodies, self._limits = bodies, limits
        self._told_velocities = [
            f.part for f in action_spec.fields if isinstance(f, JointVelocity) and not f.is_integrated
        ]
        self._seed = seed
        self._watch = StateWatch(state_limits or StateLimits())
        self._trouble: Cause | None = None
        self._request_deadline_ns = request_deadline_ns
        self._next_id = 0
        self._mode, self._cause = Mode.STOP, Cause.NOT_STARTED

    @property
    def mode(self) -> Mode:
        return self._mode

    @property
    def is_at_rest(self) -> bool:
        """Whether the command that was sent last stands, and the plan has nothing to go to."""
        is_over = self._is_braking or self.timeline.phase(self.timeline.claimed_ns) is Phase.REST
        return is_over and self._limiter.is_at_rest

    @property
    def last_splice(self) -> Splice | None:
        """The entry into the plan of the answer that began last."""
        return self._answers.last_splice

    @property
    def clips(self) -> ClipTally:
        """What the limits have held back so far."""
        return self._limiter.tally

    # ---- asking --------------------------------------------------------------------------------

    def wants_request(self, now_ns: int) -> bool:
        """Whether an observation should be taken and sent now."""
        if self._mode is Mode.STOP or self._trouble is not None:
            return False
        if self._is_braking and not self._limiter.is_at_rest:
            return False
        num_in_flight = len(self._answers.open_ids)
        return self._planner.is_due(
            self.timeline, self.latency, self._after_sent(now_ns), num_in_flight=num_in_flight
        )

    def make_request(self, observation: Observation) -> ChunkRequest:
        """The request to send with this observation."""
        plain = ChunkRequest(
            request_id=self._next_id,
            epoch=self.epoch,
            observation=observation,
            sampler=self.method.sampler,
            seed=(self._seed * 1_000_003 + self._next_id) % 2**31,
            deadline_ns=self._request_deadline_ns,
            in_flight=self._answers.open_ids,
        )
        request = self._planner.completed(plain, self.timeline, self.latency)
        self._next_id += 1
        self._planner.asked(observation.t_obs_ns)
        self._answers.expect(request, t_obs_ns=observation.t_obs_ns, t_oldest_ns=observation.t_oldest_ns)
        self._standstill.begin(request.request_id, observation.t_obs_ns)
        return request

    def on_request_failed(self, request_id: int) -> None:
        """The answer will not come: expired, dropped, refused or lost with the server. After every further
        failure the robot waits longer before it asks again."""
        pending = self._answers.drop(request_id)
        self._standstill.fail([request_id])
        if pending is not None and not pending.is_void:
            self._planner.failed(pending.t_obs_ns, self.timeline.claimed_ns)

    def on_server_lost(self) -> None:
        """The server is gone: what was asked of it is void. The plan goes on to its end."""
        self._standstill.fail(self._standstill.waiting)
        self._answers.clear()
        self._planner.begin_anew()
        self.latency.restart()

    def why_it_stands(self, now_ns: int) -> str | None:
        """Why no row has run for a while, and what would help; None while there is nothing to explain."""
        if self._mode is not Mode.HOLD or now_ns - self._still_since_ns < PATIENCE_NS:
            return None
        return self.why_no_rows()

    def why_no_rows(self) -> str:
        """What keeps rows from running, whether or not the robot has stood for long."""
        if self._trouble is not None:
            return self._trouble.value
        return self._standstill.reason(
            self.action_spec,
            self.latency,
            now_ns=self.timeline.claimed_ns,
            deadline_ns=self._request_deadline_ns,
            is_over=self._mode is Mode.STOP,
        )

    # ---- answers -------------------------------------------------------------------------------

    def on_part(self, part: ChunkPart, now_ns: int) -> PartOutcome:
        """Take rows of an answer under way into the plan; the one place where others are refused."""
        outcome = self._took(part, self._after_sent(now_ns))
        self._standstill.ended(part.request_id, outcome)
        if outcome is PartOutcome.INVALID:
            self.on_request_failed(part.request_id)
        elif part.is_last and outcome in (PartOutcome.RUNS, PartOutcome.LATE, PartOutcome.OVERTAKEN):
            self._planner.succeeded()
        return outcome

    def _took(self, part: ChunkPart, now_ns: int) -> PartOutcome:
        taken = self._answers.take(part, self.epoch)
        if isinstance(taken, PartOutcome):
            return taken
        if self._mode is Mode.STOP:
            return PartOutcome.STOPPED
        if self._trouble is not None:
            return PartOutcome.DISTRUSTED
        if part.is_last:
            self._planner.answered(part.queue_ns + part.infer_ns, whole_ns=max(now_ns - taken.t_obs_ns, 0))
        if part.first_row == 0:
            self.latency.add(max(now_ns - taken.t_obs_ns, 0))
        if taken.is_void:
            return PartOutcome.VOID
        if self._answers.is_overtaken(taken):
            return PartOutcome.OVERTAKEN
        try:
            return self._place(taken, now_ns)
        except ValueError:
            self._answers.drop(part.request_id)
            self._planner.failed(taken.t_obs_ns, self.timeline.claimed_ns)
            return PartOutcome.INVALID

    def _place(self, pending: Pending, now_ns: int) -> PartOutcome:
        were_open = self._answers.open_ids
        placed = self._answers.place(
            pending,
            rows_to_run=self._planner.rows_to_run(),
            now_ns=now_ns,
            state=self._state,
            still_since_ns=self._still_since_ns,
        )
        if self._answers.open_ids != were_open:  # some are void now
            self._planner.reset()
        if isinstance(placed, PartOutcome):
            return placed
        self._on(Cause.FRESH_CHUNK)
        return PartOutcome.RUNS

    # ---- moving --------------------------------------------------------------------------------

    def reset(self, state: RobotState, now_ns: int) -> None:
        """Stand still where the robot is and start a new epoch: answers to earlier requests are void.

        What is in motion goes on from how it moves, and brakes; a base that is elsewhere, from there.
        InvalidValueError: the method would roll forward a hand of which only the measured pose is known.
        """
        if not state.is_finite:
            raise ValueError("cannot start from a state with NaN or infinite numbers")
        if self._watch.is_stale(state, now_ns):
            raise ValueError(
                f"cannot start from a state that is {(now_ns - state.t_ns) / NS_PER_S:.3g} s old: "
                "the robot may be elsewhere by now"
            )
        self._planner.check(state)
        self._start_anew(state, now_ns)
        for part, body in self._whole_bodies.items():
            body.reset(state.arm(part).q, now_ns)
        here = command_at_state(self.action_spec, state)
        self._limiter.reset(self._resolved(here, state, now_ns), now_ns)
        for part, told in self._limiter.sent.parts.items():
            x_WB = state.base(part).x_WB
            if (
                isinstance(told, BasePoseCommand)
                and x_WB is not None
                and self._watch.is_lost(part, told, x_WB)
            ):
                self._limiter.move_odometry(told.x_WB, x_WB, part=part)
        self._watch.reset()
        self._trouble, self._ticked_ns = None, now_ns - 1  # the first tick may be for the same time
        self._on(Cause.RESET)
        self._is_braking = not self._limiter.is_at_rest

    def _start_anew(self, state: RobotState, now_ns: int) -> None:
        """Plan to rest where the robot is; what was asked before is void."""
        self.epoch += 1
        self._answers.clear()
        self._standstill = Standstill()
        self._planner.begin_anew()
        self._blender.forget()
        self._corrector.forget()
        self._state, self._still_since_ns = state, now_ns
        # Of rows that are sent when they are due the first is sent at once: nothing has been yet.
        resting_ns = now_ns - 1 if self._are_sent else now_ns
        self.timeline.rest_at(command_at_state(self.action_spec, state), resting_ns)

    def wants_correction(self, now_ns: int) -> bool:
        """Whether an observation should be taken now for `correct`: once a row and at every splice."""
        return self._mode is Mode.RUN and self._corrector.is_due(self.timeline, self._after_sent(now_ns))

    def correct(self, observation: Observation, now_ns: int) -> None:
        """Move the row due next by what the robot has just seen; call it before `tick`.

        row k due = now                 row k + 1 due
          ●──────────────────────────────●            planned
          └──────────────────────────────○            sent: to the row plus its correction

        Changes nothing that was sent, nor any row after that one. Does nothing unless it was wanted.
        InvalidValueError: the observation has another size than the head was trained on.
        """
        if self._mode is Mode.RUN:
            self._corrector.correct(self.timeline, observation, self._after_sent(now_ns))

    def stop(self) -> None:
        """Brake to rest from what was sent last, within the limits, and stay there until `reset`."""
        self._on(Cause.STOP_REQUESTED)

    def tick(self, state: RobotState, now_ns: int) -> Tick:
        """The command for `now_ns`. Call `reset` first, then this at every control period.

        A clock that stands or goes back is counted, and time goes on by the control period.
        """
        if self._ticked_ns is not None and now_ns <= self._ticked_ns:
            now_ns = self._ticked_ns + self._period_ns
            self.counts.clock_steps_back += 1
        self._ticked_ns = now_ns
        self._trouble = self._watch.look(state, now_ns)
        if self._trouble is not None:
            self._on(self._trouble)
            self._brake()
        elif self._mode is Mode.RUN and self.timeline.phase(now_ns) is not Phase.PLAN:
            self._on(Cause.PLAN_ENDED)
        if self._watch.jumps:
            for part, (expected, x_WB) in self._watch.jumps.items():
                told = self._limiter.sent.parts.get(part)
                if isinstance(told, BasePoseCommand):
                    led = told.x_WB if expected is None else expected
                    self._limiter.move_odometry(led, x_WB, part=part)
            self._start_anew(state, now_ns)
            self.counts.odometry_jumps += 1
        self._state = state
        is_starved = self._mode is Mode.HOLD and self._cause in (Cause.PLAN_ENDED, Cause.RESET)
        if is_starved and not self._waits_on_purpose:
            self.counts.starved_ticks += 1
        sample, clip = self._braked(now_ns) if self._is_braking else self._planned(state, now_ns)
        if sample.phase is not Phase.REST:
            self._still_since_ns = now_ns
        command = self._limiter.sent
        self.counts.stalls = self._limiter.num_stalls
        if self._mode is not Mode.STOP and (lost := self._watch.follows(command, state, now_ns)) is not None:
            self._on(lost)
        return Tick(
            now_ns=now_ns,
            command=command,
            mode=self._mode,
            cause=self._cause,
            phase=sample.phase,
            source=sample.source,
            row=sample.row,
            clip=clip,
        )

    def _planned(self, state: RobotState, now_ns: int) -> tuple[Sample, Clip]:
        """What the plan says, and what sending it loses to the limits."""
        sample = self.timeline.sample(now_ns)
        _, clip = self._limiter.limit(self._resolved(sample.command, state, now_ns), now_ns)
        return sample, clip

    def _braked(self, now_ns: int) -> tuple[Sample, Clip]:
        """Lose speed within the limits; the plan is to rest at whatever is sent."""
        command = self._limiter.brake(now_ns)
        poses: dict[str, PartCommand] = {}
        for part, body in self._whole_bodies.items():
            told = command.parts.get(part)
            if isinstance(told, JointCommand):
                body.reset(told.q, now_ns)
                X_BE = body.kinematics.forward(told.q)
                quat_BE = quaternion_from_rotation(X_BE.rotation)
                poses[part] = PoseCommand(p_BE=np.array(X_BE.translation), quat_BE=quat_BE)
        command = command.with_parts(poses) if poses else command
        self.timeline.rest_at(command, now_ns)
        phase = Phase.REST if self._limiter.is_at_rest else Phase.COAST
        return Sample(command=command, phase=phase, source=None, row=None), Clip()

    def _brake(self) -> None:
        """Leave the plan for good: only a fresh chunk or a reset moves the robot again."""
        self._is_braking = True
        self._blender.forget()
        self._corrector.forget()

    def _after_sent(self, now_ns: int) -> int:
        """The time, or that of the last command by a clock that has gone back since."""
        return max(now_ns, self.timeline.claimed_ns)

    def _resolved(self, command: Command, state: RobotState, now_ns: int) -> Command:
        if self._told_velocities and state.is_finite:
            command = command.with_parts(self._slowed(command, state))
        if not self._whole_bodies:
            return command
        for body in self._whole_bodies.values():
            command = body.resolve(command, state, now_ns)
        are_reached = all(body.error.is_reached for body in self._whole_bodies.values())
        self.counts.unreached_ticks += not are_reached
        return command

    def _slowed(self, command: Command, state: RobotState) -> dict[str, PartCommand]:
        """Joints that are told velocities, so that they stand before the ends of their ranges."""
        out: dict[str, PartCommand] = {}
        for part in self._told_velocities:
            told = command.parts.get(part)
            if isinstance(told, JointVelocityCommand):
                dq = self._limits.arm(part).slowed(told.dq, state.arm(part).q)
                out[part] = JointVelocityCommand(dq=dq)
        return out

    def _on(self, cause: Cause) -> None:
        before = self._mode
        self._mode = next_mode(before, cause)
        if self._mode is not before:
            self._cause = cause
            if self._mode is Mode.RUN:
                self._is_braking = False
            elif cause is not Cause.PLAN_ENDED:
                self._brake()
