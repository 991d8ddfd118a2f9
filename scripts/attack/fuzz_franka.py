"""Checks a million setpoints at the output of the Franka driver for absurd command streams.

    python -m scripts.attack.fuzz_franka --ticks 1000000 --json franka.json

Noise, steps across and beyond the range, alternating ends, ramps, sines faster than the arm, numbers up to
1e9 and NaN, at intervals from none to longer than the silence that brakes, with clocks that go back and loops
that are late; joints and end-effector poses, at 250 Hz and 1 kHz, with the FR3's limits. The script counts
ticks whose setpoint is not finite or beyond a limit of position, speed, speed by position, acceleration or
jerk, by divided differences; arms that do not come to rest after silence; and exceptions. Exit code 1 if
there is one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import numpy as np
import pinocchio as pin

from drivers.fr3 import FR3_LIMITS
from drivers.franka.lead import SetpointLead
from robot_runtime.cli.options import Maybe, OutputFile, Seed, Within
from robot_runtime.core.plan.limits import MotionLimits
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import JointCommand, PoseCommand
from robot_runtime.core.values.transforms import quaternion_from_rotation
from scripts.attack.fuzz_gate import SLACK, faster_than_curve
from scripts.attack.fuzzing import played, report
from scripts.harness import run_script

LIMITS = FR3_LIMITS.arm()
EPISODE_TICKS = 2_000
PERIODS_S = (0.004, 0.001)
INTERVALS_S = (0.0, 0.001, 0.002, 0.01, 0.02, 0.05, 0.1, 0.25)
REST_S = 10.0
"""Silence after which every arm must be at rest."""


@dataclass(kw_only=True)
class Counted:
    """Counts for one kind of command."""

    ticks: int = 0
    moved: int = 0
    broken: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("not finite", "beyond position", "velocity", "acceleration", "jerk", "never at rest", "raised"),
            0,
        )
    )
    """Number of violations by kind."""


Episode = Callable[[np.random.Generator, float, Counted], None]


def stream(rng: np.random.Generator, start: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Return the numbers of successive commands, (EPISODE_TICKS, n), around the start."""
    n, k = len(start), np.arange(EPISODE_TICKS)[:, None]
    noise = rng.standard_normal((EPISODE_TICKS, n))
    match rng.integers(7):
        case 0:
            out = start + span * noise * 10.0 ** rng.uniform(-4, 1)
        case 1:
            out = start + span * np.where(k // rng.integers(1, 60) % 2, 1.0, -1.0) * rng.uniform(0, 1.5, n)
        case 2:
            out = start + span * np.sin(k * rng.uniform(0.001, 2.0, n)) * rng.uniform(0, 1.2, n)
        case 3:
            out = start + span * k * rng.uniform(-0.02, 0.02, n)
        case 4:
            out = start + np.cumsum(noise, axis=0) * span * 10.0 ** rng.uniform(-4, -1)
        case 5:
            out = np.repeat(start + span * noise[:: EPISODE_TICKS // 8], EPISODE_TICKS // 8, axis=0)
        case _:
            out = start + noise * 10.0 ** rng.uniform(0, 9)
    out = out[:EPISODE_TICKS].copy()
    out[rng.random(EPISODE_TICKS) < 0.002] = rng.choice([np.nan, np.inf, -np.inf, 1e300])
    return out


def run(lead: SetpointLead, commands: list, period_ns: int, rng: np.random.Generator) -> list:
    """Return the setpoints while these commands come, and in the silence after them."""
    sent, now_ns, due_ns, k = [], int(rng.integers(0, 1 << 50)), 0, 0
    interval_ns = round(float(rng.choice(INTERVALS_S)) * NS_PER_S)
    due_ns = now_ns
    for _ in range(EPISODE_TICKS):
        while now_ns >= due_ns and k < len(commands):
            moved_ns = int(rng.integers(0, 2) * rng.integers(-2_000_000, 2_000_000))
            lead.tell(commands[k], now_ns - moved_ns, int(rng.choice([1, 1, 1, 2, 50, 0, -3])))
            due_ns += max(int(interval_ns * rng.uniform(0.5, 1.5)), 100_000)
            k += 1
        sent.append(lead.step(now_ns).command)
        now_ns += period_ns if rng.random() < 0.99 else int(rng.integers(-5, 50)) * period_ns
    for _ in range(round(REST_S * NS_PER_S) // period_ns):
        now_ns += period_ns
        sent.append(lead.step(now_ns + NS_PER_S).command)
        if lead.is_at_rest:
            break
    return sent


def joints(rng: np.random.Generator, period_s: float, counted: Counted) -> None:
    """Run one episode of joint positions."""
    start, span = rng.uniform(LIMITS.q_min, LIMITS.q_max), 0.5 * (LIMITS.q_max - LIMITS.q_min)
    lead = SetpointLead(LIMITS, period_s=period_s)
    lead.stand_at(JointCommand(q=start))
    commands = [JointCommand(q=q) for q in stream(rng, start, span)]
    sent = np.array([start] + [c.q for c in run(lead, commands, round(period_s * NS_PER_S), rng)])
    outside = ((sent < LIMITS.q_min) | (sent > LIMITS.q_max)).any(axis=1)
    counted.broken["beyond position"] += int(outside.sum())
    assert LIMITS.dq_curve is not None
    counted.broken["velocity"] += faster_than_curve(LIMITS.dq_curve, sent, period_s)
    count(sent, LIMITS.joints, period_s, counted)
    counted.broken["never at rest"] += int(not lead.is_at_rest)


def poses(rng: np.random.Generator, period_s: float, counted: Counted) -> None:
    """Run one episode of end-effector poses."""
    lead, start, span = SetpointLead(LIMITS, period_s=period_s), np.zeros(6), np.array([0.5] * 3 + [2.0] * 3)
    start[:3] = rng.uniform(-0.7, 0.7, 3)
    first = PoseCommand(p_BE=start[:3], quat_BE=np.array([1.0, 0.0, 0.0, 0.0]))
    lead.stand_at(first)
    numbers = stream(rng, start, span)
    numbers[~np.isfinite(numbers).all(axis=1)] = start
    commands = [
        PoseCommand(p_BE=row[:3], quat_BE=quaternion_from_rotation(pin.exp3(np.clip(row[3:], -99, 99))))
        for row in numbers
    ]
    sent = [first, *run(lead, commands, round(period_s * NS_PER_S), rng)]
    assert LIMITS.hand_translation is not None
    count(np.array([c.p_BE for c in sent]), LIMITS.hand_translation, period_s, counted)
    counted.broken["never at rest"] += int(not lead.is_at_rest)


def count(sent: np.ndarray, limits: MotionLimits, period_s: float, counted: Counted) -> None:
    """Count ticks that violate a limit of motion; the arm is at rest before the first."""
    counted.ticks += len(sent) - 1
    counted.broken["not finite"] += int((~np.isfinite(sent)).any(axis=1).sum())
    counted.moved += int((np.diff(sent, axis=0) != 0.0).any(axis=1).sum())
    path = np.concatenate([np.repeat(sent[:1], 3, axis=0), sent])
    each = {"velocity": limits.speed, "acceleration": limits.acceleration, "jerk": limits.jerk}
    for name, most in each.items():
        path = np.diff(path, axis=0) / period_s
        counted.broken[name] += int((np.abs(path) > most * SLACK).any(axis=1).sum())


@dataclass(frozen=True, kw_only=True)
class Args:
    """Send absurd commands through the Franka driver."""

    ticks: Annotated[int, Within(EPISODE_TICKS, 1_000_000_000)] = 1_000_000
    """Ticks of joint positions; end-effector poses get a fifth as many."""
    seed: Seed = 0
    json: Maybe[OutputFile] = None
    """Write the counts to this file."""


def main(args: Args) -> int:
    """Run it and print the table; return 1 on any violation."""
    results = {"joints": Counted(), "hand poses": Counted()}
    goals = {"joints": args.ticks, "hand poses": args.ticks // 5}
    for i, (name, episode) in enumerate({"joints": joints, "hand poses": poses}.items()):
        rng, counted = np.random.default_rng([args.seed, i]), results[name]
        play = partial(_nth, episode, rng, counted)
        counted.broken["raised"] += played(name, -(-goals[name] // EPISODE_TICKS), play)
    return report(results, "commands", seed=args.seed, path=args.json)


def _nth(episode: Episode, rng: np.random.Generator, counted: Counted, k: int) -> None:
    episode(rng, PERIODS_S[k % len(PERIODS_S)], counted)


if __name__ == "__main__":
    run_script(Args, main, description=__doc__)
