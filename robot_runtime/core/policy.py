"""The seam to whatever predicts action chunks: a `Policy` is `info` and `infer(request)`.

A plain function from an observation to rows becomes one by `policy`:

    @policy(PolicyInfo(name="mine", action_spec=spec))
    def mine(observation: Observation) -> np.ndarray: ...  # (H, D)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard, runtime_checkable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from robot_runtime.core.method.sampler_parts import ConstantSchedule, SamplerPart
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S, ChunkPart
from robot_runtime.core.values.alignment import Alignment
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import InvalidValueError, PolicyError


class ChunkRequest(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """One question to the policy, from the planner on the robot to `Policy.infer`."""

    observation: Observation
    """What the policy is shown; a state rolled forward has the time at which its answer's row 0 is due."""
    prev_action_chunk: Float[np.ndarray, "n D"] | None = None
    """What the plan says from the observation on, row 0 due then, in the policy's own columns."""
    inference_delay: int = 0
    """How many of those rows will have run before the answer can, d <= n: they are committed."""
    sampler: SamplerPart = ConstantSchedule()
    seed: int = 0
    """Of the sampler's noise, >= 0."""
    request_id: int = 0
    epoch: int = 0
    """Counts resets of the robot; an answer from before the last one is worthless."""
    deadline_ns: int = NS_PER_S
    """How long an answer is of use, counted from submission or, on the server, from receipt [ns]."""
    in_flight: tuple[int, ...] = ()
    """Ids of earlier requests whose answers are still wanted, oldest first; older ones give way to this."""

    def follows(self, earlier: "ChunkRequest") -> bool:
        """Whether it still wants the answer to an earlier one; if not, the earlier one gives way to it."""
        return earlier.request_id in self.in_flight and earlier.epoch == self.epoch

    def part(
        self,
        rows: Float[np.ndarray, "n D"],
        *,
        first_row: int = 0,
        is_last: bool = True,
        queue_ns: int = 0,
        infer_ns: int = 0,
    ) -> ChunkPart:
        """Rows of its answer, all of them if nothing else is said."""
        return ChunkPart(
            request_id=self.request_id,
            epoch=self.epoch,
            t_obs_ns=self.observation.t_obs_ns,
            first_row=first_row,
            rows=rows,
            is_last=is_last,
            queue_ns=queue_ns,
            infer_ns=infer_ns,
        )

    def aligned(self, alignment: Alignment) -> "ChunkRequest":
        """With its columns where the policy has them: robots know their own order only."""
        if alignment.is_plain:
            return self
        planned = self.prev_action_chunk
        return replace(
            self,
            observation=alignment.shown(self.observation),
            prev_action_chunk=None if planned is None else alignment.theirs(planned),
        )


@runtime_checkable
class Policy(Protocol):
    """Turns an observation into an action chunk, row by row if it can."""

    @property
    def info(self) -> PolicyInfo:
        """What it is called, what it needs of a robot and what its rows mean; always the same."""
        ...

    def infer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        """Yield blocks of consecutive rows as they become final, from row 0 on.

        They end with row H-1, or with the last of `core.method.schedule.answer_rows` if the sampler stops
        early. The same request gives the same rows.

        ValueError: the observation or the sampler part does not fit this policy, in words for a person.
        """
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class NewRows:
    """What has become final of a batch's answers since the last of these."""

    num_calls: int
    """Network calls so far, one after the other."""
    rows: list[Float[np.ndarray, "_ D"]]
    """Of each request in order; none for an answer that has no new ones."""


class BatchPolicy(Policy, Protocol):
    """A policy that answers several robots with one pass of its network."""

    def infer_batch(self, requests: Sequence[ChunkRequest]) -> Iterator[NewRows]:
        """As `infer` for each, and checked at the call; one that does not fit refuses the batch.

        requests: of one sampler part. An answer depends on its own request only, but for rounding. Whoever
        wants it no more stops asking for the next: so a policy that takes long comes by often, with no rows
        if it has none.
        """
        ...


def answers_batches(policy: Policy) -> TypeGuard[BatchPolicy]:
    """Whether the policy is a `BatchPolicy`."""
    return hasattr(policy, "infer_batch")


def num_evaluations(policy: Policy) -> int:
    """Passes of one chunk through its network so far, if it counts them in an attribute of that name."""
    return int(getattr(policy, "num_evaluations", 0))


def num_shapes(policy: Policy) -> int:
    """How many shapes, beside sizes of batches, its network was compiled for, or will be when one comes: an
    attribute of that name. 0: it takes any, and a first call of a kind costs little more than the next.

    A policy that has some has `in_shape(i)` too: a context in which it is asked for at least the i-th, which
    is larger than those before.
    """
    return int(getattr(policy, "num_shapes", 0))


def infer_one(policy: BatchPolicy, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
    """What `infer` comes to for a policy that answers batches; checked at the call."""
    return (new.rows[0] for new in policy.infer_batch([request]) if len(new.rows[0]))


def policy(info: PolicyInfo) -> Callable[[Callable[[Observation], np.ndarray]], Policy]:
    """Make a `Policy` of a function that is given an `Observation` and returns all rows, an (H, D) array."""
    if not isinstance(info, PolicyInfo):
        raise InvalidValueError(f"@policy(...) takes a PolicyInfo, got {type(info).__name__} {info!r:.100}")
    return lambda function: _FunctionPolicy(info, function)


_BLIND = (
    "environment_state is empty: a policy that looks at it declares how many numbers there are, "
    "PolicyInfo(..., schema=Schema.of(action_spec, environment_state_dim=4))"
)


class _FunctionPolicy:
    """A function's rows, whole."""

    def __init__(self, info: PolicyInfo, function: Callable[[Observation], np.ndarray]) -> None:
        if not callable(function):
            raise InvalidValueError(f"@policy(...) stands above a function, got {type(function).__name__}")
        self.info, self._function = info, function

    def infer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        spec, is_blind = self.info.action_spec, not len(request.observation.environment_state)
        try:
            rows = self._function(request.observation)
        except IndexError as error:
            if is_blind:
                error.add_note(_BLIND)
            raise
        shape = np.shape(rows) if isinstance(rows, np.ndarray | list | tuple) else type(rows).__name__
        if shape != (spec.horizon, spec.dim):
            said = f"; {_BLIND}" if is_blind and np.size(rows) == 0 else ""
            raise PolicyError(
                f"its function returned {shape}; expected an array of shape {(spec.horizon, spec.dim)}{said}"
            )
        yield np.asarray(rows)
