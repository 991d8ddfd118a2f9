"""Why a robot stands still: `Standstill` counts what became of its requests since a row last ran."""

from dataclasses import dataclass

from robot_runtime.core.action import NS_PER_MS, NS_PER_S, ActionSpec
from robot_runtime.core.latency import COMMITMENT_QUANTILE, LatencyEstimator
from robot_runtime.core.open_requests import PartOutcome

PATIENCE_NS = 3 * NS_PER_S
"""A robot that has stood for so long says why."""


@dataclass(kw_only=True)
class Standstill:
    """What the executor has asked since its last row ran, and what came of it."""

    asked: int = 0
    failed: int = 0
    """Expired, dropped, refused, or lost with the server."""
    invalid: int = 0
    late: int = 0
    """Answers of which no row was still to come."""

    def ended(self, outcome: PartOutcome) -> None:
        """Note what became of an answer's last part."""
        match outcome:
            case PartOutcome.RUNS:
                self.asked = self.failed = self.invalid = self.late = 0
            case PartOutcome.LATE:
                self.late += 1
            case PartOutcome.INVALID:
                self.invalid += 1

    def reason(self, spec: ActionSpec, latency: LatencyEstimator, *, deadline_ns: int) -> str:
        """One sentence: what keeps the robot from moving, and what would help."""
        if self.asked == 0:
            return "nothing has been asked: there is no server or no picture to ask with"
        if self.invalid:
            return (
                f"{self.invalid} of {self.asked} answers were refused: not chunks of {spec.horizon} x "
                f"{spec.dim} finite numbers; the server's policy is not the one that it announced"
            )
        if self.late:
            took_ns = latency.latency_ns(COMMITMENT_QUANTILE)
            took = "take" if took_ns is None else f"take {took_ns / NS_PER_MS:.0f} ms, so they"
            return (
                f"answers {took} come when their last row is past: a chunk lasts "
                f"{(spec.horizon - 1) * spec.dt_ns / NS_PER_MS:.0f} ms; --method synchronous waits for them "
                "standing still and runs all their rows"
            )
        if self.failed:
            return (
                f"{self.failed} of {self.asked} requests failed and none was answered; what the server says "
                "of them is above, or in its own log"
            )
        return (
            f"no answer has come to {self.asked} requests; each is given up after "
            f"{deadline_ns / NS_PER_S:g} s: the server is too slow or overloaded, or the link too thin for "
            "the pictures (`PolicyClient(jpeg_quality=90)` makes them small)"
        )
