"""The clock of the shells; the core never reads one."""

import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock that can be waited on. `sim.scene.clock.SimClock` is the other implementation."""

    def now_ns(self) -> int:
        """Return the time [ns]; it never goes back."""
        ...

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return at or after the deadline; at once if it has passed."""
        ...


class MonotonicClock:
    """The robot's own monotonic clock."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def sleep_until_ns(self, deadline_ns: int) -> None:
        while (remaining := deadline_ns - time.monotonic_ns()) > 0:
            time.sleep(remaining / 1e9)
