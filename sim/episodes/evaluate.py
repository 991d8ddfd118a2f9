"""Runs episodes of our own tasks, by name, in the loop for any env."""

from dataclasses import replace

from robot_runtime.core.method.table import Method
from robot_runtime.core.plan.correction import ResidualHead
from robot_runtime.core.policy import Policy
from robot_runtime.core.values.action import NS_PER_MS
from robot_runtime.evaluation.delay import SAMPLING_SHARE
from robot_runtime.evaluation.loop import Play, play, play_together
from robot_runtime.evaluation.result import Episode
from robot_runtime.evaluation.traces import LatencyTrace, constant
from robot_runtime.log.config import LogConfig
from sim.episodes.task_env import CONTROL_PERIOD_NS, TaskEnv


def play_task(
    policy: Policy,
    *,
    task_name: str,
    method: Method,
    seed: int,
    trace: LatencyTrace,
    control_period_ns: int = CONTROL_PERIOD_NS,
    sampling_share: float = SAMPLING_SHARE,
    snapshot_period_ns: int | None = None,
    correction_head: ResidualHead | None = None,
    log: LogConfig | None = None,
) -> Play:
    """Run one episode to its end, as `play`, with world snapshots if requested."""
    env = TaskEnv(task_name, control_period_ns=control_period_ns, snapshot_period_ns=snapshot_period_ns)
    episode = yield from play(
        policy,
        env,
        method=method,
        seed=seed,
        trace=trace,
        sampling_share=sampling_share,
        correction_head=correction_head,
        log=log,
    )
    return replace(episode, snapshots=env.snapshots)


def run_episode(
    policy: Policy,
    *,
    task_name: str,
    method: Method,
    seed: int,
    delay_ns: int = 0,
    trace: LatencyTrace | None = None,
    control_period_ns: int = CONTROL_PERIOD_NS,
    snapshot_period_ns: int | None = None,
    correction_head: ResidualHead | None = None,
    log: LogConfig | None = None,
) -> Episode:
    """Run a single episode, as `play_task`; `delay_ns` is a constant delay if there is no trace."""
    episode = play_task(
        policy,
        task_name=task_name,
        method=method,
        seed=seed,
        trace=constant(delay_ns / NS_PER_MS) if trace is None else trace,
        control_period_ns=control_period_ns,
        snapshot_period_ns=snapshot_period_ns,
        correction_head=correction_head,
        log=log,
    )
    return play_together(policy, [episode])[0]
