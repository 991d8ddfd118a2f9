"""Servers that are killed and stopped: `PolicyProcess`, a process of its own that starts in milliseconds.

They are forked from a process that has imported all they need, so a row can kill fifty of them in seconds.
"""

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext

from robot_runtime.core.policy import Policy
from robot_runtime.errors import ServerUnavailableError
from robot_runtime.server.process import ANY_PORT

START_S = 60.0
"""How long a server may take to be ready on a busy machine, the first one with all its imports [s]."""


def fresh_processes() -> ForkServerContext:
    """Where processes come from that have nothing of this one but what they import."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scripts.bench.faults.policies", "robot_runtime.server.server"])
    return context


class PolicyProcess:
    """A policy's server; ready once constructed. A context manager."""

    def __init__(self, make: Callable[[], Policy], address: str = ANY_PORT, *, waits: bool = True) -> None:
        """
        make: makes the policy, in the server's process.
        waits: until it is ready; ServerUnavailableError: it does not get there.
        """
        context = fresh_processes()
        ours, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_serve, args=(make, address, theirs), daemon=True)
        self._process.start()
        theirs.close()
        if not waits:
            self.address = address
            return
        if not ours.poll(START_S):
            self.kill()
            raise ServerUnavailableError(f"a server of faults was not ready within {START_S:g} s")
        self.address = ours.recv()

    def kill(self) -> None:
        """kill -9: no goodbye."""
        self._process.kill()
        self._process.join()

    def freeze(self) -> None:
        """SIGSTOP: its sockets stay open, and nobody answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def __enter__(self) -> "PolicyProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def free_address() -> str:
    """Where nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"


def _serve(make: Callable[[], Policy], address: str, ready: Connection) -> None:
    from robot_runtime.server.server import PolicyServer

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # policies that are to fail fail without a word
    with PolicyServer(make(), address) as server:
        ready.send(server.address)
        server.serve_forever()
