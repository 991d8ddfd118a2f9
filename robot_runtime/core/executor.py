"""The control loop's core: `Executor`. One tick reads top to bottom; it never waits, and time is an argument.

Observation ─► make_request ─► (wire, policy) ─► on_part ─► ChunkTimeline ─► tick ─► limits ─► Command
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from robot_runtime.core.arming import Arming
from robot_runtime.core.authority import Authority, HandoverPhase, Handovers
from robot_runtime.core.configuration import Configuration, known
from robot_runtime.core.method.request_parts import Synchronous
from robot_runtime.core.method.splice_parts import (
    FromRowZero,
    NoCorrection,
    NotBeforePlanned,
    PerRowCorrection,
)
from robot_runtime.core.motion import Motion, Moved
from robot_runtime.core.plan.answers import Answers, FarRowsError, PartOutcome, Pending, Splice
from robot_runtime.core.plan.blend import Blender
from robot_runtime.core.plan.clip import ClipTally
from robot_runtime.core.plan.correction import Corrector
from robot_runtime.core.plan.counts import Counts
from robot_runtime.core.plan.part_latency import PartLatency
from robot_runtime.core.plan.request_planner import RequestPlanner
from robot_runtime.core.plan.standstill import PATIENCE_NS, Standstill
from robot_runtime.core.plan.timeline import ChunkTimeline, Phase
from robot_runtime.core.plan.whole_body import bodies_for
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.safety import Cause, Mode, next_mode
from robot_runtime.core.state_watch import StateWatch
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
from robot_runtime.core.values.command import Command, PartCommand
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import InvalidValueError, NotArmedError

_STARVED = (Cause.PLAN_ENDED, Cause.RESET, Cause.ARMED, Cause.HANDED_BACK)
_GOOD = (PartOutcome.RUNS, PartOutcome.LATE, PartOutcome.OVERTAKEN, PartOutcome.NOT_ARMED)
COAST_ROWS = 2
"""Rows that coming to rest takes after the last one."""


class Executor:
    """Turns chunks and measured states into commands. One thread owns it.

    A state machine (`core.safety`) over parts that know nothing of each other's state:

        when to ask     RequestPlanner, Arming        answers    Answers, Blender ─► ChunkTimeline
        what is sent    Motion, PartLatency           faults     StateWatch
        who moves it    Handovers                     corrections, if the method has them    Corrector
    """

    def __init__(self, configuration: Configuration) -> None:
        """InvalidValueError: the method's numbers do not fit the chunks of this policy, or the policy lacks a
        part; the policy commands a part that the limits do not declare."""
        bodies = bodies_for(configuration.action_spec, known(configuration.whole_body))
        c = self.configuration = replace(configuration, whole_body=bodies)
        c.limits.check(c.action_spec, resolves_hand=bodies)
        spec = self.action_spec = c.action_spec.with_gripper_ranges(c.limits.gripper_ranges)
        self.method, self.counts = c.method, Counts()
        self._parts = PartLatency(c.part_latency_ns, spec)
        lead_ns = self._lead_ns = self._parts.lead_ns
        self.latency = c.latency.estimator(to_motion_ns=lead_ns)
        self.timeline = _timeline(c, spec, lead_ns)
        self._waits_on_purpose = isinstance(c.method.request, Synchronous)
        starts_on_arrival = isinstance(c.method.splice, FromRowZero | NotBeforePlanned)
        has_budget = not (self._waits_on_purpose or starts_on_arrival)
        lasts_ns = (spec.horizon - 1) * spec.dt_ns
        self._arming = Arming(c.arming, budget_ns=lasts_ns if has_budget else None)
        self._planner = _planner(c, spec, self.counts, lead_ns, starts_on_arrival=starts_on_arrival)
        self._blender = Blender(c.method.blend, dt_ns=spec.dt_ns)
        self._corrector = _corrector(c, self.timeline, self.counts, lead_ns)
        self._answers = Answers(
            spec,
            splice=c.method.splice,
            timeline=self.timeline,
            blender=self._blender,
            counts=self.counts,
            limits=c.limits,
            lead_ns=lead_ns,
        )
        self._motion = Motion(
            action_spec=spec,
            timeline=self.timeline,
            limits=c.limits,
            parts=self._parts,
            bodies=bodies,
            counts=self.counts,
            period_ns=c.control_period_ns,
        )
        self._handovers, self._watch = Handovers(f.part for f in spec.fields), StateWatch(c.state_limits)
        self._standstill = Standstill()
        self._still_since_ns = self._armed_ns = self._epoch = self._next_id = 0
        self._state: RobotState | None = None
        self._ticked_ns: int | None = None
        self._trouble: Cause | None = None
        self.why_far = ""
        """Where the rows of the last answer lie that was refused for being far outside the robot's ranges."""
        self._mode, self._cause = Mode.STOP, Cause.NOT_STARTED

    @property
    def epoch(self) -> int:
        """Counts resets; answers from before the last one are void."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Let requests belong to this epoch from here on."""
        self._epoch = epoch

    @property
    def mode(self) -> Mode:
        """What the robot is doing."""
        return self._mode

    @property
    def cause(self) -> Cause:
        """Why the mode is what it is."""
        return self._cause

    @property
    def is_at_rest(self) -> bool:
        """Whether the command and, by now, the robot are stationary, and the plan has nothing left to run."""
        sent_ns = self.timeline.claimed_ns - self._parts.spread_ns
        is_over = self._motion.is_braking or self.timeline.phase(sent_ns) is Phase.REST
        return is_over and self._motion.limiter.is_at_rest and self._motion.has_followed(self._ticked_ns)

    @property
    def last_splice(self) -> Splice | None:
        """How the answer that began last was spliced into the plan."""
        return self._answers.last_splice

    @property
    def clips(self) -> ClipTally:
        """What the command limiter has held back so far."""
        return self._motion.limiter.tally

    @property
    def commanded(self) -> Command:
        """The last command; after `reset`, where the robot is."""
        return self._motion.limiter.sent

    # ---- arming --------------------------------------------------------------------------------

    @property
    def is_armed(self) -> bool:
        """Whether rows may run."""
        return self._arming.is_armed

    def why_not_armed(self, now_ns: int) -> str:
        """What prevents arming; empty if nothing does, or the robot is armed."""
        if self.is_armed:
            return ""
        if self._mode is Mode.STOP:
            return f"{self._cause.value}: it has to be reset first"
        if self._trouble is not None:
            return self._trouble.value
        return self._arming.missing(self.latency, now_ns)

    def arm(self, now_ns: int) -> None:
        """Let rows run, from the next answer on.

        NotArmedError: something is missing, see `why_not_armed`; the robot remains stationary.
        """
        if self.is_armed:
            return
        if why := self.why_not_armed(now_ns):
            raise NotArmedError(f"the robot cannot be armed: {why}")
        self._arming.arm()
        self._cause, self._armed_ns = Cause.ARMED, now_ns
        self._planner.reset()

    # ---- requests ------------------------------------------------------------------------------

    def wants_request(self, now_ns: int) -> bool:
        """Whether an observation should be taken and sent now."""
        if self._mode is Mode.STOP or self._trouble is not None:
            return False
        if self._motion.is_braking and not self._follows_no_more:
            return False
        num_in_flight = len(self._answers.open_ids)
        if self._handovers and (self._handovers.unsettled or (num_in_flight and self._handovers.off_plan)):
            return False
        if not self.is_armed:
            is_busy = num_in_flight > 0 or self._planner.is_pausing(now_ns)
            return not is_busy and self._arming.is_due(now_ns, self.action_spec.dt_ns)
        return self._planner.is_due(
            self.timeline, self.latency, self._time(now_ns), num_in_flight=num_in_flight
        )

    def make_request(self, observation: Observation) -> ChunkRequest:
        """The request to send with this observation."""
        plain = ChunkRequest(
            request_id=self._next_id,
            epoch=self.epoch,
            observation=observation,
            sampler=self.method.sampler,
            seed=(self.configuration.seed * 1_000_003 + self._next_id) % 2**31,
            deadline_ns=self.configuration.request_deadline_ns,
            in_flight=self._answers.open_ids,
        )
        request = plain  # the policy is not shown a plan that the robot does not follow
        if not self._handovers.off_plan:
            request = self._planner.completed(plain, self.timeline, self.latency)
        self._next_id += 1
        self._planner.asked(observation.t_obs_ns)
        self._arming.asked(observation.t_obs_ns)
        self._answers.expect(request, t_obs_ns=observation.t_obs_ns, t_oldest_ns=observation.t_oldest_ns)
        self._standstill.begin(request.request_id, observation.t_obs_ns)
        return request

    @property
    def next_request_id(self) -> int:
        """Id of the next request."""
        return self._next_id

    def ask_soon(self) -> None:
        """Send the next request as soon as the method allows, e.g. because the task has changed."""
        self._planner.reset()

    def on_request_failed(self, request_id: int) -> None:
        """Note that the answer will not come: expired, dropped, refused or lost with the server. After every
        further failure the robot waits longer before it asks again."""
        self._fail(request_id)

    def _fail(self, request_id: int) -> None:
        pending = self._answers.drop(request_id)
        self._standstill.fail([request_id])
        self._arming.failed()
        if pending is not None and not pending.is_void:
            self._planner.failed(pending.t_obs_ns, self._time())

    def on_server_lost(self) -> None:
        """Void all open requests: the server is gone. The plan continues to its end."""
        self._standstill.fail(self._standstill.waiting)
        self._standstill.is_server_gone = True
        self._arming.failed()
        self._answers.clear()
        self._planner.begin_anew()
        self.latency.restart()

    def why_stationary(self, now_ns: int) -> str | None:
        """Why no row has run for a while, and what would help; None while there is nothing to explain."""
        idle_ns = now_ns - max(self._still_since_ns, self._armed_ns)
        if self._mode is not Mode.HOLD or not self.is_armed or idle_ns < PATIENCE_NS:
            return None
        if not self._handovers.on_plan:
            return None  # an operator drives it
        return self.why_no_rows()

    def why_no_rows(self) -> str:
        """What keeps rows from running, however long the robot has been stationary."""
        if self._trouble is not None:
            return self._trouble.value
        if not self.is_armed:
            missing = self._arming.missing(self.latency, self._time())
            return f"it is not armed: {missing or 'no operator has armed it'}"
        return self._standstill.reason(
            self.action_spec,
            self.latency,
            now_ns=self._time(),
            deadline_ns=self.configuration.request_deadline_ns,
            is_over=self._mode is Mode.STOP,
        )

    # ---- answers -------------------------------------------------------------------------------

    def on_part(self, part: ChunkPart, now_ns: int) -> PartOutcome:
        """Take rows of an open answer into the plan; all others are refused here."""
        outcome = self._took(part, self._time(now_ns))
        self._standstill.ended(part.request_id, outcome)
        if outcome in (PartOutcome.INVALID, PartOutcome.FAR):
            self._fail(part.request_id)
        elif part.is_last and outcome in _GOOD:
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
            return self._place(taken, now_ns) if self.is_armed else self._check_only(taken, now_ns)
        except ValueError as error:
            self._answers.drop(part.request_id)
            self._planner.failed(taken.t_obs_ns, self._time())
            if not isinstance(error, FarRowsError):
                return PartOutcome.INVALID
            self.counts.far_answers += 1
            self.why_far = self._standstill.why_far = str(error)
            return PartOutcome.FAR

    def _check_only(self, pending: Pending, now_ns: int) -> PartOutcome:
        self._answers.check(pending)
        if pending.is_complete:
            self._arming.answered(now_ns)
        return PartOutcome.NOT_ARMED

    def _place(self, pending: Pending, now_ns: int) -> PartOutcome:
        were_open = self._answers.open_ids
        if self._handovers.off_plan and pending.t0_ns is None:
            self._motion.stand(self._handovers.off_plan, now_ns)
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
        if self._corrector is not None:
            self._corrector.add(pending)
        self._handovers.freshen()
        self._on(Cause.FRESH_CHUNK)
        return PartOutcome.RUNS

    # ---- moving --------------------------------------------------------------------------------

    def reset(self, state: RobotState, now_ns: int) -> None:
        """Hold still and start a new epoch: answers to earlier requests are void.

        A part that follows its commands continues from the last of them, and brakes if it moves; any other
        begins where it is measured.
        InvalidValueError: the method rolls the state forward, and the state lacks what that needs.
        """
        if not state.is_finite:
            raise ValueError("cannot start from a state with NaN or infinite numbers")
        if self._watch.is_stale(state, now_ns):
            raise ValueError(
                f"cannot start from a state that is {(now_ns - state.t_ns) / NS_PER_S:.3g} s old: "
                "the robot may be elsewhere by now"
            )
        self._planner.check(state)
        if self._corrector is not None:
            self._corrector.check(state)
        holds = self._followed_until(now_ns, state)
        self._start_anew(state, now_ns)
        self._motion.reset(state, now_ns, holds=holds)
        self._handovers.forget()
        self._motion.find_bases(state, self._watch)
        self._watch.reset()
        self._parts.forget()
        self._trouble, self._ticked_ns = None, now_ns - 1  # the first tick may be for the same time
        self._on(Cause.RESET)
        self._motion.is_braking = not self._motion.limiter.is_at_rest

    def _followed_until(self, now_ns: int, state: RobotState) -> Collection[str]:
        """The parts whose controllers hold the last command; none after a pause of the control loop."""
        if self._ticked_ns is None or self._watch.is_silent(self._ticked_ns, now_ns):
            return ()
        return self._watch.held_by(self._motion.sent, state)

    def _start_anew(self, state: RobotState, now_ns: int) -> None:
        """Plan to rest where the robot is; earlier requests are void."""
        self._epoch_begins()
        self._planner.begin_anew()
        self._state, self._still_since_ns = state, now_ns
        # Where rows are sent when they are due, the first is sent at once: nothing was sent yet.
        resting_ns = now_ns - 1 if self.action_spec.timing is RowTiming.SENT else now_ns
        here = command_at_state(self.action_spec, state)
        self.timeline.rest_at(here, resting_ns, claimed_ns=resting_ns + self._lead_ns)

    def _epoch_begins(self) -> None:
        """Start a new epoch: earlier requests are void."""
        self._epoch += 1
        self._answers.clear()
        self._standstill = Standstill()
        self._forget_rows()

    def _forget_rows(self) -> None:
        """Forget the rows that later ones would be blended with or corrected by."""
        self._blender.forget()
        if self._corrector is not None:
            self._corrector.forget()

    def wants_correction(self, now_ns: int) -> bool:
        """Whether an observation should be taken now for `correct`: once a row and at every splice."""
        if self._corrector is None or self._mode is not Mode.RUN or self._handovers.off_plan:
            return False  # a robot whose parts are not on the plan does not follow the rows to correct
        return self._corrector.is_due(self._settled(now_ns))

    def correct(self, observation: Observation, now_ns: int) -> None:
        """Move the row due next by what the robot has just seen, see `Corrector`; call it before `tick`.

        Changes nothing that was sent, nor any row after that one. Does nothing unless it was wanted.
        InvalidValueError: the observation has another size than the head was trained on.
        """
        if self._corrector is not None and self._mode is Mode.RUN:
            self._corrector.correct(observation, self._settled(now_ns))

    def stop(self, cause: Cause = Cause.STOP_REQUESTED) -> None:
        """Brake to rest from what was sent last, within the limits, and stay there until `reset`."""
        self._on(cause)

    def tick(self, state: RobotState, now_ns: int) -> Tick:
        """The command for `now_ns`. Call `reset` first, then this at every control period.

        A clock that stops, or goes back by up to a control period, is counted, and time advances by the
        control period. One that goes back farther is followed: the robot holds and asks anew.
        """
        if self._ticked_ns is not None and now_ns <= self._ticked_ns:
            self.counts.clock_steps_back += 1
            if self._ticked_ns - now_ns > self.configuration.control_period_ns:
                self._go_back_to(now_ns)
            else:
                now_ns = self._ticked_ns + self.configuration.control_period_ns
        self._ticked_ns = now_ns
        self._trouble = self._watch.look(state, now_ns)
        if self._trouble is not None:
            self._on(self._trouble)
            self._brake()
        elif self._mode is Mode.RUN and self.timeline.phase(now_ns + self._lead_ns) is not Phase.PLAN:
            self._on(Cause.PLAN_ENDED)
        if self._watch.jumps:
            self._motion.follow_odometry(self._watch.jumps, now_ns)
            self._parts.forget()
            self._start_anew(state, now_ns)
            self.counts.odometry_jumps += 1
        self._state = state
        is_starved = self._mode is Mode.HOLD and self._cause in _STARVED
        if is_starved and not self._waits_on_purpose and self._handovers.on_plan:
            self.counts.starved_ticks += 1
        if self._handovers:
            moved = self._shared(state, now_ns)
        elif self._motion.is_braking:
            moved = self._motion.braked(now_ns)
        else:
            moved = self._motion.planned(state, now_ns)
        if moved.sample.phase is not Phase.REST or not self._handovers.on_plan:
            self._still_since_ns = now_ns + self._lead_ns
        command = self._motion.sent
        self._parts.note(command, now_ns)
        self.counts.stalls = self._motion.limiter.num_stalls
        followed = self._parts.followed(command, now_ns)
        if self._mode is not Mode.STOP and (lost := self._watch.follows(followed, state, now_ns)) is not None:
            self._on(lost)
        return Tick(
            now_ns=now_ns,
            command=command,
            mode=self._mode,
            cause=self._cause,
            phase=moved.sample.phase,
            source=moved.sample.source,
            row=moved.sample.row,
            clip=moved.clip,
            authority=self._handovers.authority(self._of_plan),
            phase_of=self._handovers.phases(),
            policy_command=moved.policy_command,
        )

    def _go_back_to(self, now_ns: int) -> None:
        """Start anew after the clock went back: plan, requests and states have times in the future."""
        self._on(Cause.CLOCK_WENT_BACK)
        self._brake()
        self._epoch_begins()
        self._planner.begin_anew()
        self._arming.forget_chunks()
        self._watch.reset()
        self._parts.forget()
        self._motion.begin_at(now_ns)
        self._still_since_ns, self._armed_ns = now_ns, min(self._armed_ns, now_ns)

    def _brake(self) -> None:
        """Leave the plan: only a fresh chunk or a reset moves the robot again."""
        self._motion.is_braking = True
        self._forget_rows()

    # ---- the operator --------------------------------------------------------------------------

    @property
    def authority(self) -> Mapping[str, Authority]:
        """Who moves each part that the policy commands."""
        return self._handovers.authority(self._of_plan)

    @property
    def taken_over(self) -> tuple[str, ...]:
        """Parts that the operator has taken over."""
        return self._handovers.taken

    def named(self, parts: Collection[str]) -> tuple[str, ...]:
        """These parts, () all. UnknownNameError: the policy does not move one of them."""
        return self._handovers.named(parts)

    def take_over(
        self, parts: Collection[str], now_ns: int, *, by: Authority = Authority.HUMAN
    ) -> tuple[str, ...]:
        """Give these parts to the operator from now on, () all; returns them. They come to rest and hold
        until `lead` gives targets. The others follow the plan, which continues for the operator's in the
        shadow.

        NotArmedError: the robot is not armed. InvalidValueError: it is stopped, or its state cannot be
        trusted. UnknownNameError: the policy does not move that part.
        """
        named = self.named(parts)
        if self._mode is Mode.STOP or self._trouble is not None:
            why = self._cause if self._trouble is None else self._trouble
            raise InvalidValueError(f"no part can be taken over now: {why.value}")
        if not self.is_armed:
            raise NotArmedError(f"no part can be taken over: {Cause.NOT_ARMED.value}")
        self._handovers.take(named, by)
        if self._corrector is not None:
            self._corrector.forget()
        return named

    def lead(self, wishes: Mapping[str, PartCommand], now_ns: int) -> None:
        """Set the operator's targets for the next tick; parts that are not named come to rest.

        wishes: each of the kind that its part's commands have; parts that were not taken over are ignored.
        InvalidValueError: another kind, or size; all parts that were taken over come to rest.
        """
        self._handovers.lead({})
        self._handovers.lead(self._motion.checked(wishes, self._handovers.taken))

    def say_phase(self, parts: Collection[str], phase: HandoverPhase) -> None:
        """Declare that the operator recovers, or corrects. InvalidValueError: the operator cannot declare
        it."""
        self._handovers.say(self.named(parts) if parts else self._handovers.taken, phase)

    def hand_back(self, parts: Collection[str], now_ns: int) -> tuple[str, ...]:
        """Give these parts back to the policy, () all taken over; returns them. They come to rest, and hold
        until rows run of a chunk that is requested then. UnknownNameError: there is no such part."""
        return self._handovers.release(self.named(parts))

    def _shared(self, state: RobotState, now_ns: int) -> Moved:
        """Run a tick of a robot with parts that are not the policy's."""
        if self._mode is Mode.STOP or self._trouble is not None:
            self._handovers.suspend()
            return self._motion.braked(now_ns)
        moved = self._motion.shared(state, now_ns, self._handovers)
        unsettled = self._handovers.unsettled
        if unsettled and self._motion.have_come_to_rest(unsettled, now_ns):
            self._settle(unsettled, now_ns)
        return moved

    def _settle(self, parts: Collection[str], now_ns: int) -> None:
        """Request from where the parts handed back hold; earlier requests assumed another plan and are
        void."""
        self._epoch_begins()
        self._planner.reset()
        self._motion.stand(parts, now_ns)
        self._handovers.settle()
        if self._handovers.has_all and not self._motion.is_braking:
            self.timeline.rest_at(self._motion.as_planned(), now_ns, claimed_ns=self.timeline.claimed_ns)
            self._on(Cause.HANDED_BACK)

    @property
    def _of_plan(self) -> Authority:
        """Who moves the parts that follow the plan."""
        if self._mode is Mode.STOP or self._trouble is not None:
            return Authority.SAFETY
        return Authority.POLICY if self._mode is Mode.RUN else Authority.HOLD

    @property
    def _follows_no_more(self) -> bool:
        """Whether the parts that follow the plan are stationary, and have carried out their commands."""
        rests = (
            self._motion.limiter.rests(self._handovers.on_plan)
            if self._handovers
            else self._motion.limiter.is_at_rest
        )
        return rests and self._motion.has_followed(self._ticked_ns)

    def _time(self, now_ns: int = 0) -> int:
        """The time, or that of the last command if the clock has gone back since."""
        return max(now_ns, self.timeline.claimed_ns - self._lead_ns)

    def _settled(self, now_ns: int) -> int:
        """The earliest time of motion that can still be changed then."""
        return self._time(now_ns) + self._lead_ns

    def _on(self, cause: Cause) -> None:
        before = self._mode
        self._mode = next_mode(before, cause, is_armed=self.is_armed)
        if cause is Cause.RESET:
            self._arming.begin_anew()
        elif self._mode is Mode.STOP:
            self._arming.disarm()
        if self._mode is not before:
            self._cause = cause
            if self._mode is Mode.RUN:
                self._motion.is_braking = False
            elif cause not in (Cause.PLAN_ENDED, Cause.HANDED_BACK):
                self._brake()
        if self._mode is Mode.HOLD and not self.is_armed:
            self._cause = Cause.NOT_ARMED


def _timeline(c: Configuration, spec: ActionSpec, lead_ns: int) -> ChunkTimeline:
    return ChunkTimeline(
        coast_ns=_coast_rows(spec) * spec.dt_ns,
        scales=scales_of(spec),
        rests=rests_of(spec),
        holds_last=spec.timing is RowTiming.SENT,
        keeps_ns=lead_ns + c.state_limits.timeout_ns if lead_ns else 0,
    )


def _planner(
    c: Configuration, spec: ActionSpec, counts: Counts, lead_ns: int, *, starts_on_arrival: bool
) -> RequestPlanner:
    return RequestPlanner(
        part=c.method.request,
        action_spec=spec,
        max_inference_delay=c.max_inference_delay,
        prefix_at_rest=c.prefix_at_rest,
        hand_pose=known(c.hand_pose),
        counts=counts,
        coast_rows=_coast_rows(spec),
        row_statistics=c.row_statistics,
        starts_on_arrival=starts_on_arrival,
        to_motion_ns=lead_ns,
    )


def _corrector(c: Configuration, timeline: ChunkTimeline, counts: Counts, lead_ns: int) -> Corrector | None:
    """The correction of rows on the robot, if the method has one."""
    match c.method.correction:
        case NoCorrection():
            return None
        case PerRowCorrection() as part:
            return Corrector(
                part,
                known(c.correction_head),
                action_spec=c.action_spec,
                timeline=timeline,
                counts=counts,
                lead_ns=lead_ns,
            )


def _coast_rows(spec: ActionSpec) -> int:
    return 1 if spec.timing is RowTiming.SENT else COAST_ROWS
