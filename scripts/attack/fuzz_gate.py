"""Runs a million ticks of absurd plans through the executor and its command limiter.

    python -m scripts.attack.fuzz_gate --ticks 1000000 --json gate.json

Chunks of noise, steps beyond the limits, alternating rows, ramps and numbers up to 1e9 (what is larger is
refused as no action), under seven methods, with late, lost and partial answers, stalls of the control loop,
stale states, clocks that go back, and stops at random moments; with control periods of 1 to 20 ms, and every
other time with random limits. The script counts ticks whose command is not finite, or beyond a limit of
position, speed, speed by position, acceleration or jerk, by divided differences from command to command;
increases of the speed after a stop; exceptions, robots that never rest after a stop, and fixed targets that
are not reached. Exit code 1 if there is one.
"""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated

import numpy as np
import pinocchio as pin

from robot_runtime.cli.options import Maybe, OutputFile, Seed, Within
from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.method.table import method_named
from robot_runtime.core.plan.limiter import Limiter
from robot_runtime.core.plan.limits import Limits, SpeedCurve
from robot_runtime.core.safety import Mode
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.values.action import (
    NS_PER_S,
    ActionSpec,
    BasePose,
    BasePoseCommand,
    BaseTwistCommand,
    ChunkPart,
    Command,
    JointCommand,
    PoseCommand,
)
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.core.values.transforms import compose_planar, inverse_planar, wrap_angle
from scripts.attack.fuzzing import played, report
from scripts.attack.gate_robots import DT_NS, HIGH, HORIZON, LOW, ROBOTS, Robot, limits_drawn, rows_of
from scripts.harness import run_script

PERIODS_NS = (1_000_000, 2_000_000, 4_000_000, 10_000_000, 20_000_000)
EPISODE_TICKS = 2_000
METHODS = (
    "naive",
    "time-aligned",
    "committed-prefix",
    "temporal-ensembling",
    "cross-fade",
    "synchronous",
    "pipelined-prefix",
)
PATIENCE_S = 120.0
"""Ticks that suffice to reach any target, or rest; the slowest random axes take a minute."""
SLACK = 1.0 + 1e-9


@dataclass(kw_only=True)
class Counted:
    """Counts for one kind of robot."""

    ticks: int = 0
    not_finite: int = 0
    position: int = 0
    velocity: int = 0
    acceleration: int = 0
    jerk: int = 0
    rising_after_stop: int = 0
    """Stops after which the speed rose by more than its acceleration at the time explains."""
    restless: int = 0
    """Stops after which the robot never came to rest."""
    elsewhere: int = 0
    """Fixed targets that were not reached."""
    raised: int = 0
    """Episodes that an exception ended."""
    stops: int = 0
    moved: float = 0.0
    """Share of the ticks in which anything moved."""

    @property
    def broken(self) -> dict[str, int]:
        """Return the number of violations by kind."""
        return {
            "not finite": self.not_finite,
            "beyond position": self.position,
            "velocity": self.velocity,
            "acceleration": self.acceleration,
            "jerk": self.jerk,
            "rising after a stop": self.rising_after_stop,
            "never at rest": self.restless,
            "not at its target": self.elsewhere,
            "raised": self.raised,
        }


def state_of(sent: Command, t_ns: int) -> RobotState:
    """Return the state of a robot that follows commands exactly."""
    q, X_BE, x_WB, V = 0.5 * (LOW + HIGH), pin.SE3.Identity(), np.zeros(3), np.zeros(3)
    match sent.arm:
        case JointCommand(q=sent_q):
            q = sent_q
        case PoseCommand() as pose:
            X_BE = pose.X_BE
    match sent.base:
        case BasePoseCommand(x_WB=sent_x):
            x_WB = sent_x
        case BaseTwistCommand(V_WB_B=sent_V):
            V = sent_V
    return RobotState(t_ns=t_ns, q=q, dq=np.zeros(7), gripper_width=0.04, X_BE=X_BE, x_WB=x_WB, V_WB_B=V)


def episode(robot: Robot, method: str, rng: np.random.Generator, counted: Counted) -> None:
    """Run from a reset to rest after a stop at a random moment, then to a fixed target."""
    spec = ActionSpec(fields=robot.fields, horizon=HORIZON, dt_ns=DT_NS)
    open_watch = StateLimits(max_arm_error=1e9, max_base_error=1e9, max_jump=1e9, max_turn=1e9)
    period_ns, limits = int(rng.choice(PERIODS_NS)), limits_drawn(rng)
    executor = Executor(
        Configuration(
            prefix_at_rest=True,
            action_spec=spec,
            method=method_named(method),
            limits=limits,
            control_period_ns=period_ns,
            state_limits=open_watch,
            hand_pose=lambda q: pin.SE3.Identity(),
        )
    )
    now_ns, sent = 0, Command()
    coming: list[tuple[int, ChunkPart]] = []
    executor.reset(state_of(sent, 0), 0)
    stop_at = int(rng.integers(EPISODE_TICKS // 4, EPISODE_TICKS))
    log: list[np.ndarray] = []
    stopped = 0
    for k in range(EPISODE_TICKS + round(PATIENCE_S * NS_PER_S / period_ns)):
        now_ns += period_ns * int(rng.integers(-20, 60)) if rng.random() < 0.005 else period_ns
        is_stale = rng.random() < 0.002
        state = state_of(sent, now_ns - (200_000_000 if is_stale else 0))
        for due, part in [c for c in coming if c[0] <= now_ns]:
            executor.on_part(part, now_ns)
            coming.remove((due, part))
        if executor.wants_request(now_ns):
            request = executor.make_request(Observation(state=state_of(sent, now_ns)))
            coming += answers(request, rows_of(robot, rng), now_ns, rng)
        if k == stop_at:
            executor.stop()
            stopped = len(log)
        sent = executor.tick(state, now_ns).command
        log.append(robot.numbers(sent))
        if k >= EPISODE_TICKS and executor.is_at_rest:
            break
    counted.restless += not executor.is_at_rest or executor.mode is not Mode.STOP
    look_at(robot, limits, period_ns, np.array(log), stopped, counted)
    arrive(robot, limits, period_ns, log[-1], rng, counted)


def arrive(
    robot: Robot,
    limits: Limits,
    period_ns: int,
    start: np.ndarray,
    rng: np.random.Generator,
    counted: Counted,
) -> None:
    """Drive a robot to a fixed target, within its range, at an end of it or beyond."""
    limiter, target = Limiter(limits, period_ns=period_ns), start + rng.uniform(-2.0, 2.0, len(start))
    limiter.reset(robot.make(start), 0)
    end = target
    if robot.ends is not None:
        low, high = robot.ends(limits)
        pick = rng.integers(3, size=len(start))
        target = np.choose(pick, [low, high, target])
        if robot.has_curve and (curve := limits.dq_curve) is not None:
            closed = curve.offset**2 / curve.gain  # where it allows no speed
            low, high = np.maximum(low, curve.low + closed), np.minimum(high, curve.high - closed)
        end = np.clip(target, low, high)
    log, stays = [start], False
    for k in range(1, round(PATIENCE_S * NS_PER_S / period_ns)):
        log.append(robot.numbers(limiter.limit(robot.make(target), k * period_ns)[0]))
        stays = k > 3 and bool(np.ptp(log[-4:], axis=0).max() == 0.0)
        if stays:
            break
    off = np.abs(log[-1] - end)
    if isinstance(robot.fields[0], BasePose):
        off[2] = abs(wrap_angle(off[2]))
    is_there = stays and (off <= (1e-6 if robot.has_curve else 1e-9)).all()
    counted.elsewhere += not is_there
    look_at(robot, limits, period_ns, np.array(log), None, counted)


def answers(request, rows, now_ns: int, rng: np.random.Generator) -> list[tuple[int, ChunkPart]]:
    """Return an answer in one or two parts, late by up to half a second; one in twenty is lost."""
    if rng.random() < 0.05:
        return []
    due_ns = now_ns + int(rng.integers(0, 500_000_000))
    cut = int(rng.integers(1, HORIZON + 1))
    ends = [cut] if cut == HORIZON else [cut, HORIZON]
    out, first = [], 0
    for end in ends:
        part = request.part(rows[first:end], first_row=first, is_last=end == HORIZON)
        out.append((due_ns + first * 1_000_000, part))
        first = end
    return out


def look_at(
    robot: Robot, limits: Limits, period_ns: int, sent: np.ndarray, stopped: int | None, counted: Counted
) -> None:
    """Count the ticks that violate a limit."""
    counted.ticks += len(sent)
    counted.not_finite += int((~np.isfinite(sent)).any(axis=1).sum())
    most_of, dt_s = robot.declared(limits), period_ns / NS_PER_S
    if isinstance(robot.fields[0], BasePose):
        own = [compose_planar(inverse_planar(a), b) for a, b in pairwise(sent)]  # along its own axes
        sent = np.cumsum([np.zeros(3), *own], axis=0)
    if robot.ends is not None:
        low, high = robot.ends(limits)
        counted.position += int(((sent > high) | (sent < low)).any(axis=1).sum())
    start = np.repeat(sent[:1], 3, axis=0)
    path = np.concatenate([start, sent])
    derivatives = []
    for _ in range(3):
        path = np.diff(path, axis=0) / dt_s
        derivatives.append(path)
    if robot.is_rate:
        derivatives = [sent, *derivatives]
    if robot.has_curve and limits.dq_curve is not None:
        counted.velocity += faster_than_curve(limits.dq_curve, sent, dt_s)
    for name, values, most in zip(
        ("velocity", "acceleration", "jerk"),
        derivatives,
        (most_of.speed, most_of.acceleration, most_of.jerk),
        strict=False,
    ):
        broken = (np.abs(values) > most * SLACK).any(axis=1)
        setattr(counted, name, getattr(counted, name) + int(broken.sum()))
    counted.moved += float((np.abs(np.diff(sent, axis=0)) > 0).any(axis=1).sum())
    if stopped is None:
        return
    speeds = np.abs(sent if robot.is_rate else np.diff(sent, axis=0) / dt_s)[max(stopped - 2, 0) :]
    counted.stops += 1
    rise = most_of.acceleration**2 / most_of.jerk + 2.0 * most_of.acceleration * dt_s
    counted.rising_after_stop += int((speeds[2:] > speeds[:2].max(axis=0) + rise).any())


def faster_than_curve(curve: SpeedCurve, sent: np.ndarray, dt_s: float) -> int:
    """Count ticks that exceed the speed by position where they start or end."""
    v, broken = np.diff(sent, axis=0) / dt_s, np.zeros(len(sent) - 1, dtype=bool)
    for at in (sent[:-1], sent[1:]):
        up = np.sqrt(np.maximum(curve.gain * (curve.high - at), 0.0)) - curve.offset
        down = np.sqrt(np.maximum(curve.gain * (at - curve.low), 0.0)) - curve.offset
        broken |= ((v > np.maximum(up, 0.0) * SLACK) | (-v > np.maximum(down, 0.0) * SLACK)).any(axis=1)
    return int(broken.sum())


@dataclass(frozen=True, kw_only=True)
class Args:
    """Send absurd plans to every kind of robot."""

    ticks: Annotated[int, Within(EPISODE_TICKS, 1_000_000_000)] = 1_000_000
    """Ticks for each kind of robot."""
    seed: Seed = 0
    json: Maybe[OutputFile] = None
    """Write the counts to this file."""


def main(args: Args) -> int:
    """Run it and print the table; return 1 on any violation."""
    results = {}
    for i, (name, robot) in enumerate(ROBOTS.items()):
        rng, counted = np.random.default_rng([args.seed, i]), Counted()
        play = partial(_nth, robot, rng, counted)
        counted.raised += played(name, args.ticks // EPISODE_TICKS, play)
        results[name] = counted
    return report(results, "robots", seed=args.seed, path=args.json, further=["stops"])


def _nth(robot: Robot, rng: np.random.Generator, counted: Counted, k: int) -> None:
    episode(robot, METHODS[k % len(METHODS)], rng, counted)


if __name__ == "__main__":
    run_script(Args, main, description=__doc__)
