"""A run's messages for other processes, as they are encoded: `Publisher` in the log's thread, `Subscription`
in theirs.

    log thread ─► XPUB, ipc or tcp ─► Subscription ─► RawMessage, as in a file

A slow subscriber loses messages and delays no one. A new subscriber receives the run's information, and the
newest messages of each rare topic.
"""

import struct
import time
from collections import deque
from collections.abc import Iterator

import zmq

from robot_runtime.errors import InvalidValueError
from robot_runtime.log.config import RunInfo
from robot_runtime.log.records import RawMessage

INFO = "/info"
"""Topic of `RunInfo.to_json`."""
END = "/end"
"""Topic of the last message, which no file has: the result of the run, by name, and its `files`."""
_TIME = struct.Struct("<Q")
MAX_WAITING = 2000
"""Maximum number of messages waiting for one subscriber, two seconds of them; further ones are lost."""
GREET_NS = 20_000_000
"""Minimum time between checks for new subscribers, which take longer than sending [ns]."""
_FLEETING = ("/journal", "/camera/", "/state", "/command", "/sent", "/policy_command", "/timing")
MISSED = 200
"""Messages of each rare topic that a late subscriber receives."""
_RARE = ("/log", "/order", "/episode", "/fault", "/chunk", "/plan")


class Publisher:
    """Publishes messages; one thread owns it."""

    def __init__(self, address: str, info: RunInfo) -> None:
        """address: ipc://PATH or tcp://HOST:PORT. InvalidValueError: it cannot be listened at."""
        self._info, self._missed = info.to_json().encode(), dict[str, deque[tuple[int, bytes]]]()
        self._greet_ns = 0
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.SNDHWM, MAX_WAITING)
        self._socket.setsockopt(zmq.LINGER, 200)
        self._socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self.close()
            raise InvalidValueError(f"{address} cannot be listened at: {error}") from error

    def send(self, topic: str, log_ns: int, data: bytes) -> None:
        """Send a message, if there are subscribers."""
        if (now_ns := time.monotonic_ns()) >= self._greet_ns:
            self._greet_ns = now_ns + GREET_NS
            self._greet()
        if not topic.startswith(_FLEETING):
            if topic not in self._missed:
                self._missed[topic] = deque(maxlen=MISSED if topic in _RARE else 1)
            self._missed[topic].append((log_ns, data))
        self._send(topic, log_ns, data)

    def _greet(self) -> None:
        """Send run information and rare messages to new subscribers."""
        is_new = False
        while self._socket.poll(0, zmq.POLLIN):
            is_new = self._socket.recv(zmq.NOBLOCK)[:1] == b"\x01" or is_new
        if is_new:
            self._send(INFO, 0, self._info)
            for topic, missed in self._missed.items():
                for log_ns, data in missed:
                    self._send(topic, log_ns, data)

    def _send(self, topic: str, log_ns: int, data: bytes) -> None:
        self._socket.send_multipart([topic.encode(), _TIME.pack(log_ns), data], zmq.NOBLOCK)

    def close(self) -> None:
        """Stop publishing."""
        self._socket.close()
        self._context.term()


class Subscription:
    """Receives messages of a live run, in another thread or process; one thread owns it."""

    def __init__(self, address: str, *topics: str) -> None:
        """topics: prefixes of their names, as /state or /camera/; none: all."""
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, MAX_WAITING)
        self._socket.setsockopt(zmq.LINGER, 0)
        for topic in (INFO, *topics) if topics else ("",):
            self._socket.subscribe(topic)
        self.info: RunInfo | None = None
        """The run's information, once it has arrived."""
        self._socket.connect(address)

    def messages(self, timeout_s: float) -> Iterator[RawMessage]:
        """Messages that have arrived, or arrive within this time; ends when none does."""
        while self._socket.poll(round(timeout_s * 1000), zmq.POLLIN):
            topic, time, data = self._socket.recv_multipart()
            if topic.decode() == INFO:
                self.info = RunInfo.from_json(data.decode())
                continue
            yield RawMessage(topic.decode(), _TIME.unpack(time)[0], data)

    def close(self) -> None:
        """Unsubscribe."""
        self._socket.close()
        self._context.term()
