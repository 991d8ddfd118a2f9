"""Which page controls the robot, and its last message: `ControlLock`. Pure but for its lock; time is an
argument.

One page controls the robot. A second one is refused, and may take over when the first has gone.
"""

from collections import deque
from threading import Lock

import msgspec

from drivers.webxr.messages import PageMessage, Report
from robot_runtime.core.values.action import NS_PER_S

KEPT_ORDERS = 16
WINDOW_NS = 5 * NS_PER_S
"""How long a smallest difference counts: clocks drift, and jump after a suspend [ns]."""


class ControlLock:
    """Holds the controlling page and its report. Any thread may call; each page has its own thread."""

    def __init__(self, *, stale_ns: int) -> None:
        self._lock, self._stale_ns = Lock(), stale_ns
        self._holder: object | None = None
        self._clock, self._last_n = PageClock(), 0
        self._num_orders = 0
        self.report = Report(t_ns=0)

    def take(self, page: object, name: str) -> str:
        """Take control. Return the page that has it, if that is another; empty: this page has it now."""
        with self._lock:
            if self._holder not in (None, page):
                return self.report.page
            self._holder, self._clock, self._last_n = page, PageClock(), 0
            self.report = msgspec.structs.replace(
                self.report, page=name, t_ns=0, hands={}, sticks=None, base=None
            )
            return ""

    def leave(self, page: object) -> None:
        """Release control: the page has gone."""
        with self._lock:
            if self._holder is page:
                self._holder = None
                self.report = msgspec.structs.replace(
                    self.report, page="", t_ns=0, hands={}, sticks=None, base=None
                )

    def say(self, page: object, text: str | bytes, arrived_ns: int) -> str:
        """Take a page's message. Return why it was refused; empty: it was taken."""
        try:
            message = msgspec.json.decode(text, type=PageMessage)
            fault = message.fault()
        except (msgspec.DecodeError, ValueError) as error:
            fault = str(error)
        with self._lock:
            if fault:
                self.report = msgspec.structs.replace(self.report, num_refused=self.report.num_refused + 1)
                return fault
            if page is not self._holder:
                if message.order == "stop":  # any page may stop
                    self._num_orders += 1
                    self.report = msgspec.structs.replace(
                        self.report, orders=(*self.report.orders, (self._num_orders, "stop"))[-KEPT_ORDERS:]
                    )
                return "another page has control"
            stamp_ns = self._clock.stamp_ns(message.t, arrived_ns)
            is_new, orders = message.n > self._last_n, self.report.orders
            if is_new and message.order:  # late ones, too: a stop counts whenever it comes
                self._num_orders += 1
                orders = (*orders, (self._num_orders, message.order))[-KEPT_ORDERS:]
            self._last_n = max(self._last_n, message.n)
            if not is_new or arrived_ns - stamp_ns > self._stale_ns:
                self.report = msgspec.structs.replace(
                    self.report, orders=orders, num_dropped=self.report.num_dropped + 1
                )
                return "too late"
            self.report = msgspec.structs.replace(
                self.report,
                t_ns=stamp_ns,
                hands=message.hands,
                sticks=message.sticks,
                base=message.base,
                orders=orders,
            )
            return ""


class PageClock:
    """Converts a page's clock to this machine's.

        page    t        t        t                      by its own clock
        here      a       a            a                 it arrives: never earlier than it was sent
                  |<- ->|                                the smallest recent a - t counts as no delay

    So a message that waited in a queue is known to be old, although the two clocks are independent.
    """

    def __init__(self) -> None:
        self._least: deque[tuple[int, int]] = deque()
        """(arrival, difference), differences rising: the first is the smallest."""

    def stamp_ns(self, t_ms: float, arrived_ns: int) -> int:
        """Return when it was sent, on this machine's clock [ns]: never later than its arrival."""
        t_ns = round(t_ms * 1e6)
        difference = arrived_ns - t_ns
        while self._least and self._least[-1][1] >= difference:
            self._least.pop()
        self._least.append((arrived_ns, difference))
        while self._least[0][0] < arrived_ns - WINDOW_NS:
            self._least.popleft()
        return t_ns + self._least[0][1]
