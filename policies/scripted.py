"""Policies defined by formulas: exact, instant and without torch, for tests and benchmarks."""

from collections.abc import Iterator
from typing import get_args

import numpy as np

from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.request_parts import LastTarget
from robot_runtime.core.method.sampler_parts import SamplerPart
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S, ActionChunk, ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.shapes import Float, Int
from robot_runtime.core.values.state import ArmState, BaseState, GripperState, RobotState
from robot_runtime.core.values.transforms import quaternion_from_rotation
from robot_runtime.core.values.waypoints import Quantity, Waypoints

DEFAULT_HORIZON = 32
DEFAULT_DT_NS = 50_000_000
FRANKA = Schema.of(
    ActionSpec(fields=(JointPosition(7), GripperWidth()), horizon=DEFAULT_HORIZON, dt_ns=DEFAULT_DT_NS)
)
"""Seven joints and a gripper on a table."""


def still_waypoints(state: RobotState, num_rows: int) -> Waypoints:
    """Waypoints that keep every part of the robot at its measured position."""
    rows_of: dict[Quantity, np.ndarray] = {}
    for name, part in state.parts.items():
        match part:
            case ArmState(q=q, X_BE=X_BE):
                rows_of[name, "q"] = np.tile(q, (num_rows, 1))
                rows_of[name, "dq"] = np.zeros((num_rows, q.size))
                if X_BE is not None:
                    rows_of[name, "p_BE"] = np.tile(X_BE.translation, (num_rows, 1))
                    quat_BE = quaternion_from_rotation(X_BE.rotation)
                    rows_of[name, "quat_BE"] = np.tile(quat_BE, (num_rows, 1))
            case GripperState(width=width):
                rows_of[name, "width"] = np.full(num_rows, width)
            case BaseState(x_WB=x_WB):
                rows_of[name, "V_WB_B"] = np.zeros((num_rows, 3))
                if x_WB is not None:
                    rows_of[name, "x_WB"] = np.tile(x_WB, (num_rows, 1))
    return Waypoints(rows_of)


def takes_anything(horizon: int) -> Capabilities:
    """Capabilities of a scripted policy: any sampler part, any prefix, a state rolled forward."""
    return Capabilities(
        samplers=get_args(SamplerPart),
        max_inference_delay=horizon - 1,
        prefix_at_rest=True,
        roll_forward=LastTarget(),
    )


class HoldPolicy:
    """Holds position: every row repeats the measured state. Accepts any task text, sampler part and seed."""

    name = "hold"

    def __init__(
        self,
        schema: Schema = FRANKA,
        *,
        horizon: int = DEFAULT_HORIZON,
        dt_ns: int = DEFAULT_DT_NS,
        block_rows: int | None = None,
    ) -> None:
        """block_rows: rows per block of the answer; None gives them all in one."""
        if block_rows is not None and block_rows < 1:
            raise ValueError(f"a block has at least 1 row, got {block_rows}")
        self._block_rows = block_rows
        self._spec = ActionSpec(fields=schema.action_fields, horizon=horizon, dt_ns=dt_ns)
        self.info = PolicyInfo(
            name=self.name, action_spec=self._spec, schema=schema, capabilities=takes_anything(horizon)
        )

    def infer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        state = request.observation.state
        return in_blocks(self._waypoints(request).encode(self._spec, state), request, self._block_rows)

    def _waypoints(self, request: ChunkRequest) -> Waypoints:
        """The plan, row by row."""
        return still_waypoints(request.observation.state, self._spec.horizon)


class InstantPolicy:
    """Answers at once with constant rows, so that only the runtime's own time is measured."""

    def __init__(self, schema: Schema, action_spec: ActionSpec) -> None:
        self.info = PolicyInfo(name="instant", action_spec=action_spec, schema=schema)
        self._rows = np.ones((action_spec.horizon, action_spec.dim), np.float32)

    def infer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        yield self._rows


class SinePolicy(HoldPolicy):
    """Swings the joints: q(t) = q_k + amplitude (sin wt - sin wt_k), w = 2 pi frequency, robot's clock.

    q_k is the last committed row, so a motion continues from the last command. An arm lags behind its
    command, and a motion continued from the measured joints would drift and shake. Without committed rows k
    is the observation: the robot is stationary, or the method sends no plan. Needs joint columns.
    """

    name = "sine"

    def __init__(
        self,
        schema: Schema = FRANKA,
        *,
        horizon: int = DEFAULT_HORIZON,
        dt_ns: int = DEFAULT_DT_NS,
        amplitude: float = 0.1,
        frequency_hz: float = 0.25,
        block_rows: int | None = None,
    ) -> None:
        """amplitude: of every joint [rad]. block_rows: rows per block; None gives them all in one."""
        if not any(isinstance(f, JointPosition) for f in schema.action_fields):
            raise ValueError(f"the sine policy needs joint columns, got {schema.action_fields}")
        super().__init__(schema, horizon=horizon, dt_ns=dt_ns, block_rows=block_rows)
        self._amplitude, self._frequency_hz = amplitude, frequency_hz

    def displacement(self, t_ns: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Joint displacement [rad] at times of the robot's clock [ns]: `q(t)` but for a constant."""
        return self._amplitude * np.sin(2.0 * np.pi * self._frequency_hz * (t_ns / NS_PER_S))

    def _waypoints(self, request: ChunkRequest) -> Waypoints:
        state, planned = request.observation.state, request.prev_action_chunk
        committed, k = Waypoints({}), 0
        if planned is not None and len(planned):
            k = max(request.inference_delay, 1) - 1
            chunk = ActionChunk(spec=self._spec, rows=planned, anchor=state, request_id=0, epoch=0)
            committed = Waypoints.from_chunk(chunk)
        t_ns = state.t_ns + self._spec.dt_ns * np.arange(self._spec.horizon)
        swing = self.displacement(t_ns) - self.displacement(t_ns[k : k + 1])  # (H,)
        rows_of = dict(super()._waypoints(request).rows_of)
        for name, part in state.parts.items():
            if isinstance(part, ArmState):
                begin = committed.rows_of[name, "q"][k] if (name, "q") in committed.rows_of else part.q
                rows_of[name, "q"] = begin + swing[:, None]
        return Waypoints(rows_of)


def in_blocks(
    rows: Float[np.ndarray, "H D"], request: ChunkRequest, block_rows: int | None
) -> Iterator[Float[np.ndarray, "n D"]]:
    """The rows in blocks, or all in one, with the first d replaced by the committed ones."""
    planned, d = request.prev_action_chunk, request.inference_delay
    if planned is not None:
        rows = np.concatenate([planned[:d], rows[d:]])
    step = block_rows or len(rows)
    return (rows[start : start + step] for start in range(0, len(rows), step))
