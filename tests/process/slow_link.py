"""A link that delays every byte, both ways: a TCP proxy between a robot and its server.

TCP loses nothing: what the network drops comes late, and everything behind it waits. So a packet that is lost
here is later by a round trip and 0.2 s, and by twice as much for each time that it is lost again.

    sent      a  b  c  d                      one way    late by jitter
    arrives   |--one way--> a   b . . . . . (lost: round trip + 0.2 s) . . . b c d
"""

import random
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Condition, Thread

_PACKET = 1448
_RETRANSMIT_NS = 200_000_000
_READ = 64 * 1024
_BURST_NS = 100_000_000
"""Of a link that was idle, what passes it at once."""


class SlowLink:
    """Passes connections to `address` on to a server, as if it were far away."""

    def __init__(
        self,
        target: str,
        *,
        one_way_ns: int = 0,
        jitter_ns: int = 0,
        loss: float = 0.0,
        bytes_per_s: int | None = None,
        seed: int = 0,
    ) -> None:
        """
        target: tcp://HOST:PORT of the server.
        bytes_per_s: what fits through it each way; None: anything.
        loss: share of packets that have to be sent again.
        """
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = host, int(port)
        self.one_way_ns, self._jitter_ns, self._loss = one_way_ns, jitter_ns, loss
        self.bytes_per_s = bytes_per_s
        self._rng = random.Random(seed)
        self.num_connections = 0
        self.num_lost = 0
        """Packets."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        if bytes_per_s is not None:  # and it holds no more than a radio's queue
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _READ)
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = [self._listener]
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Cut everything."""
        for connection in self._sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def late_by_ns(self, num_bytes: int) -> int:
        """How late so many bytes are, if nothing is under way before them."""
        late_ns = self.one_way_ns + self._rng.randint(0, self._jitter_ns)
        worst_ns = 0
        for _ in range(-(-num_bytes // _PACKET)):
            again_ns, lost_ns = 2 * self.one_way_ns + _RETRANSMIT_NS, 0
            while self._rng.random() < self._loss:
                self.num_lost += 1
                lost_ns, again_ns = lost_ns + again_ns, 2 * again_ns
            worst_ns = max(worst_ns, lost_ns)
        return late_ns + worst_ns

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.num_connections += 1
                Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        time.sleep(2 * self.one_way_ns / 1e9)  # until the robot would know that it is connected
        try:
            far = socket.create_connection(self._target)
        except OSError:
            near.close()
            return
        self._sockets += [near, far]
        with suppress(OSError):  # everything has been cut meanwhile
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink in ((near, far), (far, near)):
                _Line(self, source, sink)


class _Line:
    """One direction of one connection."""

    def __init__(self, link: SlowLink, source: socket.socket, sink: socket.socket) -> None:
        self._link, self._source, self._sink = link, source, sink
        self._under_way: deque[tuple[int, bytes]] = deque()  # (when it arrives, what); nothing is the end
        self._has_more = Condition()
        Thread(target=self._read, daemon=True).start()
        Thread(target=self._write, daemon=True).start()

    def _read(self) -> None:
        arrives_ns = free_ns = 0
        while True:
            try:
                data = self._source.recv(_READ)
            except OSError:
                data = b""
            if self._link.bytes_per_s is not None:
                # By the clock: naps that are longer than they should be on a busy machine add nothing up.
                free_ns = max(free_ns, time.monotonic_ns() - _BURST_NS)
                free_ns += round(len(data) / self._link.bytes_per_s * 1e9)
                time.sleep(max(0, free_ns - time.monotonic_ns()) / 1e9)
            arrives_ns = max(arrives_ns, time.monotonic_ns() + self._link.late_by_ns(len(data)))
            with self._has_more:
                self._under_way.append((arrives_ns, data))
                self._has_more.notify()
            if not data:
                return

    def _write(self) -> None:
        with suppress(OSError):
            while True:
                with self._has_more:
                    self._has_more.wait_for(lambda: bool(self._under_way))
                    arrives_ns, data = self._under_way.popleft()
                time.sleep(max(0, arrives_ns - time.monotonic_ns()) / 1e9)
                if not data:
                    self._sink.shutdown(socket.SHUT_RDWR)
                    return
                self._sink.sendall(data)


@contextmanager
def slow_link(target: str, **link) -> Iterator[SlowLink]:
    """A `SlowLink` that ends with its test."""
    made = SlowLink(target, **link)
    try:
        yield made
    finally:
        made.close()
