"""Logs recurring trouble in few lines: `RateLimitedLog`."""

import logging

from robot_runtime.clock import Clock
from robot_runtime.core.values.action import NS_PER_S

EVERY_NS = 10 * NS_PER_S
"""Each kind of trouble gets a line at once, and then one per this period, with a count."""
_MAX_KINDS = 64


class RateLimitedLog:
    """The log of one part of the server; owned and called by one thread."""

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger, self._clock = logger, clock
        self._kinds: dict[str, tuple[int, int]] = {}  # kind -> (when it was logged, how often since)

    def say(
        self, kind: str, text: str, error: BaseException | None = None, *, level: int = logging.ERROR
    ) -> None:
        """Log a line, with the trace of an exception, unless that kind was logged just before."""
        now_ns = self._clock.now_ns()
        logged_ns, num_since = self._kinds.pop(kind, (None, 0))
        if logged_ns is not None and now_ns < logged_ns + EVERY_NS:
            self._kinds[kind] = logged_ns, num_since + 1
            return
        self._kinds[kind] = now_ns, 0
        if len(self._kinds) > _MAX_KINDS:
            del self._kinds[next(iter(self._kinds))]
        more = f" (and {num_since} times more since the last line)" if num_since else ""
        self._logger.log(level, "%s%s", text, more, exc_info=error)
