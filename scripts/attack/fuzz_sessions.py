"""Runs robots and a server on a network that drops, doubles, reorders, delays and truncates packets.

python -m scripts.attack.fuzz_sessions --deliveries 100000 --json scripts/results/fuzz.json

Three robots keep sending requests, the server restarts now and then, and time is simulated, so minutes of
robot time take seconds. Every row names its robot, request and index; a row that is wrong, doubled or out of
order is counted and makes the exit code 1.
"""

import itertools
import json
import random
from collections import Counter
from dataclasses import asdict, dataclass

import numpy as np
from rich.progress import track

from robot_runtime.cli.options import AnyRows, Maybe, OutputFile, Seed, Share, Steps
from robot_runtime.wire.client_session import ClientSession, ClientState
from robot_runtime.wire.codec import encode, read
from robot_runtime.wire.events import PartReceived, RequestFailed
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.messages import Dropped, Packet
from robot_runtime.wire.request_queue import QueuedRequest
from robot_runtime.wire.server_session import ServerSession
from scripts.harness import run_script, write_result
from tests.wire.session_pair import MS, SPEC, TICK, make_request, make_schema, make_welcome, start_next

NUM_ROBOTS = 3
DEADLINE_NS = 400 * MS


@dataclass(frozen=True, kw_only=True)
class Args:
    """Fuzz the protocol on an unreliable network."""

    deliveries: Steps = 100_000
    drop: Share = 0.05
    """Share of packets that are lost; the others are shares too."""
    duplicate: Share = 0.1
    truncate: Share = 0.05
    """Share of truncated packets: a frame loses its end, or the last frames are missing."""
    max_delay_ticks: AnyRows = 20
    """Largest delay of a packet in ticks of 5 ms; delays are independent, so packets overtake each other."""
    restart: Share = 0.0005
    """Probability of a restart of the server, per tick."""
    seed: Seed = 0
    json: Maybe[OutputFile] = None


class Network:
    """Packets in flight, as frames."""

    def __init__(self, args: Args) -> None:
        self.counts: Counter[str] = Counter()
        self._args, self._rng = args, random.Random(args.seed)
        self._under_way: list[tuple[int, str, bytes, list]] = []

    def post(self, to: str, peer: bytes, packet: Packet, now_ns: int) -> None:
        """Send a packet, possibly damaged, doubled or lost."""
        rng, args = self._rng, self._args
        if rng.random() < args.drop:
            self.counts["dropped"] += 1
            return
        copies = 1 + (rng.random() < args.duplicate)
        self.counts["duplicated"] += copies - 1
        for _ in range(copies):
            frames = [bytes(frame) for frame in encode(packet)]
            if rng.random() < args.truncate:
                frames = self._truncated(frames)
            self._under_way.append((now_ns + rng.randint(0, args.max_delay_ticks) * TICK, to, peer, frames))

    def arrived(self, to: str, now_ns: int) -> list[tuple[bytes, Packet | ProtocolError]]:
        """Return the packets that arrive now, decoded as that side decodes them."""
        due = [item for item in self._under_way if item[1] == to and item[0] <= now_ns]
        self._under_way = [item for item in self._under_way if item[1] != to or item[0] > now_ns]
        self._rng.shuffle(due)
        self.counts["delivered"] += len(due)
        out = [(peer, read(frames)) for _, _, peer, frames in due]
        self.counts["not a message"] += sum(isinstance(received, ProtocolError) for _, received in out)
        return out

    def _truncated(self, frames: list[bytes]) -> list[bytes]:
        self.counts["truncated"] += 1
        if len(frames) > 1 and self._rng.random() < 0.5:
            return frames[: self._rng.randrange(1, len(frames))]
        i = self._rng.randrange(len(frames))
        return [*frames[:i], frames[i][: self._rng.randrange(len(frames[i]) or 1)], *frames[i + 1 :]]


class Server:
    """Sessions, and a policy that needs a tick for two rows; rows are (robot * 1e6 + request, row)."""

    def __init__(self) -> None:
        self.session = ServerSession(make_welcome())
        self._job: QueuedRequest | None = None
        self._next_row = 0

    def tick(self, now_ns: int) -> None:
        self.session.handle_timer(now_ns)
        if self._job is None or not self.session.is_wanted(self._job):
            self._job, self._next_row = start_next(self.session), 0
            return
        first, end = self._next_row, self._next_row + 2
        rows = right_rows(robot_of(self._job.peer), self._job.request.request_id)[first:end]
        is_last = end >= SPEC.horizon
        self.session.rows_ready(self._job, self._job.request.part(rows, first_row=first, is_last=is_last))
        self._next_row = end
        if is_last:
            self._job = None


class Robot:
    """Sends a request when the last one is over; checks every row."""

    def __init__(self, index: int) -> None:
        self.peer = b"robot%d" % index
        self.session = ClientSession(
            client_id=self.peer.decode(),
            robot="toy robot",
            schema=make_schema(),
            session_ids=itertools.count(index << 40),
        )
        self.session.connect(0)
        self.counts: Counter[str] = Counter()
        self._index, self._ids, self._open, self._num_rows = index, itertools.count(1), 0, 0

    def tick(self, now_ns: int) -> None:
        self.session.handle_timer(now_ns)
        while (event := self.session.next_event()) is not None:
            match event:
                case PartReceived(part=part):
                    self._check(part.request_id, part.first_row, part.rows)
                    if part.is_last:
                        self._end("answered")
                case Dropped() | RequestFailed():
                    self._end(type(event).__name__)
        if self._open == 0 and self.session.state is ClientState.READY:
            self._open, self._num_rows = next(self._ids), 0
            self.session.submit(make_request(self._open, deadline_ns=DEADLINE_NS), now_ns)

    def _check(self, request_id: int, first_row: int, rows: np.ndarray) -> None:
        right = right_rows(self._index, request_id)[first_row : first_row + len(rows)]
        if request_id != self._open or first_row != self._num_rows or not np.array_equal(rows, right):
            self.counts["wrong rows"] += len(rows)
        self._num_rows += len(rows)
        self.counts["rows"] += len(rows)

    def _end(self, how: str) -> None:
        self.counts[how] += 1
        self._open = 0


def right_rows(robot: int, request_id: int) -> np.ndarray:
    """Return the only right answer."""
    rows = np.empty((SPEC.horizon, SPEC.dim))
    rows[:, 0], rows[:, 1] = robot * 1e6 + request_id, np.arange(SPEC.horizon)
    return rows


def robot_of(peer: bytes) -> int:
    return int(peer.removeprefix(b"robot"))


def fuzz(args: Args) -> Counter[str]:
    """Return the outcomes of packets and requests."""
    rng, network, server = random.Random(args.seed + 1), Network(args), Server()
    robots = [Robot(i) for i in range(NUM_ROBOTS)]
    counts: Counter[str] = Counter({"wrong rows": 0})
    for step in track(itertools.count(), description="ticks"):
        now_ns = step * TICK
        if rng.random() < args.restart:
            server = Server()
            counts["restarts"] += 1
        for robot in robots:
            robot.tick(now_ns)
            for packet in robot.session.packets_to_send():
                network.post("server", robot.peer, packet, now_ns)
        for peer, received in network.arrived("server", now_ns):
            server.session.receive(peer, received, now_ns)
        server.tick(now_ns)
        for peer, packet in server.session.packets_to_send():
            network.post("robots", peer, packet, now_ns)
        for peer, received in network.arrived("robots", now_ns):
            robots[robot_of(peer)].session.receive(received, now_ns)
        if network.counts["delivered"] >= args.deliveries:
            counts["robot seconds"] = now_ns * NUM_ROBOTS // 10**9
            break
    for others in (network.counts, *(robot.counts for robot in robots)):
        counts.update(others)
    return counts


def main(args: Args) -> int:
    counts = fuzz(args)
    figures = {"arguments": {k: v for k, v in asdict(args).items() if k != "json"}, **counts}
    print(json.dumps(figures, indent=1))
    if args.json is not None:
        write_result(args.json, figures, seeds=[args.seed])
    return 1 if counts["wrong rows"] else 0


if __name__ == "__main__":
    run_script(Args, main)
