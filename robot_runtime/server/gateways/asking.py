"""Foreign clients as robots of ours: a `Guest` asks our server for one of them, `Guests` keeps them apart."""

import time
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from policies.policy import Policy
from robot_runtime.client import PolicyClient
from robot_runtime.core.action import NS_PER_MS, NS_PER_S
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.sampler_parts import PREFIXLESS
from robot_runtime.core.state import Observation
from robot_runtime.errors import RobotRuntimeError
from robot_runtime.keys import RobotKeys
from robot_runtime.wire.events import PartReceived, RequestDropped, RequestExpired, RequestFailed, ServerLost

DEADLINE_NS = 10 * NS_PER_S
MAX_GUESTS = 16
IDLE_S = 120.0
"""A guest that is silent for so long gives way to another."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunk:
    """A whole answer."""

    rows: np.ndarray
    timing: dict[str, float]
    """How long the request waited and inference took [ms]."""


@dataclass(kw_only=True, eq=False)
class Guest[Told]:
    """One foreign client's connection to our server; one question at a time."""

    policy: Policy
    connection: PolicyClient
    told: Told
    """What the gateway has to remember of it."""
    heard_s: float = field(default_factory=time.monotonic)
    _num_asked: int = 0

    def ask(self, observation: Observation) -> Chunk:
        """Wait for the whole chunk; ValueError says in words for the client why there is none."""
        self._num_asked += 1
        sampler = next(kind for kind in self.policy.samplers if kind in PREFIXLESS)()
        self.connection.events()
        self.connection.submit(
            ChunkRequest(
                request_id=self._num_asked,
                epoch=0,
                observation=observation,
                prev_action_chunk=None,
                inference_delay=0,
                sampler=sampler,
                seed=self._num_asked,
                deadline_ns=DEADLINE_NS,
            )
        )
        return self._answer()

    def _answer(self) -> Chunk:
        rows: list[np.ndarray] = []
        given_up_ns = time.monotonic_ns() + 2 * DEADLINE_NS
        while time.monotonic_ns() < given_up_ns:
            self.connection.wait_for_events(1.0)
            for event in self.connection.events():
                match event:
                    case PartReceived(part=part, infer_ns=infer_ns, queue_ns=queue_ns):
                        rows.append(part.rows)
                        if part.is_last:
                            timing = {"infer_ms": infer_ns / NS_PER_MS, "queue_ms": queue_ns / NS_PER_MS}
                            return Chunk(rows=np.concatenate(rows), timing=timing)
                    case RequestFailed(reason=reason):
                        raise ValueError(reason)
                    case RequestDropped() | RequestExpired():
                        raise ValueError("the server could not answer in time")
                    case ServerLost(reason=reason):
                        raise ValueError(f"the policy server is gone: {reason}")
        raise ValueError("the connection to the policy server was closed")


class Guests[Peer, Told]:
    """The clients of a gateway by what tells them apart; any thread may call."""

    def __init__(self, server: str, *, robot: str, keys: RobotKeys | None = None) -> None:
        """
        server: the address of ours. robot: what the guests are called there.
        keys: for a server that asks for them.
        """
        self._server, self._robot, self._keys = server, robot, keys
        self._guests: dict[Peer, Guest[Told]] = {}
        self._lock = Lock()

    def find(self, peer: Peer) -> Guest[Told] | None:
        """The guest of that peer, who has just been heard."""
        guest = self._guests.get(peer)
        if guest is not None:
            guest.heard_s = time.monotonic()
        return guest

    def admit(self, peer: Peer, policy: Policy, told: Told) -> Guest[Told]:
        """Greet the server for a new guest; an older one of the same peer, and idle ones, leave.

        ValueError: there are MAX_GUESTS already. RobotRuntimeError: the server does not answer.
        """
        connection = PolicyClient(
            self._server, schema=policy.schema, robot=self._robot, policy=policy.name, keys=self._keys
        )
        try:
            connection.wait_until_ready()
        except RobotRuntimeError:
            connection.close()
            raise
        guest = Guest(policy=policy, connection=connection, told=told)
        oldest_s = time.monotonic() - IDLE_S
        with self._lock:
            gone = [p for p, other in self._guests.items() if p == peer or other.heard_s < oldest_s]
            leaving = [self._guests.pop(p) for p in gone]
            is_full = len(self._guests) >= MAX_GUESTS
            if not is_full:
                self._guests[peer] = guest
        for other in [*leaving, guest] if is_full else leaving:
            other.connection.close()
        if is_full:
            raise ValueError(f"this server has {MAX_GUESTS} clients already")
        return guest

    def leave(self, peer: Peer) -> None:
        """A client has gone."""
        with self._lock:
            guest = self._guests.pop(peer, None)
        if guest is not None:
            guest.connection.close()

    def close(self) -> None:
        """All have gone."""
        for peer in list(self._guests):
            self.leave(peer)
