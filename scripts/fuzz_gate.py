"""A million ticks of plans that no policy should make, through the executor and its last gate.

    python scripts/fuzz_gate.py --ticks 1000000 --json gate.json

Chunks of noise, steps beyond the limits, alternating rows, ramps and numbers up to 1e9 (what is larger is
refused as no action), under seven methods, with late, lost and partial answers, stalls of the control loop,
states that are stale, and stops at drawn moments. Counted are ticks whose command is not finite, or beyond a
limit of position, speed, acceleration or jerk, by divided differences from command to command; and how much
the speed rises after a stop. Exit code 1 if there is one.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import pinocchio as pin
import tyro
from rich.console import Console
from rich.progress import track
from rich.table import Table

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.action import (
    ActionField,
    ActionSpec,
    BasePose,
    BasePoseCommand,
    BaseTwist,
    BaseTwistCommand,
    ChunkPart,
    Command,
    EndEffectorPose,
    GripperWidth,
    JointCommand,
    JointPosition,
    PoseCommand,
)
from robot_runtime.core.executor import Executor
from robot_runtime.core.limits import MotionLimits
from robot_runtime.core.method import method_named
from robot_runtime.core.safety import Mode
from robot_runtime.core.state import Observation, RobotState
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.transforms import compose_planar, inverse_planar, rotation_to_6d
from robot_runtime.results import result_json

PERIOD_NS, DT_NS, HORIZON = 2_000_000, 50_000_000, 16
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
BASE = MotionLimits(
    speed=np.array([0.8, 0.8, 1.6]), acceleration=np.array([1.0, 1.0, 2.5]), jerk=np.array([20.0, 20.0, 50.0])
)
LIMITS = replace(FR3_LIMITS, base=BASE)
LOW, HIGH = LIMITS.q_min, LIMITS.q_max
SLACK = 1.0 + 1e-9


@dataclass(frozen=True, kw_only=True)
class Robot:
    """One kind of robot: its columns, how a state shows what was sent, and what its commands may do."""

    fields: tuple[ActionField, ...]
    numbers: Callable[[Command], np.ndarray]
    """What is compared from command to command."""
    limits: MotionLimits
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    is_rate: bool = False
    """The numbers are speeds: their differences are accelerations and jerks."""


def _hand_position(command: Command) -> np.ndarray:
    assert isinstance(command.arm, PoseCommand)
    return command.arm.p_BE


def _joints(command: Command) -> np.ndarray:
    assert isinstance(command.arm, JointCommand)
    return command.arm.q


def _pose(command: Command) -> np.ndarray:
    assert isinstance(command.base, BasePoseCommand)
    return command.base.x_WB


def _twist(command: Command) -> np.ndarray:
    assert isinstance(command.base, BaseTwistCommand)
    return command.base.V_WB_B


_HAND = LIMITS.hand_translation
assert _HAND is not None
ROBOTS = {
    "arm": Robot(
        fields=(JointPosition(7), GripperWidth()), numbers=_joints, limits=LIMITS.joints, low=LOW, high=HIGH
    ),
    "hand": Robot(fields=(EndEffectorPose(), GripperWidth()), numbers=_hand_position, limits=_HAND),
    "base": Robot(fields=(BasePose(),), numbers=_pose, limits=BASE),
    "base-twist": Robot(fields=(BaseTwist(),), numbers=_twist, limits=BASE, is_rate=True),
}


def rows_of(robot: Robot, rng: np.random.Generator) -> np.ndarray:
    """Rows no policy should write."""
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


@dataclass(kw_only=True)
class Counted:
    """Of one kind of robot."""

    ticks: int = 0
    not_finite: int = 0
    position: int = 0
    velocity: int = 0
    acceleration: int = 0
    jerk: int = 0
    rising_after_stop: int = 0
    """Stops after which the speed rose by more than its acceleration at the time explains."""
    stops: int = 0
    moved: float = 0.0
    """Share of the ticks in which anything moved."""

    @property
    def is_clean(self) -> bool:
        return not (
            self.not_finite
            or self.position
            or self.velocity
            or self.acceleration
            or self.jerk
            or self.rising_after_stop
        )


def state_of(sent: Command, t_ns: int) -> RobotState:
    """A robot that is where it was told to be."""
    q, X_BE, x_WB, V = 0.5 * (LOW + HIGH), pin.SE3.Identity(), np.zeros(3), np.zeros(3)
    match sent.arm:
        case JointCommand(q=told):
            q = told
        case PoseCommand() as pose:
            X_BE = pose.X_BE
    match sent.base:
        case BasePoseCommand(x_WB=told):
            x_WB = told
        case BaseTwistCommand(V_WB_B=told):
            V = told
    return RobotState(t_ns=t_ns, q=q, dq=np.zeros(7), gripper_width=0.04, X_BE=X_BE, x_WB=x_WB, V_WB_B=V)


def episode(robot: Robot, method: str, rng: np.random.Generator, counted: Counted) -> None:
    """Ticks from one reset to the next, the second half of the time after a stop at a drawn moment."""
    spec = ActionSpec(fields=robot.fields, horizon=HORIZON, dt_ns=DT_NS)
    open_watch = StateLimits(max_arm_error=1e9, max_base_error=1e9, max_jump=1e9, max_turn=1e9)
    executor = Executor(
        action_spec=spec,
        method=method_named(method),
        limits=LIMITS,
        control_period_ns=PERIOD_NS,
        state_limits=open_watch,
        hand_pose=lambda q: pin.SE3.Identity(),
    )
    now_ns, sent = 0, Command()
    coming: list[tuple[int, ChunkPart]] = []
    executor.reset(state_of(sent, 0), 0)
    stop_at = int(rng.integers(EPISODE_TICKS // 4, EPISODE_TICKS))
    log: list[np.ndarray] = []
    stopped = 0
    for k in range(EPISODE_TICKS):
        now_ns += PERIOD_NS * int(rng.integers(2, 60)) if rng.random() < 0.005 else PERIOD_NS
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
    assert executor.mode is Mode.STOP
    look_at(robot, np.array(log), stopped, counted)


def answers(request, rows, now_ns: int, rng: np.random.Generator) -> list[tuple[int, ChunkPart]]:
    """One answer in one or two parts, late by up to half a second; one in twenty is lost."""
    if rng.random() < 0.05:
        return []
    due_ns = now_ns + int(rng.integers(0, 500_000_000))
    cut = int(rng.integers(1, HORIZON + 1))
    ends = [cut] if cut == HORIZON else [cut, HORIZON]
    out, first = [], 0
    for end in ends:
        part = ChunkPart(
            request_id=request.request_id,
            epoch=request.epoch,
            t_obs_ns=request.observation.t_obs_ns,
            first_row=first,
            rows=rows[first:end],
            is_last=end == HORIZON,
        )
        out.append((due_ns + first * 1_000_000, part))
        first = end
    return out


def look_at(robot: Robot, sent: np.ndarray, stopped: int, counted: Counted) -> None:
    """Count the ticks that break a limit."""
    counted.ticks += len(sent)
    counted.not_finite += int((~np.isfinite(sent)).any(axis=1).sum())
    limits, dt_s = robot.limits, PERIOD_NS / 1e9
    if isinstance(robot.fields[0], BasePose):
        own = [compose_planar(inverse_planar(a), b) for a, b in pairwise(sent)]  # along its own axes
        sent = np.cumsum([np.zeros(3), *own], axis=0)
    if robot.low is not None and robot.high is not None:
        beyond = (sent > robot.high + 1e-12) | (sent < robot.low - 1e-12)
        counted.position += int(beyond.any(axis=1).sum())
    start = np.repeat(sent[:1], 3, axis=0)
    path = np.concatenate([start, sent])
    derivatives = []
    for _ in range(3):
        path = np.diff(path, axis=0) / dt_s
        derivatives.append(path)
    if robot.is_rate:
        derivatives = [sent, *derivatives]
    for name, values, most in zip(
        ("velocity", "acceleration", "jerk"),
        derivatives,
        (limits.speed, limits.acceleration, limits.jerk),
        strict=False,
    ):
        broken = (np.abs(values) > most * SLACK).any(axis=1)
        setattr(counted, name, getattr(counted, name) + int(broken.sum()))
    counted.moved += float((np.abs(np.diff(sent, axis=0)) > 0).any(axis=1).sum())
    speeds = np.abs(sent if robot.is_rate else np.diff(sent, axis=0) / dt_s)[max(stopped - 2, 0) :]
    counted.stops += 1
    rise = limits.acceleration**2 / limits.jerk + 2.0 * limits.acceleration * dt_s
    counted.rising_after_stop += int((speeds[2:] > speeds[:2].max(axis=0) + rise).any())


def main(
    ticks: Annotated[int, tyro.conf.arg(help="For each kind of robot.")] = 1_000_000,
    seed: int = 0,
    json_to: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
) -> int:
    """Run it and print the table."""
    table = Table(
        "robot", "ticks", "moving", "stops", *("not finite", "position", "velocity", "acceleration")
    )
    table.add_column("jerk")
    table.add_column("rising after a stop")
    results = {}
    for i, (name, robot) in enumerate(ROBOTS.items()):
        rng, counted = np.random.default_rng([seed, i]), Counted()
        for k in track(range(ticks // EPISODE_TICKS), description=name):
            episode(robot, METHODS[k % len(METHODS)], rng, counted)
        c = counted
        numbers = (c.not_finite, c.position, c.velocity, c.acceleration, c.jerk, c.rising_after_stop)
        table.add_row(
            name, f"{c.ticks:,}", f"{c.moved / max(c.ticks, 1):.0%}", str(c.stops), *map(str, numbers)
        )
        results[name] = counted
    Console().print(table)
    if json_to is not None:
        figures = {name: vars(counted) for name, counted in results.items()}
        json_to.write_text(result_json({"robots": figures}, seeds=[seed]))
    return 0 if all(counted.is_clean for counted in results.values()) else 1


if __name__ == "__main__":
    sys.exit(tyro.cli(main))
