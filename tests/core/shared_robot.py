"""A simulated robot that follows its commands at once, a policy with latency, and an operator."""

from collections.abc import Callable, Mapping

import numpy as np
import pinocchio as pin

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.method.table import METHODS, Method
from robot_runtime.core.plan.limits import Limits
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import ActionChunk, ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.command import Command, PartCommand
from robot_runtime.core.values.state import ArmState, GripperState, Observation, RobotState
from robot_runtime.core.values.waypoints import Waypoints
from sim.scene.kinematics import Q_HOME
from tests.core.support import ConstantHead

MS = 1_000_000
DT, TICK = 50 * MS, 10 * MS
ARMS = ("left_arm", "right_arm")
LIMITS = Limits(parts=dict.fromkeys(ARMS, FR3_LIMITS.parts["arm"]) | {"gripper": FR3_LIMITS.parts["gripper"]})
FIELDS = (*(JointPosition(7, part=part) for part in ARMS), GripperWidth())
SPEC = ActionSpec(fields=FIELDS, horizon=24, dt_ns=DT)
HOME = np.array(Q_HOME)

Person = Callable[["SharedRobot", int], Mapping[str, PartCommand] | None]
"""Called before each tick, it may take over and hand back; returns the operator's targets, None: none."""


def swinging(observation: Observation) -> np.ndarray:
    """Both arms swing about their measured pose, the gripper opens and closes."""
    t = np.arange(SPEC.horizon) * SPEC.dt_s
    phase = observation.t_obs_ns / 1e9
    rows = []
    for part, sign in zip(ARMS, (1.0, -1.0), strict=True):
        q = observation.state.arm(part).q
        swing = sign * 0.4 * (np.sin(1.5 * (t + phase)) - np.sin(1.5 * phase))
        rows.append(q + swing[:, None] * np.linspace(1.0, 0.3, 7))
    return np.column_stack([*rows, 0.04 + 0.03 * np.sin(2.0 * (t + phase))])


class SharedRobot:
    """Steps an executor as a run does: take answers, ask, let the operator act, tick."""

    def __init__(
        self,
        person: Person = lambda robot, t: None,
        *,
        method: str | Method = "time-aligned",
        delay_ns: int = 60 * MS,
        rows_of: Callable[[Observation], np.ndarray] = swinging,
        chunks_of: int | None = None,
        spec: ActionSpec = SPEC,
        limits: Limits = LIMITS,
        **options,
    ) -> None:
        """chunks_of: this many rows come at a time, a tick apart; None: all at once."""
        self.executor = Executor(
            Configuration(
                action_spec=spec,
                method=METHODS[method] if isinstance(method, str) else method,
                limits=limits,
                control_period_ns=TICK,
                correction_head=ConstantHead(*[0.0] * spec.dim, action_spec=spec),
                hand_pose=dict.fromkeys(ARMS, _hand),
                prefix_at_rest=True,
                **options,
            )
        )
        self.person, self.delay_ns, self.rows_of, self.chunks_of = person, delay_ns, rows_of, chunks_of
        self.sent: Command | None = None
        self.before: Command | None = None
        self.ticks: list[Tick] = []
        self.requests, self.outcomes, self._under_way = [], [], []
        self.is_answered = True
        self.executor.reset(self.state(0), 0)

    def state(self, t_ns: int) -> RobotState:
        parts = {}
        for part in ARMS:
            q = HOME if self.sent is None else self.sent.parts[part].q
            was = q if self.before is None else self.before.parts[part].q
            parts[part] = ArmState(q=q, dq=(q - was) / (TICK / 1e9), X_BE=_hand(q))
        width = 0.08 if self.sent is None else self.sent.parts["gripper"].width
        return RobotState(t_ns=t_ns, parts=parts | {"gripper": GripperState(width=width)})

    def run(self, end_ns: int) -> list[Tick]:
        for t in range(len(self.ticks) * TICK, end_ns, TICK):
            self.step(t)
        return self.ticks

    def step(self, t: int) -> Tick:
        state = self.state(t)
        self._take(t)
        if self.executor.wants_request(t):
            request = self.executor.make_request(Observation(state=state))
            self.requests.append((t, request))
            if self.is_answered:
                self._answer(request, state, t + self.delay_ns)
        if (wishes := self.person(self, t)) is not None:
            self.executor.lead(wishes, t)
        self._take(t)
        if self.executor.wants_correction(t):
            self.executor.correct(Observation(state=state), t)
        tick = self.executor.tick(state, t)
        self.before, self.sent = self.sent, tick.command
        self.ticks.append(tick)
        return tick

    def _answer(self, request, state: RobotState, due_ns: int) -> None:
        """Rows for the policy: absolute targets from the measured state, in the columns of the spec."""
        spec = self.executor.action_spec
        absolute = ActionChunk(
            spec=SPEC, rows=self.rows_of(request.observation), anchor=state, request_id=0, epoch=0
        )
        rows = Waypoints.from_chunk(absolute).encode(spec, request.observation.state)
        n = self.chunks_of or len(rows)
        for i, first in enumerate(range(0, len(rows), n)):
            block = rows[first : first + n]
            part = request.part(block, first_row=first, is_last=first + n >= len(rows))
            self._under_way.append((due_ns + i * TICK, part))

    def _take(self, t: int) -> None:
        for due, part in [each for each in self._under_way if each[0] <= t]:
            self._under_way.remove((due, part))
            self.outcomes.append(self.executor.on_part(part, t))


def _hand(q: np.ndarray) -> pin.SE3:
    return pin.SE3(np.eye(3), np.array([q[0], q[1], q[2]]))
