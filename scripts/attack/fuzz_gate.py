"""Runs a million ticks of absurd plans and commands through everything that holds commands to their limits.

    python -m scripts.attack.fuzz_gate --ticks 1000000 --json gate.json

Executor and command limiter: chunks of noise, steps beyond the limits, alternating rows, ramps and numbers up
to 1e9 (what is larger is refused as no action), under seven methods, with late, lost and partial answers,
stalls of the control loop, stale states, clocks that go back, and stops at random moments; with control
periods of 1 to 20 ms, and every other time with random limits.

Franka driver: streams of such commands and NaN, at intervals from none to longer than the silence that
brakes, with clocks that go back and loops that are late; joints and end-effector poses, at 250 Hz and 1 kHz.

The script counts ticks whose command is not finite, or beyond a limit of position, speed, speed by position,
acceleration or jerk, by divided differences from command to command; increases of the speed after a stop;
exceptions, robots that never rest after a stop or in silence, and fixed targets that are not reached. Exit
code 1 if there is one.
"""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated

import numpy as np
import pinocchio as pin
from rich.progress import track

from drivers.fr3 import FR3_LIMITS
from drivers.franka.lead import SetpointLead
from robot_runtime.cli.options import Maybe, OutputFile, Seed, Within
from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.method.table import method_named
from robot_runtime.core.plan.limiter import Limiter
from robot_runtime.core.plan.limits import Limits, MotionLimits, SpeedCurve
from robot_runtime.core.safety import Mode
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.values.action import (
    NS_PER_S,
    ActionField,
    ActionSpec,
    BasePose,
    BasePoseCommand,
    BaseTwist,
    BaseTwistCommand,
    ChunkPart,
    Command,
    EndEffectorPose,
    GripperCommand,
    GripperWidth,
    JointCommand,
    JointPosition,
    PoseCommand,
)
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.core.values.transforms import (
    compose_planar,
    inverse_planar,
    quaternion_from_rotation,
    rotation_to_6d,
    wrap_angle,
)
from scripts.harness import finish, run_script
from scripts.tables.robustness import gate

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


ARM_LIMITS = FR3_LIMITS.arm()
LEAD_PERIODS_S = (0.004, 0.001)
INTERVALS_S = (0.0, 0.001, 0.002, 0.01, 0.02, 0.05, 0.1, 0.25)
REST_S = 10.0
"""Silence after which every arm must be at rest."""


@dataclass(kw_only=True)
class Counted:
    """Counts for one kind of robot; all but `ticks`, `stops` and `moved` are violations."""

    ticks: int = 0
    not_finite: int = 0
    position: int = 0
    velocity: int = 0
    acceleration: int = 0
    jerk: int = 0
    rising_after_stop: int = 0
    """Stops after which the speed rose by more than its acceleration at the time explains."""
    restless: int = 0
    """Stops after which the robot never came to rest, or silences."""
    elsewhere: int = 0
    """Fixed targets that were not reached."""
    raised: int = 0
    """Episodes that an exception ended."""
    stops: int = 0
    moved: int = 0
    """Ticks in which anything moved."""

    @property
    def is_broken(self) -> bool:
        return any(count for name, count in vars(self).items() if name not in ("ticks", "stops", "moved"))

    def look_at(
        self, sent: np.ndarray, low: np.ndarray | float = -np.inf, high: np.ndarray | float = np.inf
    ) -> None:
        """Count commands that are not finite or outside a range."""
        self.ticks += len(sent)
        self.not_finite += int((~np.isfinite(sent)).any(axis=1).sum())
        self.position += int(((sent > high) | (sent < low)).any(axis=1).sum())
        self.moved += int((np.diff(sent, axis=0) != 0.0).any(axis=1).sum())

    def look_at_motion(
        self, sent: np.ndarray, most: MotionLimits, dt_s: float, *, is_rate: bool = False
    ) -> None:
        """Count ticks that violate a limit of motion; the robot is at rest before the first.

        is_rate: commands are speeds.
        """
        path = np.concatenate([np.repeat(sent[:1], 3, axis=0), sent])
        for name, limit in (
            ("velocity", most.speed),
            ("acceleration", most.acceleration),
            ("jerk", most.jerk),
        ):
            if not (is_rate and name == "velocity"):
                path = np.diff(path, axis=0) / dt_s
            broken = int((np.abs(path) > limit * SLACK).any(axis=1).sum())
            setattr(self, name, getattr(self, name) + broken)


# ---- robots ----

DT_NS, HORIZON = 50_000_000, 16
BASE = MotionLimits(
    speed=np.array([0.8, 0.8, 1.6]), acceleration=np.array([1.0, 1.0, 2.5]), jerk=np.array([20.0, 20.0, 50.0])
)
LIMITS = FR3_LIMITS.replace(base=BASE)
LOW, HIGH = LIMITS.q_min, LIMITS.q_max
WIDTH = 0.04
"""Measured width of the gripper [m]; within its range, as it is brought back from beyond over some ticks."""


@dataclass(frozen=True, kw_only=True)
class Robot:
    """Kind of robot: its columns, how its state follows from commands, and the limits of its commands."""

    fields: tuple[ActionField, ...]
    numbers: Callable[[Command], np.ndarray]
    """Returns the numbers that are compared from command to command."""
    make: Callable[[np.ndarray], Command]
    """Makes a command of such numbers."""
    declared: Callable[[Limits], MotionLimits]
    ends: Callable[[Limits], tuple[np.ndarray, np.ndarray]] | None = None
    is_rate: bool = False
    """The numbers are speeds: their differences are accelerations and jerks."""
    has_curve: bool = False


def _hand_position(command: Command) -> np.ndarray:
    assert isinstance(command.arm, PoseCommand)
    return command.arm.p_BE


def _joints(command: Command) -> np.ndarray:
    assert isinstance(command.arm, JointCommand)
    return command.arm.q


def _width(command: Command) -> np.ndarray:
    assert isinstance(command.gripper, GripperCommand)
    return np.array([command.gripper.width])


def _pose(command: Command) -> np.ndarray:
    assert isinstance(command.base, BasePoseCommand)
    return command.base.x_WB


def _twist(command: Command) -> np.ndarray:
    assert isinstance(command.base, BaseTwistCommand)
    return command.base.V_WB_B


def _need(limits: MotionLimits | None) -> MotionLimits:
    assert limits is not None
    return limits


ROBOTS = {
    "arm": Robot(
        fields=(JointPosition(7), GripperWidth()),
        numbers=_joints,
        make=lambda x: Command(arm=JointCommand(q=x)),
        declared=lambda limits: limits.joints,
        ends=lambda limits: (limits.q_min, limits.q_max),
        has_curve=True,
    ),
    "gripper": Robot(
        fields=(GripperWidth(),),
        numbers=_width,
        make=lambda x: Command(gripper=GripperCommand(width=float(x[0]))),
        declared=lambda limits: _need(limits.gripper),
        ends=lambda limits: (np.array([limits.gripper_min]), np.array([limits.gripper_max])),
    ),
    "hand": Robot(
        fields=(EndEffectorPose(), GripperWidth()),
        numbers=_hand_position,
        make=lambda x: Command(arm=PoseCommand(p_BE=x, quat_BE=np.array([1.0, 0.0, 0.0, 0.0]))),
        declared=lambda limits: _need(limits.arm().hand_translation),
    ),
    "base": Robot(
        fields=(BasePose(),),
        numbers=_pose,
        make=lambda x: Command(base=BasePoseCommand(x_WB=x)),
        declared=lambda limits: _need(limits.base),
    ),
    "base-twist": Robot(
        fields=(BaseTwist(),),
        numbers=_twist,
        make=lambda x: Command(base=BaseTwistCommand(V_WB_B=x)),
        declared=lambda limits: _need(limits.base),
        ends=lambda limits: (-_need(limits.base).speed, _need(limits.base).speed),
        is_rate=True,
    ),
}


def limits_drawn(rng: np.random.Generator) -> Limits:
    """Return the default limits or random ones."""
    if rng.random() < 0.5:
        return LIMITS
    joints, hand, base, gripper = (_motion(rng, n) for n in (7, 3, 3, 1))
    return LIMITS.replace(
        dq_max=joints.speed,
        ddq_max=joints.acceleration,
        dddq_max=joints.jerk,
        dq_curve=None if rng.random() < 0.5 else LIMITS.dq_curve,
        hand_translation=hand,
        base=base,
        gripper=gripper,
        gripper_max=rng.uniform(WIDTH, 0.3),
        unusual=True,
    )


def _motion(rng: np.random.Generator, n: int) -> MotionLimits:
    acceleration = 10.0 ** rng.uniform(-0.3, 2.3, n)
    jerk = acceleration * 10.0 ** rng.uniform(0.5, 2.7, n)
    return MotionLimits(speed=10.0 ** rng.uniform(-1.0, 0.7, n), acceleration=acceleration, jerk=jerk)


def rows_of(robot: Robot, rng: np.random.Generator) -> np.ndarray:
    """Return absurd rows."""
    columns = []
    for field in robot.fields:
        n = 3 if isinstance(field, EndEffectorPose) else field.dim
        centre = 0.5 * (LOW + HIGH) if isinstance(field, JointPosition) else np.zeros(n)
        kind = rng.integers(6)
        if kind == 0:
            rows = centre + rng.normal(size=(HORIZON, n)) * 10.0 ** rng.uniform(-3, 1)
        elif kind == 1:
            rows = np.tile(centre + rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(0, 8.9), (HORIZON, 1))
        elif kind == 2:
            rows = centre + np.outer(np.arange(HORIZON) % 2 * 2 - 1, rng.uniform(0, 3, n))
        elif kind == 3:
            rows = centre + np.outer(np.arange(HORIZON) * DT_NS / 1e9, rng.uniform(-6, 6, n))
        elif kind == 4:
            rows = centre + np.cumsum(rng.normal(size=(HORIZON, n)) * 0.1, axis=0)
        else:
            rows = np.tile(centre + rng.uniform(-4, 4, n), (HORIZON, 1))
        if isinstance(field, EndEffectorPose):
            turns = [rotation_to_6d(pin.exp3(rng.uniform(-3, 3, 3))) for _ in range(HORIZON)]
            rows = np.column_stack([rows, turns])
        columns.append(rows)
    return np.column_stack(columns)


# ---- executor and limiter ----


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
    return RobotState(t_ns=t_ns, q=q, dq=np.zeros(7), gripper_width=WIDTH, X_BE=X_BE, x_WB=x_WB, V_WB_B=V)


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
    most_of, dt_s = robot.declared(limits), period_ns / NS_PER_S
    if isinstance(robot.fields[0], BasePose):
        own = [compose_planar(inverse_planar(a), b) for a, b in pairwise(sent)]  # along its own axes
        sent = np.cumsum([np.zeros(3), *own], axis=0)
    counted.look_at(sent, *(robot.ends(limits) if robot.ends is not None else ()))
    counted.look_at_motion(sent, most_of, dt_s, is_rate=robot.is_rate)
    if robot.has_curve and limits.dq_curve is not None:
        counted.velocity += faster_than_curve(limits.dq_curve, sent, dt_s)
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


# ---- the Franka driver ----


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


def led(lead: SetpointLead, commands: list, period_ns: int, rng: np.random.Generator) -> list:
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


def lead_joints(rng: np.random.Generator, period_s: float, counted: Counted) -> None:
    """Run one episode of joint positions through the Franka driver."""
    limits = ARM_LIMITS
    start, span = rng.uniform(limits.q_min, limits.q_max), 0.5 * (limits.q_max - limits.q_min)
    lead = SetpointLead(limits, period_s=period_s)
    lead.stand_at(JointCommand(q=start))
    commands = [JointCommand(q=q) for q in stream(rng, start, span)]
    sent = np.array([start] + [c.q for c in led(lead, commands, round(period_s * NS_PER_S), rng)])
    counted.look_at(sent, limits.q_min, limits.q_max)
    counted.look_at_motion(sent, limits.joints, period_s)
    assert limits.dq_curve is not None
    counted.velocity += faster_than_curve(limits.dq_curve, sent, period_s)
    counted.restless += int(not lead.is_at_rest)
    counted.stops += 1


def lead_poses(rng: np.random.Generator, period_s: float, counted: Counted) -> None:
    """Run one episode of end-effector poses through the Franka driver."""
    lead, start, span = (
        SetpointLead(ARM_LIMITS, period_s=period_s),
        np.zeros(6),
        np.array([0.5] * 3 + [2.0] * 3),
    )
    start[:3] = rng.uniform(-0.7, 0.7, 3)
    first = PoseCommand(p_BE=start[:3], quat_BE=np.array([1.0, 0.0, 0.0, 0.0]))
    lead.stand_at(first)
    numbers = stream(rng, start, span)
    numbers[~np.isfinite(numbers).all(axis=1)] = start
    commands = [
        PoseCommand(p_BE=row[:3], quat_BE=quaternion_from_rotation(pin.exp3(np.clip(row[3:], -99, 99))))
        for row in numbers
    ]
    sent = np.array([c.p_BE for c in [first, *led(lead, commands, round(period_s * NS_PER_S), rng)]])
    counted.look_at(sent)
    assert ARM_LIMITS.hand_translation is not None
    counted.look_at_motion(sent, ARM_LIMITS.hand_translation, period_s)
    counted.restless += int(not lead.is_at_rest)
    counted.stops += 1


@dataclass(frozen=True, kw_only=True)
class Args:
    """Send absurd plans and commands to every kind of robot."""

    ticks: Annotated[int, Within(EPISODE_TICKS, 1_000_000_000)] = 1_000_000
    """Ticks for each kind of robot; poses of the Franka driver get a fifth as many."""
    seed: Seed = 0
    json: Maybe[OutputFile] = None
    """Write the counts to this file."""


Play = Callable[[np.random.Generator, int, Counted], None]
"""Runs episode k."""


def limited(robot: Robot, rng: np.random.Generator, k: int, counted: Counted) -> None:
    episode(robot, METHODS[k % len(METHODS)], rng, counted)


def tracked(
    lead: Callable[[np.random.Generator, float, Counted], None],
    rng: np.random.Generator,
    k: int,
    counted: Counted,
) -> None:
    lead(rng, LEAD_PERIODS_S[k % 2], counted)


PLAYS: Mapping[str, Play] = {name: partial(limited, robot) for name, robot in ROBOTS.items()} | {
    "Franka driver, joints": partial(tracked, lead_joints),
    "Franka driver, poses": partial(tracked, lead_poses),
}
"""What is run, by its name in the table."""


def main(args: Args) -> int:
    """Run it and print the table; return 1 on any violation."""
    results = {name: Counted() for name in PLAYS}
    for i, (name, play) in enumerate(PLAYS.items()):
        rng, counted = np.random.default_rng([args.seed, i]), results[name]
        num_episodes = max(1, args.ticks // EPISODE_TICKS // (5 if "poses" in name else 1))
        for k in track(range(num_episodes), description=name):
            try:
                play(rng, k, counted)
            except Exception:  # it would have ended the control loop
                traceback.print_exc()
                counted.raised += 1
    figures = {"robots": {name: asdict(counted) for name, counted in results.items()}}
    finish(figures, args.json, gate(figures), seeds=[args.seed])
    return int(any(counted.is_broken for counted in results.values()))


if __name__ == "__main__":
    run_script(Args, main, description=__doc__)
