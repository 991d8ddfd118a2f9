"""The robot's clock on a machine that others use too: it stands still while the robot is not let run.

robot's thread looks   |  |  |                     |  |  |
the machine's clock    0  2  4 . . . . . . . . . 250 252 254 ms
the patient clock      0  2  4 . . 24 (held) . .  24  26  28 ms

So a busy machine makes a real-time run take longer, and not go otherwise.
"""

import threading
import time

LONGEST_NS = 20_000_000
"""Between two looks of the robot's thread; more was a pause."""
WAITS_NS = 1_000_000_000
"""Who has not looked for so long waits for others, and time goes on for them."""
_NAP_S = 0.005
"""Far less than that."""


class PatientTime:
    """Time as the thread that made it lives it; other threads of the process see the same, and never more."""

    def __init__(self) -> None:
        self._owner, self._lock = threading.get_ident(), threading.Lock()
        self._last_ns = self._seen_ns = time.monotonic_ns()
        self._paused_ns = 0

    def now_ns(self) -> int:
        with self._lock:
            now_ns = time.monotonic_ns() - self._paused_ns
            latest_ns = max(self._last_ns + LONGEST_NS, self._seen_ns)
            if threading.get_ident() == self._owner:
                self._paused_ns += max(0, now_ns - latest_ns)
                self._last_ns = min(now_ns, latest_ns)
                return self._last_ns
            if now_ns - self._last_ns > WAITS_NS:
                self._seen_ns = now_ns
            return min(now_ns, max(latest_ns, self._seen_ns))

    def sleep_until_ns(self, deadline_ns: int) -> None:
        while (remaining_ns := deadline_ns - self.now_ns()) > 0:
            time.sleep(min(remaining_ns / 1e9, _NAP_S))
