"""A teleoperator that lies, repeats itself or hangs leads nobody astray."""

import threading
import time
from collections.abc import Callable

import pytest

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.orders import Stop
from robot_runtime.core.teleop import Lead, LeadableParts
from robot_runtime.teleop.watched import WatchedTeleoperator
from tests.process.waiting import wait_until

STALE_NS = 250_000_000


class Device:
    """Reads what it is told to."""

    def __init__(self, read: Callable[[], Lead], close: Callable[[], object] = lambda: None) -> None:
        self.read, self.close = read, close


def test_what_is_from_the_future_does_not_count():
    now_ns = MonotonicClock().now_ns()
    lead = Lead(t_ns=now_ns + 60_000_000_000, parts={})
    with WatchedTeleoperator(Device(lambda: lead), LeadableParts()) as watched:
        wait_until(lambda: watched._lead)
        assert watched.look(now_ns, STALE_NS) is None
        assert watched.look(lead.t_ns, STALE_NS) is lead


def test_orders_of_a_lead_that_is_read_twice_are_heard_once():
    lead, reads = Lead(t_ns=0, parts={}, orders=(Stop(),)), []
    with WatchedTeleoperator(Device(lambda: reads.append(1) or lead), LeadableParts()) as watched:
        wait_until(lambda: len(reads) > 3)
        assert watched.orders() == [Stop()]


def test_one_that_orders_nonsense_is_lost():
    lead = Lead(t_ns=0, parts={})
    object.__setattr__(lead, "orders", ("stop",))
    with WatchedTeleoperator(Device(lambda: lead), LeadableParts()) as watched:
        wait_until(lambda: watched.why_lost)
        assert "an order is one of Stop" in watched.why_lost


@pytest.mark.parametrize("where", ["read", "close"])
def test_one_that_hangs_does_not_keep_a_run_from_ending(where):
    hang, lead = threading.Event(), Lead(t_ns=0, parts={})
    device = Device(lambda: lead, hang.wait) if where == "close" else Device(lambda: hang.wait() and lead)
    begun_s = time.monotonic()
    with WatchedTeleoperator(device, LeadableParts()):
        pass
    hang.set()
    assert time.monotonic() - begun_s < 2.0
