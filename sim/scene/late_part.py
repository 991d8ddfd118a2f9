"""A part whose motors receive each command after a dead time: `LatePart`."""

from collections import deque
from typing import Any

from robot_runtime.clock import Clock


class LatePart:
    """Delays the commands of a driver by a dead time; lives in the driver's thread.

        write    ──┬────┬────┬────► now
                    ╲    ╲    ╲
        motors   ────┴────┴────┴──►     each command, `dead_ns` later, at the first read or write from then on

    Measurements are not delayed.
    """

    def __init__(self, driver: Any, clock: Clock, dead_ns: int) -> None:
        self._driver, self._clock, self._dead_ns = driver, clock, dead_ns
        self._queue: deque[tuple[int, Any]] = deque()

    @property
    def num_joints(self) -> int:
        """Number of an arm's joints; AttributeError: the part is no arm."""
        num_joints: int = self._driver.num_joints
        return num_joints

    def read(self) -> Any:
        """Read the current state."""
        self._deliver()
        return self._driver.read()

    def write(self, command: Any) -> None:
        """Queue a command."""
        self._queue.append((self._clock.now_ns() + self._dead_ns, command))
        self._deliver()

    def stop(self) -> None:
        """Stop at once and discard queued commands."""
        self._queue.clear()
        self._driver.stop()

    def _deliver(self) -> None:
        while self._queue and self._queue[0][0] <= self._clock.now_ns():
            self._driver.write(self._queue.popleft()[1])
