"""`python -m scripts.bench loop`: measures the cost and the lateness of a tick."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pinocchio as pin
from rich.progress import track

from robot_runtime.cli.options import Hertz, Maybe, OutputFile, Some, Within
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.method.table import method_named
from robot_runtime.core.plan.correction import CorrectionHead, ResidualHead, correction_inputs
from robot_runtime.core.values.action import (
    ActionSpec,
    GripperWidth,
    JointCommand,
    JointPosition,
)
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.runner import Runner
from robot_runtime.robot.scheduling import Pacer, real_time_thread
from robot_runtime.server.process import ServerProcess
from scripts.harness import finish, percentiles

FIELDS = (JointPosition(7), GripperWidth())
_SPEC = ActionSpec(fields=FIELDS, horizon=32, dt_ns=50_000_000)
_NUM_SCENE = 6


@dataclass(frozen=True, kw_only=True)
class BenchLoop:
    """Measure the cost of a tick and the lateness of the control loop, idle and with every core busy.

    The loop is the real one: runner, network thread and a server process that answers with chunks. The floor
    is a bare loop that only sleeps to the same deadlines, in the same run.
    """

    seconds: Annotated[float, Within(0.1, 3600)] = 3.0
    """Length of each case [s]."""
    rates_hz: Some[Hertz] = (100.0, 200.0, 500.0, 1000.0)
    """Control rates to measure."""
    json: Maybe[OutputFile] = None
    """Write the results to this file, as JSON."""

    def main(self) -> int:
        from scripts.tables import speed

        cost = tick_cost_us()
        corrected = tick_cost_us(head=random_head(_SPEC))
        cost |= {"correction": corrected["correction"], "tick with corrections": corrected["tick"]}
        cases = [
            (rate, load, fifo)
            for load in ("idle", "busy")
            for fifo in (False, True)
            for rate in self.rates_hz
        ]
        rows = []
        with ServerProcess("sine") as server:
            for rate, load, fifo in track(cases, description="lateness"):
                with busy_cores() if load == "busy" else contextlib.nullcontext():
                    floor = bare_loop(rate, self.seconds, use_fifo=fifo)
                    ours = control_loop(server.address, rate, self.seconds, use_fifo=fifo)
                rows.append({"rate_hz": rate, "load": load, "fifo": fifo, "floor": floor, "ours": ours})
        figures = {"tick_cost_us": cost, "lateness_ms": rows}
        return finish(figures, self.json, speed.loop(figures), speed.lateness(figures))


def tick_cost_us(
    num_ticks: int = 20_000, period_ns: int = 2_000_000, *, head: ResidualHead | None = None
) -> dict[str, dict[str, float]]:
    """Cost of `Executor.tick` and of taking in a chunk, 7 joints and a gripper [us].

    head: rows are also corrected with it; then the cost of that as well, which comes once a row and once a
    chunk and is not part of the tick's.
    """
    from drivers.fr3 import FR3_LIMITS
    from drivers.ideal import Q_HOME

    executor = Executor(
        Configuration(
            action_spec=_SPEC,
            method=method_named("time-aligned" if head is None else "a2c2"),
            limits=FR3_LIMITS,
            control_period_ns=period_ns,
            correction_head=head,
        )
    )
    executor.reset(_state(0, Q_HOME), 0)
    ticks, parts, corrections, q = [], [], [], Q_HOME
    for k in range(num_ticks):
        now_ns = k * period_ns
        state = _state(now_ns, q)
        if executor.wants_request(now_ns):
            request = executor.make_request(Observation(state=state))
            rows = np.tile([*Q_HOME, 0.04], (32, 1))
            rows[:, :7] += 0.2 * np.sin((now_ns + np.arange(32) * 50_000_000) / 1e9)[:, None]
            part = request.part(rows)
            start = time.perf_counter_ns()
            executor.on_part(part, now_ns)
            parts.append(time.perf_counter_ns() - start)
        if executor.wants_correction(now_ns):
            observation = Observation(state=state, environment_state=np.zeros(_NUM_SCENE))
            start = time.perf_counter_ns()
            executor.correct(observation, now_ns)
            corrections.append(time.perf_counter_ns() - start)
        start = time.perf_counter_ns()
        tick = executor.tick(state, now_ns)
        ticks.append(time.perf_counter_ns() - start)
        if isinstance(tick.command.arm, JointCommand):
            q = tick.command.arm.q
    out = {"tick": _quantiles(ticks, 1e3), "chunk arrival": _quantiles(parts, 1e3)}
    return out | ({"correction": _quantiles(corrections, 1e3)} if corrections else {})


def random_head(spec: ActionSpec, *, num_scene: int = _NUM_SCENE, width: int = 192) -> CorrectionHead:
    """A head of the size that training makes, with random weights; it moves rows by about 1 mrad.

    num_scene: numbers of environment state.
    """
    from drivers.ideal import Q_HOME

    rng = np.random.default_rng(0)
    observation = Observation(state=_state(0, Q_HOME), environment_state=np.zeros(num_scene))
    chunk = np.zeros((spec.horizon, spec.dim))
    num_inputs = correction_inputs(observation, chunk, 0.0, spec=spec, lead=1).size
    sizes = (num_inputs, width, width, spec.dim)
    arrays = {f"w{i}": rng.normal(size=sizes[i - 1 : i + 1]) / np.sqrt(sizes[i - 1]) for i in (1, 2, 3)}
    arrays |= {f"b{i}": np.zeros(sizes[i]) for i in (1, 2, 3)}
    arrays |= {"in_mean": np.zeros(num_inputs), "in_std": np.ones(num_inputs)}
    arrays["out_std"] = np.full(spec.dim, 1e-3)
    return CorrectionHead(action_spec=spec, lead=1, max_age=20, arrays=arrays)


def bare_loop(rate_hz: float, seconds: float, *, use_fifo: bool) -> dict[str, float]:
    """Lateness of a loop that does nothing but wait [ms]."""
    with real_time_thread(use_fifo=use_fifo):
        pacer = Pacer(MonotonicClock(), period_ns=round(1e9 / rate_hz))
        beats = [pacer.wait() for _ in range(round(rate_hz * seconds))]
    return {
        **_quantiles([beat.lateness_ns for beat in beats], 1e6),
        "skipped": sum(beat.num_skipped for beat in beats),
    }


def control_loop(endpoint: str, rate_hz: float, seconds: float, *, use_fifo: bool) -> dict[str, float]:
    """Lateness of the real control loop with its network thread [ms]."""
    from drivers.fr3 import FR3_LIMITS
    from drivers.ideal import IdealArm, IdealGripper
    from policies.scripted import FRANKA

    clock = MonotonicClock()
    setting = RunConfig(
        Robot(arm=IdealArm(clock=clock), gripper=IdealGripper(), limits=FR3_LIMITS),
        duration_s=seconds,
        clock=clock,
        control_hz=rate_hz,
        use_fifo=use_fifo,
    )
    with PolicyClient(endpoint, robot="bench", schema=FRANKA) as client:
        runner = Runner(setting, client, client.wait_until_ready(10.0), method=method_named("time-aligned"))
        record = runner.run()
    return {
        **{f"p{q}": record.lateness_ns.quantile(q / 100) / 1e6 for q in (50, 95, 99)},
        "n": record.lateness_ns.count,
        "skipped": record.num_skipped,
        "chunks": record.num_splices,
        "arrival_to_executor_p95": runner.link.arrival_to_executor_ns.quantile(0.95) / 1e6,
    }


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """Keep every core busy with an ordinary process."""
    spin = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(spin) for _ in range(os.cpu_count() or 1)]
    try:
        time.sleep(0.3)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _state(t_ns: int, q: np.ndarray) -> RobotState:
    return RobotState(t_ns=t_ns, q=q, dq=np.zeros(7), X_BE=pin.SE3.Identity(), gripper_width=0.04)


def _quantiles(values: list[int], unit_ns: float) -> dict[str, float]:
    return {**percentiles(np.array(values) / unit_ns), "n": len(values)}
