"""ROS 1 and 2 without ROS on this machine: `RosBridge` speaks rosbridge v2 over a WebSocket.

    robot's machine                               this machine
    ROS topics ── rosbridge_server ══ JSON ══► reader thread ─► newest message of each topic
    ROS topics ◄─ rosbridge_server ◄═ JSON ══ sender thread ◄─ newest message of each topic

No thread waits for the network: a new message replaces one that is still unsent. A connection that ends or
goes silent is renewed, with all announcements. Parts of a robot: `drivers.ros`. Velocity-controlled
parts have a guard, a process that outlives this one: `drivers.rosbridge_guard`.

Source: ROSBRIDGE_PROTOCOL.md of rosbridge_suite, "v2.0 Protocol Specification".
"""

import atexit
import json
import logging
import time
from collections import deque
from collections.abc import Callable
from threading import Condition, Event, Thread
from typing import Any

import msgspec

from drivers.child import Child
from drivers.rosbridge_guard import AllSpoken, GuardConfig, GuardReport, Spoken
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import DriverError, InvalidValueError
from robot_runtime.quiet import quiet_logger

logger = logging.getLogger(__name__)

Message = dict[str, Any]
Take = Callable[[Message, int], None]
"""Receives a message and its arrival time [ns] in the reader's thread."""

_MAX_BYTES = 64 << 20
_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses before reconnecting; the last one repeats."""
_LOOK_S = 0.02


class RosTime:
    """Converts the robot's ROS clock to this machine's monotonic one: the least delay seen counts as zero.

        arrival - stamp = offset + delay,  delay >= 0       offset = min over the last `window` messages

    A stamp that is a second off shows that a clock was set: the offsets are cleared.
    """

    def __init__(self, window: int = 256) -> None:
        self._offsets: deque[int] = deque(maxlen=window)

    def capture_ns(self, stamp_ns: int, arrival_ns: int) -> int:
        """Return when a message with that stamp was made, on this machine's clock; its arrival without a
        stamp."""
        if stamp_ns <= 0:
            return arrival_ns
        offset = arrival_ns - stamp_ns
        if self._offsets and abs(offset - min(self._offsets)) > NS_PER_S:
            self._offsets.clear()
        self._offsets.append(offset)
        return min(stamp_ns + min(self._offsets), arrival_ns)

    def stamp_ns(self, now_ns: int) -> int:
        """Convert a time of this machine to the robot's ROS clock; 0, which means now, while unknown."""
        return now_ns - min(self._offsets) if self._offsets else 0


class RosBridge:
    """One connection to a rosbridge server; keeps itself connected until closed."""

    def __init__(self, url: str = "ws://127.0.0.1:9090", *, ros: int = 2) -> None:
        """Start connecting.

        ros: 1 or 2: the format of stamps and types. InvalidValueError: not the URL of a WebSocket.
        """
        if not url.startswith(("ws://", "wss://")):
            raise InvalidValueError(f"a rosbridge server is at ws://HOST:9090, got {url!r}")
        if ros not in (1, 2):
            raise InvalidValueError(f"expected ROS 1 or 2, got {ros!r}")
        self.url, self.ros = url, ros
        self._takers: dict[str, tuple[str, list[Take]]] = {}
        self._advertised: dict[str, str] = {}
        self._guard: Child[AllSpoken, GuardReport] | None = None
        self._spoken: dict[str, Spoken] = {}
        self._farewells: list[Callable[[], None]] = []
        self._unsent: dict[str, str] = {}
        self._changed = Condition()
        self._connection: Any = None
        self._trouble = "it does not answer"
        self._is_closing, self._is_ready = Event(), Event()
        self._threads = [
            Thread(target=target, name=f"rosbridge-{target.__name__}", daemon=True)
            for target in (self._read, self._send)
        ]
        for thread in self._threads:
            thread.start()
        atexit.register(self.close)

    def wait_until_ready(self, timeout_s: float = 2.0) -> None:
        """Wait for the connection. DriverError: no answer at the address, or no WebSocket."""
        if not self._is_ready.wait(timeout_s):
            raise DriverError(f"no rosbridge server at {self.url} within {timeout_s:g} s: {self._trouble}")

    def check_open(self) -> None:
        """DriverError: the connection was closed."""
        if self._is_closing.is_set():
            raise DriverError(f"the connection to {self.url} was closed")

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def type_name(self, name: str) -> str:
        """Return a type's name as this ROS version writes it."""
        package, _, kind = name.partition("/")
        kind = kind.removeprefix("msg/")
        return f"{package}/{kind}" if self.ros == 1 else f"{package}/msg/{kind}"

    def stamp(self, t_ns: int) -> Message:
        """Convert a time of the robot's ROS clock [ns] to the format of messages."""
        names = ("secs", "nsecs") if self.ros == 1 else ("sec", "nanosec")
        return dict(zip(names, divmod(t_ns, NS_PER_S), strict=True))

    def subscribe(self, topic: str, message_type: str, take: Take) -> None:
        """Receive every message of a topic; one that `take` cannot read is logged once and dropped.

        InvalidValueError: the topic has no name.
        """
        _check_topic(topic)
        name = self.type_name(message_type)
        with self._changed:
            self._takers.setdefault(topic, (name, []))[1].append(take)
        self._tell(_subscription(topic, name))

    def advertise(self, topic: str, message_type: str) -> None:
        """Announce the type to be published there. InvalidValueError: the topic has no name."""
        _check_topic(topic)
        name = self.type_name(message_type)
        with self._changed:
            self._advertised[topic] = name
        self._tell(_advertisement(topic, name))

    def publish(self, topic: str, message: Message) -> None:
        """Send a message soon, unless a newer one comes first; never waits."""
        text = json.dumps({"op": "publish", "topic": topic, "msg": message}, allow_nan=False)
        with self._changed:
            self._unsent[topic] = text
            self._changed.notify_all()

    def at_the_end(self, farewell: Callable[[], None]) -> None:
        """Call `farewell` before the connection is closed."""
        with self._changed:
            self._farewells.append(farewell)

    def guard(self, topic: str, message_type: str, silence_s: float) -> Callable[[Message | None], None]:
        """Let a process that outlives this one publish a topic's last message, if after one command no other
        follows for `silence_s`, or this process exits or dies.

        Returns a function to call with that last message at each command; None: nothing to publish.
        DriverError: the process does not start.
        """
        if self._guard is None:
            what = f"the guard of {self.url}"
            config = GuardConfig(url=self.url)
            self._guard = Child("drivers.rosbridge_guard", config, AllSpoken, GuardReport, what=what)
        spoken = Spoken(self.type_name(message_type), silence_s, number=0, last="")

        def put(last: Message | None) -> None:
            before = self._spoken.get(topic, spoken)
            text = "" if last is None else json.dumps(last)
            with self._changed:
                self._spoken[topic] = msgspec.structs.replace(before, number=before.number + 1, last=text)
                if self._guard is not None:
                    self._guard.orders.put(AllSpoken(self._spoken))

        put(None)
        return put

    def flush(self, timeout_s: float = 0.25) -> bool:
        """Wait until everything is sent; return False if it was not, or there is no connection."""
        if self._connection is None:
            return not self._unsent
        with self._changed:
            return self._changed.wait_for(lambda: not self._unsent, timeout_s)

    def close(self) -> None:
        """Send the parts' last messages, and close; may be called twice."""
        if self._is_closing.is_set():
            return
        for farewell in list(self._farewells):
            try:
                farewell()
            except Exception as error:  # a failure does not prevent the other last messages
                logger.warning("%s: %s: %s", self.url, type(error).__name__, error)
        self.flush()
        with self._changed:
            guard, self._guard = self._guard, None
        if guard is not None:
            guard.close()
        self._is_closing.set()
        with self._changed:
            self._changed.notify_all()
        if (connection := self._connection) is not None:
            connection.close()  # says goodbye, and waits half a second for the answer at most
        for thread in self._threads:
            thread.join(1.0)
        atexit.unregister(self.close)

    # ---- threads ---------------------------------------------------------------------------------------

    def _read(self) -> None:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        failures = 0
        while not self._is_closing.is_set():
            try:
                with connect(
                    self.url,
                    proxy=None,
                    compression=None,
                    max_size=_MAX_BYTES,
                    open_timeout=2.0,
                    ping_interval=0.5,
                    ping_timeout=1.0,
                    close_timeout=0.5,
                    logger=quiet_logger(__name__),
                ) as connection:
                    failures = 0
                    self._announce(connection)
                    for text in connection:
                        self._take(text, time.monotonic_ns())
                self._trouble = "it ended the connection"
            except (OSError, WebSocketException, TimeoutError) as error:
                self._trouble = f"{type(error).__name__}: {error}"
            if self._connection is not None:
                self._connection = None
                if not self._is_closing.is_set():
                    logger.warning("%s: connection lost (%s); trying again", self.url, self._trouble)
            self._is_closing.wait(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
            failures += 1

    def _announce(self, connection: Any) -> None:
        """Repeat all announcements to a new server, and those made meanwhile."""
        with self._changed:
            self._unsent.clear()  # earlier commands are too old to be sent
        num_sent = 0
        while True:
            with self._changed:
                orders = [_advertisement(topic, name) for topic, name in self._advertised.items()]
                orders += [_subscription(topic, name) for topic, (name, _) in self._takers.items()]
                if len(orders) == num_sent:
                    self._connection = connection  # from here on `_tell` sends it
                    break
            for order in orders:
                connection.send(json.dumps(order))
            num_sent = len(orders)
        self._is_ready.set()

    def _take(self, text: str | bytes, arrival_ns: int) -> None:
        try:
            packet = json.loads(text)
            op = packet["op"]
            if op == "publish":
                for take in self._takers[packet["topic"]][1]:
                    take(packet["msg"], arrival_ns)
            elif op == "status":
                logger.warning("%s reports: %s: %s", self.url, packet.get("level"), packet.get("msg"))
        except Exception as error:
            # An invalid message ends neither the thread nor the connection.
            self._complain(f"{type(error).__name__}: {error}", str(text[:200]))

    def _complain(self, what: str, text: str) -> None:
        if what != self._trouble:
            logger.warning("%s: a message was dropped (%s): %s", self.url, what, text)
        self._trouble = what

    def _send(self) -> None:
        while not self._is_closing.is_set():
            with self._changed:
                self._changed.wait_for(lambda: bool(self._unsent) or self._is_closing.is_set(), _LOOK_S)
                going, connection = dict(self._unsent), self._connection
            if connection is None:
                self._is_closing.wait(_LOOK_S)
                continue
            for topic, text in going.items():
                if not self._sent(connection, text):
                    break
                with self._changed:
                    if self._unsent.get(topic) is text:
                        del self._unsent[topic]
                    self._changed.notify_all()

    def _sent(self, connection: Any, text: str) -> bool:
        try:
            connection.send(text)
        except Exception as error:  # of the socket or of websockets: the reader reconnects
            self._complain(f"{type(error).__name__}: {error}", text[:200])
            return False
        return True

    def _tell(self, order: Message) -> None:
        """Send it now to a connected server; `_announce` sends it to a new one."""
        if (connection := self._connection) is not None:
            self._sent(connection, json.dumps(order))


def _advertisement(topic: str, name: str) -> Message:
    return {"op": "advertise", "topic": topic, "type": name}


def _subscription(topic: str, name: str) -> Message:
    return {"op": "subscribe", "topic": topic, "type": name, "queue_length": 1}


def _check_topic(topic: str) -> None:
    if not isinstance(topic, str) or not topic.strip("/~") or not topic.isprintable() or " " in topic:
        raise InvalidValueError(f"expected a topic name as /cmd_vel, got {topic!r:.60}")
