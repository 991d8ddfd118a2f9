"""`FaultProxy`: a TCP link between a robot and its server that can be broken while it is used.

open       every byte passes, late by `late_ns` and by up to `jitter_ns` more
stalled    bytes wait, in both directions, and pass in order when it opens: a partitioned network
severed    existing connections get nothing more, without notice: half open. New ones pass
cut        existing connections end
corrupt    share of the bytes that are changed
"""

import contextlib
import random
import socket
import threading
import time

_READ = 64 * 1024


class FaultProxy:
    """Forwards connections to `address` to a server. A context manager; any thread may break the link."""

    def __init__(self, target: str, *, seed: int = 0) -> None:
        """target: tcp://HOST:PORT of the server."""
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = host, int(port)
        self._rng = random.Random(seed)
        self._passes = threading.Event()
        self._passes.set()
        self._is_closed = False
        self._pairs: list[_Pair] = []
        self.late_ns = self.jitter_ns = 0
        self.corrupt_share = 0.0
        self.num_corrupt = self.num_connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "FaultProxy":
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed = True
        self._passes.set()
        self._listener.close()
        self.cut()

    def stall(self) -> None:
        """Let nothing pass until `open`."""
        self._passes.clear()

    def open(self) -> None:
        self._passes.set()

    def sever(self) -> None:
        """Make the existing connections half open for good."""
        for pair in self._pairs:
            pair.is_deaf = True

    def cut(self) -> None:
        """End the existing connections."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.end()

    def spoilt(self, data: bytes) -> bytes:
        """Return what comes out of the link for these bytes."""
        if not self.corrupt_share:
            return data
        out = bytearray(data)
        for i in range(len(out)):
            if self._rng.random() < self.corrupt_share:
                out[i] ^= self._rng.randrange(1, 256)
                self.num_corrupt += 1
        return bytes(out)

    def pause(self) -> bool:
        """Wait until a byte that arrives now has passed; False: the proxy is closed."""
        self._passes.wait()
        if late_ns := self.late_ns + self._rng.randint(0, self.jitter_ns):
            time.sleep(late_ns / 1e9)
        self._passes.wait()
        return not self._is_closed

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.num_connections += 1
                try:
                    far = socket.create_connection(self._target, 1.0)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                self._pairs.append(_Pair(self, near, far))


class _Pair:
    """One connection, in both directions."""

    def __init__(self, proxy: FaultProxy, near: socket.socket, far: socket.socket) -> None:
        self._proxy, self._ends = proxy, (near, far)
        self.is_deaf = False
        for end in self._ends:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def end(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                data = source.recv(_READ)
                if self.is_deaf:
                    if not data:
                        return  # one end is gone; the other gets no notice
                    continue
                if not data or not self._proxy.pause():
                    break
                sink.sendall(self._proxy.spoilt(data))
            self.end()
