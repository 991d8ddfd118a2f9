"""Rate at which a client runs its rows, by its own timestamps: `RowRate`.

    observation       step 0            step 20           step 41
                      10.000 s          10.668 s          11.367 s      30 rows a second

A window in which the client waited for rows is slow whatever its rate, so the fastest of several counts.
"""

_STEPS, _WINDOWS = 16, 4
"""Minimum number of steps of a window, and number of windows."""
_FASTEST, _SLOWEST = 1.2, 0.7
"""A rate beyond these shares of the intended one is wrong."""


class RowRate:
    """The rate of one client. Not thread-safe."""

    def __init__(self, dt_s: float) -> None:
        """dt_s: intended spacing of rows."""
        self._dt_s = dt_s
        self._since: tuple[float, int] | None = None
        self._rates: list[float] = []

    def take(self, timestamp: float, timestep: int) -> float | None:
        """Note an observation made at this time [s], after this many steps. Returns the rate in rows per
        second, once, if it is not the intended one."""
        since_s, since_step = self._since or (timestamp, timestep)
        if timestamp < since_s or timestep < since_step:
            since_s, since_step = timestamp, timestep
        self._since = since_s, since_step
        if len(self._rates) >= _WINDOWS or timestep < since_step + _STEPS or timestamp == since_s:
            return None
        self._since = timestamp, timestep
        self._rates.append((timestep - since_step) / (timestamp - since_s))
        if len(self._rates) < _WINDOWS or _SLOWEST <= max(self._rates) * self._dt_s <= _FASTEST:
            return None
        return max(self._rates)
