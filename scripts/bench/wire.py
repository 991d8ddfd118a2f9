"""`python -m scripts.bench wire`: a round trip through client and server against bare ZeroMQ, in one run.

    ours            submit -> PolicyClient ═ tcp ═ PolicyServer -> worker -> instant policy -> ... -> events()
    our threads     the same four threads, transport and frames, but no protocol: what the architecture costs
    zmq             libzmq, and one thread of ours on each side: the floor
    sleep           a thread that sleeps for a millisecond, how late it wakes: what the machine does by itself

All servers are processes of their own. Blocks of the four alternate, so that drift of the machine cancels.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
import pinocchio as pin
from rich.progress import track

from policies.commands.serve import tuned_process
from robot_runtime.cli.options import Maybe, OutputFile
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S, ActionSpec, ChunkPart, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.errors import ServerUnavailableError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.server.collector import Collector
from robot_runtime.server.server import PolicyServer
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.events import PartReceived
from robot_runtime.wire.messages import Packet
from scripts.bench.wire_floor import (
    ANY_PORT,
    RoundTrip,
    Trip,
    floor_round_trip,
    server_process,
    threads_round_trip,
)
from scripts.harness import finish, percentiles

PERIOD_NS = NS_PER_S // 30
SPEC = ActionSpec(fields=(JointPosition(14),), horizon=50, dt_ns=PERIOD_NS)
BLOCK = 50
"""Round trips in a row. At 30 Hz they last 1.7 s; the first few are asked before a pace is known."""
FLOORS = ("zmq", "our threads")
PAYLOADS = {"A: 2 x 224 x 224": (224, 224), "B: 2 x 480 x 640": (480, 640)}


class Block(Protocol):
    """Makes n round trips."""

    def __call__(self, n: int, *, is_paced: bool) -> list[Trip]: ...


@dataclass(frozen=True, kw_only=True)
class BenchWire:
    """Measure what client and server add to a bare ZeroMQ round trip."""

    quick: bool = False
    """A tenth of the samples."""
    json: Maybe[OutputFile] = None
    """Write the figures to this file, as JSON."""

    def main(self) -> int:
        """Measure, print a table, and write the figures if asked; returns the exit code."""
        from scripts.tables import speed

        figures = measure(quick=self.quick)
        return finish(figures, self.json, speed.wire(figures))


@dataclass(frozen=True, kw_only=True)
class Row:
    """Round trips of one payload at one pace [ms]."""

    payload: str
    pace: str
    path: str
    n: int
    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, payload: str, pace: str, path: str, trips: Sequence[Trip]) -> "Row":
        """Percentiles of measured round trips."""
        times_ms = [t / 1e6 for t, _ in trips]
        return cls(payload=payload, pace=pace, path=path, n=len(trips), **percentiles(times_ms))


def _schema(size: tuple[int, int]) -> Schema:
    cameras = {"left": size, "right": size}
    return Schema(
        action_fields=SPEC.fields, num_joints=14, has_gripper=False, has_base=False, cameras=cameras
    )


def observation_of(size: tuple[int, int], t_ns: int) -> Observation:
    """Noise for the cameras, zeros for the rest."""
    pixels = np.random.default_rng(0).integers(0, 255, (*size, 3), np.uint8)
    state = RobotState(t_ns=t_ns, q=np.zeros(14), dq=np.zeros(14), X_BE=pin.SE3.Identity())
    images = {name: Image(t_ns=t_ns, pixels=pixels.copy()) for name in ("left", "right")}
    return Observation(state=state, images=images, task="measure")


def _serve_ours(pipe: Connection, size: tuple[int, int]) -> None:
    from policies.scripted import InstantPolicy

    collector = Collector()
    policy = InstantPolicy(_schema(size), SPEC)
    with (
        tuned_process(),
        PolicyServer(policy, ANY_PORT, open_ns=None, collector=collector) as server,
        collector,
    ):
        pipe.send(server.address)
        server.serve_forever()


@contextmanager
def our_round_trip(size: tuple[int, int]) -> Iterator[RoundTrip]:
    """Client and server, with a policy that answers at once."""
    with server_process(_serve_ours, size) as address, PolicyClient(address, schema=_schema(size)) as client:
        client.wait_until_ready()
        client.events()
        observation = observation_of(size, 0)
        request_id = 0

        def round_trip() -> Trip:
            nonlocal request_id
            request_id += 1
            started_ns = time.monotonic_ns()
            client.submit(
                ChunkRequest(
                    request_id=request_id,
                    epoch=0,
                    observation=observation,
                    prev_action_chunk=None,
                    inference_delay=0,
                    sampler=ConstantSchedule(),
                    seed=0,
                    deadline_ns=5 * NS_PER_S,
                )
            )
            client.wait_for_events(5.0)
            events = client.events()
            now_ns = time.monotonic_ns()
            match events:
                case [PartReceived() as received]:
                    return now_ns - started_ns, now_ns - received.arrived_ns
                case _:
                    raise ServerUnavailableError(f"expected one chunk, got {events}")

        yield round_trip


def late_sleep() -> Trip:
    """How late a sleep of a millisecond ends."""
    started_ns = time.monotonic_ns()
    time.sleep(0.001)
    return time.monotonic_ns() - started_ns - NS_PER_MS, None


def round_trips(round_trip: RoundTrip, n: int, *, is_paced: bool) -> list[Trip]:
    """One after the other, or at most 30 a second."""
    out = []
    next_ns = time.monotonic_ns()
    for _ in range(n):
        if is_paced:
            next_ns = max(next_ns + PERIOD_NS, time.monotonic_ns())
            time.sleep(max(next_ns - time.monotonic_ns(), 0) / NS_PER_S)
        out.append(round_trip())
    return out


def warm_up(block: Block) -> None:
    """Some round trips that do not count."""
    block(50, is_paced=False)


def alternate(blocks: Mapping[str, Block], num_rounds: int) -> dict[tuple[str, str], list[Trip]]:
    """Round trips by pace and path, after some that do not count."""
    for block in blocks.values():
        warm_up(block)
    samples: dict[tuple[str, str], list[Trip]] = {}
    for pace, rounds in (("sequential", num_rounds), ("30 Hz", num_rounds // 2)):
        for _ in track(range(rounds), description=pace):
            for path, block in blocks.items():
                samples.setdefault((pace, path), []).extend(block(BLOCK, is_paced=pace == "30 Hz"))
    return samples


def _bench_payload(payload: str, num_rounds: int) -> tuple[list[Row], list[int], list[int]]:
    """Round trips, times from arrival to the caller, and how late sleeps ended [ns]."""
    size = PAYLOADS[payload]
    images = [image.pixels for image in observation_of(size, 0).images.values()]
    arrays, answer = [np.zeros(14, np.float32), *images], np.ones((SPEC.horizon, SPEC.dim), np.float32)
    with (
        floor_round_trip(arrays, answer) as floor,
        threads_round_trip(arrays, answer) as threads,
        our_round_trip(size) as ours,
    ):
        paths = {"zmq": floor, "our threads": threads, "ours": ours, "sleep": late_sleep}
        blocks: dict[str, Block] = {name: partial(round_trips, path) for name, path in paths.items()}
        samples = alternate(blocks, num_rounds)
    hand_overs = [took for (_, path), trips in samples.items() for _, took in trips if path == "ours"]
    rows = [Row.of(payload, pace, path, trips) for (pace, path), trips in samples.items() if path != "sleep"]
    late = [late_ns for (_, path), trips in samples.items() if path == "sleep" for late_ns, _ in trips]
    return rows, [took for took in hand_overs if took is not None], late


def measure_chunk_codec(n: int = 2000) -> float:
    """Median time to encode and decode a chunk of 50 x 14 float32 [ms]."""
    rows = np.ones((SPEC.horizon, SPEC.dim), np.float32)
    part = ChunkPart(
        request_id=1, epoch=0, t_obs_ns=0, first_row=0, rows=rows, is_last=True, queue_ns=1, infer_ns=1
    )
    packet = Packet("robot-0123456789ab", 2**62, part)
    times = []
    for _ in range(n):
        started_ns = time.perf_counter_ns()
        decode(encode(packet))
        times.append(time.perf_counter_ns() - started_ns)
    return float(np.median(times)) / 1e6


def measure(*, quick: bool) -> dict[str, Any]:
    """All figures as plain values: `rows` as in `Row`, `ratios` of medians to each floor, the rest in ms:
    `tail_ms` is p99 - p50 of each row, `sleep_late_ms` what the machine adds to a sleep.
    """
    rows: list[Row] = []
    hand_overs, late = list[int](), list[int]()
    for payload in PAYLOADS:
        more_rows, more_hand_overs, more_late = _bench_payload(payload, 2 if quick else 20)
        rows += more_rows
        hand_overs += more_hand_overs
        late += more_late
    medians = {(row.payload, row.pace, row.path): row.p50 for row in rows}
    ratios = {
        f"{row.payload}, {row.pace}, {row.path} / {other}": row.p50 / medians[row.payload, row.pace, other]
        for row in rows
        for other in FLOORS
    }
    p50, p95 = np.percentile(hand_overs, [50, 95]) / 1e6
    late_p50, late_p95, late_p99 = map(float, np.percentile(late, [50, 95, 99]) / 1e6)
    return {
        "rows": [asdict(row) for row in rows],
        "ratios": ratios,
        "tail_ms": {f"{row.payload}, {row.pace}, {row.path}": row.p99 - row.p50 for row in rows},
        "sleep_late_ms": {"p50": late_p50, "p95": late_p95, "p99": late_p99, "n": len(late)},
        "chunk_codec_ms": measure_chunk_codec(),
        "arrived_to_available_ms": {"p50": float(p50), "p95": float(p95), "n": len(hand_overs)},
    }
