"""The process that communicates with a Franka gripper; moves run in separate threads, as they block."""

import logging
import signal
import sys
import time
from threading import Thread
from typing import Any

import msgspec

from drivers.child import SLOT, LifeLine, Newest
from drivers.franka.messages import GripperConfig, GripperOrder, GripperReport

logger = logging.getLogger(__name__)

_LOOK_S = 0.005
_SAME = 0.001
"""Widths that differ by less are equal [m]."""
_ANY = 1.0
"""Tolerance with which contact at any width counts as a grasp [m]."""


class GripperLoop:
    """The loop of the process; `franky` is the library."""

    def __init__(self, franky: Any, config: GripperConfig, descriptor: int) -> None:
        self._franky, self._config = franky, config
        self._orders = Newest(GripperOrder, descriptor)
        self._reports: Newest[GripperReport] = Newest(GripperReport, descriptor, 2 * SLOT)
        self._hand = franky.Gripper(config.host)
        self._going: float | None = None
        """Target width of the current or the last move; None: stopped."""
        self._width = self._max_width = 0.0
        self._number, self._is_moving = 0, False
        """Number of the last move; whether it is in progress."""

    def run(self, life: LifeLine) -> None:
        """Run until the life line is cut."""
        while not life.is_cut():
            state, t_ns = self._hand.state, time.monotonic_ns()
            self._width, self._max_width = state.width, state.max_width
            report = GripperReport(
                t_ns=t_ns, width=state.width, max_width=state.max_width, is_moving=self._is_moving
            )
            self._reports.put(report)
            self._execute()
            time.sleep(_LOOK_S)

    def end(self) -> None:
        """Stop a move in progress; the grip is kept."""
        if self._is_moving:
            self._is_moving, self._going = False, None
            self._hand.stop()

    def _execute(self) -> None:
        newest = self._orders.get()
        aim = newest[1].width if newest is not None else None
        if aim is None:
            self.end()
            self._going = None
            return
        aim = min(max(aim, 0.0), self._max_width)
        if self._is_moving:
            if self._is_elsewhere(aim):
                self.end()
            return
        if self._going is None or abs(aim - self._going) > _SAME:
            self._going, self._is_moving, self._number = aim, True, self._number + 1
            move = Thread(target=self._go, args=(aim, aim < self._width, self._number), daemon=True)
            move.start()

    def _is_elsewhere(self, aim: float) -> bool:
        """Whether a move in progress goes in the wrong direction."""
        going, width = self._going, self._width
        return going is not None and (aim - width) * (going - width) < 0.0 and abs(aim - width) > 5 * _SAME

    def _go(self, width: float, is_closing: bool, number: int) -> None:
        """Open to a width, or close to it with force on what is between the fingers; waits for the hand.

        The call of a stopped move may return late, or never: it no longer counts.
        """
        speed = self._config.speed
        try:
            if is_closing:
                self._hand.grasp(width, speed, self._config.force, _ANY, _ANY)
            else:
                self._hand.move(width, speed)
        except self._franky.Exception as error:
            logger.info("%s: hand: %s", self._config.host, error)  # stopped, or nothing to hold
        if number == self._number:
            self._is_moving = False


def main(text: str, descriptor: str) -> None:
    """config: a `GripperConfig` as JSON; descriptor: of the memory shared with the parent."""
    life = LifeLine()
    signal.signal(signal.SIGTERM, lambda *_: life.cut())
    config = msgspec.json.decode(text, type=GripperConfig)
    import franky

    try:
        loop = GripperLoop(franky, config, int(descriptor))
    except franky.Exception as error:
        sys.stdout.write(f"{type(error).__name__}: {error}")
        sys.exit(1)
    try:
        loop.run(life)
    except franky.Exception as error:
        logger.error("%s: the hand is gone: %s", config.host, error)
        sys.exit(1)
    finally:
        loop.end()
