"""Sends randomly changed packets to the codec, both sessions and a server in its own process.

python -m scripts.attack.fuzz_packets --count 1000000 --live 20000

Every packet that either side may send is flipped, cut or joined to another, and values of its header are
replaced by extreme ones. The result goes to a server that knows its sender or does not, and to a robot that
greets or has been welcomed, and their answers are encoded. An exception other than ProtocolError is a crash,
and makes the exit code 1; so does a live server that ends or stops answering a robot beside it.
"""

import itertools
import json
import random
import sys
import time
import traceback
from collections import Counter
from dataclasses import asdict, dataclass

import msgspec
import numpy as np
import zmq
from rich.progress import track

from robot_runtime.cli.options import AnyCount, Maybe, OutputFile, Seed, Steps
from robot_runtime.wire.client_session import ClientSession
from robot_runtime.wire.codec import decode, encode, read
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.messages import (
    Cancel,
    Dropped,
    DropReason,
    ErrorCode,
    ErrorReply,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Packet,
    Readiness,
    RefusalCode,
    Refused,
)
from robot_runtime.wire.server_session import ServerSession
from scripts.attack.live_server import LiveServer
from scripts.harness import run_script, write_result
from tests.wire.session_pair import arrived, make_request, make_schema, make_welcome, reply, start_next

CLIENT, SESSION = "me", 7
WORST: list[object] = [
    *(None, True, 0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)),
    *(0.0, -0.0, 1e308, float("nan"), float("inf"), [1e308] * 7),
    *("", "\0" * 300, "\n", "\x1b[2J", "é" * 5000, b"", b"\xff" * 99, "ChunkRequest", "jpeg"),
    *([], {}, [[]] * 50, {"type": "Hello"}, {"a": {"b": {"c": [None]}}}),
    ["x", 1, "u1", [2**31 - 1, 2**31 - 1, 3], None],
]


@dataclass(frozen=True, kw_only=True)
class Args:
    """Fuzz the protocol with changed packets."""

    count: Steps = 1_000_000
    live: AnyCount = 0
    """Number of further packets to a live server over a socket."""
    seed: Seed = 0
    json: Maybe[OutputFile] = None


def corpus() -> list[list[bytes]]:
    """Return one packet of each kind, and more of those with arrays, as frames."""
    request = make_request(3, in_flight=(1, 2))
    planned = make_request(4, prev_action_chunk=np.zeros((5, 2)), inference_delay=2)
    messages: list[Message] = [
        Hello(robot="robot", schema=make_schema()),
        Hello(robot="robot", schema=make_schema(cameras={})),
        make_welcome(tasks=("one", "two")),
        Readiness(samplers=("ConstantSchedule",), max_batch=1, pieces_left=3),
        Refused(code=RefusalCode.SCHEMA, reason="no"),
        request,
        planned,
        make_request(5, prev_action_chunk=np.zeros((900, 2), np.float32)),
        reply(make_request(1), 0, 6),
        reply(make_request(1), 0, 2),
        Cancel(request_id=3, epoch=0),
        Dropped(request_id=1, epoch=0, reason=DropReason.DEADLINE),
        ErrorReply(code=ErrorCode.BAD_REQUEST, message="no", request_id=1, epoch=0),
        ErrorReply(code=ErrorCode.HELLO_FIRST, message="no"),
        Heartbeat(t_ns=5),
        Goodbye(),
    ]
    return [[bytes(frame) for frame in encode(Packet(CLIENT, SESSION, message))] for message in messages]


class Mutator:
    """Makes a changed packet out of others."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._corpus = rng, corpus()
        self._plain = [msgspec.msgpack.decode(frames[0]) for frames in self._corpus]

    def packet(self) -> list[bytes]:
        """Return the frames of a changed packet."""
        rng = self._rng
        i = rng.randrange(len(self._corpus))
        header, *arrays = self._corpus[i]
        if rng.random() < 0.6:
            header = msgspec.msgpack.encode(self._worse(self._plain[i], rng.randint(1, 3)))
        if rng.random() < 0.4:
            header = self._damaged(header)
        if rng.random() < 0.1:
            arrays = [self._damaged(frame) for frame in arrays] + [b"\0" * rng.randrange(200)]
        if rng.random() < 0.05:
            arrays = arrays[1:]
        if rng.random() < 0.02:
            arrays = arrays + self._corpus[rng.randrange(len(self._corpus))] * rng.randint(1, 9)
        return [header, *arrays]

    def _worse(self, value: object, num_changes: int) -> object:
        """Return the value with some nested values replaced, doubled or removed."""
        rng = self._rng
        if num_changes == 0 or rng.random() < 0.12:
            return rng.choice(WORST) if num_changes else value
        if isinstance(value, list) and value:
            i = rng.randrange(len(value))
            rest = (
                [self._worse(value[i], num_changes)]
                if rng.random() < 0.9
                else rng.choice([[], [value[i]] * 2])
            )
            return [*value[:i], *rest, *value[i + 1 :]]
        if isinstance(value, dict) and value:
            key = rng.choice(list(value))
            if rng.random() < 0.08:
                return {k: v for k, v in value.items() if k != key}
            changed = value | {key: self._worse(value[key], num_changes)}
            return self._worse(changed, num_changes - 1)
        return rng.choice(WORST)

    def _damaged(self, frame: bytes) -> bytes:
        rng, out = self._rng, bytearray(frame)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(out) + 1)
            match rng.randrange(4):
                case 0 if at < len(out):
                    out[at] ^= 1 << rng.randrange(8)
                case 1:
                    out[at:at] = rng.randbytes(rng.randint(1, 8))
                case 2:
                    del out[at : at + rng.randint(1, 8)]
                case 3:
                    other = rng.choice(self._corpus)[0]
                    out[at:] = other[rng.randrange(len(other)) :]
        return bytes(out)


class Both:
    """Server and robot that receive everything, and whose answers are encoded."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.server = ServerSession(make_welcome())
        self.robot = ClientSession(
            client_id=CLIENT, robot="robot", schema=make_schema(), session_ids=itertools.repeat(SESSION)
        )
        self.robot.connect(0)
        hello = Packet(CLIENT, SESSION, Hello(robot="r", schema=make_schema()))
        self.server.receive(b"known", arrived(hello), 0)
        self._num_submitted = 0

    def welcome(self) -> None:
        """Let the robot begin."""
        self.robot.receive(Packet(CLIENT, SESSION, make_welcome()), self.now_ns)

    def hear(self, frames: list[bytes], peer: bytes) -> str:
        """Return the result of decoding, after both sides have processed the frames."""
        self.now_ns += 1_000_000
        received: Packet | ProtocolError
        try:
            received = decode(frames)
            kind = type(received.message).__name__
        except ProtocolError as error:
            received, kind = error, "refused"
        self.server.receive(peer, read(frames), self.now_ns)
        if (job := start_next(self.server)) is not None:
            self.server.rows_ready(job, job.request.part(np.zeros((6, 2))))
        self._num_submitted += 1
        if self._num_submitted % 4 == 0:
            self.robot.submit(make_request(self._num_submitted % 8), self.now_ns)
        self.robot.receive(received, self.now_ns)
        for session in (self.server, self.robot):
            session.handle_timer(self.now_ns)
        for _, packet in self.server.packets_to_send():
            encode(packet)
        for packet in self.robot.packets_to_send():
            encode(packet)
        while self.robot.next_event() is not None:
            pass
        return kind


def fuzz(args: Args) -> Counter[str]:
    """Return the outcomes of packets by kind of message; print crashes."""
    rng = random.Random(args.seed)
    mutator, counts = Mutator(rng), Counter({"crashes": 0})
    both = Both()
    for i in track(range(args.count), description="packets"):
        if i % 500 == 0:
            both = Both()
        if i % 500 == 100:
            both.welcome()
        frames = mutator.packet()
        try:
            counts[both.hear(frames, b"known" if rng.random() < 0.7 else b"stranger")] += 1
        except Exception:
            counts["crashes"] += 1
            print(frames, traceback.format_exc(), file=sys.stderr)
            both = Both()
    return counts


def new_peer(context: zmq.Context, address: str) -> zmq.Socket:
    """Return the socket of an unknown peer."""
    peer: zmq.Socket = context.socket(zmq.DEALER)
    peer.connect(address)
    return peer


def fuzz_live(args: Args) -> dict[str, float]:
    """Return what a live server received, and whether a robot beside it was answered."""
    mutator = Mutator(random.Random(args.seed + 1))
    with LiveServer() as server, zmq.Context() as context:
        before = server.memory()
        vandal = new_peer(context, server.address)
        for i in track(range(args.live), description="live"):
            vandal.send_multipart(mutator.packet())
            if i % 30 == 29:  # unauthenticated peers may send little
                time.sleep(0.005)
                vandal.close(0)
                vandal = new_peer(context, server.address)
            if i % 1000 == 999:
                server.robot.ask_for(0.3)
        vandal.close(0)
        answers = server.robot.ask_for(2.0)
        return {
            "packets": args.live,
            "losses": server.robot.losses,
            "answers_per_s_after": answers / 2.0,
            "is_alive": server.is_alive,
            "grew_mb": (server.memory() - before) / 1e6,
        }


def main(args: Args) -> int:
    started_s = time.monotonic()
    figures: dict = {"arguments": {k: v for k, v in asdict(args).items() if k != "json"}, **fuzz(args)}
    figures["took_s"] = time.monotonic() - started_s
    if args.live:
        figures["live"] = fuzz_live(args)
    print(json.dumps(figures, indent=1))
    if args.json is not None:
        write_result(args.json, figures, seeds=[args.seed])
    is_sick = args.live and not (figures["live"]["is_alive"] and figures["live"]["answers_per_s_after"])
    return 1 if figures["crashes"] or is_sick else 0


if __name__ == "__main__":
    run_script(Args, main)
