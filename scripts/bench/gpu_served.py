"""`python -m scripts.bench gpu --serve`: a VLA through the real server and the wire, beside the policy alone.

    bare      the policy, asked in its server's process              pictures ─► first row ......... last row
    served    the same, asked by a robot     submit ═ tcp ═ server ─► worker ─► the same ═ tcp ═► the caller

Both start with images in memory and end with rows at the caller, and request one chunk after the other.
Blocks of the two alternate, so that drift of the machine cancels. The server reports for every answer how
long it waited and how long the policy took; the rest is due to the server and the wire.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from rich.table import Table

from robot_runtime.cli.console import plain_console
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_MS
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import ServerUnavailableError
from robot_runtime.robot.client import PolicyClient
from scripts.bench.gpu_server import WARM, Served, observation_of, request_of, serve_vla
from scripts.bench.wire_floor import process_with_pipe
from scripts.harness import percentiles

BLOCK = 10
"""Chunks in a row."""
CONNECTED_FIRST = 5
"""Robots that come and go before the server's memory is measured, as libraries keep some of the first."""
SETTLE_S = 5.0
"""How long a server may take to release the last robot."""


@dataclass(frozen=True, kw_only=True)
class Trip:
    """One chunk [ns]."""

    first_row: int
    """From pictures in memory to the first row."""
    last_row: int
    waited: int = 0
    """Of the last row's time: from receipt of the request to its start."""
    policy: int = 0
    """Of the same: from there to the last row, as the server has it."""


def two_starts(setting: Served, *, n: int, connections: int) -> dict[str, Any]:
    """`served_figures` of a server that finds on the disk what an earlier one has compiled; that one found
    nothing. `starts` are of both."""
    with tempfile.TemporaryDirectory() as folder:
        setting = replace(setting, compile_cache=folder)
        with _server_of(setting) as server:
            first = server.start
        figures = served_figures(setting, n=n, connections=connections)
    return figures | {"starts": [first, *figures["starts"]]}


def served_figures(setting: Served, *, n: int, connections: int) -> dict[str, Any]:
    """How long until the server was open and until all was warm [s], times [ms] of n chunks either way, what
    is on top, and what it holds before and after so many robots have connected, asked once and left.

    ServerUnavailableError: the server's process has ended, or answers no more.
    """
    with _server_of(setting) as server:
        bare, served = list[Trip](), list[Trip]()
        with PolicyClient(server.address, schema=server.info.schema) as client:
            client.wait_until_ready()
            _asked(client, server.observation, WARM)
            while len(served) < n:
                size = min(BLOCK, n - len(served))
                bare += server.bare(size)
                served += _asked(client, server.observation, size)
        held = _held_by(server, connections) if connections else None
    figures = figures_of(bare, served) | {"starts": [server.start]}
    facts = {name: value for name, value in asdict(setting).items() if name != "compile_cache"}
    return facts | figures | ({} if held is None else {"connections": held})


@contextmanager
def _server_of(setting: Served) -> Iterator["_Server"]:
    started_s = time.monotonic()
    with process_with_pipe(serve_vla, setting) as pipe:
        yield _Server(pipe, started_s)


def figures_of(bare: Sequence[Trip], served: Sequence[Trip]) -> dict[str, Any]:
    """p50, p95 and p99 of both ways, of the parts of the served one, and what it has on top [ms]."""
    rows = ("first_row", "last_row")
    alone, through = (
        {row: _milliseconds([getattr(trip, row) for trip in trips]) for row in rows}
        for trips in (bare, served)
    )
    parts = {
        "waited": [trip.waited for trip in served],
        "policy": [trip.policy for trip in served],
        "server_and_wire": [trip.last_row - trip.waited - trip.policy for trip in served],
    }
    return {
        "n": len(served),
        "bare": alone,
        "served": through,
        "parts": {name: _milliseconds(times) for name, times in parts.items()},
        "on_top_ms": {row: through[row]["p50"] - alone[row]["p50"] for row in rows},
    }


def _milliseconds(times_ns: Sequence[int]) -> dict[str, float]:
    return percentiles([t / NS_PER_MS for t in times_ns])


def _asked(client: PolicyClient, observation: Observation, n: int) -> list[Trip]:
    """Chunks through the server, one after the other."""
    out = []
    for _ in range(n):
        request = request_of(observation, epoch=client.new_epochs())
        started_ns, first_ns = time.monotonic_ns(), 0
        for event in client.parts(request):
            now_ns = time.monotonic_ns()
            first_ns = first_ns or now_ns - started_ns
            part, last_ns = event.part, now_ns - started_ns
        out.append(Trip(first_row=first_ns, last_row=last_ns, waited=part.queue_ns, policy=part.infer_ns))
    return out


def _held_by(server: "_Server", connections: int) -> dict[str, Any]:
    """What the server holds before and after so many robots were there, one after the other."""

    def come_and_go(num: int) -> None:
        for _ in range(num):
            with PolicyClient(server.address, schema=server.info.schema) as client:
                client.wait_until_ready()
                _asked(client, server.observation, 1)

    come_and_go(CONNECTED_FIRST)
    before = server.settled()
    come_and_go(connections)
    return {"n": connections, "before": before, "after": server.settled()}


class _Server:
    """Handle of the serving process in the measuring process."""

    def __init__(self, pipe: Connection, started_s: float) -> None:
        """started_s: when its process was, by the clock of both."""
        self._pipe = pipe
        self.address, info, open_s, all_warm_s = self._received()
        self.start = {"open_s": open_s - started_s, "all_warm_s": all_warm_s - started_s}
        """How long until it took robots, and until all was warm."""
        self.info = PolicyInfo.from_dict(info)
        self.observation = observation_of(self.info)

    def bare(self, n: int) -> list[Trip]:
        """Chunks of the policy alone, in its process."""
        return [Trip(first_row=first, last_row=last) for first, last in self._answer(n)]

    def settled(self) -> dict[str, float]:
        """What it holds once the robots that left are gone there too."""
        given_up_s = time.monotonic() + SETTLE_S
        while self._answer(None)["robots"] and time.monotonic() < given_up_s:
            time.sleep(SETTLE_S / 100)
        time.sleep(SETTLE_S / 20)  # libzmq releases a connection after it has reported its end
        held: dict[str, float] = self._answer(None)
        return held

    def _answer(self, order: int | None) -> Any:
        self._pipe.send(order)
        return self._received()

    def _received(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError as error:
            raise ServerUnavailableError("the server's process has ended; see its output above") from error


def show_served(figures: Sequence[dict[str, Any]]) -> None:
    """Print either way, what is on top and of what, and what the server held."""
    table = Table(title="capture to rows, ms")
    names = "model", "cameras", "words", "way", "first row", "last row", "p99 of it", "n"
    for name in names:
        table.add_column(name, justify="left" if name in ("model", "way") else "right")
    for found in figures:
        of = found["model"], str(found["cameras"]), str(found["words"])
        for way in ("bare", "served"):
            first, last = found[way]["first_row"], found[way]["last_row"]
            times = f"{first['p50']:.2f}", f"{last['p50']:.2f}", f"{last['p99']:.2f}"
            table.add_row(*of, way, *times, str(found["n"]))
        on_top = (f"{found['on_top_ms'][row]:.2f}" for row in ("first_row", "last_row"))
        table.add_row(*of, "on top", *on_top, "", "")
    console = plain_console()
    console.print(table)
    for found in figures:
        parts = ", ".join(f"{name.replace('_', ' ')} {of['p50']:.2f}" for name, of in found["parts"].items())
        console.print(f"{found['model']}, served, last row: {parts} ms")
        for name, start in zip(
            ("first start", "next")[-len(found["starts"]) :], found["starts"], strict=True
        ):
            line = f"open after {start['open_s']:.1f} s, all warm after {start['all_warm_s']:.1f} s"
            console.print(f"{found['model']}, {name}, up to {found['max_batch']} at a time: {line}")
        if (held := found.get("connections")) is not None:
            grown = ", ".join(
                f"{name.replace('_', ' ')} {before:g} -> {held['after'][name]:g}"
                for name, before in held["before"].items()
            )
            console.print(f"{found['model']}, {held['n']} robots came and left: {grown}")
