"""The table of methods: each published method is a request part x sampler part x splice part.

Some also correct the policy's rows on the robot.

A new method needs one entry and at most one new part. No part knows which method it serves.
"""

from dataclasses import dataclass, field, replace
from types import MappingProxyType

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
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    LambdaMaskedPrefix,
    PrefixPreservedStart,
    RtcGuidance,
    SamplerPart,
    SoftMask,
)
from robot_runtime.core.method.splice_parts import (
    Blend,
    Correction,
    CrossFade,
    FromRowZero,
    NoCorrection,
    NotBeforePlanned,
    PerRowCorrection,
    Replace,
    SplicePart,
    StateMatched,
    TemporalEnsembling,
    TimeAligned,
    WeightedAverage,
)
from robot_runtime.errors import InvalidValueError, UnknownNameError


@dataclass(frozen=True, kw_only=True)
class Method:
    """One entry of the table."""

    request: RequestPart
    sampler: SamplerPart
    splice: SplicePart
    """When row 0 of a chunk is due."""
    blend: Blend = field(default_factory=Replace)
    """How rows blend with an old plan."""
    correction: Correction = field(default_factory=NoCorrection)
    """How newer observations correct the rows of the plan."""


_PIPELINE = FixedExecutionHorizon(rows=2, rows_from_measured=4, max_in_flight=8)
"""Covers a latency of 16 rows. At 400 ms, 60 seeds, `strike` succeeds 37 times asked every 4 rows, 44 every
2, 44 every row, as the delayed expert does (43)."""
_VLASH_OVERLAP = 4
_VLASH_LONGEST = 8
"""Most rows by which VLASH's own examples roll states forward in training."""
METHODS = MappingProxyType(
    {
        "synchronous": Method(request=Synchronous(), sampler=ConstantSchedule(), splice=FromRowZero()),
        "naive": Method(request=PlainObservation(), sampler=ConstantSchedule(), splice=FromRowZero()),
        "time-aligned": Method(request=PlainObservation(), sampler=ConstantSchedule(), splice=TimeAligned()),
        "pipelined-time-aligned": Method(
            request=PlainObservation(when=_PIPELINE), sampler=ConstantSchedule(), splice=TimeAligned()
        ),
        "weighted-average": Method(
            request=PlainObservation(),
            sampler=ConstantSchedule(),
            splice=TimeAligned(),
            blend=WeightedAverage(),
        ),
        "temporal-ensembling": Method(
            request=PlainObservation(when=Continuous()),
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
        "pipelined-prefix": Method(
            request=PreviousChunk(when=_PIPELINE),
            sampler=ClampedPrefix(),
            splice=TimeAligned(),
        ),
        "vlash": Method(request=RolledForwardState(), sampler=ConstantSchedule(), splice=TimeAligned()),
        "vlash-fixed-overlap": Method(
            request=RolledForwardState(
                when=BeforePlanEnds(overlap_rows=_VLASH_OVERLAP),
                inference_delay=_VLASH_OVERLAP,
                model=LastTarget(),
            ),
            sampler=ConstantSchedule(),
            splice=NotBeforePlanned(),
        ),
        "vlash-fixed-overlap-n": Method(
            request=RolledForwardState(
                when=BeforePlanEnds(overlap_rows=_VLASH_LONGEST, execution_horizon=_VLASH_LONGEST),
                inference_delay=_VLASH_LONGEST,
                model=LastTarget(),
            ),
            sampler=ConstantSchedule(),
            splice=NotBeforePlanned(),
        ),
        "rtc": Method(request=PreviousChunk(), sampler=RtcGuidance(), splice=TimeAligned()),
        "pipelined-rtc": Method(
            request=PreviousChunk(when=_PIPELINE), sampler=RtcGuidance(), splice=TimeAligned()
        ),
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
        "pipelined-faster": Method(
            request=PreviousChunk(when=_PIPELINE),
            sampler=HorizonAwareSchedule(),
            splice=TimeAligned(),
        ),
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

    A method that asks as soon as possible asks every `execution_horizon` rows instead. One whose overlap is
    all rows that are run, n = o, keeps n = o.
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
        case Synchronous():
            return replace(part, execution_horizon=rows)
        case RolledForwardState(when=BeforePlanEnds(overlap_rows=int(o), execution_horizon=n) as when) if (
            o == n
        ):
            when = replace(when, execution_horizon=rows, overlap_rows=rows)
            return replace(part, when=when, inference_delay=rows)
    match part.when:
        case BeforePlanEnds() as latest:
            return replace(part, when=replace(latest, execution_horizon=rows))
        case FixedExecutionHorizon() as every:
            return replace(part, when=replace(every, rows=rows, rows_from_measured=None))
    return replace(part, when=FixedExecutionHorizon(rows=rows))
