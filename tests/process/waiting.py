"""Waits for what other threads and processes do, and finds a free port for a server that comes back."""

import socket
import time
from collections.abc import Callable

WITHIN_S = 60.0


def wait_until[T](condition: Callable[[], T], within_s: float = WITHIN_S) -> T:
    """The first true value of a condition; fails if there is none in time."""
    deadline_s = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"it is not so after {within_s:g} s"
        time.sleep(0.002)
    return found


def free_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
