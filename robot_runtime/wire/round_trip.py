"""What round trips come to, smoothed as TCP does it for its own patience (RFC 6298): `RoundTrip`."""


class RoundTrip:
    """Mean and mean deviation of those that were added, the newest counting most."""

    def __init__(self) -> None:
        self.mean_ns: int | None = None
        self._deviation_ns = 0

    @property
    def slow_ns(self) -> int | None:
        """What hardly one exceeds, unless a packet is lost; None before the first."""
        return None if self.mean_ns is None else self.mean_ns + 4 * self._deviation_ns

    def add(self, took_ns: int) -> None:
        """One more."""
        if self.mean_ns is None:
            self.mean_ns, self._deviation_ns = took_ns, took_ns // 2
            return
        self._deviation_ns += (abs(took_ns - self.mean_ns) - self._deviation_ns) // 4
        self.mean_ns += (took_ns - self.mean_ns) // 8
