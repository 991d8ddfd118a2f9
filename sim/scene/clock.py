"""The virtual clock: a minute of robot time takes as long as its computations, and no longer."""


class SimClock:
    """Time that passes only when somebody sleeps; a `robot_runtime.clock.Clock` for one thread.

    All parts of a simulated run share one clock: whoever owns the loop sleeps, everybody else reads.
    """

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = int(start_ns)

    def now_ns(self) -> int:
        """Time [ns]; changes only by `sleep_until_ns`."""
        return self._now_ns

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Make it `deadline_ns`; does nothing if that has passed, for a clock never goes back."""
        self._now_ns = max(self._now_ns, int(deadline_ns))
