"""Limits for the connections of a server, and access by keys: `ConnectionLimiter`.

    libzmq's thread          limiter's thread                             network thread
    accepts, reads ─events─► counts connections, bytes, failures          lets_in(message): too many a second?
    greets ───────── key? ─► a name, or no ─► libzmq                      departed(): peers that disconnected

A connection is cut when it holds back more bytes than it may, when it sends too many messages, when it stays
unauthenticated for too long, and, if unauthenticated, when there are too many.
"""

import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread

import zmq

from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.keys import ServerKeys
from robot_runtime.mailbox import Doorbell
from robot_runtime.transport.connection import Connection
from robot_runtime.transport.sockets import events_of, new_monitor, wait
from robot_runtime.wire.admission import RateLimit
from robot_runtime.wire.frames import LIMITS, Buffer

logger = logging.getLogger(__name__)
MAX_CONNECTIONS = 256
"""Beyond that the oldest unauthenticated one is cut. Each takes two descriptors, of often 1,024 in all."""
STRANGER_NS = 40 * NS_PER_S
"""How long a connection may stay unauthenticated."""
STRANGER_BYTES = 1024 * 1024
"""Bytes that an unauthenticated peer may hold back: a greeting has at most a header's 64 KiB."""
TOTAL_BYTES = 256 * 1024 * 1024
"""Bytes that all may hold back together."""
MEMORY_BYTES = 512 * 1024 * 1024
"""How much the process may grow while a peer holds back more than an unauthenticated one may: small frames
take 32 times their bytes in libzmq."""
MESSAGES_PER_S, STRANGER_MESSAGES_PER_S = 10_000, 20
_LOOK_NS = 50 * NS_PER_MS
_SAY_AGAIN_NS = 10 * NS_PER_S
_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
_ZAP = "inproc://zeromq.zap.01"


@dataclass(eq=False, slots=True)
class _UnauthenticatedPeer:
    connection: Connection
    since_ns: int
    peer: bytes = b""
    name: str | None = None
    is_cut: bool = False
    as_stranger: RateLimit = field(
        default_factory=lambda: RateLimit(per_s=STRANGER_MESSAGES_PER_S, burst=2 * STRANGER_MESSAGES_PER_S)
    )
    as_known: RateLimit = field(
        default_factory=lambda: RateLimit(per_s=MESSAGES_PER_S, burst=MESSAGES_PER_S // 5)
    )


class ConnectionLimiter:
    """Limits the connections of a ROUTER, in its own thread; the network thread calls all methods."""

    def __init__(
        self,
        socket: zmq.Socket,
        *,
        keys: ServerKeys | None,
        is_known: Callable[[bytes], bool],
        ring: Callable[[], None],
        known_bytes: int = 2 * LIMITS.total,
    ) -> None:
        """Start on a ROUTER that is not bound yet.

        keys: robots that are admitted; None requires no keys.
        is_known, ring: see `ServerTransport`.
        known_bytes: bytes that a known peer may hold back.
        """
        self.counts: Counter[str] = Counter()
        """Handshakes that failed and connections that were cut, by cause."""
        self._is_known, self._ring, self._known_bytes = is_known, ring, known_bytes
        self._asks_for_keys = keys is not None
        self._names = {} if keys is None else keys.allowed
        self._entries: dict[int, _UnauthenticatedPeer] = {}  # by libzmq's descriptor, oldest first
        self._departed: deque[bytes] = deque()
        self._lock = Lock()
        self._logged: dict[str, tuple[int, int]] = {}  # kind -> (when, how many by then)
        self._calm_memory = _memory()
        self._look_ns = 0
        self._monitor = new_monitor(socket, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | _FAILED)
        self._asked: zmq.Socket = socket.context.socket(zmq.REP)
        self._asked.set(zmq.LINGER, 0)
        self._asked.bind(_ZAP)
        self._bell, self._is_over = Doorbell(), False
        self._thread = Thread(target=self._run, name="doorman", daemon=True)
        self._thread.start()

    def lets_in(self, peer: bytes, first: zmq.Frame, frames: Sequence[Buffer]) -> bool:
        """Return whether to handle an arrived message; `first` is its first frame."""
        descriptor = first.get(zmq.SRCFD)
        entry = self._entries.get(descriptor)
        if entry is None or entry.peer != peer:  # descriptors are reused once a connection has ended
            self._take_events()
            if (entry := self._entries.get(descriptor)) is None:
                return False  # it has left
            entry.peer, entry.name = peer, _user_of(first)
        if entry.is_cut:
            return False
        entry.connection.take(frames)
        rate = entry.as_known if self._is_known(peer) else entry.as_stranger
        if not rate.take(time.monotonic_ns()):
            self._cut(entry, "more messages than one may send")
            return False
        return True

    def name_of(self, peer: bytes) -> str | None:
        """Return the name of a peer's key; None without keys, and the empty name "" if the peer has left
        meanwhile."""
        if not self._asks_for_keys:
            return None
        names = (entry.name for entry in list(self._entries.values()) if entry.peer == peer)
        return next(names, None) or ""

    def end(self, peer: bytes) -> None:
        """Cut a peer's connection."""
        for entry in list(self._entries.values()):
            if entry.peer == peer and not entry.is_cut:
                self._cut(entry, "a message that could not be taken")

    def departed(self) -> list[bytes]:
        """Return the peers whose connections have ended since the last call."""
        out = []
        while self._departed:
            out.append(self._departed.popleft())
        return out

    def stop(self) -> None:
        """End the thread, before the ROUTER is closed."""
        self._is_over = True
        self._bell.ring()
        self._thread.join()

    def close(self) -> None:
        """Close the sockets, after `stop`."""
        self._monitor.close(0)
        self._asked.close(0)
        self._bell.close()
        for entry in self._entries.values():
            entry.connection.close()

    def _run(self) -> None:
        # Poll its descriptor: two threads read the monitor, and libzmq's sockets allow one at a time.
        events = int(self._monitor.getsockopt(zmq.FD))
        sockets: list[tuple[zmq.Socket | int, int]] = [(events, zmq.POLLIN), (self._asked, zmq.POLLIN)]
        while not self._is_over:
            wait(sockets, _LOOK_NS, self._bell)
            self._answer()
            self._take_events()
            if (now_ns := time.monotonic_ns()) >= self._look_ns:
                self._look_ns = now_ns + _LOOK_NS
                self._look_around(now_ns)

    def _answer(self) -> None:
        """Answer which robot has a key, or that it is unknown (ZAP, ZeroMQ RFC 27)."""
        with contextlib.suppress(zmq.Again):
            version, request, _, address, _, mechanism, *credentials = self._asked.recv_multipart(zmq.NOBLOCK)
            name = self._names.get(credentials[0]) if mechanism == b"CURVE" and credentials else None
            if name is None:
                self._count("unknown key", f"from {address.decode(errors='replace')!r}")
            status = [b"400", b"no such key", b""] if name is None else [b"200", b"OK", name.encode()]
            self._asked.send_multipart([version, request, *status, b""])

    def _take_events(self) -> None:
        with self._lock:
            for event, value in events_of(self._monitor):
                if event == zmq.EVENT_ACCEPTED:
                    self._accept(value)
                elif event == zmq.EVENT_DISCONNECTED:
                    self._forget(value)
                else:
                    self._count("handshake that failed", "another protocol, other keys, or none")

    def _accept(self, descriptor: int) -> None:
        self._forget(descriptor)
        with contextlib.suppress(OSError):  # it has gone already
            self._entries[descriptor] = _UnauthenticatedPeer(Connection(descriptor), time.monotonic_ns())
        if len(self._entries) > MAX_CONNECTIONS:
            strangers = (g for g in self._entries.values() if not g.is_cut and not self._is_known(g.peer))
            if (first := next(strangers, None)) is not None:
                self._cut(first, "more connections than there is room for")

    def _forget(self, descriptor: int) -> None:
        entry = self._entries.pop(descriptor, None)
        if entry is not None:
            entry.connection.close()
            if entry.peer:
                self._departed.append(entry.peer)
                self._ring()

    def _look_around(self, now_ns: int) -> None:
        held: list[tuple[int, _UnauthenticatedPeer]] = []
        for entry in list(self._entries.values()):
            if entry.is_cut:
                entry.connection.cut()  # it may have failed for want of a descriptor
                continue
            is_known, pending = self._is_known(entry.peer), entry.connection.pending()
            if pending > (self._known_bytes if is_known else STRANGER_BYTES):
                self._cut(entry, "more bytes than one may hold back")
            elif not is_known and now_ns - entry.since_ns > STRANGER_NS:
                self._cut(entry, "unauthenticated for too long")
            elif pending:
                held.append((pending, entry))
        total, memory = sum(pending for pending, _ in held), _memory()
        if total <= STRANGER_BYTES:
            self._calm_memory = memory
        held.sort(key=lambda it: it[0])
        while held and (total > TOTAL_BYTES or memory - self._calm_memory > MEMORY_BYTES):
            pending, entry = held.pop()
            total, self._calm_memory = total - pending, memory
            self._cut(entry, "more bytes than all may hold back")

    def _cut(self, entry: _UnauthenticatedPeer, why: str) -> None:
        entry.is_cut = True
        self._count(f"connection cut: {why}", entry.connection.address)
        entry.connection.cut()

    def _count(self, what: str, detail: str) -> None:
        """Count an event, and log it at a limited rate."""
        self.counts[what] += 1
        now_ns, (logged_ns, reported) = time.monotonic_ns(), self._logged.get(what, (-_SAY_AGAIN_NS, 0))
        if now_ns - logged_ns >= _SAY_AGAIN_NS:
            logger.warning("%s (%s); %d since the last line", what, detail, self.counts[what] - reported)
            self._logged[what] = now_ns, self.counts[what]


def _user_of(frame: zmq.Frame) -> str | None:
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return None


def _memory() -> int:
    """Return the resident bytes of this process; 0 where Linux does not report them."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


_PAGE = 4096
