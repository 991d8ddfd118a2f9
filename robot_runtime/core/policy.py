"""The one seam between the server and whatever predicts action chunks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard, runtime_checkable

import numpy as np

from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.request_parts import RollForward
from robot_runtime.core.method.sampler_parts import SamplerPart
from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.row_statistics import RowStatistics
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import InvalidValueError


@runtime_checkable
class Policy(Protocol):
    """Turns an observation into an action chunk, row by row if it can."""

    @property
    def name(self) -> str:
        """What to call it in logs and to clients."""
        ...

    @property
    def schema(self) -> Schema:
        """What a robot must offer."""
        ...

    @property
    def action_spec(self) -> ActionSpec:
        """Meaning, number and spacing of the rows it predicts."""
        ...

    @property
    def tasks(self) -> tuple[str, ...]:
        """Task texts it was trained on; empty if any text will do."""
        ...

    @property
    def samplers(self) -> tuple[type[SamplerPart], ...]:
        """Sampler parts that it was trained for, or that need no training; others are refused."""
        ...

    @property
    def max_inference_delay(self) -> int:
        """Longest inference delay it was trained for [rows]; 0 for none."""
        ...

    @property
    def recipe(self) -> str:
        """Name of its training recipe; empty if it was not trained."""
        ...

    @property
    def roll_forward(self) -> RollForward | None:
        """How the states were rolled forward that it was trained on; None: it knows measured ones only."""
        ...

    @property
    def execution_horizon(self) -> int | None:
        """After how many rows it is best asked again; None: as the method has it."""
        ...

    def infer(
        self,
        observation: Observation,
        *,
        prev_action_chunk: Float[np.ndarray, "n D"] | None = None,
        inference_delay: int = 0,
        sampler: SamplerPart,
        seed: int,
    ) -> Iterator[Float[np.ndarray, "n D"]]:
        """Yield blocks of consecutive rows as they become final, from row 0 on.

        They end with row H-1, or with the last of `core.schedule.answer_rows` if the sampler stops early.

        prev_action_chunk: what the robot's plan says from the observation on, in the action spec's own
            columns; row 0 is due at the observation.
        inference_delay: how many of those rows the robot is committed to, d <= n.
        seed: of the noise; the same arguments give the same rows.
        ValueError: the observation or the sampler part does not fit this policy, in words for a person.
        """
        ...


def checked_execution_horizon(rows: object, horizon: int) -> int | None:
    """What a person or a file says of it; InvalidValueError if chunks have not so many rows."""
    if rows is None:
        return None
    if not isinstance(rows, int) or isinstance(rows, bool) or not 1 <= rows <= horizon:
        raise InvalidValueError(
            f"expected an execution horizon of 1 to {horizon} rows, or none, got {rows!r}"
        )
    return rows


def capabilities_of(policy: Policy) -> Capabilities:
    """What the policy declares, as a value."""
    return Capabilities(
        samplers=policy.samplers,
        max_inference_delay=policy.max_inference_delay,
        recipe=policy.recipe,
        roll_forward=policy.roll_forward,
        execution_horizon=policy.execution_horizon,
        temporal_ensemble=getattr(policy, "temporal_ensemble", None),
        row_statistics=policy.row_statistics if knows_its_rows(policy) else None,
    )


@runtime_checkable
class KnowsItsRows(Protocol):
    """A policy that can tell what rows are foreign to it."""

    @property
    def row_statistics(self) -> RowStatistics | None:
        """Of the rows it was trained on; None: it has been told none."""
        ...


def knows_its_rows(policy: Policy) -> TypeGuard[KnowsItsRows]:
    """Whether the policy is one of those."""
    return hasattr(policy, "row_statistics")


@dataclass(frozen=True, kw_only=True, eq=False)
class InferenceRequest:
    """The arguments of `Policy.infer`, but for the sampler."""

    observation: Observation
    prev_action_chunk: Float[np.ndarray, "n D"] | None = None
    inference_delay: int = 0
    seed: int


@dataclass(frozen=True, kw_only=True, eq=False)
class NewRows:
    """What has become final of a batch's answers since the last of these."""

    num_calls: int
    """Network calls so far, one after the other."""
    rows: list[Float[np.ndarray, "_ D"]]
    """Of each request in order; none for an answer that has no new ones."""


@runtime_checkable
class BatchPolicy(Policy, Protocol):
    """A policy that answers several robots with one pass of its network."""

    @property
    def num_evaluations(self) -> int:
        """Passes of one chunk through the network so far; a backward pass counts as two."""
        ...

    def infer_batch(self, requests: Sequence[InferenceRequest], *, sampler: SamplerPart) -> Iterator[NewRows]:
        """As `infer` for each, and checked at the call; one that does not fit refuses the batch.

        An answer depends on its own request only, but for rounding. Whoever wants it no more stops asking for
        the next: so a policy that takes long comes by often, with no rows if it has none.
        """
        ...


class InfersByBatch(ABC):
    """Gives a `BatchPolicy` its `infer`."""

    @abstractmethod
    def infer_batch(self, requests: Sequence[InferenceRequest], *, sampler: SamplerPart) -> Iterator[NewRows]:
        """As `BatchPolicy.infer_batch`."""

    def infer(
        self,
        observation: Observation,
        *,
        prev_action_chunk: Float[np.ndarray, "n D"] | None = None,
        inference_delay: int = 0,
        sampler: SamplerPart,
        seed: int,
    ) -> Iterator[Float[np.ndarray, "n D"]]:
        """As `Policy.infer`, of a batch of one; arguments are checked at the call."""
        request = InferenceRequest(
            observation=observation,
            prev_action_chunk=prev_action_chunk,
            inference_delay=inference_delay,
            seed=seed,
        )
        return (new.rows[0] for new in self.infer_batch([request], sampler=sampler) if len(new.rows[0]))


def answers_batches(policy: Policy) -> TypeGuard[BatchPolicy]:
    """Whether the policy is a `BatchPolicy`."""
    return hasattr(policy, "infer_batch")


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """All that was inferred for one request, and how long the network had been at it."""

    blocks: tuple[Float[np.ndarray, "_ D"], ...]
    num_calls: tuple[int, ...]
    """For each block, the network calls, one after the other, until it was final."""

    @property
    def rows(self) -> Float[np.ndarray, "_ D"]:
        """All rows, from row 0."""
        return np.concatenate(self.blocks)


def answers(
    policy: BatchPolicy, requests: Sequence[InferenceRequest], *, sampler: SamplerPart
) -> list[Answer]:
    """What `infer_batch` comes to for each request."""
    blocks: list[list[np.ndarray]] = [[] for _ in requests]
    calls: list[list[int]] = [[] for _ in requests]
    for new in policy.infer_batch(requests, sampler=sampler) if requests else ():
        for i, rows in enumerate(new.rows):
            if len(rows):
                blocks[i].append(np.array(rows))  # it may fill the same array again
                calls[i].append(new.num_calls)
    return [Answer(blocks=tuple(b), num_calls=tuple(c)) for b, c in zip(blocks, calls, strict=True)]
