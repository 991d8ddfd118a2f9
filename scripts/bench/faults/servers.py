"""Policies for faults, and the servers of them, each in a process of its own."""

import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from typing import Any, get_args

import numpy as np
from msgspec import structs

from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.sampler_parts import SamplerPart
from robot_runtime.core.policy import ChunkRequest, Policy
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S, ActionSpec, ChunkPart
from robot_runtime.core.values.fields import BasePose, GripperWidth, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import BASE
from robot_runtime.errors import ServerUnavailableError
from robot_runtime.mailbox import Doorbell
from robot_runtime.server.process import ANY_PORT
from robot_runtime.transport.server import ServerTransport
from robot_runtime.wire.codec import encode, read
from robot_runtime.wire.messages import Heartbeat, Hello, Packet, Welcome

WRONG_BY = 0.2
"""Offset of the rows of an invalid answer [rad], where a robot that runs any of them would go."""
FRANKA = Schema.of(ActionSpec(fields=(JointPosition(7), GripperWidth()), horizon=1, dt_ns=1))
"""Seven joints and a gripper."""
HORIZON, DT_NS = 8, 50_000_000
"""A plan of 0.4 s, so that a robot without answers soon comes to rest."""


class Swing:
    """Swings the joints by 0.1 rad at 0.25 Hz, by the robot's clock; chunks of eight rows."""

    def __init__(self) -> None:
        spec = ActionSpec(fields=FRANKA.action_fields, horizon=HORIZON, dt_ns=DT_NS)
        able = Capabilities(
            samplers=get_args(SamplerPart), max_inference_delay=HORIZON - 1, prefix_at_rest=True
        )
        self.info = PolicyInfo(name="swing", action_spec=spec, schema=FRANKA, capabilities=able)

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        """Yield one block of rows."""
        state = request.observation.state
        t_s = (state.t_ns + DT_NS * np.arange(HORIZON)) / NS_PER_S
        swing = 0.1 * np.sin(2.0 * np.pi * 0.25 * t_s)
        rows = np.tile([*state.q, state.gripper_width], (HORIZON, 1))
        rows[:, :7] += (swing - swing[0])[:, None]
        yield rows


class HangingSwing(Swing):
    """Hangs in warm-up, or from its first request on."""

    def __init__(self, *, in_warm_up: bool = False) -> None:
        super().__init__()
        self._in_warm_up = in_warm_up

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        if self._in_warm_up or request.observation.state.t_ns > 0:
            time.sleep(3600.0)
        return super().infer(request)


class LateSwing(Swing):
    """Swings, with each answer late by the next of the given times."""

    def __init__(self, delays_s: tuple[float, ...]) -> None:
        super().__init__()
        self._delays_s = cycle(delays_s)

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        if request.observation.state.t_ns > 0:  # not the warm-up
            time.sleep(next(self._delays_s))
        yield from super().infer(request)


class NamedRows(Swing):
    """Returns rows that name their request, (request, row, 0, ...), in two blocks."""

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        rows = np.zeros((HORIZON, self.info.action_spec.dim))
        rows[:, 0], rows[:, 1] = request.request_id, np.arange(HORIZON)
        yield rows[: HORIZON // 2]
        yield rows[HORIZON // 2 :]


class Wild(Swing):
    """Returns targets that no robot can follow, random for each answer: steps, ramps and far positions."""

    def __init__(self) -> None:
        super().__init__()
        self._rng = np.random.default_rng(6)

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        (rows,) = (np.array(each) for each in super().infer(request))
        kind, joints = self._rng.integers(4), rows[:, :7]
        if kind == 0:
            joints += self._rng.choice([-1.0, 1.0], size=joints.shape) * self._rng.uniform(0.1, 1.0)
        elif kind == 1:
            joints[HORIZON // 2 :] += self._rng.uniform(-2.0, 2.0, 7)
        elif kind == 2:
            joints += np.linspace(0.0, 1.0, HORIZON)[:, None] * self._rng.uniform(-6.0, 6.0, 7)
        else:
            joints[:] = self._rng.uniform(-1.0, 1.0, 7) * 10.0 ** self._rng.integers(0, 9)
        rows[:, 7] = self._rng.uniform(-1.0, 1.0)
        yield rows


class Broken(Swing):
    """Returns answers of which two in three are invalid: of another shape or type, not finite, or an
    error."""

    def __init__(self) -> None:
        super().__init__()
        self._rng = np.random.default_rng(5)

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        (rows,) = super().infer(request)
        if request.observation.state.t_ns == 0 or self._rng.random() < 1.0 / 3.0:
            yield rows
            return
        wrong = np.array(rows) + WRONG_BY
        bad = wrong.copy()
        bad[self._rng.integers(HORIZON), self._rng.integers(8)] = self._rng.choice([np.nan, np.inf])
        kinds = [
            bad,
            wrong[:, :-1],
            wrong[0],
            np.vstack([wrong, wrong]),
            wrong.astype(object),
            wrong.astype("U9"),
        ]
        kinds += [wrong + 1j, wrong[:0], "rows", None]
        pick = self._rng.integers(len(kinds) + 1)
        if pick == len(kinds):
            raise RuntimeError("a policy's own")
        yield kinds[pick]


CAMERA, SIZE = "wrist", (96, 128)


class Looking(Swing):
    """Swings, and gets images."""

    def __init__(self) -> None:
        super().__init__()
        self.info = replace(self.info, schema=replace(FRANKA, cameras={CAMERA: SIZE}))


DRIVE_SPEED = 0.4


class Drive:
    """Drives a base straight on from its measured pose, by poses."""

    info = PolicyInfo(
        name="drive", action_spec=ActionSpec(fields=(BasePose(),), horizon=HORIZON, dt_ns=DT_NS)
    )

    def infer(self, request: ChunkRequest) -> Iterator[Any]:
        x_WB = request.observation.state.base(BASE).x_WB
        assert x_WB is not None
        x, y, yaw = x_WB
        distance = DRIVE_SPEED * np.arange(HORIZON) * DT_NS / NS_PER_S
        yield np.stack(
            [x + np.cos(yaw) * distance, y + np.sin(yaw) * distance, np.full(HORIZON, yaw)], axis=1
        )


START_S = 60.0
"""How long a server may take to be ready on a busy machine, the first one with all its imports [s]."""


def fresh_processes() -> ForkServerContext:
    """Return the context that forks processes which share only imports with this one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scripts.bench.faults.servers", "robot_runtime.server.server"])
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
        self._process = context.Process(target=_serve_hostile, args=(make, spoil, seed, theirs), daemon=True)
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


def _serve_hostile(make: Callable[[], Policy], spoil: Spoil, seed: int, pipe: Connection) -> None:
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
