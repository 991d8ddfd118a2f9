"""A page of a live run: `LiveSource` receives its messages, draws its scene, and posts its orders.

control process   log.publish.Publisher   messages ─►    Subscription   this process
                  OrderDoor               ◄─ token, order PUSH       at most `ORDERS_PER_S`
                                          ◄─ token        PUSH       Stop: the newest, ahead of all others
"""

import json
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager

import msgspec
import zmq

from robot_runtime.core.orders import Order, Stop
from robot_runtime.log.publish import Subscription
from robot_runtime.log.records import RawMessage
from robot_runtime.page.hands import Hands
from robot_runtime.page.order_door import stop_address
from robot_runtime.page.scene import Scene, behind_the_rest
from robot_runtime.page.source import Picture, Player
from robot_runtime.page.state import TOPICS, PageState
from robot_runtime.page.view import view_of
from robot_runtime.wire.admission import RateLimit

DRAWS_S = 1 / 20
ORDERS_PER_S = 20
"""More of them, from all browsers together, are refused; a `Stop` never is."""
_LOOK_S = 0.02


class LiveSource(AbstractContextManager["LiveSource"]):
    """One thread receives, draws, and makes the view for browsers; another, the server's, reads it."""

    def __init__(self, stream: str, orders: str, token: str, scene: Scene) -> None:
        """
        stream, orders: addresses of the run's two sockets. token: what its orders must carry.
        """
        self.state, self._scene, self._hands = PageState(), scene, Hands(scene.body)
        self._token = token.encode()
        self._news = Subscription(stream, *TOPICS)
        self._context = zmq.Context()
        self._orders, self._stops = self._context.socket(zmq.PUSH), self._context.socket(zmq.PUSH)
        self._stops.setsockopt(zmq.CONFLATE, 1)
        for socket, at in ((self._orders, orders), (self._stops, stop_address(orders))):
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.IMMEDIATE, 1)  # dropped, rather than kept for a later run
            socket.connect(at)
        self._rate = RateLimit(per_s=ORDERS_PER_S, burst=ORDERS_PER_S)
        self._heard_s: float | None = None
        self._view, self._pictures = json.dumps(view_of(self.state, quiet_s=None)), dict[str, Picture]()
        self._lock = threading.Lock()
        self._is_over, self._has_shown_end = False, threading.Event()
        self._thread = threading.Thread(target=self._run, name="news", daemon=True)

    def __enter__(self) -> "LiveSource":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        self._thread.join(timeout=2.0)
        self._context.destroy(linger=0)

    def hear_out(self, within_s: float) -> None:
        """Wait until the run's last message is shown, if it arrives within this time."""
        self._has_shown_end.wait(within_s)

    # ---- in the server's thread ------------------------------------------------------------------

    def view(self) -> str:
        return self._view

    def pictures(self) -> Mapping[str, Picture]:
        return self._pictures

    def order(self, order: Order) -> None:
        try:
            if isinstance(order, Stop):
                self._stops.send(b" ".join((self._token, order.press.encode()[:64])), flags=zmq.NOBLOCK)
            elif self._rate.take(time.monotonic_ns()):
                self._orders.send_multipart((self._token, msgspec.json.encode(order)), flags=zmq.NOBLOCK)
            else:
                why = f"more than {ORDERS_PER_S} orders a second from this page"
                self.refuse(type(order).__name__, why)
        except zmq.Again:
            self.refuse(type(order).__name__, "the run is gone, or does not take orders any more")

    def play(self, player: Player) -> None:
        self.refuse(player.what, "this run is going on")

    def refuse(self, what: str, why: str) -> None:
        with self._lock:
            self.state.refuse(what, why)

    # ---- in its own ------------------------------------------------------------------------------

    def _run(self) -> None:
        behind_the_rest(threading.get_native_id())
        next_s = time.monotonic()
        while not self._is_over:
            for message in self._news.messages(_LOOK_S):
                with self._lock:
                    self._hear(message)
                if time.monotonic() >= next_s or self._is_over:
                    break
            now_s = time.monotonic()
            if now_s >= next_s:
                next_s = max(next_s + DRAWS_S, now_s)
                self._show(now_s)
        self._news.close()

    def _hear(self, message: RawMessage) -> None:
        if self.state.info is None and self._news.info is not None:
            self.state.begin(self._news.info)
        before = self.state.num_messages
        self.state.take(message.topic, message.log_ns, message.data)
        if self.state.num_messages != before:
            self._heard_s = time.monotonic()

    def _show(self, now_s: float) -> None:
        state = self.state
        with self._lock:
            quiet_s = None if self._heard_s is None else now_s - self._heard_s
            self._view = json.dumps(view_of(state, quiet_s=quiet_s))
            self._pictures = {
                name: Picture(round(t_s * 1e6), jpeg) for name, (t_s, jpeg) in state.pictures.items()
            }
        if state.end is not None:
            self._has_shown_end.set()
        self._hands.draw(state, self._scene)
