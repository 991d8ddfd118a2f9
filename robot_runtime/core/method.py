"""A published way of running chunks is a row of one table: request part x sampler part x splice part.

Some also correct on the robot what the policy has planned.

Adding a method means adding a row and at most one part. No part knows which method it serves.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
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

    The gripper is where it is commanded, as in the recipe Offset. Fit tau to the robot with
    `predict.fit_time_constant`.
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
    model: RollForward | None = None
    """None takes the one that the policy was trained with (`capabilities.fitted`), or the last target."""


RequestPart = StopAndAsk | PlainObservation | PreviousChunk | RolledForwardState

# ---- sampler parts: how the server denoises -----------------------------------------------------------
#
# Flow time runs from 0 (noise) to 1 (action), for every part and whatever the paper's direction. Rows:
#
#     row        0 ... d-1          d ... n-1            n ... H-1
#                committed prefix   planned, still open  nothing planned yet
#
# A part that takes a previous chunk gives the committed rows back bit for bit: the robot runs the old ones.


@dataclass(frozen=True, kw_only=True)
class ConstantSchedule:
    """Every row takes the same Euler steps from noise to action. Takes no committed prefix."""

    num_steps: int | None = None
    """Euler steps; None leaves the number to the policy, here and in the other parts."""


@dataclass(frozen=True, kw_only=True)
class ClampedPrefix:
    """Rows of the committed prefix are given as finished (flow time 1) and never change.

    Training-time RTC, arXiv 2512.05964.
    """

    num_steps: int | None = None


class SoftMask(StrEnum):
    """How strongly each row is drawn to the previous chunk: 1 on rows below d, 0 from n on, and between

    row        d-1    d   ...   n-1    n         c_i = (n - i) / (n - d + 1)
    EXP         1   c (e^c - 1) / (e - 1)   0    arXiv 2506.07339, equation 5
    LINEAR      1          c                0
    HARD        1          0                0
    """

    EXP = "exp"
    LINEAR = "linear"
    HARD = "hard"


@dataclass(frozen=True, kw_only=True)
class RtcGuidance:
    """Real-time chunking: each step is drawn towards the previous chunk. Needs no training for it.

    arXiv 2506.07339, equations 2 to 5; there the planned rows end at n = H - s.
    """

    exact_jacobian: bool = True
    """Draw through the transposed Jacobian of the denoiser, as published: two more passes a step. False
    takes the identity for it, as LeRobot does."""
    mask: SoftMask = SoftMask.EXP
    max_guidance_weight: float = 5.0
    """Beta of the paper."""
    num_steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class PrefixPreservedStart:
    """Denoise from the previous chunk, zeros behind it, and put the prefix back after every step.

    REMAC, arXiv 2601.20130. The network is told which rows are committed. Without a previous chunk the start
    is noise, as for any flow.
    """

    num_steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class LambdaMaskedPrefix:
    """Prefix rows are clean and stay so, under one flow time for all rows.

    Xiaomi-Robotics-0, arXiv 2602.12684. The network is told which rows those are; its lambda-shaped attention
    belongs to it.
    """

    num_steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class HorizonAwareSchedule:
    """Near rows finish in few steps and are sent at once, far rows take all; the prefix is clamped.

    FASTER, arXiv 2603.19199, equations 5 to 10; see `core.schedule`.
    """

    alpha: float = 0.6
    """How fast the finish time grows along the chunk; 1 is linear, smaller makes middle rows later."""
    u0: float | None = None
    """The first open row is finished at flow time 1 - u0; None means (N - 1) / N: after the first step."""
    num_steps: int = 10
    """N, for the last row."""
    early_stop_rows: int | None = None
    """End the answer with the step that has finished so many open rows; None finishes the chunk."""


@dataclass(frozen=True, kw_only=True)
class BestOfSamples:
    """Draw several chunks, answer with the one that agrees best with the previous chunk.

    Bidirectional decoding, arXiv 2408.17355. Needs no training for it.
    """

    num_samples: int = 16
    rho: float | None = None
    """Row i of the overlap weighs rho^i, as published; None takes `SoftMask.EXP`, as RTC's paper does."""
    num_contrast: int = 0
    """Also be near to so many of the policy's own samples and far from as many of a weaker checkpoint's;
    0 does without, as the policy must if it was given none."""
    num_steps: int | None = None


class Consensus(StrEnum):
    """What stands for several samples."""

    MEAN = "mean"
    """Their average, which may be none of them: between two ways round a post there is the post."""
    MEDOID = "medoid"
    """The sample with the smallest summed distance to the others."""


@dataclass(frozen=True, kw_only=True)
class AveragedSamples:
    """Draw several chunks from one observation and answer with their consensus. Takes no committed prefix."""

    num_samples: int = 16
    consensus: Consensus = Consensus.MEAN
    num_steps: int | None = None


SamplerPart = (
    ConstantSchedule
    | ClampedPrefix
    | RtcGuidance
    | PrefixPreservedStart
    | LambdaMaskedPrefix
    | HorizonAwareSchedule
    | BestOfSamples
    | AveragedSamples
)
PREFIXLESS = (ConstantSchedule, AveragedSamples)
"""Parts that make nothing of a previous chunk and refuse a committed prefix."""

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


# ---- correction parts: what the robot adds to planned rows by itself -----------------------------------


@dataclass(frozen=True)
class NoCorrection:
    """Rows run as the policy wrote them."""


@dataclass(frozen=True, kw_only=True)
class PerRowCorrection:
    """A small learned head on the robot corrects every row by the newest observation.

    A2C2, arXiv 2509.23224, which corrects at every step of its policy; a row is that step here. Bounds are on
    how far a row is moved; a correction beyond them is clipped and counted.
    """

    max_joint: float = 0.2
    """Of a joint [rad]."""
    max_gripper: float = 0.08
    """Of the gripper's width [m]; 0 leaves the gripper to the policy."""


Correction = NoCorrection | PerRowCorrection


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row of the table."""

    request: RequestPart
    sampler: SamplerPart
    splice: SplicePart
    """When row 0 of a chunk is due."""
    blend: Blend = Replace()
    """What becomes of the rows that meet an old plan."""
    correction: Correction = NoCorrection()
    """What newer observations add to the rows of the plan."""


_VLASH_OVERLAP = 4
_VLASH_LONGEST = 8
"""Rows by which VLASH's own examples roll states forward at most in training."""
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
                when=BeforeStarvation(overlap_rows=_VLASH_OVERLAP),
                inference_delay=_VLASH_OVERLAP,
                model=LastTarget(),
            ),
            sampler=ConstantSchedule(),
            splice=NotBeforePlanned(),
        ),
        "vlash-fixed-overlap-n": Method(
            request=RolledForwardState(
                when=BeforeStarvation(overlap_rows=_VLASH_LONGEST, execution_horizon=_VLASH_LONGEST),
                inference_delay=_VLASH_LONGEST,
                model=LastTarget(),
            ),
            sampler=ConstantSchedule(),
            splice=NotBeforePlanned(),
        ),
        "rtc": Method(request=PreviousChunk(), sampler=RtcGuidance(), splice=TimeAligned()),
        "rtc-identity": Method(
            request=PreviousChunk(), sampler=RtcGuidance(exact_jacobian=False), splice=TimeAligned()
        ),
        "rtc-hard": Method(
            request=PreviousChunk(), sampler=RtcGuidance(mask=SoftMask.HARD), splice=TimeAligned()
        ),
        "bid": Method(request=PreviousChunk(), sampler=BestOfSamples(), splice=TimeAligned()),
        "remac": Method(request=PreviousChunk(), sampler=PrefixPreservedStart(), splice=TimeAligned()),
        "xiaomi": Method(request=PreviousChunk(), sampler=LambdaMaskedPrefix(), splice=TimeAligned()),
        "faster": Method(request=PreviousChunk(), sampler=HorizonAwareSchedule(), splice=TimeAligned()),
        "averaged-samples": Method(
            request=PlainObservation(), sampler=AveragedSamples(), splice=TimeAligned()
        ),
        "a2c2": Method(
            request=PlainObservation(),
            sampler=ConstantSchedule(),
            splice=TimeAligned(),
            correction=PerRowCorrection(),
        ),
    }
)


def method_named(name: str, *, execution_horizon: int | None = None) -> Method:
    """The method of that name, its execution horizon replaced if given; UnknownNameError lists the names.

    A method that asks as soon as possible asks every so many rows instead. One whose overlap is all rows that
    are run, n = o, keeps it so.
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
    match part:
        case StopAndAsk():
            return replace(part, execution_horizon=rows)
        case RolledForwardState(when=BeforeStarvation(overlap_rows=int(o), execution_horizon=n) as when) if (
            o == n
        ):
            when = replace(when, execution_horizon=rows, overlap_rows=rows)
            return replace(part, when=when, inference_delay=rows)
    if isinstance(part.when, BeforeStarvation):
        return replace(part, when=replace(part.when, execution_horizon=rows))
    return replace(part, when=EveryRows(rows=rows))
