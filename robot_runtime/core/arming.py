"""Who lets the robot move, and what has to be there before she may: `Arming`.

    answers are asked for and checked, none is run            a person arms      rows run
    ----●--------●--------●------------------●------------------●------●-------------------
     1 of 3   2 of 3   3 of 3            keeps coming               the next chunk

A robot with `ArmingRules` is not armed at first, nor after a STOP or a reset. A HOLD leaves it armed: the
plan ended, or the server was gone for a while and came back with the same policy, and nobody has to walk to
the robot for that. A server that comes back with another policy ends the run; the next one begins unarmed.
"""

from dataclasses import dataclass

from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.errors import InvalidValueError

KEEP_ALIVE_NS = NS_PER_S // 4
"""How often a robot that may be armed is answered, so that its policy is known to be alive."""
OLD_NS = NS_PER_S
"""A policy that has given no chunk for so long, beyond twice its latency, is not alive."""


@dataclass(frozen=True, kw_only=True)
class ArmingRules:
    """What has to be there before a robot may be armed."""

    fresh_chunks: int = 3
    """Chunks that have come one after the other, none failed in between; 0: there is no policy."""
    latency_quantile: float = 0.95
    """Of the last latencies, by which they are judged."""
    latency_budget_s: float | None = None
    """The most that this quantile may be [s]. None: as long as rows of a chunk are still to come; methods
    that start a chunk when it arrives have no such budget."""

    def __post_init__(self) -> None:
        if self.fresh_chunks < 0:
            raise InvalidValueError(f"fresh_chunks is 0 or more, got {self.fresh_chunks}")
        if not 0.0 <= self.latency_quantile <= 1.0:
            raise InvalidValueError(f"latency_quantile is between 0 and 1, got {self.latency_quantile}")
        if self.latency_budget_s is not None and not self.latency_budget_s > 0.0:
            raise InvalidValueError(f"latency_budget_s is above 0, or None, got {self.latency_budget_s}")


class Arming:
    """Whether the robot is armed, and what is missing if it is not."""

    def __init__(self, rules: ArmingRules | None, *, budget_ns: int | None) -> None:
        """
        rules: None: it is armed, always.
        budget_ns: of the plan, where the rules name none [ns]; None: any latency will do.
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
        """A person has to arm again."""
        self.is_armed = self._rules is None

    def begin_anew(self) -> None:
        """The robot was reset: chunks have to come again, too."""
        self.disarm()
        self.forget_chunks()

    def forget_chunks(self) -> None:
        """Chunks have to come again before a person arms."""
        self._num_fresh = 0
        self._came_ns = self._asked_ns = None

    def arm(self) -> None:
        """A person has armed; whoever calls has looked at `missing`."""
        self.is_armed = True

    def is_due(self, now_ns: int, dt_ns: int) -> bool:
        """Whether to ask a policy that nobody runs yet: a row's time apart, more seldom once it is alive."""
        if self._asked_ns is None:
            return True
        is_alive = self._rules is None or self._num_fresh >= self._rules.fresh_chunks
        return now_ns >= self._asked_ns + (max(dt_ns, KEEP_ALIVE_NS) if is_alive else dt_ns)

    def asked(self, now_ns: int) -> None:
        """A request goes out."""
        self._asked_ns = now_ns

    def answered(self, now_ns: int) -> None:
        """A whole chunk has come that could be run."""
        self._num_fresh, self._came_ns = self._num_fresh + 1, now_ns

    def failed(self) -> None:
        """A request came to nothing: the chunks are counted anew."""
        self._num_fresh = 0

    def missing(self, latency: LatencyEstimator, now_ns: int) -> str:
        """What keeps the robot from being armed, in a sentence; empty: nothing."""
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
