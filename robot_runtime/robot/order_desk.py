"""Where orders wait for the control thread: `OrderDesk` does them at the start of a tick, oldest first.

any thread       post(order, by) ─► deque
control thread                      take(now_ns) ─► done or refused ─► RunRecord.orders, the run's log

Whoever floods it neither holds up the loop, which does a few in a tick, nor a `Stop`, which waits for none.
"""

from collections import deque
from collections.abc import Callable

from robot_runtime.clock import Clock
from robot_runtime.core.orders import Arm, HandBack, Order, Reset, Stop, TakenOrder, TakeOver, check_order
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.robot.notices import Logbook
from robot_runtime.robot.telemetry import RunRecord

MAX_A_TICK = 20
"""Orders that are done in one tick; the rest wait for the next."""
MAX_WAITING = 200
"""Orders that wait; others than `Stop` are refused while there are so many."""
_OVERRULED = (Arm, Reset, TakeOver, HandBack)
"""What could set the robot in motion again is not done after a stop that was ordered later."""


class OrderDesk:
    """Anybody posts, the control thread takes."""

    def __init__(
        self,
        clock: Clock,
        record: RunRecord,
        log: Logbook,
        *,
        do: Callable[[Order, str, int], None],
    ) -> None:
        """
        do: does an order by somebody at a time [ns], on the control thread; RobotRuntimeError or ValueError:
            it cannot, in words for a person.
        """
        self._clock, self._record, self._log, self._do = clock, record, log, do
        self._posted: deque[tuple[Order, str, int]] = deque()
        self.listeners: list[Callable[[TakenOrder], None]] = []
        """Told of each order after it was done or refused, on the control thread."""

    def post(self, order: Order, by: str) -> None:
        """Leave an order; from any thread, never waits. InvalidValueError: it is none, or too many wait."""
        check_order(order, by)
        if len(self._posted) >= MAX_WAITING * (2 if isinstance(order, Stop) else 1):
            if isinstance(order, Stop):
                return  # hundreds of them wait already
            raise InvalidValueError(f"{type(order).__name__} is not taken: {MAX_WAITING} orders wait already")
        self._posted.append((order, by, self._clock.now_ns()))

    def take(self, now_ns: int) -> None:
        """Do what has been posted, a `Stop` at once; what waits for the next tick is done then."""
        waiting = [self._posted.popleft() for _ in range(len(self._posted))]
        last_stop = max((i for i, (order, *_) in enumerate(waiting) if isinstance(order, Stop)), default=-1)
        if last_stop >= MAX_A_TICK:
            self._take(*waiting.pop(last_stop), now_ns)
            before = waiting[:last_stop]
            for each in before:
                if isinstance(each[0], _OVERRULED):
                    self._take(*each, now_ns, refused="a stop was ordered after it")
            waiting[:last_stop] = [each for each in before if not isinstance(each[0], _OVERRULED)]
        for each in waiting[:MAX_A_TICK]:
            self._take(*each, now_ns)
        self._posted.extendleft(reversed(waiting[MAX_A_TICK:]))

    def do(self, order: Order, by: str, now_ns: int) -> TakenOrder:
        """On the control thread: this one now, whatever waits."""
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
