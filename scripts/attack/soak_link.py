"""Runs a robot over a slow link for minutes: measures connection time, losses and latencies.

python -m scripts.attack.soak_link --minutes 10 --round-trip-ms 400 --jitter-ms 20 --loss 0.02

The server is `robot-runtime serve` in its own process; the link delays the bytes themselves, both ways
(tests/process/slow_link.py). The exit code is 1 if the server was lost or connecting took over 3 s at up to
400 ms, or over 8 round trips and 3 s.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np

from policies.scripted import FRANKA
from robot_runtime.cli.options import Maybe, Milliseconds, OutputFile, Seed, Share, Within
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.robot.client import PolicyClient
from scripts.attack.live_server import Asker, started_server
from scripts.harness import run_script, write_result
from tests.process.slow_link import slow_link


@dataclass(frozen=True, kw_only=True)
class Args:
    """Send requests over a slow link."""

    minutes: Annotated[float, Within(0.01, 100_000)] = 10.0
    round_trip_ms: Milliseconds = 400.0
    jitter_ms: Milliseconds = 20.0
    loss: Share = 0.02
    """Share of packets that must be sent again."""
    requests_per_s: Annotated[float, Within(0.01, 1000)] = 5.0
    seed: Seed = 0
    json: Maybe[OutputFile] = None


def main(args: Args) -> int:
    with TemporaryDirectory() as folder:
        server, address = started_server(Path(folder), "--policy", "hold")
        with server:
            try:
                figures = soak(address, args)
            finally:
                server.kill()
    print(json.dumps(figures, indent=1))
    if args.json is not None:
        write_result(args.json, figures, seeds=[args.seed])
    limit_s = 3.0 if args.round_trip_ms <= 400 else 3.0 + 8 * args.round_trip_ms / 1e3
    return 1 if figures["losses"] or figures["connected_s"] > limit_s else 0


def soak(address: str, args: Args) -> dict:
    """Return the figures of one run."""
    link = {"one_way_ns": round(args.round_trip_ms * NS_PER_MS / 2), "loss": args.loss, "seed": args.seed}
    with slow_link(address, **link, jitter_ns=round(args.jitter_ms * NS_PER_MS)) as far:
        started_s = time.monotonic()
        with PolicyClient(far.address, schema=FRANKA) as client:
            client.wait_until_ready(120.0)
            connected_s = time.monotonic() - started_s
            robot = Asker(client, period_s=1 / args.requests_per_s, deadline_ns=60 * NS_PER_S, num_open=30)
            robot.ask_for(60 * args.minutes)
        p50, p99 = np.percentile(robot.took_ms or [np.nan], [50, 99])
        return {
            "arguments": {k: v for k, v in asdict(args).items() if k != "json"},
            "connected_s": connected_s,
            "connections": far.num_connections,
            "packets_lost": far.num_lost,
            "losses": robot.losses,
            "answers": len(robot.took_ms),
            "events": dict(robot.happened),
            "answer_ms": {"p50": float(p50), "p99": float(p99)},
        }


if __name__ == "__main__":
    run_script(Args, main)
