"""Measures the benefit of declared latencies on a robot whose motors get their commands late.

    python -m scripts.bench.part_latency --json scripts/results/bench-part-latency.json

The simulated arm gets each command 0.1 s after it was written, the gripper 0.2 s. Cases:

    no dead time      the robot as the policy was trained on it
    not declared      late, unknown to the runtime: Robot()
    declared          Robot(latency_s={"arm": 0.1, "gripper": 0.2})
    arm declared      Robot(latency_s={"arm": 0.1}): the gripper stays late, and the arm need not wait for it

In simulated time, so the figures are the same on every machine.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.progress import track

from policies.load import load_policy
from robot_runtime.cli.options import Count, Maybe, OutputFile
from robot_runtime.evaluation.evaluate import FIRST_SEED, evaluate
from scripts.harness import finish, run_script
from scripts.tables.robustness import late_parts
from sim.episodes.task_env import TaskEnv

DEAD_TIME_S = {"arm": 0.1, "gripper": 0.2}
CASES: dict[str, tuple[dict[str, float], dict[str, float]]] = {
    "no dead time": ({}, {}),
    "not declared": (DEAD_TIME_S, {}),
    "declared": (DEAD_TIME_S, DEAD_TIME_S),
    "arm declared": (DEAD_TIME_S, {"arm": DEAD_TIME_S["arm"]}),
}
"""Name -> dead times, and what is declared of them."""
TASKS = ("track", "pick_place", "conveyor")
DELAY_MS = 100.0
"""From capture to answer."""
CONTROL_PERIOD_NS = 10_000_000
FIGURES = (
    "success",
    "success_interval_95",
    "completion_s_median",
    "jerk_mean",
    "error_mean_m",
    "error_p95_m",
)


@dataclass(frozen=True, kw_only=True)
class BenchPartLatency:
    """The shipped policies on a late robot, with and without its latencies declared."""

    seeds: Count = 30
    """Episodes of each task and case."""
    json: Maybe[OutputFile] = None
    """Write the results to this file."""

    def main(self) -> int:
        rows = list(track(self.rows(), description="cases", total=len(TASKS) * len(CASES)))
        figures = {"dead_time_s": DEAD_TIME_S, "delay_ms": DELAY_MS, "rows": rows}
        seeds = range(FIRST_SEED, FIRST_SEED + self.seeds)
        return finish(figures, self.json, late_parts(figures), seeds=seeds)

    def rows(self) -> Iterator[dict[str, object]]:
        """One for each task and case."""
        for task in TASKS:
            policy = load_policy(task)
            for case, (dead_time_s, latency_s) in CASES.items():

                def env(
                    task: str = task,
                    dead_time_s: dict[str, float] = dead_time_s,
                    latency_s: dict[str, float] = latency_s,
                ) -> TaskEnv:
                    return TaskEnv(
                        task,
                        control_period_ns=CONTROL_PERIOD_NS,
                        dead_time_s=dead_time_s,
                        latency_s=latency_s,
                    )

                found = evaluate(
                    policy, env, trace=DELAY_MS, seeds=range(FIRST_SEED, FIRST_SEED + self.seeds)
                ).summary()
                yield {"task": task, "case": case} | {k: found[k] for k in FIGURES if k in found}


if __name__ == "__main__":
    run_script(BenchPartLatency, BenchPartLatency.main)
