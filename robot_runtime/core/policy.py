"""Interface of policies, which predict action chunks: a `Policy` has `info` and `infer(request)`.

`policy` makes one from a plain function that maps an observation to rows:

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
    """One request to the policy, from the planner on the robot to `Policy.infer`."""

    observation: Observation
    """The policy's input; a state rolled forward has the time at which its answer's row 0 is due."""
    prev_action_chunk: Float[np.ndarray, "n D"] | None = None
    """The plan's rows from the observation on, row 0 due then, in the policy's own columns."""
    inference_delay: int = 0
    """How many of those rows will have run before the answer can, d <= n: they are committed."""
    sampler: SamplerPart = ConstantSchedule()
    seed: int = 0
    """Seed of the sampler's noise, >= 0."""
    request_id: int = 0
    epoch: int = 0
    """Counts resets of the robot; an answer from before the last one is void."""
    deadline_ns: int = NS_PER_S
    """How long an answer is useful, counted from submission or, on the server, from receipt [ns]."""
    in_flight: tuple[int, ...] = ()
    """Ids of earlier requests whose answers are still wanted, oldest first; this one supersedes others."""

    def follows(self, earlier: "ChunkRequest") -> bool:
        """Whether the answer to an earlier request is still wanted; if not, this one supersedes it."""
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
        """Rows of its answer as a part; by default all of them."""
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
        """The request with its columns in the policy's order: robots know their own order only."""
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
        """Its name, what it needs of a robot and what its rows mean; constant."""
        ...

    def infer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        """Yield blocks of consecutive rows as they become final, from row 0 on.

        They end with row H-1, or with the last of `core.method.schedule.answer_rows` if the sampler stops
        early. The same request gives the same rows.

        ValueError: the observation or the sampler part does not fit this policy; the message is for users.
        """
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class NewRows:
    """The rows of a batch's answers that have become final since the last `NewRows`."""

    num_calls: int
    """Network calls so far, one after the other."""
    rows: list[Float[np.ndarray, "_ D"]]
    """New rows of each request in order; empty for an answer without any."""


class BatchPolicy(Policy, Protocol):
    """A policy that answers several robots with one pass of its network."""

    def infer_batch(self, requests: Sequence[ChunkRequest]) -> Iterator[NewRows]:
        """As `infer` for each, and checked at the call; one that does not fit refuses the batch.

        requests: with the same sampler part. An answer depends on its own request only, up to rounding. A
        caller that no longer wants it stops iterating: so a slow policy should yield often, with no rows if
        it has none.
        """
        ...


def answers_batches(policy: Policy) -> TypeGuard[BatchPolicy]:
    """Whether the policy is a `BatchPolicy`."""
    return hasattr(policy, "infer_batch")


def num_evaluations(policy: Policy) -> int:
    """Passes of one chunk through its network so far, if it counts them in an attribute of that name."""
    return int(getattr(policy, "num_evaluations", 0))


def num_shapes(policy: Policy) -> int:
    """Number of shapes, besides batch sizes, for which its network is compiled, now or on first use: an
    attribute of that name. 0: it takes any, and a first call of a kind costs little more than the next.

    A policy with shapes also has `in_shape(i)`: a context in which requests use at least the i-th shape,
    which is larger than those before.
    """
    return int(getattr(policy, "num_shapes", 0))


def infer_one(policy: BatchPolicy, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
    """`infer` for a policy that answers batches; checked at the call."""
    return (new.rows[0] for new in policy.infer_batch([request]) if len(new.rows[0]))


def policy(info: PolicyInfo) -> Callable[[Callable[[Observation], np.ndarray]], Policy]:
    """Make a `Policy` from a function that takes an `Observation` and returns all rows, an (H, D) array."""
    if not isinstance(info, PolicyInfo):
        raise InvalidValueError(f"@policy(...) takes a PolicyInfo, got {type(info).__name__} {info!r:.100}")
    return lambda function: _FunctionPolicy(info, function)


_BLIND = (
    "environment_state is empty: a policy that uses it declares how many numbers there are, "
    "PolicyInfo(..., schema=Schema.of(action_spec, environment_state_dim=4))"
)


class _FunctionPolicy:
    """A policy that yields all rows of a function at once."""

    def __init__(self, info: PolicyInfo, function: Callable[[Observation], np.ndarray]) -> None:
        if not callable(function):
            raise InvalidValueError(f"@policy(...) decorates a function, got {type(function).__name__}")
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
            hint = f"; {_BLIND}" if is_blind and np.size(rows) == 0 else ""
            raise PolicyError(
                f"its function returned {shape}; expected an array of shape {(spec.horizon, spec.dim)}{hint}"
            )
        yield np.asarray(rows)
