"""A published way of running chunks is a row of one table: request part x sampler part x splice part.

Adding a method means adding a row and at most one part. No part knows which method it serves.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType

from robot_runtime.errors import InvalidValueError, UnknownNameError

# ---- request parts: what to ask, and when ------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StopAndAsk:
    """Run the chunk to its execution horizon, stand still, look, ask, wait: how chunks are run by default."""

    execution_horizon: int | None = None
    """Rows to run before asking again, s; None means the whole chunk."""


@dataclass(frozen=True, kw_only=True)
class EveryRows:
    """Ask so many rows after the last observation: a fixed execution horizon."""

    rows: int = 4
    """Rows from one observation to the next, s; more if the answer takes longer."""


@dataclass(frozen=True)
class AsSoonAsPossible:
    """Ask when the last answer has come and one row has passed since its observation."""


@dataclass(frozen=True, kw_only=True)
class BeforeStarvation:
    """Ask at the latest moment from which the answer still comes before the plan ends.

    row     0   1   ...          ask          answer   H-1
            |---|----- run -------|--- latency --|-margin-|
    """

    margin_rows: int = 2
    """Rows of the plan that should be left when the answer comes."""
    overlap_rows: int | None = None
    """Ask when row n - o is due, o fixed, instead of by the measured latency: VLASH's fixed overlap."""
    execution_horizon: int | None = None
    """Rows of a chunk that are run, n; None means the whole chunk."""


When = EveryRows | AsSoonAsPossible | BeforeStarvation


@dataclass(frozen=True, kw_only=True)
class PlainObservation:
    """Ask with the newest observation while the robot goes on with its plan."""

    when: When = EveryRows()


@dataclass(frozen=True, kw_only=True)
class PreviousChunk:
    """As `PlainObservation`, and tell the policy what the plan says from the observation on.

    row        0   1  ...  d-1  |  d  ...  n-1  |  n  ...  H-1
    at t_obs   committed prefix |  still open   |  nothing planned yet

    The committed rows will have run before the answer can. What a sampler makes of the open ones is its own
    affair: some ignore them, some are drawn to them (real-time chunking, arXiv 2506.07339).
    """

    when: When = EveryRows()
    inference_delay: int | None = None
    """Committed rows, d; None takes the measured latency, rounded up to rows."""


@dataclass(frozen=True)
class LastTarget:
    """The robot will be at the plan's last absolute target by then: what VLASH's code does."""


@dataclass(frozen=True)
class IntegratedDeltas:
    """The plan's motion from now until then, added to the measured state: what VLASH's paper writes.

    s(t+d) = s(t) + a(t) + ... + a(t+d-1): the distance the robot has from its setpoint now is kept.
    """


@dataclass(frozen=True)
class TrackingLag:
    """The arm follows its setpoint r with a first-order lag, dx/dt = (r - x) / tau, from the measured state.

    Fit tau to the robot with `predict.fit_time_constant`.
    """

    time_constant_s: float
    """tau [s]: how far behind a steadily moving setpoint the arm runs."""


RollForward = LastTarget | IntegratedDeltas | TrackingLag


@dataclass(frozen=True, kw_only=True)
class RolledForwardState:
    """Show the policy the state in which its answer will start, instead of the measured one.

    capture                start of execution
       |---- d rows of plan ----|
     state measured       state rolled forward: the answer's row 0 is due here

    VLASH, arXiv 2512.01031. Images stay as they were captured. Nothing is rolled forward while no latency is
    known or the robot stands still.
    """

    when: When = EveryRows()
    inference_delay: int | None = None
    """Rows to roll forward, d; None takes the measured latency, rounded up to rows."""
    model: RollForward = LastTarget()


RequestPart = StopAndAsk | PlainObservation | PreviousChunk | RolledForwardState

# ---- sampler parts: how the server denoises -----------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ConstantSchedule:
    """Every row takes the same Euler steps from noise to action."""

    num_steps: int | None = None
    """None leaves the number to the policy."""


@dataclass(frozen=True, kw_only=True)
class ClampedPrefix:
    """Rows of the committed prefix are given as finished (flow time 1) and never change.

    Training-time RTC, arXiv 2512.05964.
    """

    num_steps: int | None = None


SamplerPart = ConstantSchedule | ClampedPrefix

# ---- splice parts: when a chunk's row 0 is due, and what becomes of its rows --------------------------


@dataclass(frozen=True)
class FromRowZero:
    """Row 0 is due when the chunk arrives: right for a robot that waited; others jump back."""


@dataclass(frozen=True)
class TimeAligned:
    """Row 0 is due when the observation was captured, so the rows that are already past drop out."""


@dataclass(frozen=True)
class NotBeforePlanned:
    """Row 0 is due at the planned start or, if the answer is later, when it arrives; no row drops out.

    VLASH's loop (run.py): a chunk that comes early waits, one that comes late is waited for.
    """


@dataclass(frozen=True, kw_only=True)
class StateMatched:
    """Goes on from the point of the chunk's path that is nearest to where the robot is (Mobile UMI).

    row     0 ... i_t - window ..... i_t ..... i_t + window ... H-1      i_t: the row that is due by time
                 [------- searched: never before row 0 -------]

    Minimises |x - w(u)|^2 / scale^2 + time_weight (u - i_t)^2 / row_scale^2 over the path w(u), segments
    included, where the robot is x. Never passes a change of the gripper that has not been commanded. A robot
    farther than `max_distance` from all of the path is aligned by time.
    """

    lead_s: float = 0.03
    """How far the arm runs behind its setpoint [s]: the setpoint goes on this much beyond the match."""
    window_rows: int = 4
    time_weight: float = 0.25
    """lambda; decides where the path stands still or crosses itself."""
    row_scale: float = 4.0
    joint_scale: float = 0.1
    """Of the distance of all joints together [rad]."""
    position_scale: float = 0.03
    """Of the hand [m]."""
    rotation_scale: float = 0.17
    """Of the hand and of the base's yaw [rad]."""
    base_scale: float = 0.05
    """Of the base's position [m]."""
    gripper_step: float = 0.01
    """What counts as a change of the gripper [m]."""
    max_distance: float = 4.0
    """Gate on |x - w(u)| / scale; 4 is about chi^2 at 99 % for six or seven numbers."""


SplicePart = FromRowZero | TimeAligned | NotBeforePlanned | StateMatched


@dataclass(frozen=True)
class Replace:
    """The new rows as they are."""


@dataclass(frozen=True, kw_only=True)
class WeightedAverage:
    """Every new row is averaged with what the plan says for its time: `old_weight` old + the rest new.

    LeRobot's async client: 0.3 is its weighted_average, 0 latest_only, 0.5 average, 0.7 conservative.
    """

    old_weight: float = 0.3


@dataclass(frozen=True, kw_only=True)
class TemporalEnsembling:
    """Every row is the average of all chunks that cover its time, w_i = exp(-m i), i = 0 the oldest.

    ACT, arXiv 2304.13705, algorithm 2.
    """

    m: float = 0.01


@dataclass(frozen=True, kw_only=True)
class CrossFade:
    """From the old plan to the new one over the first moments: the share of the new rises as a smoothstep.

    Rotations go on the geodesic; the gripper is the new chunk's at once.
    """

    duration_s: float = 0.15


Blend = Replace | WeightedAverage | TemporalEnsembling | CrossFade


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row of the table."""

    request: RequestPart
    sampler: SamplerPart
    splice: SplicePart
    """When row 0 of a chunk is due."""
    blend: Blend = Replace()
    """What becomes of the rows that meet an old plan."""


_VLASH_OVERLAP = 4
METHODS = MappingProxyType(
    {
        "synchronous": Method(request=StopAndAsk(), sampler=ConstantSchedule(), splice=FromRowZero()),
        "naive": Method(request=PlainObservation(), sampler=ConstantSchedule(), splice=FromRowZero()),
        "time-aligned": Method(request=PlainObservation(), sampler=ConstantSchedule(), splice=TimeAligned()),
        "weighted-average": Method(
            request=PlainObservation(),
            sampler=ConstantSchedule(),
            splice=TimeAligned(),
            blend=WeightedAverage(),
        ),
        "temporal-ensembling": Method(
            request=PlainObservation(when=AsSoonAsPossible()),
            sampler=ConstantSchedule(),
            splice=TimeAligned(),
            blend=TemporalEnsembling(),
        ),
        "state-matching": Method(
            request=PlainObservation(), sampler=ConstantSchedule(), splice=StateMatched()
        ),
        "cross-fade": Method(
            request=PlainObservation(), sampler=ConstantSchedule(), splice=TimeAligned(), blend=CrossFade()
        ),
        "committed-prefix": Method(request=PreviousChunk(), sampler=ClampedPrefix(), splice=TimeAligned()),
        "vlash": Method(request=RolledForwardState(), sampler=ConstantSchedule(), splice=TimeAligned()),
        "vlash-fixed-overlap": Method(
            request=RolledForwardState(
                when=BeforeStarvation(overlap_rows=_VLASH_OVERLAP), inference_delay=_VLASH_OVERLAP
            ),
            sampler=ConstantSchedule(),
            splice=NotBeforePlanned(),
        ),
    }
)


def method_named(name: str, *, execution_horizon: int | None = None) -> Method:
    """The method of that name, its execution horizon replaced if given; UnknownNameError lists the names.

    A method that asks as soon as possible asks every so many rows instead.
    """
    if name not in METHODS:
        raise UnknownNameError("method", name, METHODS)
    method = METHODS[name]
    if execution_horizon is None:
        return method
    if execution_horizon < 1:
        raise InvalidValueError(f"an execution horizon is at least 1 row, got {execution_horizon}")
    return replace(method, request=_with_execution_horizon(method.request, execution_horizon))


def _with_execution_horizon(part: RequestPart, rows: int) -> RequestPart:
    if isinstance(part, StopAndAsk):
        return replace(part, execution_horizon=rows)
    if isinstance(part.when, BeforeStarvation):
        return replace(part, when=replace(part.when, execution_horizon=rows))
    return replace(part, when=EveryRows(rows=rows))
