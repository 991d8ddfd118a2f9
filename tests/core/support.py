"""Builders for core tests: small integers for time, short rows."""

from dataclasses import replace

import numpy as np
import pinocchio as pin

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.method.latency import LatencyEstimator
from robot_runtime.core.method.table import Method, method_named
from robot_runtime.core.plan.limits import Limits, MotionLimits
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.values.action import ActionSpec, ChunkPart, GripperWidth, JointPosition
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.core.values.waypoints import Waypoints
from tests.examples import examples

DT = 50_000_000
TICK = 2_000_000
SLOW_TICK = 5 * TICK
"""For properties of whole runs: five ticks a row show them as well as twenty-five."""
FEW = examples(25)
"""Where each example drives a robot for seconds."""
SPEC = ActionSpec(fields=(JointPosition(2), GripperWidth()), horizon=8, dt_ns=DT)
OPEN_LIMITS = Limits(
    q_min=np.full(2, -1e4),
    q_max=np.full(2, 1e4),
    dq_max=np.full(2, 1e7),
    ddq_max=np.full(2, 1e10),
    dddq_max=np.full(2, 1e13),
    gripper=MotionLimits(speed=np.array([1e3]), acceleration=np.array([1e6]), jerk=np.array([1e9])),
    unusual=True,
)
"""Wide enough for any plan of these tests to pass untouched."""
MOBILE_LIMITS = replace(
    FR3_LIMITS,
    base=MotionLimits(
        speed=np.array([0.8, 0.8, 1.6]),
        acceleration=np.array([1.0, 1.0, 2.5]),
        jerk=np.array([20.0, 20.0, 50.0]),
    ),
)


def state_at(t_ns: int, q=(0.0, 0.0), width: float = 0.08) -> RobotState:
    return RobotState(t_ns=t_ns, q=np.array(q), dq=np.zeros(2), gripper_width=width, X_BE=pin.SE3.Identity())


def observation_at(t_ns: int, q=(0.0, 0.0)) -> Observation:
    return Observation(state=state_at(t_ns, q))


def ramp(start: float, step: float, num_rows: int = 8, width: float = 0.08) -> np.ndarray:
    """Rows whose first joint is start, start+step, ...; the second moves in the opposite direction."""
    values = start + step * np.arange(num_rows)
    return np.column_stack([values, -values, np.full(num_rows, width)])


def waypoints(rows: np.ndarray) -> Waypoints:
    return Waypoints(q=rows[:, :2], gripper=rows[:, 2])


class ConstantHead:
    """Moves every row by the same numbers; keeps what it was asked."""

    lead = 1

    def __init__(self, *residual: float, action_spec: ActionSpec = SPEC) -> None:
        self.action_spec, self.residual = action_spec, np.array(residual or (0.0, 0.0, 0.0))
        self.asked: list[tuple[float, np.ndarray]] = []

    def correction(self, observation: Observation, chunk: np.ndarray, k: float) -> np.ndarray:
        self.asked.append((k, chunk))
        return self.residual


def executor(method: str | Method = "time-aligned", **kwargs) -> Executor:
    if isinstance(method, str):
        own = method in ("synchronous", "vlash-fixed-overlap")
        method = method_named(method, execution_horizon=None if own else 1)
    return Executor(
        Configuration(
            action_spec=kwargs.pop("action_spec", SPEC),
            method=method,
            limits=kwargs.pop("limits", OPEN_LIMITS),
            control_period_ns=kwargs.pop("control_period_ns", TICK),
            state_limits=kwargs.pop("state_limits", StateLimits(max_arm_error=1e9)),
            correction_head=kwargs.pop("correction_head", ConstantHead()),
            latency=(kwargs.pop("latency", None) or LatencyEstimator()).known,
            prefix_at_rest=kwargs.pop("prefix_at_rest", True),
            hand_pose=kwargs.pop("hand_pose", lambda q: pin.SE3(np.eye(3), np.array([q[0], q[1], 0.0]))),
            **kwargs,
        )
    )


def answer(request, rows: np.ndarray, *, first_row: int = 0, is_last: bool = True) -> ChunkPart:
    return request.part(rows, first_row=first_row, is_last=is_last)
