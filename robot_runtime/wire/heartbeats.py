"""When a robot sends heartbeats, and how long its server may be silent: `Heartbeats`.

The timeout (patience) follows the round trip R of the heartbeats and its deviation D, smoothed as TCP does it
(RFC 6298), which delays everything behind a lost packet:

    patience = 2 s + 8 (R + 4 D), at most 30 s           heartbeats every max(the server's wish, R / 4)

A server that ends, or is killed, breaks its connection, which is noticed at once; the timeout is for servers
that hang and cables that are cut. Silence is counted in heartbeats sent, not in elapsed time: a
client that was suspended or starved of CPU first sends a heartbeat and judges afterwards.

Heartbeats that wait behind an image arrive all at once, and so do their answers: there may not be more of
them than a peer may have waiting, or rows are lost behind them. So the longer nothing returns, the fewer
are sent: beyond FREELY in flight, each is sent once the time since the first of them has doubled.
"""

from collections import deque

from robot_runtime.core.values.action import NS_PER_S

MIN_PATIENCE_NS, MAX_PATIENCE_NS = 2 * NS_PER_S, 30 * NS_PER_S
MAX_PACE_NS = NS_PER_S
FREELY = 6
"""As many may be in flight at any time; usually there are four."""
_KEPT = 64  # heartbeats whose answers give the round trip; the timeout comes first


class Heartbeats:
    """The heartbeats of one session, from its Welcome on."""

    def __init__(self, wish_ns: int, now_ns: int) -> None:
        """wish_ns: the interval that the server requests."""
        self.next_ns = now_ns
        """When the next heartbeat is due."""
        self.silent_ns = 0
        """How long the server has been silent."""
        self._wish_ns = wish_ns
        self._looked_ns = now_ns
        self._unanswered: deque[int] = deque(maxlen=_KEPT)  # when they were sent
        self._mean_ns: int | None = None  # of round trips
        self._deviation_ns = 0

    @property
    def patience_ns(self) -> int:
        """The longest silence of the server."""
        if self._mean_ns is None:
            return MAX_PATIENCE_NS
        return min(MIN_PATIENCE_NS + 8 * (self._mean_ns + 4 * self._deviation_ns), MAX_PATIENCE_NS)

    def look(self, now_ns: int) -> bool:
        """Count the silence up to now; return whether it exceeds the timeout."""
        step_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        if self._unanswered:
            self.silent_ns += min(step_ns, 2 * self._pace_ns())
        return self.silent_ns >= self.patience_ns

    def heard(self, now_ns: int) -> None:
        """Note a sign of life."""
        self.silent_ns, self._looked_ns = 0, now_ns

    def beat(self, now_ns: int) -> bool:
        """Handle a due heartbeat; return whether to send it, or False if enough are in flight."""
        self.next_ns = now_ns + self._pace_ns()
        under_way = self._unanswered
        if len(under_way) >= FREELY and now_ns - under_way[-1] < under_way[-1] - under_way[0]:
            return False
        under_way.append(now_ns)
        return True

    def answered(self, t_ns: int, now_ns: int) -> bool:
        """Take the answer to the heartbeat of that time; return False if there was none."""
        if t_ns not in self._unanswered:
            return False
        while self._unanswered and self._unanswered[0] <= t_ns:
            self._unanswered.popleft()
        took_ns = max(now_ns - t_ns, 0)
        if self._mean_ns is None:
            self._mean_ns, self._deviation_ns = took_ns, took_ns // 2
        else:
            self._deviation_ns += (abs(took_ns - self._mean_ns) - self._deviation_ns) // 4
            self._mean_ns += (took_ns - self._mean_ns) // 8
        return True

    def _pace_ns(self) -> int:
        """Return the interval between heartbeats."""
        return min(max(self._wish_ns, (self._mean_ns or 0) // 4), max(self._wish_ns, MAX_PACE_NS))
