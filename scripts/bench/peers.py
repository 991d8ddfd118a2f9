"""`python -m scripts.bench peers`: compares our round trip with those of LeRobot and openpi, in one run.

All around an instant policy, each with its own server and client in processes of their own. Blocks of all
alternate, so that drift of the machine cancels.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import numpy as np

from robot_runtime.cli.options import InputFile, Maybe, OutputFile, need
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import RobotRuntimeError
from scripts.bench.wire import (
    PAYLOADS,
    PERIOD_NS,
    SPEC,
    Block,
    Row,
    alternate,
    observation_of,
    our_round_trip,
    round_trips,
    warm_up,
)
from scripts.bench.wire_floor import Trip, floor_round_trip, threads_round_trip
from scripts.harness import finish

OURS = "ours"
PADDINGS = (0, 1000, 2000, 3000)
"""Bytes more in the environment of each process of openpi's. The size of an environment moves the stack and
with it where buffers lie, which at some sizes doubles the time of a round trip of A for as long as the
process lives."""
LEROBOT_SLEEP_S = 1 / 30
"""Time that LeRobot's server waits by default."""


@dataclass(frozen=True, kw_only=True)
class BenchPeers:
    """Measure round trips of LeRobot's and openpi's servers and clients against ours."""

    openpi_python: Maybe[InputFile] = None
    """A Python interpreter with openpi-client, which wants an older numpy; without it openpi is left out. To
    make E/bin/python, without our versions: `uv venv E`, and `uv pip install --no-config --python E
    openpi-client==0.1.2 typing-extensions`."""
    quick: bool = False
    """A tenth of the samples."""
    json: Maybe[OutputFile] = None
    """Write the figures to this file, as JSON."""

    def main(self) -> int:
        """Measure, print a table, and write the figures if asked; returns the exit code."""
        from scripts.tables import speed

        need("lerobot", "grpc")
        rows = [row for payload in PAYLOADS for row in self._measured(payload)]
        figures = {"rows": [asdict(row) for row in rows]}
        return finish(figures, self.json, speed.peers(figures))

    def _measured(self, payload: str) -> list[Row]:
        from scripts.lab import baselines

        size = PAYLOADS[payload]
        images = [image.pixels for image in observation_of(size, 0).images.values()]
        arrays, answer = [np.zeros(14, np.float32), *images], np.ones((SPEC.horizon, SPEC.dim), np.float32)
        with ExitStack() as stack:
            blocks: dict[str, Block] = {
                "zmq": partial(round_trips, stack.enter_context(floor_round_trip(arrays, answer))),
                "our threads": partial(round_trips, stack.enter_context(threads_round_trip(arrays, answer))),
                OURS: partial(round_trips, stack.enter_context(our_round_trip(size))),
            }
            folder = Path(baselines.__file__).parent
            if self.openpi_python is not None:
                script = folder / "wire_openpi.py"
                starts = [peer_block(self.openpi_python, script, *size, padding=n) for n in PADDINGS]
                blocks["openpi"] = in_turn([stack.enter_context(start) for start in starts])
            for name, sleep_s in (("LeRobot", LEROBOT_SLEEP_S), ("LeRobot, no sleep", 0.0)):
                peer = peer_block(Path(sys.executable), folder / "wire_lerobot.py", *size, sleep_s)
                blocks[name] = stack.enter_context(peer)
            samples = alternate(blocks, 2 if self.quick else 20)
        return [Row.of(payload, pace, path, trips) for (pace, path), trips in samples.items()]


def in_turn(blocks: Sequence[Block]) -> Block:
    """One after the other, each after some round trips that do not count."""
    for block in blocks:
        warm_up(block)
    turns = cycle(blocks)

    def next_block(n: int, *, is_paced: bool) -> list[Trip]:
        return next(turns)(n, is_paced=is_paced)

    return next_block


@contextmanager
def peer_block(python: Path, script: Path, *arguments: float, padding: int = 0) -> Iterator[Block]:
    """Run a script that makes round trips on request, as those of `scripts.lab.baselines` do.

    padding: see PADDINGS.
    """
    command = [str(python.absolute()), str(script), *map(str, arguments)]
    with (
        TemporaryDirectory() as folder,
        TemporaryFile("w+") as complaints,
        subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            env={**os.environ, "PADDING": "-" * padding},
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def block(n: int, *, is_paced: bool) -> list[Trip]:
            with suppress(BrokenPipeError):  # then there is no answer either
                requests.write(f"{n} {PERIOD_NS / NS_PER_S if is_paced else 0.0}\n")
                requests.flush()
            line = answers.readline()
            if not line:
                process.wait()
                complaints.seek(0)
                *_, last = complaints.read().splitlines() or ["it does not say why"]
                raise RobotRuntimeError(f"{' '.join(command)} has ended: {last}")
            return [(time_ns, None) for time_ns in json.loads(line)]

        try:
            yield block
        finally:
            with suppress(BrokenPipeError):
                requests.close()  # whereupon it ends its server, and itself
