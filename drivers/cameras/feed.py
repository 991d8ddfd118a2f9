"""Images of a device, taken as they come by a thread that owns it: `Feed` returns the newest, each once.

device ─► take (its thread; the only one that touches the device) ─► the newest ─► read (waits for it)

So a driver's queue never fills with old images, a device that hangs blocks no other thread, and `close` ends
a `read` that waits.
"""

import atexit
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Thread
from typing import Protocol

import numpy as np

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.shapes import UInt8
from robot_runtime.errors import DriverError, InvalidValueError

logger = logging.getLogger(__name__)

END_S = 1.0
"""How long `close` waits for the device to be released [s]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Shot:
    """An image as the device gave it."""

    pixels: UInt8[np.ndarray, "h w 3"]
    """RGB."""
    t_ns: int
    """Capture time [ns], of this machine's monotonic clock."""


class Source(Protocol):
    """An open device."""

    def take(self, wait: Callable[[float], bool]) -> Shot | None:
        """Return the next image; None: none yet.

        wait: sleeps for a time [s]; returns True if the camera was closed meanwhile.
        ValueError: an invalid image; the next may be valid. Any other error: there will be no more images.
        """
        ...

    def close(self) -> None: ...


class Feed:
    """The newest image of a source."""

    def __init__(self, what: str, opens: Callable[[], Source], *, within_s: float) -> None:
        """Open the source and wait for its first image.

        what: the device in words.
        within_s: how long that may take [s].
        DriverError: it cannot be opened, or gives no image.
        """
        self.what, self._opens = what, opens
        self._changed = Condition()
        self._newest: Shot | ValueError | None = None
        self._number = self._given = 0
        self._error: Exception | None = None
        self._is_closed = False
        self._thread = Thread(target=self._run, name=f"feed of {what}", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # a thread inside the library when Python ends would crash it
        try:
            self.first = self._await_first(within_s)
        except BaseException:
            self._is_closed = True  # the thread releases the device as soon as it can
            atexit.unregister(self.close)
            raise

    def read(self) -> Shot:
        """Wait for an image newer than the last one returned; errors as in `Source.take`."""
        with self._changed:
            self._changed.wait_for(lambda: self._number > self._given or self._is_over)
            if self._number > self._given and not self._is_closed:
                self._given = self._number
                newest = self._newest
                if isinstance(newest, Shot):
                    return newest
                raise ValueError(str(newest))
            raise DriverError(str(self._error) if self._error else f"{self.what} was closed")

    def close(self) -> None:
        """End a waiting `read`, and release the device; may be called twice."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(END_S)
        atexit.unregister(self.close)

    @property
    def _is_over(self) -> bool:
        return self._is_closed or self._error is not None

    def _await_first(self, within_s: float) -> Shot:
        end_s = time.monotonic() + within_s
        with self._changed:
            while not isinstance(self._newest, Shot):
                if self._error is None:
                    self._changed.wait(max(0.0, end_s - time.monotonic()))
                if isinstance(self._newest, Shot):
                    break
                if isinstance(self._error, DriverError | InvalidValueError | ImportError):
                    raise self._error
                if self._error is not None:
                    raise DriverError(f"{self.what}: {self._error}") from self._error
                if time.monotonic() >= end_s:
                    bad = f"; invalid images came: {self._newest}" if self._newest else ""
                    raise DriverError(f"{self.what} gave no image within {within_s:g} s{bad}")
            return self._newest

    def _put(self, newest: Shot | ValueError) -> None:
        with self._changed:
            self._newest, self._number = newest, self._number + 1
            self._changed.notify_all()

    def _wait(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closed, max(0.0, seconds))

    def _run(self) -> None:
        try:
            source = self._opens()
            try:
                while not self._is_closed:
                    self._take_from(source)
            finally:
                with contextlib.suppress(Exception):  # one that has failed may fail to close as well
                    source.close()
        except Exception as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
            logger.debug("%s: %s", self.what, error)

    def _take_from(self, source: Source) -> None:
        try:
            shot = source.take(self._wait)
        except InvalidValueError:
            raise
        except ValueError as error:
            self._put(error)
            return
        if shot is not None:
            self._put(shot)


class DeviceTime:
    """Converts timestamps of a device to capture times on this machine's clock.

        middle of exposure          stamp of the device             arrival here
        |<------- latency --------->|
        |<------------------ latency, where there is no stamp ----->|

    An implausible stamp, in the future or more than `MAX_AGE_NS` old, is ignored.
    """

    MAX_AGE_NS = NS_PER_S

    def __init__(self, latency_s: float) -> None:
        """InvalidValueError: the latency is out of range."""
        if not (isinstance(latency_s, int | float) and -1.0 <= latency_s <= 1.0):
            raise InvalidValueError(
                "latency_s is from the middle of exposure to the stamp, or to the arrival where there is no "
                f"stamp, of -1 to 1 s, got {latency_s!r}"
            )
        self._latency_ns = round(latency_s * NS_PER_S)

    def capture_ns(self, stamp_ns: int | None, arrival_ns: int) -> int:
        """Return the capture time on this machine's monotonic clock [ns]; never after the arrival."""
        is_plausible = stamp_ns is not None and 0 <= arrival_ns - stamp_ns <= self.MAX_AGE_NS
        known_ns = stamp_ns if is_plausible and stamp_ns is not None else arrival_ns
        return min(known_ns - self._latency_ns, arrival_ns)
