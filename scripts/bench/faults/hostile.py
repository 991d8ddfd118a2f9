"""`HostileProcess`: a server that speaks our protocol and violates it.

Beside the right answer to each request it sends that answer again, old answers, rows of unknown requests, of
another epoch, session or robot; or rows that are not numbers, or too many of them.
"""

import random
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import numpy as np
from msgspec import structs

from robot_runtime.core.policy import ChunkRequest, Policy
from robot_runtime.core.values.action import NS_PER_S, ChunkPart
from robot_runtime.errors import ServerUnavailableError
from robot_runtime.mailbox import Doorbell
from robot_runtime.server.process import ANY_PORT
from robot_runtime.transport.server import ServerTransport
from robot_runtime.wire.codec import encode, read
from robot_runtime.wire.messages import Heartbeat, Hello, Packet, Welcome
from scripts.bench.faults.policies import WRONG_BY
from scripts.bench.faults.servers import START_S, fresh_processes

HEARTBEAT_NS = NS_PER_S
REMEMBERED, NUM_WRONG = 64, 8
"""Answers that it repeats; wrong answers for each right one, few enough for a queue of 32 messages."""
Spoil = Callable[[list[Packet], list[Packet], random.Random], Iterator[Packet]]
"""Function that returns what is sent for a request, from its right answer in parts and earlier answers."""


class HostileProcess:
    """Hostile server in its own process; ready once constructed. A context manager."""

    def __init__(self, make: Callable[[], Policy], spoil: Spoil, *, seed: int = 0) -> None:
        """spoil: a module's function, which the process imports by name."""
        context = fresh_processes()
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(make, spoil, seed, theirs), daemon=True)
        self._process.start()
        if not self._pipe.poll(START_S):
            self._process.kill()
            raise ServerUnavailableError(f"a hostile server was not ready within {START_S:g} s")
        self.address: str = self._pipe.recv()

    def num_sent(self) -> int:
        """Number of packets of rows so far, right and wrong."""
        self._pipe.send(None)
        return int(self._pipe.recv())

    def __enter__(self) -> "HostileProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()


def strays(right: list[Packet], before: list[Packet], rng: random.Random) -> Iterator[Packet]:
    """Yield the right answer among answers that are doubled, late, early, of another robot or of none."""
    wrong = [_stray(rng.choice([*right, *before]), rng) for _ in range(NUM_WRONG)]
    places = sorted(rng.randint(0, len(wrong)) for _ in right)
    for i, packet in enumerate(wrong):
        for place, part in zip(places, right, strict=True):
            if place == i:
                yield part
        yield packet
    for place, part in zip(places, right, strict=True):
        if place == len(wrong):
            yield part
            yield part


def _stray(packet: Packet, rng: random.Random) -> Packet:
    """Return a stray packet: an earlier one, or one with other identifiers."""
    part = packet.message
    assert isinstance(part, ChunkPart)
    pick = rng.randrange(5)
    changes = {
        1: {"epoch": part.epoch + rng.choice([-1, 1]), "rows": np.full_like(part.rows, -1.0)},
        2: {"request_id": rng.getrandbits(40), "rows": np.full_like(part.rows, -1.0)},
    }.get(pick, {})
    packet = structs.replace(packet, message=structs.replace(part, **changes))
    if pick == 3:
        return structs.replace(packet, session=packet.session ^ 1 << rng.randrange(32))
    return structs.replace(packet, client_id=packet.client_id[::-1]) if pick == 4 else packet


def nonsense(right: list[Packet], before: list[Packet], rng: random.Random) -> Iterator[Packet]:
    """Yield answers of which two in three are invalid: NaN, infinite, too wide, too many rows, none."""
    if rng.random() < 1.0 / 3.0:
        yield from right
        return
    part = right[0].message
    assert isinstance(part, ChunkPart)
    rows = part.rows + WRONG_BY
    bad = rows.copy()
    bad[rng.randrange(len(rows)), rng.randrange(rows.shape[1])] = rng.choice([np.nan, np.inf, -np.inf])
    wrong = rng.choice([bad, bad, rows[:, :-1], np.hstack([rows, rows]), np.vstack([rows] * 9), rows[:0]])
    yield structs.replace(right[0], message=structs.replace(part, rows=wrong, is_last=True))


def _serve(make: Callable[[], Policy], spoil: Spoil, seed: int, pipe: Connection) -> None:
    policy, rng = make(), random.Random(seed)
    welcome = Welcome(info=policy.info, heartbeat_ns=HEARTBEAT_NS)
    transport, bell = ServerTransport(ANY_PORT), Doorbell()
    before: list[Packet] = []
    num_sent = 0

    def tell() -> None:
        while True:
            pipe.recv()
            pipe.send(num_sent)

    pipe.send(transport.address)
    threading.Thread(target=tell, daemon=True).start()
    while True:
        transport.wait(None, bell)
        while (arrival := transport.receive()) is not None:
            peer, frames = arrival
            packet = read(frames)
            if not isinstance(packet, Packet):
                continue
            match packet.message:
                case Hello():
                    transport.send(peer, encode(Packet(packet.client_id, packet.session, welcome)))
                case Heartbeat():
                    transport.send(peer, encode(packet))
                case ChunkRequest():
                    right = right_answer(packet, policy)
                    for answer in spoil(right, before, rng):
                        transport.send(peer, encode(answer))
                        num_sent += 1
                    before = [*before, *right][-REMEMBERED:]


def right_answer(packet: Packet, policy: Policy) -> list[Packet]:
    """Return the policy's answer, one packet for each of its blocks."""
    request = packet.message
    assert isinstance(request, ChunkRequest)
    blocks = [np.asarray(rows, dtype=float) for rows in policy.infer(request)]
    out, first = [], 0
    for rows in blocks:
        end = first + len(rows)
        part = request.part(rows, first_row=first, is_last=end >= policy.info.action_spec.horizon)
        out.append(Packet(packet.client_id, packet.session, part))
        first = end
    return out
