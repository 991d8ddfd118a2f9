"""Plans requests: when to ask for a chunk, and which part of the plan to send along: `RequestPlanner`."""

from collections import deque
from collections.abc import Mapping

import numpy as np
from msgspec import structs

from robot_runtime.core.method.latency import COMMITMENT_QUANTILE, LatencyEstimator
from robot_runtime.core.method.request_fit import (
    max_in_flight,
    moves_more_from_rest,
    refuse_misfit,
    rows_to_run,
)
from robot_runtime.core.method.request_parts import (
    BeforePlanEnds,
    Continuous,
    FixedExecutionHorizon,
    LastTarget,
    PlainObservation,
    PreviousChunk,
    RequestPart,
    RolledForwardState,
    Synchronous,
)
from robot_runtime.core.plan.counts import Counts
from robot_runtime.core.plan.predict import HandPose, StatePredictor, check_odometry
from robot_runtime.core.plan.timeline import ChunkTimeline, Phase
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_S, ActionSpec
from robot_runtime.core.values.fields import JointPosition, JointVelocity
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import RobotState
from robot_runtime.errors import InvalidValueError

MAX_IN_FLIGHT = 32
"""Most open requests of one robot."""
FAR_DEVIATIONS = 8.0
"""Committed rows farther than this from what a policy was trained on are foreign to it [standard deviations].
Shipped policies see 2 in the median and 4 at the 0.9 quantile at 300 ms, 3 and 12 at 700."""
LOOK_BACK, TOO_MANY_FOREIGN = 8, 5
"""If this many of the last requests with committed rows are foreign, requests carry none any more."""
ROWS_THAT_TELL_SPEED = 2
"""Committed rows that show the commanded speed: with fewer an answer continues from the measured speed."""
LONGEST_PAUSE_NS = 4 * NS_PER_S
"""Longest pause before the next request to a server that has failed repeatedly."""


class RequestPlanner:
    """Decides when to ask, and what; its state is the times of the last requests and failures.

    Rows from one observation to the next, s, and rows that an answer takes, d, must fit in a chunk of H rows:

        row of the chunk   0  ...  d-1 | d  ...  d+s-1 | d+s  ...  H-1
                           past when   | run until the | spare: the plan ends
                           it comes    | next one      | when row H-1 is due

    that is s + d <= H - 1, where s is at least d / m if at most m requests are open at a time. A state rolled
    forward has row 0 due when the answer starts, so only s <= H is left, or d <= o with a fixed overlap o.

    Where answers take so long that the robot would be stationary most of the time, it runs each chunk to its
    end and asks once it is at rest (`moves_more_from_rest`); this is counted.
    """

    def __init__(
        self,
        *,
        part: RequestPart,
        action_spec: ActionSpec,
        max_inference_delay: int | None = None,
        prefix_at_rest: bool = False,
        hand_pose: HandPose | Mapping[str, HandPose] | None = None,
        counts: Counts | None = None,
        coast_rows: int = 2,
        starts_on_arrival: bool = False,
        row_statistics: RowStatistics | None = None,
        to_motion_ns: int = 0,
    ) -> None:
        """
        max_inference_delay: largest d the policy was trained for; a larger measured one is cut to it and
            counted, a larger fixed one refused. None sets no limit but the chunk.
        prefix_at_rest: whether the policy was trained with prefixes of a stationary robot.
        hand_pose: forward kinematics of "arm", or by part, needed to roll a plan of joints forward.
        coast_rows: rows that coming to rest takes after the last one.
        starts_on_arrival: row 0 is due when an answer comes, so that a late one loses no row.
        row_statistics: statistics of the training rows: if prefixes lie far outside them repeatedly, none is
            sent any more, whatever the policy declares. None: unknown.
        to_motion_ns: latency from command to motion, included in every d, see `LatencyEstimator` [ns].
        InvalidValueError: a horizon or delay does not fit the chunk; the message has the inequality.
        """
        self._part = part
        self._row_statistics = row_statistics
        self._foreign: deque[bool] = deque(maxlen=LOOK_BACK)
        self._coast_rows, self._to_motion_ns = coast_rows, to_motion_ns
        self._starts_on_arrival = starts_on_arrival
        self._spec = action_spec
        self._max_delay = max_inference_delay
        self._prefix_at_rest = prefix_at_rest
        self._least_delay = self._least_delay_with_speed()
        self._counts = Counts() if counts is None else counts
        self._asked_ns: int | None = None
        self._pace_ns = 0
        self._awaited_ns: int | None = None
        self._server_ns = 0
        self._whole = LatencyEstimator(skips_first=False, to_motion_ns=to_motion_ns)
        self._failed_ns = self._retry_ns = 0
        self._num_failures = 0
        self._max_in_flight = max_in_flight(part)
        refuse_misfit(
            part,
            horizon=action_spec.horizon,
            max_delay=max_inference_delay,
            most_in_flight=MAX_IN_FLIGHT,
        )
        self._predictor: StatePredictor | None = None
        if isinstance(part, RolledForwardState):
            arms = [f.part for f in action_spec.fields if isinstance(f, JointPosition | JointVelocity)]
            if hand_pose is None and arms:
                raise InvalidValueError(
                    "rolling a plan of joints forward needs forward kinematics: hand_pose"
                )
            self._predictor = StatePredictor(model=part.model or LastTarget(), hand_pose=hand_pose)

    def check(self, state: RobotState) -> None:
        """Raise InvalidValueError if the state cannot be rolled forward: a base commanded by twists has no
        odometry, or an end effector is measured whose forward kinematics are unknown."""
        if self._predictor is None:
            return
        check_odometry(self._spec, state)
        for f in self._spec.fields:
            moves_joints = isinstance(f, JointPosition | JointVelocity)
            if moves_joints and state.hand(f.part) is not None and not self._predictor.knows_hand(f.part):
                raise InvalidValueError(
                    f"rolling a plan of {f.part}'s joints forward needs its forward kinematics: "
                    f"hand_pose={{{f.part!r}: ...}}"
                )

    def rows_to_run(self) -> int:
        """Rows of a chunk that may enter the plan."""
        return rows_to_run(self._part, self._spec.horizon)

    def is_due(
        self, timeline: ChunkTimeline, latency: LatencyEstimator, now_ns: int, *, num_in_flight: int
    ) -> bool:
        """Whether to ask now, with so many requests open."""
        if self.is_pausing(now_ns):
            return False
        if num_in_flight and (num_in_flight >= self._max_in_flight or not self._overlaps(timeline, latency)):
            self._awaited_ns = None
            return False
        if isinstance(self._part, Synchronous) or self._asks_at_rest(latency):
            return timeline.phase(now_ns) is Phase.REST
        if self._asked_ns is None:
            return True
        dt_ns = self._spec.dt_ns
        match self._part.when:
            case FixedExecutionHorizon() as when:
                rows = self._rows_apart(when, latency)
                interval_ns = self._execution_horizon(rows, latency) * dt_ns
                if num_in_flight:
                    interval_ns = max(interval_ns, self._server_ns)
                # Asked within a row of the last, its answer would leave the plan before the last's begins.
                return self._has_come(max(self._pace_ns + interval_ns, self._asked_ns + dt_ns), now_ns)
            case Continuous():
                return now_ns >= self._asked_ns + dt_ns
            case BeforePlanEnds(overlap_rows=int(overlap)):
                return now_ns >= timeline.end_ns - (overlap - 1) * dt_ns
            case BeforePlanEnds(margin_rows=margin):
                if now_ns < self._asked_ns + dt_ns:
                    return False
                if latency.latency_ns() is None:
                    return True
                return now_ns >= timeline.end_ns - (latency.num_rows(dt_ns) + margin) * dt_ns

    def is_pausing(self, now_ns: int) -> bool:
        """Whether the last failure is too recent to ask again."""
        return now_ns < self._retry_ns

    def _overlaps(self, timeline: ChunkTimeline, latency: LatencyEstimator) -> bool:
        """Whether a second request makes sense: answers to a stationary robot would all begin anew, unless
        the request declares how long it will be stationary.

        No request overlaps before one whole answer has come: until then it is unknown how late rows stream
        in, and answers that continue from rows which come too late diverge.
        """
        match self._part:
            case PreviousChunk(inference_delay=None) if self._whole.latency_ns() is None:
                return False
        if timeline.phase(timeline.claimed_ns) is Phase.PLAN:
            return not self._asks_at_rest(latency)
        match self._part:
            case PreviousChunk(inference_delay=fixed):
                is_known = fixed is not None or latency.latency_ns() is not None
                return is_known and self._commits_to_rest(latency)
        return False

    def _asks_at_rest(self, latency: LatencyEstimator) -> bool:
        """Whether answers are too late for a moving robot.

        Either it moves for longer if it asks while stationary; or whole answers take half a chunk and more
        than the policy was trained for: with a prefix that is too short, the plan diverges.
        """
        d = latency.num_rows(self._spec.dt_ns, COMMITMENT_QUANTILE)
        if self._starts_on_arrival or d == 0:
            return False
        whole = max(d, self._whole.num_rows(self._spec.dt_ns, COMMITMENT_QUANTILE))
        is_cut = isinstance(self._part, PreviousChunk) and whole > self._most_delay()
        if is_cut and 2 * whole >= self._spec.horizon:
            return True
        return moves_more_from_rest(
            self._part,
            num_rows=self.rows_to_run(),
            inference_delay=d,
            shown_delay=self._most_delay(),
            coast_rows=self._coast_rows,
            to_motion_rows=self._to_motion_ns // self._spec.dt_ns,
        )

    def _commits_to_rest(self, latency: LatencyEstimator) -> bool:
        """Whether a stationary robot shows the policy how long it will be stationary: not if the prefix
        cannot express that, or the policy was never trained with such a prefix and would remain stationary.

        An answer to a request that commits to nothing starts with row 0 when it comes.
        """
        if not self._prefix_at_rest or self._asks_at_rest(latency):
            return False
        match self._part:
            case PreviousChunk(inference_delay=None):
                measured = latency.num_rows(self._spec.dt_ns, COMMITMENT_QUANTILE)
                return measured <= self._most_delay()
        return True

    def _has_come(self, due_ns: int, now_ns: int) -> bool:
        """Whether the request is due; notes since when a robot that checks at every tick has been waiting."""
        if now_ns < due_ns:
            self._awaited_ns = due_ns
        elif self._awaited_ns is not None:
            self._awaited_ns = min(self._awaited_ns, now_ns)
        return now_ns >= due_ns

    def asked(self, t_obs_ns: int) -> None:
        """Note that a request with this observation went out.

        If that was at the first tick after it was due, the rows to the next count from when it was due:
        counted from the tick, the delays of less than a tick would add up.
        """
        due_ns, self._awaited_ns = self._awaited_ns, None
        self._asked_ns = self._pace_ns = t_obs_ns
        if due_ns is not None and t_obs_ns - due_ns < self._spec.dt_ns:
            self._pace_ns = due_ns

    def answered(self, server_ns: int, *, whole_ns: int) -> None:
        """Note how long a request was queued and computed on the server, and how long its whole answer took
        from the capture on [ns].

        Overlapping requests go out no faster than that: more would only wait in the queue while their
        observations age.
        """
        self._server_ns = server_ns
        self._whole.add(whole_ns)

    def succeeded(self) -> None:
        """Note a good answer: the next failure counts as the first."""
        self._num_failures = 0

    def failed(self, t_obs_ns: int, now_ns: int) -> None:
        """Note that the answer to the request with this observation will not come: ask anew, after a pause.

        The pause is a row's time, and twice as long with every further failure, up to `LONGEST_PAUSE_NS`.
        What was asked before the last failure fails with it and counts once.
        """
        self.reset()
        if self._num_failures > 0 and t_obs_ns <= self._failed_ns:
            return
        pause_ns = min(self._spec.dt_ns << min(self._num_failures, 32), LONGEST_PAUSE_NS)
        self._num_failures += 1
        self._failed_ns, self._retry_ns = now_ns, now_ns + pause_ns

    def reset(self) -> None:
        """Ask at the next opportunity."""
        self._asked_ns = self._awaited_ns = None

    def begin_anew(self) -> None:
        """Reset and forget all failures: there is another server, or the robot was reset."""
        self.reset()
        self._whole.restart()
        self._num_failures = self._retry_ns = 0

    def completed(
        self, plain: ChunkRequest, timeline: ChunkTimeline, latency: LatencyEstimator
    ) -> ChunkRequest:
        """The request completed as the request part requires, for an observation that was just taken.

        A stationary robot is committed to remaining so until the answer comes; while it is unknown how long
        that takes, or it takes longer than a prefix can express, the request stays plain.
        """
        self._count_shortening(latency)
        observation = plain.observation
        is_at_rest = timeline.phase(observation.t_obs_ns) is Phase.REST
        match self._part:
            case PreviousChunk() if is_at_rest and not self._commits_to_rest(latency):
                pass
            case PreviousChunk(inference_delay=fixed):
                d = self._inference_delay(fixed, latency)
                if observation.t_obs_ns + (self._least_delay - 1) * self._spec.dt_ns <= timeline.end_ns:
                    d = max(d, self._least_delay)
                rows = self._planned_rows(timeline, observation.state, at_least=d)
                if len(rows) > 0 and not self._is_distrusted(rows[:d], observation.state):
                    return structs.replace(plain, prev_action_chunk=rows, inference_delay=d)
            case RolledForwardState(inference_delay=fixed) if not is_at_rest:
                assert self._predictor is not None
                d = self._inference_delay(fixed, latency)
                start_ns = observation.t_obs_ns + d * self._spec.dt_ns
                if d > 0:
                    state = self._predictor.predict(observation.state, timeline, start_ns)
                    return structs.replace(plain, observation=structs.replace(observation, state=state))
        return plain

    def _is_distrusted(self, committed: Float[np.ndarray, "d D"], state: RobotState) -> bool:
        """Whether to ask without a prefix from now on, as the policy was never trained on rows like these."""
        if self._row_statistics is None or len(committed) == 0:
            return False
        far = self._row_statistics.deviations(committed, self._spec, state)
        self._foreign.append(bool(far.max() > FAR_DEVIATIONS))
        if sum(self._foreign) < TOO_MANY_FOREIGN:
            return False
        self._counts.prefixes_distrusted += 1
        self._part = PlainObservation()
        self._max_in_flight = max_in_flight(self._part)
        return True

    def _count_shortening(self, latency: LatencyEstimator) -> None:
        if isinstance(self._part, Synchronous):
            return
        if self._asks_at_rest(latency):
            self._counts.asked_at_rest += 1
            return
        match self._part.when:
            case FixedExecutionHorizon(rows=rows) if self._execution_horizon(rows, latency) < rows:
                self._counts.horizons_shortened += 1

    def _planned_rows(
        self, timeline: ChunkTimeline, anchor: RobotState, *, at_least: int
    ) -> Float[np.ndarray, "n D"]:
        """Rows up to the plan's end; past it the robot coasts and rests, for `at_least` rows in all."""
        times = [anchor.t_ns + i * self._spec.dt_ns for i in range(self._spec.horizon)]
        times = [t for i, t in enumerate(times) if i < at_least or t <= timeline.end_ns]
        if not times:
            return np.empty((0, self._spec.dim))
        return timeline.waypoints_at(times).encode(self._spec, anchor)

    def _inference_delay(self, fixed: int | None, latency: LatencyEstimator) -> int:
        """d; a measured one is cut to what chunk and policy allow, and counted."""
        if fixed is not None:
            return fixed
        most = self._most_delay()
        measured = latency.num_rows(self._spec.dt_ns, COMMITMENT_QUANTILE)
        if measured > most:
            self._counts.delays_clamped += 1
        return min(measured, most)

    def _least_delay_with_speed(self) -> int:
        """The least d of a moving robot, however early answers come: `ROWS_THAT_TELL_SPEED`, or 0 if d is
        fixed or training does not cover so many. Rows that a sampler keeps without training do not help: with
        two of them `pipelined-rtc` completes 1 of 8 episodes of `drawer`, without them 7.
        """
        match self._part:
            case PreviousChunk(inference_delay=None) if self._max_delay is not None:
                return ROWS_THAT_TELL_SPEED if self._most_delay() >= ROWS_THAT_TELL_SPEED else 0
        return 0

    def _most_delay(self) -> int:
        """The largest d that chunk and policy allow."""
        most = self._spec.horizon - (not isinstance(self._part, RolledForwardState))
        return most if self._max_delay is None else min(most, self._max_delay)

    def _rows_apart(self, when: FixedExecutionHorizon, latency: LatencyEstimator) -> int:
        """s, before the measured latency may shorten it."""
        match self._part:
            case PreviousChunk(inference_delay=fixed) if when.rows_from_measured is not None:
                d = latency.num_rows(self._spec.dt_ns, COMMITMENT_QUANTILE) if fixed is None else fixed
                tells_speed = max(d, self._least_delay) >= ROWS_THAT_TELL_SPEED
                return when.rows if tells_speed else when.rows_from_measured
        return when.rows

    def _execution_horizon(self, rows: int, latency: LatencyEstimator) -> int:
        """s, or as many rows as leave room for the measured d: asking earlier beats running out of plan.

        The plan ends when its last row is due, H - 1 rows after the capture.
        """
        if isinstance(self._part, RolledForwardState):
            return rows
        room = max(1, self._spec.horizon - 1 - latency.num_rows(self._spec.dt_ns))
        return min(rows, room)
