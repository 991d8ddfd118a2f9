"""A policy behind a server, asked in lock-step: `RemotePolicy`. Simulated time stops during a request.

    wall time         |-- network, GPU, a slow machine, however long --|
    simulated time    t: asks                                          t: goes on; answer at t + trace's delay

So a simulator that is slower than real time, or runs in another process with other package versions than the
policy, gives the same results as in one process with it: the request carries the simulated time, and the
trace sets the latency.
"""

from collections.abc import Iterator
from types import TracebackType

import numpy as np
from msgspec import structs

from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import PolicyError, ServerUnavailableError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.transport.address import server_and_name
from robot_runtime.wire.events import PartReceived, RequestFailed, ServerLost
from robot_runtime.wire.messages import Dropped

PATIENCE_NS = 60 * NS_PER_S
"""Maximum wall time of one answer: as long as servers keep a request."""


class RemotePolicy:
    """A served policy with the interface of a local one; `infer` blocks until its last rows have come."""

    def __init__(self, address: str, *, schema: Schema, timeout_s: float = 10.0) -> None:
        """address: with /NAME behind it, where the server has several. schema: what the env offers.

        ServerUnavailableError: no server answers there. SchemaMismatchError: env and policy do not fit.
        """
        server, policy = server_and_name(address)
        self._client = PolicyClient(server, schema=schema, robot="simulator in lock-step", policy=policy)
        try:
            self._welcome = self._client.wait_until_ready(timeout_s)
        except BaseException:
            self._client.close()
            raise
        self._client.events()
        self._epoch, self._next_id = self._client.new_epochs(), 0
        self.info = self._welcome.info

    def __enter__(self) -> "RemotePolicy":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Send the server a goodbye."""
        self._client.close()

    def infer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        """As `Policy.infer`. PolicyError: the server could not answer. ServerUnavailableError: it is gone."""
        asked = structs.replace(
            request, request_id=self._next_id, epoch=self._epoch, in_flight=(), deadline_ns=PATIENCE_NS
        )
        self._next_id += 1
        self._client.submit(asked)
        yield from self._answer(asked)

    def _answer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        while self._client.wait_for_events(PATIENCE_NS / NS_PER_S):
            for event in self._client.events():
                match event:
                    case PartReceived(part=part) if part.request_id == request.request_id:
                        yield part.rows
                        if part.is_last:
                            return
                    case Dropped() | RequestFailed():
                        raise PolicyError(f"the server did not answer: {event}")
                    case ServerLost(reason=reason):
                        raise ServerUnavailableError(f"the server is gone: {reason}")
        raise ServerUnavailableError(f"no answer within {PATIENCE_NS // NS_PER_S} s")


def is_address(text: str) -> bool:
    """Whether it names a server, and not a local policy."""
    return text.startswith(("tcp://", "ipc://"))
