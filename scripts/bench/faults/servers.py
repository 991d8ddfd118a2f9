"""`PolicyProcess`: a server in its own process to kill and stop, which starts in milliseconds.

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
    """Return the context that forks processes which share only imports with this one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scripts.bench.faults.policies", "robot_runtime.server.server"])
    return context


class PolicyProcess:
    """Server of a policy; ready once constructed. A context manager."""

    def __init__(self, make: Callable[[], Policy], address: str = ANY_PORT, *, waits: bool = True) -> None:
        """
        make: makes the policy, in the server's process.
        waits: wait until it is ready; ServerUnavailableError: it does not become ready.
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
        """Kill it with -9, without a goodbye."""
        self._process.kill()
        self._process.join()

    def freeze(self) -> None:
        """Stop it with SIGSTOP: its sockets stay open, but it does not answer."""
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
    """Return an address on which nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"tcp://127.0.0.1:{listener.getsockname()[1]}"


def _serve(make: Callable[[], Policy], address: str, ready: Connection) -> None:
    from robot_runtime.server.server import PolicyServer

    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # policies that are meant to fail do so silently
    with PolicyServer(make(), address) as server:
        ready.send(server.address)
        server.serve_forever()
