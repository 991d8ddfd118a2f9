"""Keys of the terminal, and a pedal, that mark trials where the teleoperator has no buttons."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from robot_runtime.core.orders import Arm, BeginEpisode, EndEpisode, Keep, Order, Outcome, Reset, Stop
from robot_runtime.core.robot import Switch
from robot_runtime.errors import DriverError, InvalidValueError

KEYS: dict[bytes, Order] = {
    b"n": BeginEpisode(),
    b"y": EndEpisode(Outcome.SUCCESS),
    b"f": EndEpisode(Outcome.FAILURE),
    b"x": EndEpisode(Outcome.OPERATOR_ABORT, keep=False),
    b"a": Arm(),
    b"\r": Arm(),
    b"\n": Arm(),
    b"0": Stop(),
    b"R": Reset(),
    b"t": Keep(),
}
HELP = "n begin an episode   y it succeeded   f it failed   x discard it   a arm   0 stop   R reset"
_PERIOD_S = 0.01


class OrderKeys(AbstractContextManager["OrderKeys"]):
    """Reads the terminal, and a pedal, in its own thread; does nothing without either."""

    def __init__(
        self, post: Callable[[Order, str], None], *, reads_terminal: bool, pedal: Switch | None
    ) -> None:
        """
        post: gets each operator command and its origin. reads_terminal: False if another reader does.
        pedal: alternately begins an episode and ends it as SUCCESS.
        """
        from robot_runtime.robot.terminal_key import Terminal

        self._post, self._pedal = post, pedal
        reads = reads_terminal and sys.stdin.isatty()
        self._terminal = Terminal("a key that marks episodes") if reads else None
        self._is_over = self._is_begun = self._was_pressed = False
        self._thread = threading.Thread(target=self._watch, name="order keys", daemon=True)

    def __enter__(self) -> "OrderKeys":
        """Open the terminal. DriverError: there is none."""
        if self._terminal is not None:
            self._terminal.open()
        if self._terminal is not None or self._pedal is not None:
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        if self._thread.ident is not None:
            self._thread.join(1.0)
        if self._terminal is not None:
            self._terminal.close()
        if self._pedal is not None:
            self._pedal.close()

    @property
    def help(self) -> str:
        """Keys and their meanings; empty without a terminal."""
        return HELP if self._terminal is not None else ""

    def ended(self) -> None:
        """Note that the episode has ended by other means, so that the pedal begins the next one."""
        self._is_begun = False

    def _watch(self) -> None:
        while not self._is_over:
            try:
                self._look()
            except DriverError:
                return
            time.sleep(_PERIOD_S)

    def _look(self) -> None:
        if self._terminal is not None:
            struck = self._terminal.read()
            for i in range(len(struck)):
                key = struck[i : i + 1]
                if key in KEYS:
                    self._give(KEYS[key], f"key {key.decode()!r}")
        if self._pedal is not None:
            is_pressed = self._pedal.read()
            if is_pressed and not self._was_pressed:
                order: Order = EndEpisode(Outcome.SUCCESS) if self._is_begun else BeginEpisode()
                self._give(order, "the pedal")
            self._was_pressed = is_pressed

    def _give(self, order: Order, by: str) -> None:
        match order:
            case BeginEpisode():
                self._is_begun = True
            case EndEpisode():
                self._is_begun = False
        with suppress(InvalidValueError):  # the queue is full
            self._post(order, by)
