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
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from robot_runtime.core.values.action import NS_PER_S, command_at_state
from robot_runtime.core.values.schema import mismatches
from robot_runtime.errors import InvalidValueError, SchemaMismatchError
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.telemetry import RunRecord
from sim.episodes.evaluate import CONTROL_PERIOD_NS, Episode, EpisodeResult
from sim.lab.baselines.held_target import ZeroOrderHold
from sim.scene.clock import SimClock
from sim.scene.drivers import SimArm, SimGripper
from sim.scene.world import World
from sim.tasks import make_task

if TYPE_CHECKING:
    from policies.flow.checkpoint import Checkpoint
    from sim.lab.baselines.lerobot_engine import RunningPeer

THEIR_HORIZON = 50
"""Rows of a chunk that LeRobot's default queue threshold is made for (pi0, pi0.5, SmolVLA)."""
ASK_EVERY_ROWS = 4
"""Rows from one observation to the next in our own methods."""
NARROW_ROWS = 5
"""Rows beyond the delay that `Variant.BEST_NARROW` guides."""


class AttentionSchedule(Enum):
    """How guidance falls off over the overlap; values as LeRobot's `RTCAttentionSchedule`."""

    ZEROS = "ZEROS"
    ONES = "ONES"
    LINEAR = "LINEAR"
    EXP = "EXP"


@dataclass(frozen=True, kw_only=True)
class LeRobotSettings:
    """What a user of `lerobot-rollout --inference.type=rtc` can set; defaults are theirs."""

    rtc: bool = True
    """False appends each chunk behind the queue, unguided."""
    execution_horizon: int = 10
    """Rows of the old chunk that guide the new one (LeRobot's name; the paper's H - s)."""
    schedule: AttentionSchedule = AttentionSchedule.LINEAR
    max_guidance_weight: float = 10.0
    queue_threshold: int = 30
    """Asks when no more rows than this are left."""
    interpolation_multiplier: int = 1
    """Targets per row (`ActionInterpolator`), which then lag by one row."""

    def __post_init__(self) -> None:
        if self.execution_horizon < 1 or self.queue_threshold < 0 or self.interpolation_multiplier < 1:
            raise InvalidValueError(f"these settings cannot work: {self}")


class Variant(Enum):
    """Ways to set LeRobot up."""

    DEFAULTS = "defaults"
    """As they come; the threshold of 30 rows of 50 scaled to the same share of our chunk."""
    AS_GIVEN = "as-given"
    """As they come, the threshold 30 as well."""
    BEST_WIDE = "best-wide"
    """Set with care, without touching their code: asks as often as our methods, guided over the whole overlap
    (the paper's end = H - s), no harder than the policy's steps allow."""
    BEST_NARROW = "best-narrow"
    """The same, guided over a few rows beyond the delay only: less bound to the old plan, rougher seams."""
    INTERPOLATED = "interpolated"
    """The wide one, and their interpolator between rows, fivefold."""
    REPLACE = "replace"
    """As the defaults, guidance too weak to matter: newest chunk, cut by the delay."""
    APPEND = "append"
    """RTC off: chunks one after the other."""


def settings_of(
    variant: Variant, *, horizon: int, num_steps: int, expected_delay_rows: int
) -> LeRobotSettings:
    """The settings of a variant for chunks of `horizon` rows and a delay that somebody measured before.

    num_steps: Euler steps of the policy. The paper's beta equals its steps (5); a larger weight overshoots,
        because a step of 1 / num_steps times it moves a row beyond what it is drawn to.

    The best ask every s = max(4, d) rows, so H - s rows of the old chunk are left to be guided by; if d
    leaves fewer than d of them, no setting guides the whole seam. Neither is best everywhere: at 400 ms
    wide guidance places the cube more often, narrow guidance follows the target more closely. On 8 seeds
    the exponential fall-off succeeded no more often than the linear one on either task.
    """
    scaled = LeRobotSettings(queue_threshold=30 * horizon // THEIR_HORIZON)
    s = min(max(ASK_EVERY_ROWS, expected_delay_rows), horizon - 1)
    wide = LeRobotSettings(
        execution_horizon=horizon - s, queue_threshold=horizon - s, max_guidance_weight=float(num_steps)
    )
    match variant:
        case Variant.DEFAULTS:
            return scaled
        case Variant.AS_GIVEN:
            return LeRobotSettings()
        case Variant.BEST_WIDE:
            return wide
        case Variant.BEST_NARROW:
            narrow = min(expected_delay_rows + NARROW_ROWS, horizon - s)
            return replace(wide, execution_horizon=narrow)
        case Variant.INTERPOLATED:
            return replace(wide, interpolation_multiplier=5)
        case Variant.REPLACE:
            return replace(scaled, max_guidance_weight=1e-9)
        case Variant.APPEND:
            return replace(scaled, rtc=False)


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
    spec = checkpoint.action_spec
    settings = settings_of(
        variant,
        horizon=spec.horizon,
        num_steps=checkpoint.num_steps,
        expected_delay_rows=math.ceil(expected_delay_ns / spec.dt_ns),
    )
    from sim.lab.baselines.lerobot_engine import running_engine

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
    wrong = mismatches(robot=task.schema, policy=checkpoint.schema)
    if wrong:
        raise SchemaMismatchError(f"policy {checkpoint.name!r} cannot do {task_name!r}: " + "; ".join(wrong))
    world = World(task, seed=seed, t_start_ns=clock.now_ns())
    robot = Robot(arm=SimArm(world, clock), gripper=SimGripper(world, clock))
    arm = ZeroOrderHold(command_at_state(checkpoint.action_spec, robot.read()), checkpoint.action_spec.dt_ns)
    scorer, record, snapshots = task.make_scorer(world), RunRecord(counts=arm.counts, keep=None), []
    peer_period_ns = checkpoint.action_spec.dt_ns // settings.interpolation_multiplier
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
