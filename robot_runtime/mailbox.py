"""Hand-over between threads: `Mailbox` for the newest value, `Doorbell` to wake a thread that sleeps in poll.

any thread:  mailbox.put(value); doorbell.ring()        owner:  poll(socket, doorbell); doorbell.clear();
                                                                mailbox.take()
"""

import contextlib
import os
from threading import Lock, RLock


class Mailbox[T]:
    """Holds the newest value only. Any thread may put, take or peek; none of these waits."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._value: T | None = None

    def put(self, value: T) -> T | None:
        """Leave a value, not None; return the value that it replaced, if that was not taken."""
        with self._lock:
            replaced, self._value = self._value, value
        return replaced

    def take(self) -> T | None:
        """Return the newest value, once; None if there is none since the last take."""
        with self._lock:
            value, self._value = self._value, None
        return value

    def peek(self) -> T | None:
        """Return the newest value without taking it."""
        with self._lock:
            return self._value


class Doorbell:
    """A file that becomes readable. Any thread or signal handler may ring; its owner polls and clears."""

    def __init__(self) -> None:
        self._is_closed = False
        self._lock = RLock()  # a signal handler may ring in the middle of a ring
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)

    def fileno(self) -> int:
        """Return the descriptor to poll for reading."""
        return self._read_fd

    def ring_fileno(self) -> int:
        """Return a descriptor on which any byte rings; for `signal.set_wakeup_fd`."""
        return self._write_fd

    def ring(self) -> None:
        """Wake the owner; a doorbell that rings already keeps ringing, a closed one stays silent."""
        with self._lock, contextlib.suppress(BlockingIOError):
            if not self._is_closed:
                os.write(self._write_fd, b"!")

    def clear(self) -> None:
        """Stop ringing; call it before looking for what the doorbell announced."""
        try:
            os.read(self._read_fd, 4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the file; called by the owner."""
        with self._lock:  # or a late ring would write into whatever gets the number next
            self._is_closed = True
            os.close(self._read_fd)
            os.close(self._write_fd)
