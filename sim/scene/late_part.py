"""A part whose motors get each command some time after it was written: `LatePart`."""

from collections import deque
from typing import Any

from robot_runtime.clock import Clock


class LatePart:
    """A driver behind a dead time; lives in its thread.

        write    ──┬────┬────┬────► now
                    ╲    ╲    ╲
        motors   ────┴────┴────┴──►     each command, `dead_ns` later, at the first read or write from then on

    It is measured without delay.
    """

    def __init__(self, driver: Any, clock: Clock, dead_ns: int) -> None:
        self._driver, self._clock, self._dead_ns = driver, clock, dead_ns
        self._under_way: deque[tuple[int, Any]] = deque()

    @property
    def num_joints(self) -> int:
        """Of an arm; AttributeError: it is none."""
        num_joints: int = self._driver.num_joints
        return num_joints

    def read(self) -> Any:
        """As it is now."""
        self._let_arrive()
        return self._driver.read()

    def write(self, command: Any) -> None:
        """Send it on its way."""
        self._under_way.append((self._clock.now_ns() + self._dead_ns, command))
        self._let_arrive()

    def stop(self) -> None:
        """Stop at once; what is under way gets lost."""
        self._under_way.clear()
        self._driver.stop()

    def _let_arrive(self) -> None:
        while self._under_way and self._under_way[0][0] <= self._clock.now_ns():
            self._driver.write(self._under_way.popleft()[1])
