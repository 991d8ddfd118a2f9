"""Measures the cost of a LeRobot robot in its own process for the control loop, beside the ideal arm.

    uv run --extra lerobot python -m scripts.bench.lerobot_robots --seconds 5 --rounds 4

Both are seven joints and a gripper that swing by the same policy, behind the real loop: runner, network
thread and a server process. Blocks of the two alternate, so that drift of the machine cancels. The robot is
`lerobot_seven.py` here, a LeRobot plug-in whose bus takes 5 ms to be read.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from rich.table import Table

from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from drivers.lerobot import LeRobotDevice
from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import Hertz, Maybe, OutputFile, Within
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.method.table import method_named
from robot_runtime.core.values.command import Command, GripperCommand, JointCommand
from robot_runtime.errors import RobotRuntimeError
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.runner import Runner
from robot_runtime.server.process import ServerProcess
from scripts.harness import run_script, write_result

PARTS: dict[str, dict[str, Any]] = {
    "arm": {"joints": [f"joint_{i + 1}" for i in range(7)], "unit": "rad"},
    "gripper": {"gripper": "gripper", "closed": 0.0, "open": 0.08, "stroke_m": 0.08},
}
NOT_HERE = ("torch", "lerobot", "draccus")


@dataclass(frozen=True, kw_only=True)
class BenchLeRobotRobots:
    """Time the control loop with a LeRobot robot in its own process, and with the ideal arm."""

    seconds: Annotated[float, Within(0.2, 600)] = 5.0
    """Length of each block [s]."""
    rounds: Annotated[int, Within(1, 100)] = 4
    """Blocks of each robot."""
    control_hz: Hertz = 500.0
    """Ticks a second."""
    json: Maybe[OutputFile] = None
    """Write the results to this file."""

    def main(self) -> int:
        late: dict[str, list[dict[str, float]]] = {"ideal": [], "lerobot": []}
        cost: dict[str, dict[str, float]] = {}
        with ServerProcess("sine") as server, robots() as both:
            for name, robot in both.items():
                cost[name] = read_and_write_us(robot)
            for _ in range(self.rounds):
                for name, robot in both.items():
                    late[name].append(lateness_ms(robot, server.address, self.seconds, self.control_hz))
        loaded = [name for name in NOT_HERE if name in sys.modules]
        if loaded:
            raise RobotRuntimeError(f"the control process has imported {', '.join(loaded)}")
        rows = {name: _pooled(blocks) | cost[name] for name, blocks in late.items()}
        table = Table("robot", "tick late p50", "p99 [ms]", "skipped", "n", "read + write p50", "p99 [us]")
        for name, row in rows.items():
            figures = [f"{row[key]:.3f}" for key in ("p50", "p99")] + [
                f"{row[key]:.0f}" for key in ("skipped", "n")
            ]
            table.add_row(name, *figures, *(f"{row[key]:.0f}" for key in ("cost_p50", "cost_p99")))
        console = plain_console()
        console.print(table)
        console.print(
            f"p99 ratio: {rows['lerobot']['p99'] / rows['ideal']['p99']:.2f}; no torch, no lerobot here"
        )
        if self.json is not None:
            write_result(self.json, {"control_hz": self.control_hz, "rows": rows, "blocks": late})
        return 0


@contextmanager
def robots() -> Iterator[dict[str, Robot]]:
    """Both, by name."""
    device = LeRobotDevice(
        "seven", plugins=["scripts.bench.lerobot_seven"], parts=PARTS, rate_hz=100.0, state_timeout_s=1.0
    )
    try:
        yield {
            "ideal": Robot(arm=IdealArm(clock=MonotonicClock()), gripper=IdealGripper(), limits=FR3_LIMITS),
            "lerobot": Robot(device.parts, limits=FR3_LIMITS),
        }
    finally:
        device.close()


def read_and_write_us(robot: Robot, num: int = 5000) -> dict[str, float]:
    """What its drivers cost a tick [us]."""
    state: Any = robot.read().parts
    command = Command(
        arm=JointCommand(q=state["arm"].q), gripper=GripperCommand(width=state["gripper"].width)
    )
    taken = []
    for _ in range(num):
        start_ns = time.perf_counter_ns()
        robot.read()
        robot.write(command)
        taken.append(time.perf_counter_ns() - start_ns)
    p50, p99 = np.quantile(np.array(taken) / 1e3, [0.5, 0.99])
    return {"cost_p50": float(p50), "cost_p99": float(p99)}


def lateness_ms(robot: Robot, address: str, seconds: float, control_hz: float) -> dict[str, float]:
    """Of ticks, in one block [ms]."""
    from policies.scripted import FRANKA

    setting = RunConfig(robot, duration_s=seconds, clock=MonotonicClock(), control_hz=control_hz)
    with PolicyClient(address, robot="bench", schema=FRANKA) as client:
        runner = Runner(setting, client, client.wait_until_ready(10.0), method=method_named("time-aligned"))
        record = runner.run()
    quantiles = {f"p{q}": record.lateness_ns.quantile(q / 100) / 1e6 for q in (50, 99)}
    return quantiles | {"n": record.lateness_ns.count, "skipped": record.num_skipped}


def _pooled(blocks: list[dict[str, float]]) -> dict[str, float]:
    """Medians of the blocks' quantiles; sums of their counts."""
    out = {key: float(np.median([block[key] for block in blocks])) for key in ("p50", "p99")}
    return out | {key: sum(block[key] for block in blocks) for key in ("n", "skipped")}


if __name__ == "__main__":
    run_script(BenchLeRobotRobots, BenchLeRobotRobots.main, description=__doc__)
