"""The run's side of a page's buttons: `OrderDoor` receives orders from another process, and posts them.

page ─┬► PUSH ─ipc─► PULL ───────────────┬► a thread of its own ─► Session.post
      └► PUSH ─ipc─► PULL, the latest ───┘  looks at `Stop` first       messages without the token are dropped
"""

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec
import zmq

from robot_runtime.core.orders import Order, Stop
from robot_runtime.errors import InvalidValueError

_LOOK_MS = 100
_REPORT_PERIOD_S = 0.2
"""Minimum time between reports of refused orders [s]: a flood of them must not fill the log."""


def stop_address(address: str) -> str:
    """Address for `Stop`; the other orders go to `address`."""
    return f"{address}-stop"


class OrderDoor(AbstractContextManager["OrderDoor"]):
    """Receives orders in a thread of its own, and posts them."""

    def __init__(
        self,
        context: zmq.Context,
        address: str,
        token: str,
        post: Callable[[Order, str], None],
        *,
        by: str = "page",
        refused: Callable[[Order, str, str], None] = lambda order, by, why: None,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """
        token: what a sender of orders has to send first.
        post: receives each order and its author. refused: receives each that `post` does not take, its
            author, and why: at a limited rate, however many arrive.
        look: called ten times a second, in this thread.
        """
        self._socket, self._stops = context.socket(zmq.PULL), context.socket(zmq.PULL)
        self._socket.setsockopt(zmq.RCVHWM, 100)
        self._stops.setsockopt(zmq.CONFLATE, 1)
        for socket, at in ((self._socket, address), (self._stops, stop_address(address))):
            socket.setsockopt(zmq.MAXMSGSIZE, 65_536)
            socket.bind(at)
        self._token, self._post, self._by, self._look = token.encode(), post, by, look
        self._refused, self._reported_s, self._pressed = refused, 0.0, b""
        self._decoder = msgspec.json.Decoder(Order)
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="page's orders", daemon=True)

    def __enter__(self) -> "OrderDoor":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        self._thread.join(timeout=2.0)
        self._socket.close(linger=0)
        self._stops.close(linger=0)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._stops, zmq.POLLIN)
        poller.register(self._socket, zmq.POLLIN)
        looked_s = 0.0
        while not self._is_over:
            come = dict(poller.poll(_LOOK_MS))
            if self._stops in come:
                self._hear_stop(*self._stops.recv().rpartition(b" ")[::2])
            elif self._socket in come:
                self._hear(self._socket.recv_multipart())
            if (now_s := time.monotonic()) >= looked_s + _LOOK_MS / 1e3:
                looked_s = now_s
                self._look()

    def _hear_stop(self, token: bytes, press: bytes) -> None:
        """Post a stop; a repeat of one that was already posted does not stop a robot that was reset since."""
        if secrets.compare_digest(token, self._token) and (not press or press != self._pressed):
            self._pressed = press
            self._try(Stop())

    def _hear(self, message: list[bytes]) -> None:
        """Post one order; anything else, or one without the token, is dropped."""
        if len(message) != 2 or not secrets.compare_digest(message[0], self._token):
            return
        try:
            order = self._decoder.decode(message[1])
        except (msgspec.DecodeError, InvalidValueError):
            return
        self._try(order)

    def _try(self, order: Order) -> None:
        try:
            self._post(order, self._by)
        except InvalidValueError as error:
            if (now_s := time.monotonic()) >= self._reported_s + _REPORT_PERIOD_S:
                self._reported_s = now_s
                self._refused(order, self._by, str(error))
        except RuntimeError:  # the run is over
            return
