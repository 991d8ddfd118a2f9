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
class PlainObservation:
    """Ask with the newest observation while the robot goes on with its plan."""

    execution_horizon: int = 4
    """Rows from one observation to the next, s; more if the answer takes longer."""


@dataclass(frozen=True, kw_only=True)
class PreviousChunk:
    """As `PlainObservation`, and tell the policy what the plan says from the observation on.

    row        0   1  ...  d-1  |  d  ...  n-1  |  n  ...  H-1
    at t_obs   committed prefix |  still open   |  nothing planned yet

    The committed rows will have run before the answer can. What a sampler makes of the open ones is its own
    affair: some ignore them, some are drawn to them (real-time chunking, arXiv 2506.07339).
    """

    execution_horizon: int = 4
    """As in `PlainObservation`."""
    inference_delay: int | None = None
    """Committed rows, d; None takes the measured latency, rounded up to rows."""


RequestPart = StopAndAsk | PlainObservation | PreviousChunk

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

# ---- splice parts: where a chunk goes into the plan ---------------------------------------------------


@dataclass(frozen=True)
class FromRowZero:
    """Row 0 is due when the chunk arrives: right for a robot that waited; others jump back."""


@dataclass(frozen=True)
class TimeAligned:
    """Row 0 is due when the observation was captured, so the rows that are already past drop out."""


SplicePart = FromRowZero | TimeAligned


@dataclass(frozen=True, kw_only=True)
class Method:
    """One row of the table."""

    request: RequestPart
    sampler: SamplerPart
    splice: SplicePart


METHODS = MappingProxyType(
    {
        "synchronous": Method(request=StopAndAsk(), sampler=ConstantSchedule(), splice=FromRowZero()),
        "naive": Method(request=PlainObservation(), sampler=ConstantSchedule(), splice=FromRowZero()),
        "time-aligned": Method(request=PlainObservation(), sampler=ConstantSchedule(), splice=TimeAligned()),
        "committed-prefix": Method(request=PreviousChunk(), sampler=ClampedPrefix(), splice=TimeAligned()),
    }
)


def method_named(name: str, *, execution_horizon: int | None = None) -> Method:
    """The method of that name, its execution horizon replaced if given; UnknownNameError lists the names."""
    if name not in METHODS:
        raise UnknownNameError("method", name, METHODS)
    method = METHODS[name]
    if execution_horizon is None:
        return method
    if execution_horizon < 1:
        raise InvalidValueError(f"an execution horizon is at least 1 row, got {execution_horizon}")
    return replace(method, request=replace(method.request, execution_horizon=execution_horizon))
