"""A teleoperator as the control thread sees it: `WatchedTeleoperator` has its last lead and all orders."""

import logging
import threading
import time
from collections import deque
from typing import Self

from robot_runtime.core.orders import Order, check_order
from robot_runtime.core.teleop import Lead, LeadableParts, LedRun, Teleoperator
from robot_runtime.errors import DriverError, InvalidValueError

logger = logging.getLogger(__name__)
_PERIOD_S = 0.004
_JOIN_S = 0.5
_CLOSE_S = 1.0


class WatchedTeleoperator:
    """A context manager that opens and reads the teleoperator, and closes it at its end."""

    def __init__(self, teleoperator: Teleoperator, parts: LeadableParts) -> None:
        self._teleoperator, self._parts = teleoperator, parts
        self._lead: Lead | None = None
        self._read_ns = 0
        self._orders: deque[Order] = deque()
        self._error: Exception | None = None
        self.run: LedRun | None = None
        """The state of the run that it gets next, if it accepts one."""
        self._close_error: Exception | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._watch, name=f"teleop {self.name}", daemon=True)

    @property
    def name(self) -> str:
        """The teleoperator's name, for the operator."""
        return name_of(self._teleoperator)

    @property
    def thread_id(self) -> int | None:
        """Native id of the reading thread, once it has begun."""
        return self._thread.native_id

    @property
    def help(self) -> str:
        """Help on its keys; empty if it has none."""
        return str(getattr(self._teleoperator, "help", "") or "")

    def look(self, now_ns: int, stale_ns: int) -> Lead | None:
        """Return the last lead; None: none yet, or none that still counts. Never waits.

        A lead that far in the future does not count either: its age would be unknown.
        """
        lead = self._lead
        if lead is None or self.why_lost or abs(now_ns - lead.t_ns) > stale_ns:
            return None
        return lead

    def orders(self) -> list[Order]:
        """Return the orders that came since the last call."""
        out = []
        while self._orders:
            out.append(self._orders.popleft())
        return out

    @property
    def why_lost(self) -> str:
        """Why it gives no more leads; empty: it still may."""
        return "" if self._error is None else f"{type(self._error).__name__}: {self._error}"

    def is_silent(self, stale_ns: int) -> bool:
        """Whether its `read` has not returned for that long, by the machine's own clock."""
        return self._read_ns > 0 and time.monotonic_ns() - self._read_ns > stale_ns

    def __enter__(self) -> Self:
        """Open the teleoperator; raises what its `open` raises."""
        if callable(begin := getattr(self._teleoperator, "open", None)):
            begin(self._parts)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)
        closing = threading.Thread(target=self._close, name=f"close {self.name}", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)  # a device that hangs must not delay the end of the run
        if self._close_error is not None:
            raise self._close_error

    def _close(self) -> None:
        try:
            self._teleoperator.close()
        except Exception as error:
            self._close_error = error

    def _watch(self) -> None:
        show, reported = getattr(self._teleoperator, "show_run", None), None
        if show is None and (show := getattr(self._teleoperator, "told", None)) is not None:
            logger.warning("%s: rename its method told to show_run", type(self._teleoperator).__name__)
        try:
            while not self._is_over:
                if callable(show) and self.run is not reported:
                    show(reported := self.run)
                lead = self._teleoperator.read()
                if not isinstance(lead, Lead):
                    raise DriverError(
                        f"expected a Lead from read() of {self.name}, got {type(lead).__name__}"
                    )
                for order in lead.orders:
                    check_order(order, self.name)
                self._read_ns = time.monotonic_ns()
                if lead is not self._lead:  # else its orders were taken already
                    self._orders.extend(lead.orders)
                self._lead = lead
                time.sleep(_PERIOD_S)
        except Exception as error:
            self._error = error


def check_teleoperator(teleoperator: object) -> None:
    """InvalidValueError: it is no teleoperator."""
    is_one = all(callable(getattr(teleoperator, name, None)) for name in ("read", "close"))
    others = ("write", "num_joints", "num_values", "size")
    if teleoperator is not None and not (is_one and not any(hasattr(teleoperator, each) for each in others)):
        raise InvalidValueError(
            f"teleop is a teleoperator, with read() -> Lead and close(), got {type(teleoperator).__name__}"
        )


def name_of(teleoperator: Teleoperator) -> str:
    """Return the teleoperator's name, for the operator."""
    return str(getattr(teleoperator, "name", "") or f"the {type(teleoperator).__name__}")
