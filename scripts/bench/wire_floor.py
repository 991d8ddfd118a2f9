"""Reference of `bench wire` for our round trip: ZeroMQ without any processing of the frames.

zmq           one thread on each side, `send_multipart` and `recv_multipart` without copying
our threads   the caller, a network thread with a doorbell, the server's network thread, its worker
"""

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread

import numpy as np
import zmq

from robot_runtime.mailbox import Doorbell
from robot_runtime.processes import interrupts_kept_from_children
from robot_runtime.server.collector import keep_freed_memory
from robot_runtime.transport.client import ClientTransport
from robot_runtime.transport.server import ServerTransport
from robot_runtime.wire.frames import Buffer

ANY_PORT = "tcp://127.0.0.1:*"
Trip = tuple[int, int | None]
"""Time of a round trip, and from arrival to the caller if that is known [ns]."""
RoundTrip = Callable[[], Trip]
_HEADER = b"header"


@contextmanager
def server_process(serve: Callable[..., None], *args: object) -> Iterator[str]:
    """A process running `serve(pipe, *args)`, which sends its address first."""
    with process_with_pipe(serve, *args) as pipe:
        yield pipe.recv()


@contextmanager
def process_with_pipe(run: Callable[..., None], *args: object) -> Iterator[Connection]:
    """A process running `run(pipe, *args)`; the other end of its pipe, which has ended when the process has
    (EOFError)."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=run, args=(theirs, *args), daemon=True)
    with interrupts_kept_from_children() as now_for_us:
        process.start()
        theirs.close()
        try:
            now_for_us()
            yield ours
        finally:
            process.kill()
            process.join()


def _serve(pipe: Connection, rows: np.ndarray) -> None:
    keep_freed_memory()
    socket = zmq.Context().socket(zmq.ROUTER)
    socket.bind(ANY_PORT)
    pipe.send(socket.getsockopt_string(zmq.LAST_ENDPOINT))
    while True:
        peer, *_ = socket.recv_multipart(copy=False)
        socket.send_multipart([peer, _HEADER, rows], copy=False)


@contextmanager
def floor_round_trip(arrays: list[np.ndarray], rows: np.ndarray) -> Iterator[RoundTrip]:
    """Sends the arrays, gets the rows back."""
    with server_process(_serve, rows) as address, zmq.Context() as context:
        socket = context.socket(zmq.DEALER)
        socket.set(zmq.LINGER, 0)
        socket.connect(address)

        def round_trip() -> Trip:
            started_ns = time.monotonic_ns()
            socket.send_multipart([_HEADER, *arrays], copy=False)
            _, answer = socket.recv_multipart(copy=False)
            np.frombuffer(answer.buffer, rows.dtype).reshape(rows.shape)
            return time.monotonic_ns() - started_ns, None

        yield round_trip
        socket.close()


def _serve_threads(pipe: Connection, rows: np.ndarray) -> None:
    keep_freed_memory()
    transport, doorbell = ServerTransport(ANY_PORT), Doorbell()
    pipe.send(transport.address)
    jobs: SimpleQueue[bytes] = SimpleQueue()
    answers: deque[tuple[bytes, np.ndarray]] = deque()

    def work() -> None:
        while True:
            answers.append((jobs.get(), rows))
            doorbell.ring()

    Thread(target=work, daemon=True).start()
    while True:
        transport.wait(None, doorbell)
        while answers:
            peer, answer = answers.popleft()
            transport.send(peer, [_HEADER, answer.data.cast("B")])
        while (arrival := transport.receive()) is not None:
            jobs.put(arrival[0])


class _NetworkThread:
    """The client's side of the four threads: what `PolicyClient` is without a protocol."""

    def __init__(self, address: str) -> None:
        self.answers: SimpleQueue[tuple[int, list[Buffer]]] = SimpleQueue()
        self._transport, self._doorbell = ClientTransport(address), Doorbell()
        self._outbox: deque[list[Buffer]] = deque()
        self._is_closing = False
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, frames: list[Buffer]) -> None:
        self._outbox.append(frames)
        self._doorbell.ring()

    def close(self) -> None:
        self._is_closing = True
        self._doorbell.ring()
        self._thread.join()
        self._doorbell.close()

    def _run(self) -> None:
        while not self._is_closing:
            while self._outbox and self._transport.send(self._outbox[0]):
                self._outbox.popleft()
            while (frames := self._transport.receive()) is not None:
                self.answers.put((time.monotonic_ns(), frames))
            self._transport.wait(None, self._doorbell, to_send=bool(self._outbox))
        self._transport.close()


@contextmanager
def threads_round_trip(arrays: list[np.ndarray], rows: np.ndarray) -> Iterator[RoundTrip]:
    """The same through the threads that ours has."""
    with server_process(_serve_threads, rows) as address:
        client = _NetworkThread(address)

        def round_trip() -> Trip:
            started_ns = time.monotonic_ns()
            client.submit([_HEADER, *(array.data.cast("B") for array in arrays)])
            arrived_ns, (_, answer) = client.answers.get()
            np.frombuffer(answer, rows.dtype).reshape(rows.shape)
            now_ns = time.monotonic_ns()
            return now_ns - started_ns, now_ns - arrived_ns

        yield round_trip
        client.close()
