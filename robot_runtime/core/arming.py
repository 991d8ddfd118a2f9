"""Decides when the operator may arm the robot, that is, let it move: `Arming`.

    answers are requested and checked, none is run          operator arms      rows run
    ----●--------●--------●------------------●------------------●------●-------------------
     1 of 3   2 of 3   3 of 3            keeps coming               the next chunk

A robot with `ArmingRules` is not armed at first, nor after a STOP or a reset. A HOLD leaves it armed: the
plan ended, or the server was gone for a while and came back with the same policy, which needs no operator. A
server that comes back with another policy ends the run; the next one begins unarmed.
"""

from dataclasses import dataclass

from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.errors import InvalidValueError

KEEP_ALIVE_NS = NS_PER_S // 4
"""How often an unarmed robot with enough chunks asks again, to know that its policy is alive."""
OLD_NS = NS_PER_S
"""A policy without a chunk for this long, beyond twice its latency, counts as not alive."""


@dataclass(frozen=True, kw_only=True)
class ArmingRules:
    """Conditions for arming a robot."""

    fresh_chunks: int = 3
    """Chunks that must have come in a row, without a failure in between; 0: there is no policy."""
    latency_quantile: float = 0.95
    """The quantile of the last latencies that is compared with the budget."""
    latency_budget_s: float | None = None
    """The most that this quantile may be [s]. None: as long as rows of a chunk are still to come; methods
    that start a chunk when it arrives have no such budget."""

    def __post_init__(self) -> None:
        if self.fresh_chunks < 0:
            raise InvalidValueError(f"expected fresh_chunks of 0 or more, got {self.fresh_chunks}")
        if not 0.0 <= self.latency_quantile <= 1.0:
            raise InvalidValueError(f"expected latency_quantile from 0 to 1, got {self.latency_quantile}")
        if self.latency_budget_s is not None and not self.latency_budget_s > 0.0:
            raise InvalidValueError(
                f"expected latency_budget_s above 0, or None, got {self.latency_budget_s}"
            )


class Arming:
    """Whether the robot is armed, and what is missing if it is not."""

    def __init__(self, rules: ArmingRules | None, *, budget_ns: int | None) -> None:
        """
        rules: None: the robot is always armed.
        budget_ns: latency budget where the rules give none [ns]; None: any latency will do.
        """
        self._rules = rules
        self._budget_ns = budget_ns
        if rules is not None and rules.latency_budget_s is not None:
            self._budget_ns = round(rules.latency_budget_s * NS_PER_S)
        self.is_armed = rules is None
        self._num_fresh = 0
        self._came_ns: int | None = None
        self._asked_ns: int | None = None

    def disarm(self) -> None:
        """Require the operator to arm again."""
        self.is_armed = self._rules is None

    def begin_anew(self) -> None:
        """Disarm after a reset and require fresh chunks again."""
        self.disarm()
        self.forget_chunks()

    def forget_chunks(self) -> None:
        """Require fresh chunks before the operator can arm."""
        self._num_fresh = 0
        self._came_ns = self._asked_ns = None

    def arm(self) -> None:
        """Arm; the caller has checked `missing`."""
        self.is_armed = True

    def is_due(self, now_ns: int, dt_ns: int) -> bool:
        """Whether an unarmed robot should ask now: a row's time apart, less often once the policy is
        alive."""
        if self._asked_ns is None:
            return True
        is_alive = self._rules is None or self._num_fresh >= self._rules.fresh_chunks
        return now_ns >= self._asked_ns + (max(dt_ns, KEEP_ALIVE_NS) if is_alive else dt_ns)

    def asked(self, now_ns: int) -> None:
        """Note that a request goes out."""
        self._asked_ns = now_ns

    def answered(self, now_ns: int) -> None:
        """Note that a whole valid chunk has come."""
        self._num_fresh, self._came_ns = self._num_fresh + 1, now_ns

    def failed(self) -> None:
        """Note that a request failed: fresh chunks count from 0 again."""
        self._num_fresh = 0

    def missing(self, latency: LatencyEstimator, now_ns: int) -> str:
        """What prevents arming, in a sentence; empty if nothing does."""
        if self._rules is None:
            return ""
        if self._num_fresh < self._rules.fresh_chunks:
            return f"{self._num_fresh} of {self._rules.fresh_chunks} fresh chunks have come"
        late_ns = latency.latency_ns(self._rules.latency_quantile)
        if self._came_ns is not None and (age_ns := now_ns - self._came_ns) > OLD_NS + 2 * (late_ns or 0):
            return f"the newest chunk came {age_ns / NS_PER_S:.1f} s ago: the policy does not answer"
        if late_ns is not None and self._budget_ns is not None and late_ns > self._budget_ns:
            percent = f"{100 * self._rules.latency_quantile:g}"
            return (
                f"answers are too late: latency p{percent} {late_ns / NS_PER_MS:.0f} ms, budget "
                f"{self._budget_ns / NS_PER_MS:.0f} ms"
            )
        return ""
