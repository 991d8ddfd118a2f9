"""LeRobot's RTC engine drives our robot with our policy: the peer's rows of the comparison.

The engine is `lerobot.rollout.inference.rtc.RTCInferenceEngine` itself, its thread included: `ActionQueue`,
`LatencyTracker`, `RTCProcessor`, when it asks, how it counts its delay and what it does to what is left over.
Only its `time` is replaced, so that a latency is robot time (`virtual_time`), and the control loop around it
is written out here after `rollout/strategies/base.py`, because theirs sleeps in real time:

    every period of the policy (50 ms):  read ─► notify_observation ─► get_action ─► send
    the engine's thread, meanwhile:      queue <= threshold? ask with the newest observation
                                         else look again in 10 ms

Where these fall on one instant, the engine comes between the other two: an engine that is ready sees the
observation of that very tick, and an answer that comes at a tick is in time for it. That is the friendliest
of the orders its threads can take, and the order of our own loop. A delay counts from capture, as for
everybody: the age an observation has when the engine asks is part of it.

What differs from our executor, by LeRobot's design and not by ours: one target per period, held (no knots in
between: half a period of lag); an empty queue sends nothing and the arm keeps its last target; nothing stops
an arm that is far from its target. What is the same: policy, noise per request, drivers, 500 Hz control with
the same limiter, world, scorer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from robot_runtime.core.values.action import NS_PER_S, command_at_state
from robot_runtime.core.values.mismatches import mismatches
from robot_runtime.errors import InvalidValueError, SchemaMismatchError
from robot_runtime.evaluation.result import Episode, EpisodeResult
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.telemetry import RunRecord
from scripts.lab.baselines.held_target import ZeroOrderHold
from scripts.lab.baselines.lerobot_settings import LeRobotSettings, Variant, settings_of
from sim.episodes.task_env import CONTROL_PERIOD_NS
from sim.scene.clock import SimClock
from sim.scene.drivers import SimArm, SimGripper
from sim.scene.world import World
from sim.tasks import make_task

if TYPE_CHECKING:
    from policies.flow.checkpoint import Checkpoint
    from scripts.lab.baselines.lerobot_engine import RunningPeer


def run_peer_episode(
    policy_checkpoint: str | Path,
    *,
    task_name: str,
    variant: Variant,
    seed: int,
    delay_ns: int | Callable[[int], int | None] = 0,
    expected_delay_ns: int | None = None,
    lost_after_ns: int = NS_PER_S,
    control_period_ns: int = CONTROL_PERIOD_NS,
    snapshot_period_ns: int | None = None,
) -> Episode:
    """Run one episode as `evaluate.run_episode` does, with LeRobot's engine in place of our executor.

    delay_ns: from the capture of an observation to its answer [ns]; or a function of the time of capture
        within the episode, which gives None where an answer never comes.
    expected_delay_ns: what the variant may be set up for [ns]; None takes a constant delay as it is.
    lost_after_ns: how long the engine waits for an answer that never comes; then its own retry follows.
    PeerMissingError without LeRobot; SchemaMismatchError if policy and task do not fit; InvalidValueError if
    the peer's period is no whole number of control periods.
    """
    checkpoint = _checkpoint(policy_checkpoint)
    if expected_delay_ns is None:
        if callable(delay_ns):
            raise InvalidValueError("a delay that varies needs expected_delay_ns, to set the peer up for")
        expected_delay_ns = delay_ns
    spec = checkpoint.info.action_spec
    settings = settings_of(
        variant,
        horizon=spec.horizon,
        num_steps=checkpoint.num_steps,
        expected_delay_rows=math.ceil(expected_delay_ns / spec.dt_ns),
    )
    from scripts.lab.baselines.lerobot_engine import running_engine

    with running_engine(
        checkpoint,
        settings,
        instruction=make_task(task_name).instruction,
        delay_ns=delay_ns if callable(delay_ns) else lambda t_ns: delay_ns,
        lost_after_ns=lost_after_ns,
        seed=seed,
    ) as peer:
        return _run(peer, checkpoint, settings, task_name, seed, control_period_ns, snapshot_period_ns)


def _run(
    peer: RunningPeer,
    checkpoint: Checkpoint,
    settings: LeRobotSettings,
    task_name: str,
    seed: int,
    control_period_ns: int,
    snapshot_period_ns: int | None,
) -> Episode:
    task, clock = make_task(task_name), SimClock()
    wrong = mismatches(robot=task.schema, policy=checkpoint.info.schema)
    if wrong:
        raise SchemaMismatchError(
            f"policy {checkpoint.info.name!r} cannot do {task_name!r}: " + "; ".join(wrong)
        )
    world = World(task, seed=seed, t_start_ns=clock.now_ns())
    robot = Robot(arm=SimArm(world, clock), gripper=SimGripper(world, clock))
    arm = ZeroOrderHold(
        command_at_state(checkpoint.info.action_spec, robot.read()), checkpoint.info.action_spec.dt_ns
    )
    scorer, record, snapshots = task.make_scorer(world), RunRecord(counts=arm.counts, keep=None), []
    peer_period_ns = checkpoint.info.action_spec.dt_ns // settings.interpolation_multiplier
    if peer_period_ns % control_period_ns:
        raise InvalidValueError(
            f"the peer acts every {peer_period_ns} ns, which is no multiple of {control_period_ns} ns"
        )
    for now_ns in range(0, round(task.episode_s * NS_PER_S), control_period_ns):
        clock.sleep_until_ns(now_ns)
        robot.read()
        if now_ns % peer_period_ns == 0:
            arm.on_cycle(peer.cycle(now_ns, world.observe), now_ns)
        tick = arm.tick(now_ns)
        robot.write(tick.command)
        record.on_tick(tick, arm.last_splice)
        scorer.on_tick(now_ns, world, tick.command, None if tick.source is None else tick.source.t_obs_ns)
        if snapshot_period_ns is not None and now_ns % snapshot_period_ns == 0:
            snapshots.append(world.snapshot())
        if scorer.is_done:
            break
    arm.counts.late_answers = peer.num_unused()
    result = EpisodeResult.of(seed, scorer.score(), record)
    cost = {
        "requests_per_s": peer.policy.num_requests / max(result.summary["duration_s"], 1e-9),
        "evaluations_per_s": peer.policy.num_evaluations / max(result.summary["duration_s"], 1e-9),
        "num_failed_requests": float(peer.policy.num_failed),
    }
    return Episode(result=replace(result, summary=result.summary | cost), record=record, snapshots=snapshots)


@cache
def _checkpoint(name_or_path: str | Path) -> Checkpoint:
    """Loaded at the process's first episode."""
    from policies.flow.checkpoint import load

    return load(name_or_path)
