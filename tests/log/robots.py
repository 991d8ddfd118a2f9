"""Robots without physics that live through everything that can happen, for tests of the journal."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.arming import ArmingRules
from robot_runtime.core.configuration import Configuration
from robot_runtime.core.journal import Entry, RecordedExecutor
from robot_runtime.core.method.table import METHODS
from robot_runtime.core.plan.limits import Limits
from robot_runtime.core.plan.whole_body import WholeBody, WholeBodyGains
from robot_runtime.core.safety import Mode
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.values.action import (
    ActionField,
    ActionSpec,
    BasePose,
    ChunkPart,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
)
from robot_runtime.core.values.command import BasePoseCommand, Command, GripperCommand, JointCommand
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.core.values.state import (
    ArmState,
    BaseState,
    GripperState,
    Image,
    Observation,
    PartState,
    RobotState,
)
from robot_runtime.core.values.transforms import rotation_to_6d
from robot_runtime.errors import NotArmedError, RobotRuntimeError
from scripts.bench.loop import random_head
from sim.scene.kinematics import Q_HOME, Kinematics
from tests.core.support import MOBILE_LIMITS

MS = 1_000_000
DT, TICK = 50 * MS, 10 * MS
HOME = np.array(Q_HOME)
PIXELS = np.zeros((2, 2, 3), np.uint8)


@dataclass(frozen=True)
class Kind:
    """A robot: what its policy's rows move, and where its parts begin."""

    fields: tuple[ActionField, ...]
    limits: Limits
    parts: Mapping[str, PartState]
    whole_body: Callable[[], dict[str, WholeBody]] = field(default=dict)
    part_latency_ns: Mapping[str, int] = field(default_factory=dict)


def _arm(kinematics: Kinematics) -> ArmState:
    return ArmState(q=HOME, dq=np.zeros(7), X_BE=kinematics.forward(HOME))


LEFT, RIGHT = Kinematics(p_BA=(0.0, 0.3, 0.0), yaw=0.5), Kinematics(p_BA=(0.0, -0.3, 0.0), yaw=-0.5)
FR3 = Kinematics()


def _body() -> dict[str, WholeBody]:
    gains = WholeBodyGains(posture=HOME, arm_lag_s=0.02)
    return {"arm": WholeBody(kinematics=FR3, limits=MOBILE_LIMITS, gains=gains)}


_EACH = FR3_LIMITS.parts
KINDS = {
    "one arm": Kind(
        (JointPosition(7), GripperWidth()),
        FR3_LIMITS,
        {"arm": _arm(FR3), "gripper": GripperState(width=0.04)},
        part_latency_ns={"arm": 20 * MS, "gripper": 70 * MS},
    ),
    "two arms": Kind(
        (
            JointPosition(7, part="left_arm"),
            JointPosition(7, part="right_arm"),
            GripperWidth(part="left_gripper"),
        ),
        Limits({"left_arm": _EACH["arm"], "right_arm": _EACH["arm"], "left_gripper": _EACH["gripper"]}),
        {"left_arm": _arm(LEFT), "right_arm": _arm(RIGHT), "left_gripper": GripperState(width=0.04)},
    ),
    "mobile": Kind(
        (BasePose(), EndEffectorPose(), GripperWidth()),
        MOBILE_LIMITS,
        {
            "arm": _arm(FR3),
            "gripper": GripperState(width=0.04),
            "base": BaseState(x_WB=np.zeros(3), V_WB_B=np.zeros(3)),
        },
        whole_body=_body,
    ),
}
HAND_POSES = {"one arm": {"arm": FR3.forward}, "mobile": {"arm": FR3.forward}}
HAND_POSES["two arms"] = {"left_arm": LEFT.forward, "right_arm": RIGHT.forward}


class Life:
    """One run: answers late, in pieces and lost; states stale or NaN; jumps, stops, resets, people."""

    def __init__(self, kind: str, method: str, seed: int, *, is_armed_by_hand: bool = False) -> None:
        self.entries: list[Entry] = []
        self.kind, self.rng = KINDS[kind], np.random.default_rng(seed)
        spec = self.spec = ActionSpec(fields=self.kind.fields, horizon=16, dt_ns=DT)
        statistics = RowStatistics(
            mean=np.zeros((1, spec.dim)), std=np.full((1, spec.dim), 0.5), from_measured=True
        )
        self.executor = RecordedExecutor(
            Configuration(
                action_spec=spec,
                method=METHODS[method],
                limits=self.kind.limits,
                control_period_ns=TICK,
                seed=seed,
                state_limits=StateLimits(max_arm_error=3.0, max_base_error=3.0),
                max_inference_delay=8,
                prefix_at_rest=bool(seed % 2),
                hand_pose=HAND_POSES[kind],
                correction_head=random_head(spec, num_scene=2) if method == "a2c2" else None,
                whole_body=self.kind.whole_body(),
                row_statistics=statistics if seed % 3 else None,
                part_latency_ns=self.kind.part_latency_ns if seed % 4 == 0 else {},
                arming=ArmingRules(fresh_chunks=2) if is_armed_by_hand else None,
            ),
            self.entries.append,
        )
        self.executor.set_epoch(7)
        self.parts, self.modes = dict(self.kind.parts), set[Mode]()
        self.coming: list[tuple[int, ChunkPart]] = []

    def run(self, num_ticks: int = 150) -> list[Entry]:
        """Live, and return what was noted."""
        self.executor.reset(self.state(0), 0)
        for k in range(num_ticks):
            self.happens(k * TICK)
            self.ask(k * TICK)
            self.modes.add(self.tick(k * TICK))
        return self.entries

    def state(self, t_ns: int) -> RobotState:
        return RobotState(t_ns=t_ns, parts=self.parts, measured={"force": self.rng.normal(size=3)})

    def measured(self, now_ns: int) -> RobotState:
        """Seldom what it should be."""
        drawn = self.rng.random()
        if drawn < 0.004 and "base" in self.parts:
            self.parts["base"] = BaseState(x_WB=self.rng.normal(size=3), V_WB_B=np.zeros(3))
        if drawn > 0.996:
            name = next(iter(self.parts))
            broken = ArmState(q=np.full(7, np.nan), dq=np.zeros(7))
            return self.state(now_ns).with_parts({name: broken} if "arm" in name else {})
        return self.state(now_ns - (300 * MS if 0.99 < drawn < 0.993 else 0))

    def happens(self, now_ns: int) -> None:
        executor, drawn = self.executor, self.rng.random()
        with suppress(RobotRuntimeError, ValueError):
            if executor.mode is Mode.STOP and drawn < 0.2:
                executor.reset(self.state(now_ns), now_ns)
            elif drawn < 0.006:
                executor.stop()
            elif drawn < 0.018:
                executor.on_server_lost()
                self.coming = []
            elif drawn < 0.026:
                executor.ask_soon()
            elif drawn < 0.04 and not executor.is_armed:
                executor.arm(now_ns)
            elif drawn < 0.05:
                executor.take_over((self.kind.fields[-1].part,), now_ns)
            elif drawn < 0.08:
                executor.lead(
                    {"gripper": GripperCommand(width=0.02), "left_gripper": GripperCommand(width=0.03)},
                    now_ns,
                )
            elif drawn < 0.1:
                executor.hand_back((), now_ns)

    def ask(self, now_ns: int) -> None:
        executor, rng = self.executor, self.rng
        for due, part in [each for each in self.coming if each[0] <= now_ns]:
            self.coming.remove((due, part))
            executor.on_part(part, now_ns)
        if not executor.wants_request(now_ns):
            return
        images = {"wrist": Image(t_ns=now_ns - 15 * MS, pixels=PIXELS)}
        seen = Observation(
            state=self.state(now_ns), images=images, environment_state=rng.normal(size=2), task="do"
        )
        request = executor.make_request(seen)
        if rng.random() < 0.1:
            with suppress(NotArmedError):
                executor.on_request_failed(request.request_id)
            return
        rows = self.rows()
        if rng.random() < 0.05:
            rows[3, 0] = np.nan
        due_ns = now_ns + int(rng.integers(1, 25)) * TICK
        cut = int(rng.integers(1, len(rows)))
        self.coming.append((due_ns, request.part(rows[:cut], is_last=False, queue_ns=MS, infer_ns=2 * MS)))
        self.coming.append((due_ns + 2 * TICK, request.part(rows[cut:], first_row=cut, infer_ns=3 * MS)))

    def rows(self) -> np.ndarray:
        columns = []
        for f in self.spec.fields:
            part = self.parts[f.part]
            match part:
                case ArmState() if isinstance(f, EndEffectorPose):
                    X = FR3.forward(part.q)
                    here = np.concatenate([X.translation, rotation_to_6d(X.rotation)])
                case ArmState():
                    here = part.q
                case GripperState():
                    here = np.array([part.width])
                case BaseState():
                    here = part.x_WB
            step = 0.01 * self.rng.normal(size=here.size) * (not isinstance(f, EndEffectorPose))
            columns.append(here + np.arange(self.spec.horizon)[:, None] * step)
        return np.concatenate(columns, axis=1)

    def tick(self, now_ns: int) -> Mode:
        if self.executor.wants_correction(now_ns):
            seen = Observation(state=self.state(now_ns), environment_state=np.zeros(2))
            self.executor.correct(seen, now_ns)
        at_ns = now_ns - 3 * TICK if self.rng.random() < 0.003 else now_ns
        tick = self.executor.tick(self.measured(now_ns), at_ns)
        self.follow(tick.command)
        return tick.mode

    def follow(self, command: Command) -> None:
        """Half of the way to where it is told to be."""
        for name, told in command.parts.items():
            before = self.parts[name]
            match told, before:
                case JointCommand(q=q), ArmState():
                    now = 0.5 * (before.q + q)
                    self.parts[name] = ArmState(q=now, dq=(now - before.q) / 0.01, X_BE=before.X_BE)
                case GripperCommand(width=width), GripperState():
                    self.parts[name] = GripperState(width=width)
                case BasePoseCommand(x_WB=x_WB), BaseState():
                    self.parts[name] = BaseState(x_WB=0.5 * (before.x_WB + x_WB), V_WB_B=np.zeros(3))
