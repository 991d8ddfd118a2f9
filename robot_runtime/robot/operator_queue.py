"""The queue of operator commands: `OperatorQueue` executes them at the start of a tick, oldest first.

any thread       post(order, by) ─┬► deque
                                  └► slot of one, for `Stop`: the latest
control thread                      take(now_ns) ─► done or refused ─► RunRecord.orders, the run's log

A flood of orders neither holds up the loop, which executes a few in a tick, nor delays a `Stop`, which the
next tick executes first.
"""

from collections import deque
from collections.abc import Callable
from itertools import count

from robot_runtime.clock import Clock
from robot_runtime.core.orders import Arm, HandBack, Order, Reset, Stop, TakenOrder, TakeOver, check_order
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.robot.counted_log import Logbook
from robot_runtime.robot.telemetry import RunRecord

MAX_A_TICK = 20
"""Operator commands that are executed in one tick; the rest wait for the next."""
MAX_WAITING = 200
"""Operator commands other than `Stop` that may wait; more are refused."""
_Posted = tuple[int, Order, str, int]
"""Its number, the command, its sender, and when it was posted [ns]."""
_OVERRULED = (Arm, Reset, TakeOver, HandBack)
"""Commands that could start motion again are refused if a stop was posted after them."""


class OperatorQueue:
    """A queue that any thread posts to and the control thread takes from."""

    def __init__(
        self,
        clock: Clock,
        record: RunRecord,
        log: Logbook,
        *,
        do: Callable[[Order, str, int], None],
    ) -> None:
        """
        do: executes an order of a sender at a time [ns], on the control thread; RobotRuntimeError or
            ValueError: it cannot, with a message for the operator.
        """
        self._clock, self._record, self._log, self._do = clock, record, log, do
        self._numbers = count()
        self._posted: deque[_Posted] = deque()
        self._stop: deque[_Posted] = deque(maxlen=1)
        self.listeners: list[Callable[[TakenOrder], None]] = []
        """Called with each order after it was done or refused, on the control thread."""

    def post(self, order: Order, by: str) -> None:
        """Post an order; from any thread, never waits. InvalidValueError: it is no order, or too many
        wait."""
        check_order(order, by)
        if isinstance(order, Stop):
            self._stop.append((next(self._numbers), order, by, self._clock.now_ns()))
            return
        if len(self._posted) >= MAX_WAITING:
            raise InvalidValueError(f"{type(order).__name__} is not taken: {MAX_WAITING} orders wait already")
        self._posted.append((next(self._numbers), order, by, self._clock.now_ns()))

    def take(self, now_ns: int) -> None:
        """Execute what has been posted, a `Stop` first; the rest waits for the next tick."""
        stop = self._stop.popleft() if self._stop else None
        if stop is not None:
            _, order, by, posted_ns = stop
            self._take(order, by, posted_ns, now_ns)
        waiting = [self._posted.popleft() for _ in range(len(self._posted))]
        left: list[_Posted] = []
        for posted in waiting:
            number, order, by, posted_ns = posted
            if stop is not None and number < stop[0] and isinstance(order, _OVERRULED):
                self._take(order, by, posted_ns, now_ns, refused="a stop was ordered after it")
            else:
                left.append(posted)
        for _, order, by, posted_ns in left[:MAX_A_TICK]:
            self._take(order, by, posted_ns, now_ns)
        self._posted.extendleft(reversed(left[MAX_A_TICK:]))

    def do(self, order: Order, by: str, now_ns: int) -> TakenOrder:
        """Execute this one now, ahead of the queue; on the control thread."""
        return self._take(order, by, now_ns, now_ns)

    def _take(self, order: Order, by: str, posted_ns: int, now_ns: int, refused: str = "") -> TakenOrder:
        try:
            if not refused:
                self._do(order, by, now_ns)
        except (RobotRuntimeError, ValueError) as error:
            refused = str(error)
        taken = TakenOrder(order=order, by=by, posted_ns=posted_ns, done_ns=now_ns, refused=refused)
        self._record.orders.append(taken)
        self._log.say(f"order: {taken}", is_routine=not refused)
        for listener in self.listeners:
            listener(taken)
        return taken
