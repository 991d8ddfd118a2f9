"""Calls of a policy by its server: checked rows, step by step, and calls while it warms up."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pinocchio as pin

from robot_runtime.clock import Clock
from robot_runtime.core.method.sampler_parts import PREFIXLESS
from robot_runtime.core.method.schedule import answer_rows
from robot_runtime.core.policy import (
    ChunkRequest,
    Policy,
    answers_batches,
    num_evaluations,
    num_shapes,
)
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, Schema
from robot_runtime.core.values.state import (
    ArmState,
    BaseState,
    GripperState,
    Image,
    Observation,
    PartState,
    RobotState,
)
from robot_runtime.errors import NotShownError, PolicyError
from robot_runtime.server.warming import Called, Piece, Warming
from robot_runtime.wire.arrays import is_finite


def checked_rows(policy: Policy, rows: np.ndarray, first_row: int) -> np.ndarray:
    """The rows of an answer as they are sent; PolicyError if they are invalid.

    A copy: they wait to be sent while a policy may fill the same array with the next ones.
    """
    spec = policy.info.action_spec
    if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "fiu":
        what = f"an array of {rows.dtype}" if isinstance(rows, np.ndarray) else f"{type(rows).__name__}"
        raise PolicyError(
            f"it gave {what} at row {first_row}; expected an array of numbers, rows of {spec.dim}"
        )
    rows = np.array(rows, dtype=np.float64 if rows.dtype == np.float64 else np.float32, order="C")
    if rows.ndim != 2 or rows.shape[1] != spec.dim or not 1 <= len(rows) <= spec.horizon - first_row:
        raise PolicyError(
            f"it gave rows of shape {rows.shape} at row {first_row}; "
            f"expected up to {spec.horizon - first_row} rows of {spec.dim} numbers"
        )
    if not is_finite(rows):
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise PolicyError(f"it gave {rows[row, column]} at row {first_row + row}, {spec.names[column]}")
    return rows


def infer_steps(policy: Policy, requests: Sequence[ChunkRequest]) -> Iterator[list[np.ndarray]]:
    """The new rows of each request, step by step, checked. Several requests only for a `BatchPolicy`."""
    if answers_batches(policy):
        return (new.rows for new in policy.infer_batch(requests))
    (request,) = requests
    return ([rows] for rows in policy.infer(request))


def zero_observation(schema: Schema, task: str) -> Observation:
    """An observation of the right shape, all zeros."""
    parts: dict[str, PartState] = {}
    for name, part in schema.parts.items():
        match part:
            case ArmSchema(num_joints=n):
                X_BE = pin.SE3.Identity() if schema.needs_hand(name) else None
                parts[name] = ArmState(q=np.zeros(n), dq=np.zeros(n), X_BE=X_BE)
            case GripperSchema():
                parts[name] = GripperState(width=0.0)
            case BaseSchema():
                parts[name] = BaseState(x_WB=np.zeros(3), V_WB_B=np.zeros(3))
    measured = {name: np.zeros(size) for name, size in schema.measured.items()}
    state = RobotState(t_ns=0, parts=parts, measured=measured)
    images = {
        name: Image(t_ns=0, pixels=np.zeros((height, width, 3), np.uint8))
        for name, (height, width) in schema.cameras.items()
    }
    environment_state = np.zeros(schema.environment_state_dim)
    return Observation(state=state, images=images, environment_state=environment_state, task=task)


def warm_up(
    policy: Policy,
    clock: Clock,
    *,
    max_batch: int = 1,
    open_ns: int | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Warming:
    """Infer on zeros: with the usual sampler part, and then with the others that the policy supports.

    open_ns: how long to continue once robots could be answered [ns], with what is expected to fit; None:
        until all is warm.
    is_stopped: checked between steps, to end it.
    PolicyError if the result is invalid: NaN weights are found here and not by a robot.
    """
    warming = Warming(policy.info, max_batch=max_batch, num_shapes=num_shapes(policy))
    until_ns: int | None = None
    while (piece := warming.next()) is not None and not is_stopped():
        if warming.is_open and open_ns is not None:
            until_ns = until_ns or clock.now_ns() + open_ns
            if clock.now_ns() + warming.expected_ns(piece) > until_ns:
                break
        called = call_on_nothing(policy, piece, clock, is_stopped=is_stopped)
        if called.error is not None:
            raise called.error
        warming.called(called)
    return warming


def call_on_nothing(
    policy: Policy, piece: Piece, clock: Clock, *, is_stopped: Callable[[], bool] = lambda: False
) -> Called:
    """Make one call, cancelled between two steps on request; an exception is in the result."""
    started_ns, before = clock.now_ns(), num_evaluations(policy)
    try:
        with _in_shape(policy, piece.shape):
            _infer_nothing(policy, piece, is_stopped)
    except (PolicyError, NotShownError) as error:
        unfit = PolicyError(f"policy {policy.info.name!r} cannot be served: {error}")
        unfit.__cause__ = error
        return Called(piece=piece, error=unfit)
    except Exception as error:  # whatever a policy raises
        return Called(piece=piece, error=error)
    except SystemExit:
        return Called(piece=piece, error=PolicyError("it called exit()"))
    took_ns, passes = clock.now_ns() - started_ns, num_evaluations(policy) - before
    return Called(piece=piece, took_ns=took_ns, num_evaluations=passes)


def _in_shape(policy: Policy, shape: int) -> AbstractContextManager[None]:
    return policy.in_shape(shape) if num_shapes(policy) else nullcontext()  # type: ignore[attr-defined]


def _infer_nothing(policy: Policy, piece: Piece, is_stopped: Callable[[], bool]) -> None:
    observation = zero_observation(policy.info.schema, next(iter(policy.info.tasks), ""))
    rows = np.zeros((policy.info.action_spec.horizon, policy.info.action_spec.dim))
    planned, delay = (None, 0) if piece.kind in PREFIXLESS else (rows, 1)
    sampler = piece.kind()
    request = ChunkRequest(
        observation=observation, prev_action_chunk=planned, inference_delay=delay, sampler=sampler
    )
    end = answer_rows(sampler, horizon=policy.info.action_spec.horizon, inference_delay=delay)
    come = [0] * piece.size
    for step in infer_steps(policy, [request] * piece.size):
        for i, new in enumerate(step):
            if len(new):
                come[i] += len(checked_rows(policy, new, come[i]))
        if is_stopped():
            return
    if min(come) < end:
        raise PolicyError(f"it ended after {min(come)} rows of {end}")
