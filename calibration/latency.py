"""Delay of a motion after its command: `latency_of`, for a joint, a finger, a base.

sent      ╭╮   ╭╮          correlation of the two at every lag, normalised by what both have there
seen        ╭╮   ╭╮        the lag of its peak is the delay
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, final

import numpy as np

from calibration.correlation import lag_between
from calibration.verdict import Reason, Verdict
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

LONGEST_S = 0.6
"""Longest searched lag [s]."""
EARLIEST_S = -0.1
"""Shortest searched lag [s]: motion before its command is a clock fault, which is reported, not clipped."""
LEAST_CORRELATION = 0.7
LEAST_PEAK_RATIO = 1.05
GAINS = 0.3, 1.5
"""Smallest and largest gain from command to motion for which a delay is meaningful."""


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Delay from command to measured motion."""

    delay_s: float
    gain: float
    """The size of the motion over that of the command."""
    correlation: float
    peak_ratio: float
    """See `calibration.correlation.Lag`."""

    @property
    def problem(self) -> str:
        """Why the delay cannot be trusted; empty if it can."""
        if self.correlation < LEAST_CORRELATION:
            return (
                f"what was seen does not follow what was sent (correlation {self.correlation:.2f}, "
                f"{LEAST_CORRELATION} is needed)"
            )
        if self.peak_ratio < LEAST_PEAK_RATIO:
            return (
                "several delays fit equally well: the motion repeats itself; move only once, or irregularly"
            )
        if not GAINS[0] <= self.gain <= GAINS[1]:
            return f"it moved {100 * self.gain:.0f} % of the commanded distance"
        if self.delay_s < -0.002:
            return f"it was seen {-1e3 * self.delay_s:.0f} ms before it was sent: the two clocks differ"
        return ""


def latency_of(
    sent_s: Float[np.ndarray, "N"],
    sent: Float[np.ndarray, "N *K"],
    seen_s: Float[np.ndarray, "M"],
    seen: Float[np.ndarray, "M *K"],
    *,
    longest_s: float = LONGEST_S,
) -> Latency:
    """Find the delay at which measured motion correlates best with commands.

    sent, seen: one column, or several that move together (the joints of an arm).
    InvalidValueError: nothing moved, or nothing was sent; the best delay is beyond `longest_s`.
    """
    if (
        np.size(sent) < 3
        or np.size(seen) < 3
        or not np.ptp(sent, axis=0).any()
        or not np.ptp(seen, axis=0).any()
    ):
        raise InvalidValueError("nothing moved: there is no delay to be found")
    found = lag_between(sent_s, sent, seen_s, seen, earliest_s=EARLIEST_S, latest_s=longest_s, step_s=0.005)
    if found.is_at_end:
        raise InvalidValueError(
            f"the delay is not between {EARLIEST_S:g} and {longest_s:g} s: the best is at the end, "
            f"{found.lag_s:.3f} s"
        )
    return Latency(
        delay_s=found.lag_s,
        gain=found.gain,
        correlation=found.correlation,
        peak_ratio=min(found.peak_ratio, 1e6),
    )


@final
@dataclass(frozen=True, kw_only=True)
class Latencies:
    """Delays of a robot's parts, by name: the file that `latency_s = "latency.json"` names."""

    KIND: ClassVar[str] = "latencies"
    VERSION: ClassVar[int] = 1
    UNITS: ClassVar[Mapping[str, str]] = {
        "delay_s": "s, from command to motion",
        "gain": "motion over command",
    }
    FRAMES: ClassVar[Mapping[str, str]] = {}

    parts: Mapping[str, Latency]
    residuals: Mapping[str, float] = field(default_factory=dict)
    verdict: Verdict = field(default_factory=Verdict)

    @classmethod
    def of(cls, parts: Mapping[str, Latency]) -> Self:
        """Delays with a verdict: a part whose delay cannot be trusted refuses all."""
        reasons = [
            Reason(
                name="no-delay",
                what=f"{name}: {latency.problem}.",
                do="Move it by itself, at least 0.05 rad, 10 mm or 0.1 m/s, and measure again.",
            )
            for name, latency in parts.items()
            if latency.problem
        ]
        return cls(parts=dict(parts), verdict=Verdict.of(reasons))

    def to_dict(self) -> dict[str, Any]:
        return {
            "parts": {name: {**vars(each)} for name, each in self.parts.items()},
            "residuals": dict(self.residuals),
            "verdict": self.verdict.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            parts={name: Latency(**each) for name, each in data["parts"].items()},
            residuals=data["residuals"],
            verdict=Verdict.from_dict(data["verdict"]),
        )
