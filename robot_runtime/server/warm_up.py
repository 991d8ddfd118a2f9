"""A policy as its server asks it: rows step by step and checked, and what it takes while it warms up."""

from collections.abc import Iterator, Sequence

import numpy as np
import pinocchio as pin

from robot_runtime.clock import Clock
from robot_runtime.core.method.sampler_parts import PREFIXLESS, SamplerPart, num_samples
from robot_runtime.core.method.schedule import answer_rows
from robot_runtime.core.policy import ChunkRequest, Policy, answers_batches, num_evaluations
from robot_runtime.core.values.action import NS_PER_S
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
from robot_runtime.server.batcher import BatchTimes, batch_sizes
from robot_runtime.wire.arrays import is_finite

_LONG_NS = NS_PER_S // 2


def checked_rows(policy: Policy, rows: np.ndarray, first_row: int) -> np.ndarray:
    """Rows of an answer as they travel; PolicyError if they are none.

    In memory of their own: they wait to be sent while a policy may fill the same array with the next ones.
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
    """The new rows of each request, step by step; checked at the call. Several only of a `BatchPolicy`."""
    if answers_batches(policy):
        return (new.rows for new in policy.infer_batch(requests))
    (request,) = requests
    return ([rows] for rows in policy.infer(request))


def zero_observation(schema: Schema, task: str) -> Observation:
    """An observation of the right shape with nothing in it."""
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


def warm_up(policy: Policy, clock: Clock, *, max_batch: int = 1, num_calls: int = 3) -> BatchTimes:
    """Infer on nothing with every sampler that the policy says it takes, and in batches of every size.

    Takes the shortest times; there is no larger size than the first that takes over 0.5 s. PolicyError if
    what comes is no answer: weights that are NaN say so here and not to a robot.
    """
    first = policy.info.capabilities.samplers[0]
    before = num_evaluations(policy)
    alone = {first: _infer_nothing(policy, first, 1, clock, num_calls)}
    num_steps = (num_evaluations(policy) - before) // (num_calls * num_samples(first()))
    others = [kind for kind in policy.info.capabilities.samplers if kind is not first]
    alone |= {kind: _infer_nothing(policy, kind, 1, clock, num_calls) for kind in others}
    times = {1: alone[first]}
    for size in batch_sizes(max_batch)[1:]:
        if max(times.values()) > _LONG_NS:
            break
        times[size] = _infer_nothing(policy, first, size, clock, num_calls=2)
    return BatchTimes(by_size=times, by_kind=alone, num_steps=num_steps or None)


def _infer_nothing(policy: Policy, kind: type[SamplerPart], size: int, clock: Clock, num_calls: int) -> int:
    """Shortest time [ns]."""
    observation = zero_observation(policy.info.schema, next(iter(policy.info.tasks), ""))
    rows = np.zeros((policy.info.action_spec.horizon, policy.info.action_spec.dim))
    planned, delay = (None, 0) if kind in PREFIXLESS else (rows, 1)
    request = ChunkRequest(
        observation=observation, prev_action_chunk=planned, inference_delay=delay, sampler=kind()
    )
    end = answer_rows(kind(), horizon=policy.info.action_spec.horizon, inference_delay=delay)
    took_ns = []
    for _ in range(num_calls):
        started_ns, come = clock.now_ns(), [0] * size
        try:
            for step in infer_steps(policy, [request] * size):
                for i, new in enumerate(step):
                    if len(new):
                        come[i] += len(checked_rows(policy, new, come[i]))
            if min(come) < end:
                raise PolicyError(f"it ended after {min(come)} rows of {end}")
        except (PolicyError, NotShownError) as error:
            raise PolicyError(f"policy {policy.info.name!r} cannot be served: {error}") from error
        took_ns.append(clock.now_ns() - started_ns)
    return min(took_ns)
