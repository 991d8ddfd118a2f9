"""Who is connected to a server, what each may take of it, and with keys who may come in: `ConnectionLimiter`.

    libzmq's thread          doorman's thread                             network thread
    accepts, reads ─events─► counts connections, bytes, failures          lets_in(message): too many a second?
    greets ───────── key? ─► a name, or no ─► libzmq                      departed(): whose connections ended

A connection is cut when it holds back more bytes than it may, when it sends too many messages, when it is too
long a stranger, and, of strangers, when there are too many.
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
"""Beyond that the stranger that came first goes. Each takes two descriptors, of often 1,024 in all."""
STRANGER_NS = 40 * NS_PER_S
"""How long a connection may belong to nobody."""
STRANGER_BYTES = 1024 * 1024
"""What a stranger may hold back: a greeting has at most a header's 64 KiB."""
TOTAL_BYTES = 256 * 1024 * 1024
"""What all may hold back together."""
MEMORY_BYTES = 512 * 1024 * 1024
"""What the process may grow by while somebody holds back more than a stranger may: small frames take 32 times
their bytes in libzmq."""
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
    """Has a thread of its own; the network thread calls all methods."""

    def __init__(
        self,
        socket: zmq.Socket,
        *,
        keys: ServerKeys | None,
        is_known: Callable[[bytes], bool],
        ring: Callable[[], None],
        known_bytes: int = 2 * LIMITS.total,
    ) -> None:
        """Of a ROUTER that is not bound yet.

        keys: whose robots come in; None asks for none.
        is_known, ring: see `ServerTransport`.
        known_bytes: what somebody may hold back.
        """
        self.counts: Counter[str] = Counter()
        """Handshakes that failed and connections that were cut, by cause."""
        self._is_known, self._ring, self._known_bytes = is_known, ring, known_bytes
        self._asks_for_keys = keys is not None
        self._names = {} if keys is None else keys.allowed
        self._guests: dict[
            int, _UnauthenticatedPeer
        ] = {}  # by libzmq's descriptor, the one that came first first
        self._departed: deque[bytes] = deque()
        self._lock = Lock()
        self._said: dict[str, tuple[int, int]] = {}  # kind -> (when, how many by then)
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
        """Whether a message that has arrived is to be looked at; `first` is its first frame."""
        descriptor = first.get(zmq.SRCFD)
        guest = self._guests.get(descriptor)
        if guest is None or guest.peer != peer:  # a descriptor means another connection once one has ended
            self._take_events()
            if (guest := self._guests.get(descriptor)) is None:
                return False  # it has left
            guest.peer, guest.name = peer, _user_of(first)
        if guest.is_cut:
            return False
        guest.connection.take(frames)
        rate = guest.as_known if self._is_known(peer) else guest.as_stranger
        if not rate.take(time.monotonic_ns()):
            self._cut(guest, "more messages than one may send")
            return False
        return True

    def name_of(self, peer: bytes) -> str | None:
        """What the key of a peer that has said something is called; None without keys, and nobody's name, "",
        if the peer has left meanwhile."""
        if not self._asks_for_keys:
            return None
        names = (guest.name for guest in list(self._guests.values()) if guest.peer == peer)
        return next(names, None) or ""

    def end(self, peer: bytes) -> None:
        """Cut a peer off."""
        for guest in list(self._guests.values()):
            if guest.peer == peer and not guest.is_cut:
                self._cut(guest, "a message that could not be taken")

    def departed(self) -> list[bytes]:
        """Peers whose connections have ended since the last call."""
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
        """Give up the sockets, after that."""
        self._monitor.close(0)
        self._asked.close(0)
        self._bell.close()
        for guest in self._guests.values():
            guest.connection.close()

    def _run(self) -> None:
        # By its descriptor: two threads read the monitor, and libzmq's sockets bear one at a time.
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
        """Say whose key it is, or that it is nobody's (ZAP, ZeroMQ RFC 27)."""
        with contextlib.suppress(zmq.Again):
            version, request, _, address, _, mechanism, *credentials = self._asked.recv_multipart(zmq.NOBLOCK)
            name = self._names.get(credentials[0]) if mechanism == b"CURVE" and credentials else None
            if name is None:
                self._count("key that nobody here has", f"from {address.decode(errors='replace')!r}")
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
            self._guests[descriptor] = _UnauthenticatedPeer(Connection(descriptor), time.monotonic_ns())
        if len(self._guests) > MAX_CONNECTIONS:
            strangers = (g for g in self._guests.values() if not g.is_cut and not self._is_known(g.peer))
            if (first := next(strangers, None)) is not None:
                self._cut(first, "more connections than there is room for")

    def _forget(self, descriptor: int) -> None:
        guest = self._guests.pop(descriptor, None)
        if guest is not None:
            guest.connection.close()
            if guest.peer:
                self._departed.append(guest.peer)
                self._ring()

    def _look_around(self, now_ns: int) -> None:
        held: list[tuple[int, _UnauthenticatedPeer]] = []
        for guest in list(self._guests.values()):
            if guest.is_cut:
                guest.connection.cut()  # for want of a descriptor it could not be then
                continue
            is_known, pending = self._is_known(guest.peer), guest.connection.pending()
            if pending > (self._known_bytes if is_known else STRANGER_BYTES):
                self._cut(guest, "more bytes than one may hold back")
            elif not is_known and now_ns - guest.since_ns > STRANGER_NS:
                self._cut(guest, "nobody for too long")
            elif pending:
                held.append((pending, guest))
        total, memory = sum(pending for pending, _ in held), _memory()
        if total <= STRANGER_BYTES:
            self._calm_memory = memory
        held.sort(key=lambda it: it[0])
        while held and (total > TOTAL_BYTES or memory - self._calm_memory > MEMORY_BYTES):
            pending, guest = held.pop()
            total, self._calm_memory = total - pending, memory
            self._cut(guest, "more bytes than all may hold back")

    def _cut(self, guest: _UnauthenticatedPeer, why: str) -> None:
        guest.is_cut = True
        self._count(f"connection cut: {why}", guest.connection.address)
        guest.connection.cut()

    def _count(self, what: str, detail: str) -> None:
        """Count it, and say so, but not more often than somebody reads."""
        self.counts[what] += 1
        now_ns, (logged_ns, said) = time.monotonic_ns(), self._said.get(what, (-_SAY_AGAIN_NS, 0))
        if now_ns - logged_ns >= _SAY_AGAIN_NS:
            logger.warning("%s (%s); %d since the last line", what, detail, self.counts[what] - said)
            self._said[what] = now_ns, self.counts[what]


def _user_of(frame: zmq.Frame) -> str | None:
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return None


def _memory() -> int:
    """Resident bytes of this process; 0 where Linux does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


_PAGE = 4096
