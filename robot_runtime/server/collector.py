"""Memory of a serving process: `Collector` collects garbage between the policies' calls, `keep_freed_memory`
lets malloc reuse large blocks.

    policy     |batch|        |batch|              |batch|
    network    asked   answers       asked   answers
    collected         |young|               |young|                 and nothing else

Left to itself it runs in whichever thread makes an object, the policy's too. A round of young objects is
short; a full one takes 0.3 s with large libraries loaded (`robot.scheduling`), in which no robot is answered.
So permanent objects, libraries, networks and the server, are excluded from the start, and what is warmed up
later once all of it is warm; the rest is collected between batches.
"""

import ctypes
import gc
import logging
import sys
from types import TracebackType

YOUNG = 2_000
"""Objects made since the last round that trigger one while no request waits."""
OVERDUE = 100_000
"""Objects that trigger one even while requests wait: some 20 MB."""
OLD_EVERY = 50
"""Rounds of young objects until one of all objects made since the start."""


class Collector:
    """A context in which objects are collected only in `look`, by the thread that calls it."""

    def __init__(self) -> None:
        self._is_on = False
        self._was_enabled = True
        self._num_settled = 0
        self._num_rounds = 0

    def __enter__(self) -> "Collector":
        self._was_enabled = gc.isenabled()
        gc.disable()
        _keep()
        self._is_on = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_on = False
        gc.unfreeze()
        if self._was_enabled:
            gc.enable()

    def look(self, *, is_idle: bool, num_settled: int) -> None:
        """Collect if it is time to.

        is_idle: whether no policy is running. num_settled: how often something permanent was added: a policy
            that is warm as a whole, or one in place of another.
        """
        if not self._is_on:
            return
        if is_idle and num_settled != self._num_settled:
            self._num_settled = num_settled
            _keep()
        num_made = gc.get_count()[0]
        if num_made < (YOUNG if is_idle else OVERDUE):
            return
        self._num_rounds += 1
        gc.collect(2 if is_idle and self._num_rounds % OLD_EVERY == 0 else 1)


def _keep() -> None:
    """Exclude all present objects from collection."""
    gc.collect()
    gc.freeze()


logger = logging.getLogger(__name__)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_MIB = 1024 * 1024


def keep_freed_memory() -> None:
    """Make malloc reuse large blocks instead of returning them to the system; for the whole process.

    The transport takes a fresh block for every image. Returned to the system each time, a 0.9 MB block costs
    225 page faults when it is filled again, more than the socket costs. Only glibc has the setting.
    """
    if not sys.platform.startswith("linux"):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        logger.info("this C library has no mallopt: large messages cost page faults")
        return
    mallopt(_M_MMAP_THRESHOLD, 32 * _MIB)
    mallopt(_M_TRIM_THRESHOLD, 256 * _MIB)
