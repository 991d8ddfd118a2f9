"""A process beside a `RosBridge` that outlives it: it publishes the last messages of velocity topics.

RosBase.write ─► Newest of `Spoken` ═══► this process ── nothing new for `silence_s`, or the other process
                                                         has ended or died ─► zero twist ══► rosbridge
"""

import contextlib
import json
import signal
import time
from typing import Any

import msgspec

from drivers.child import SLOT, LifeLine, Newest
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.quiet import quiet_logger

_LOOK_S = 0.01
_RETRY_S = 0.2


class GuardConfig(msgspec.Struct, frozen=True):
    url: str


class Spoken(msgspec.Struct, frozen=True):
    """The last message of one topic, for the guard."""

    message_type: str
    silence_s: float
    number: int
    """Number of its commands so far."""
    last: str
    """Message to publish if no command follows, as JSON; empty: none."""


class AllSpoken(msgspec.Struct, frozen=True):
    topics: dict[str, Spoken] = {}


class GuardReport(msgspec.Struct, frozen=True):
    is_connected: bool = False


class Guard:
    def __init__(self, url: str, descriptor: int) -> None:
        self._url = url
        self._spoken, self._reports = Newest(AllSpoken, descriptor), Newest(GuardReport, descriptor, 2 * SLOT)
        self._heard: dict[str, tuple[int, int]] = {}
        """Topic -> number of the newest command and its arrival [ns]."""
        self._ended: dict[str, int] = {}
        self._advertised: set[str] = set()
        self._connection: Any = None
        self._retry_s = 0.0
        self._reports.put(GuardReport())

    def run(self, life: LifeLine) -> None:
        while not life.is_cut():
            self._connect()
            self._look()
            time.sleep(_LOOK_S)
        self._look(is_over=True)
        if self._connection is not None:
            self._connection.close()

    def _connect(self) -> None:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect

        if self._connection is not None or time.monotonic() < self._retry_s:
            return
        self._retry_s = time.monotonic() + _RETRY_S
        with contextlib.suppress(OSError, WebSocketException, TimeoutError):
            self._connection = connect(
                self._url,
                proxy=None,
                compression=None,
                open_timeout=2.0,
                close_timeout=0.2,
                logger=quiet_logger(__name__),
            )
            self._advertised.clear()
            self._reports.put(GuardReport(is_connected=True))

    def _look(self, *, is_over: bool = False) -> None:
        newest, now_ns = self._spoken.get(), time.monotonic_ns()
        for topic, spoken in ({} if newest is None else newest[1].topics).items():
            if topic not in self._advertised:
                self._send({"op": "advertise", "topic": topic, "type": spoken.message_type}, topic)
            number, came_ns = self._heard.get(topic, (0, now_ns))
            if number != spoken.number:
                self._heard[topic] = spoken.number, now_ns
                came_ns = now_ns
            is_silent = is_over or now_ns - came_ns >= spoken.silence_s * NS_PER_S
            if spoken.last and is_silent and self._ended.get(topic) != spoken.number:
                self._ended[topic] = spoken.number
                self._send({"op": "publish", "topic": topic, "msg": json.loads(spoken.last)}, topic)

    def _send(self, packet: dict[str, Any], topic: str) -> None:
        if self._connection is None:
            return
        try:
            self._connection.send(json.dumps(packet))
            self._advertised.add(topic)
        except Exception:  # of the socket or of websockets: it reconnects, and sends it then
            self._connection = None
            self._ended.pop(topic, None)


def main(text: str, descriptor: str) -> None:
    """config: a `GuardConfig` as JSON; descriptor: of the memory shared with the parent."""
    life = LifeLine()
    signal.signal(signal.SIGTERM, lambda *_: life.cut())
    Guard(msgspec.json.decode(text, type=GuardConfig).url, int(descriptor)).run(life)
