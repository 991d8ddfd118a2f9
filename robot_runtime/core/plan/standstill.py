"""Explains why a robot is stationary: `Standstill` counts request outcomes since a row last ran."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from robot_runtime.core.method.latency import COMMITMENT_QUANTILE, LatencyEstimator
from robot_runtime.core.plan.answers import PartOutcome
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S, ActionSpec

PATIENCE_NS = 3 * NS_PER_S
"""A robot that has been stationary for this long reports why."""


@dataclass(kw_only=True)
class Standstill:
    """Requests since the last row ran, and their outcomes; every request counts once."""

    waiting: dict[int, int] = field(default_factory=dict)
    """Requests whose answers are still to come, oldest first: request id -> when it was asked [ns]."""
    failed: int = 0
    """Requests that expired, were dropped or refused, or were lost with the server."""
    invalid: int = 0
    """Answers that were refused."""
    why_far: str = ""
    """Where the rows of the last of those lie, if far outside the robot's ranges."""
    is_server_gone: bool = False
    """Whether the server was lost, and nothing has been asked since."""
    late: int = 0
    """Answers whose rows were all past."""

    @property
    def asked(self) -> int:
        """Number of requests, without those whose answers the robot did not run for a reason of its own."""
        return len(self.waiting) + self.failed + self.invalid + self.late

    def begin(self, request_id: int, now_ns: int) -> None:
        """Note that a request goes out."""
        self.waiting[request_id], self.is_server_gone = now_ns, False

    def fail(self, request_ids: Iterable[int]) -> None:
        """Note that no answers will come to these."""
        self.failed += sum(self.waiting.pop(i, None) is not None for i in list(request_ids))

    def ended(self, request_id: int, outcome: PartOutcome) -> None:
        """Note the outcome of a part of an answer; an outcome that is not final is ignored."""
        if outcome in (PartOutcome.WAITS, PartOutcome.UNKNOWN, PartOutcome.OUT_OF_ORDER, PartOutcome.STOPPED):
            return
        was_waiting = self.waiting.pop(request_id, None) is not None
        match outcome:
            case PartOutcome.RUNS | PartOutcome.NOT_ARMED:
                self.failed = self.invalid = self.late = 0
            case PartOutcome.LATE:
                self.late += was_waiting
            case PartOutcome.INVALID | PartOutcome.FAR:
                self.invalid += was_waiting

    def reason(
        self,
        spec: ActionSpec,
        latency: LatencyEstimator,
        *,
        now_ns: int,
        deadline_ns: int,
        is_over: bool = False,
    ) -> str:
        """One sentence: what keeps the robot from moving, and what would help.

        is_over: the run has ended, and nothing more can come.
        """
        if self.asked == 0:
            missing = "there is no server or no image to ask with"
            return f"nothing has been asked: {'the run was too short, or ' if is_over else ''}{missing}"
        if self.is_server_gone:
            return "the server is gone: nothing can be asked until it is back"
        if self.invalid and self.why_far:
            return f"{self.invalid} of {self.asked} answers were refused: {self.why_far}"
        if self.invalid:
            return (
                f"{self.invalid} of {self.asked} answers were refused: not chunks of {spec.horizon} x "
                f"{spec.dim} finite numbers; the server's policy is not the one that it announced"
            )
        if self.late:
            return _too_late(spec, latency)
        if self.failed:
            return (
                f"{self.failed} of {self.asked} requests failed and none was answered; the server's reasons "
                "are above, or in its own log"
            )
        waited_s = (now_ns - min(self.waiting.values())) / NS_PER_S
        if is_over:
            return (
                f"the run ended {waited_s:.1f} s after the robot had first asked, before the answer came; a "
                "longer run (--duration-s) or a quicker server would let it move"
            )
        return (
            f"no answer has come to {self.asked} requests, to the oldest for {waited_s:.1f} s; each is given "
            f"up after {deadline_ns / NS_PER_S:g} s: the server is too slow or overloaded, or the link too "
            "thin for the images (`PolicyClient(jpeg_quality=90)` makes them small)"
        )


def _too_late(spec: ActionSpec, latency: LatencyEstimator) -> str:
    took_ns = latency.latency_ns(COMMITMENT_QUANTILE)
    took = "take" if took_ns is None else f"take {took_ns / NS_PER_MS:.0f} ms, so they"
    return (
        f"answers {took} come when their last row is past: a chunk lasts "
        f"{(spec.horizon - 1) * spec.dt_ns / NS_PER_MS:.0f} ms; --method synchronous waits for them "
        "at rest and runs all their rows"
    )
