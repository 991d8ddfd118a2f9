"""`robot-runtime bench faults`: the server is killed in mid-run, and comes back."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from robot_runtime.cli.options import Count, Maybe, OutputFile
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.method.table import method_named
from robot_runtime.core.safety import Mode
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import JointCommand
from robot_runtime.results import keep_text, result_json
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.link import SERVER_BACK, SERVER_LOST
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.runner import Runner
from robot_runtime.robot.telemetry import RunRecord
from robot_runtime.server.process import ServerProcess

TARGETS = {
    "noticed (ms)": 200.0,
    "plan ended -> standing (policy periods)": 2.5,
    "server ready -> reconnected (ms)": 1000.0,
    "reconnected -> moving again (ms)": None,
}
KILL_AFTER_S, DEAD_S, AFTER_S = 1.5, 2.5, 1.5


@dataclass(frozen=True, kw_only=True)
class BenchFaults:
    """Kill the server with -9 while the robot moves, bring it back, and time what the robot does."""

    rounds: Count = 5
    """How often the server is killed."""
    json: Maybe[OutputFile] = None
    """Write the results to this file, as JSON."""

    def main(self) -> int:
        console = Console()
        rounds = [kill_and_restart() for _ in track(range(self.rounds), "kill -9", console=console)]
        table = Table("server killed in mid-run", "median", "worst", "target", "n")
        for name, target in TARGETS.items():
            values = [figures[name] for figures in rounds]
            shown = "-" if target is None else f"<= {target:g}"
            table.add_row(name, f"{np.median(values):.1f}", f"{max(values):.1f}", shown, str(len(values)))
        console.print(table)
        stale = sum(int(figures["resumed on an old chunk"]) for figures in rounds)
        console.print(f"resumed on a chunk from before the loss: {stale} of {len(rounds)}")
        if self.json is not None:
            keep_text(self.json, result_json({"rounds": rounds}))
        return 0


def kill_and_restart() -> dict[str, float]:
    """One round; what it took, in the units of `TARGETS`."""
    from drivers.fr3 import FR3_LIMITS
    from drivers.ideal import IdealArm, IdealGripper
    from policies.scripted import FRANKA

    clock = MonotonicClock()
    times: dict[str, int] = {}
    server = ServerProcess("sine")

    def interfere() -> None:
        time.sleep(KILL_AFTER_S)
        server.kill()
        times["killed"] = clock.now_ns()
        time.sleep(DEAD_S)
        with ServerProcess("sine", address=server.address):
            times["ready"] = clock.now_ns()
            time.sleep(AFTER_S)

    setting = RunConfig(
        Robot(arm=IdealArm(clock=clock), gripper=IdealGripper(), limits=FR3_LIMITS),
        duration_s=60.0,
        keep_ticks=None,
        clock=clock,
    )
    with PolicyClient(server.address, robot="bench", schema=FRANKA) as client:
        runner = Runner(setting, client, client.wait_until_ready(10.0), method=method_named("time-aligned"))
        with ThreadPoolExecutor(1) as beside:
            interference = beside.submit(interfere)
            record = runner.run(should_stop=interference.done)
        interference.result()  # a server that does not come back is said, not found out
    server.close()
    return _figures(record, times, dt_ns=runner.executor.action_spec.dt_ns)


def _figures(record: RunRecord, times: dict[str, int], *, dt_ns: int) -> dict[str, float]:
    lost_ns = next(t for t, text in record.log if text.startswith(SERVER_LOST))
    back_ns = next(t for t, text in record.log if text.startswith(SERVER_BACK))
    while_lost = [tick for tick in record.ticks if times["killed"] <= tick.now_ns < back_ns]
    held = next(tick for tick in while_lost if tick.mode is Mode.HOLD)
    moves = [b.now_ns for a, b in pairwise(while_lost) if not np.array_equal(_joints(a), _joints(b))]
    resumed = next(tick for tick in record.ticks if tick.now_ns > back_ns and tick.mode is Mode.RUN)
    assert resumed.source is not None
    return {
        "noticed (ms)": (lost_ns - times["killed"]) / 1e6,
        "plan ended -> standing (policy periods)": (moves[-1] - held.now_ns) / dt_ns,
        "server ready -> reconnected (ms)": max(0, back_ns - times["ready"]) / 1e6,
        "reconnected -> moving again (ms)": (resumed.now_ns - back_ns) / 1e6,
        "resumed on an old chunk": float(resumed.source.t_obs_ns < lost_ns),
    }


def _joints(tick: Tick) -> np.ndarray:
    assert isinstance(tick.command.arm, JointCommand)
    return tick.command.arm.q
