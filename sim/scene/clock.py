"""The virtual clock: robot time passes as fast as it is computed."""


class SimClock:
    """A `robot_runtime.clock.Clock` for one thread whose time passes only in `sleep_until_ns`.

    All parts of a simulated run share one clock: the owner of the loop sleeps, the others read.
    """

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = int(start_ns)

    def now_ns(self) -> int:
        """Current time [ns]."""
        return self._now_ns

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Advance to `deadline_ns`; does nothing if that has passed."""
        self._now_ns = max(self._now_ns, int(deadline_ns))
