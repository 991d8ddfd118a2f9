"""`FlowPolicy`: a checkpoint behind the `Policy` protocol, for one robot or a batch of them."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float

from policies.estimator import Estimator
from policies.flow.checkpoint import Checkpoint
from policies.flow.features import row_origin, state_features
from policies.flow.inference import Batch, ChunkSampler
from policies.flow.recipes import recipe_name
from policies.flow.support import check_options, supported_samplers, trained_roll_forward
from policies.policy import Answer, InferenceRequest
from robot_runtime.core.action import ActionSpec
from robot_runtime.core.capabilities import TRAINED_BY_LENGTH
from robot_runtime.core.request_parts import RollForward
from robot_runtime.core.sampler_parts import PREFIXLESS, BestOfSamples, SamplerPart
from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Observation
from robot_runtime.errors import CheckpointError, InvalidValueError

logger = logging.getLogger(__name__)


class FlowPolicy:
    """Predicts chunks with a trained flow. Holds no state between calls and changes none of torch's."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str = "cpu",
        weak: Checkpoint | None = None,
        estimator: Estimator | None = None,
    ) -> None:
        """
        weak: an earlier checkpoint of the same training, for the forward contrast of `BestOfSamples`.
        estimator: what tells the scene from pictures, for a checkpoint that was trained behind it.
        """
        if weak is not None and (weak.action_spec, weak.tasks) != (checkpoint.action_spec, checkpoint.tasks):
            raise ValueError(f"{weak.name!r} and {checkpoint.name!r} differ in rows or tasks")
        takes = checkpoint.schema.environment_state_dim
        if estimator is not None and (gives := estimator.num_estimates) != takes:
            raise CheckpointError(
                f"{checkpoint.name!r} takes {takes} scene numbers, its estimator gives {gives}"
            )
        self._checkpoint, self._weak, self._estimator = checkpoint, weak, estimator
        self._sampler = ChunkSampler(checkpoint, weak, torch.device(device))
        self._has_warned = False

    @property
    def name(self) -> str:
        return self._checkpoint.name

    @property
    def schema(self) -> Schema:
        schema = self._checkpoint.schema
        if self._estimator is None:
            return schema
        return replace(schema, environment_state_dim=0, cameras=self._estimator.cameras)

    @property
    def action_spec(self) -> ActionSpec:
        return self._checkpoint.action_spec

    @property
    def tasks(self) -> tuple[str, ...]:
        return self._checkpoint.tasks

    @property
    def samplers(self) -> tuple[type[SamplerPart], ...]:
        return supported_samplers(self._checkpoint.recipe)

    @property
    def num_evaluations(self) -> int:
        """As `BatchPolicy.num_evaluations`."""
        return self._sampler.num_evaluations

    @property
    def max_inference_delay(self) -> int:
        return min(self._checkpoint.recipe.max_delay, self.action_spec.horizon - 1)

    @property
    def recipe(self) -> str:
        return recipe_name(self._checkpoint.recipe)

    @property
    def roll_forward(self) -> RollForward | None:
        return trained_roll_forward(self._checkpoint.recipe)

    def infer(
        self,
        observation: Observation,
        *,
        prev_action_chunk: Float[np.ndarray, "n D"] | None = None,
        inference_delay: int = 0,
        sampler: SamplerPart,
        seed: int,
    ) -> Iterator[Float[np.ndarray, "n D"]]:
        """As `Policy.infer`; arguments are checked at the call.

        Rows come in one block, but from the horizon-aware schedule. The first d are the committed ones, to
        the last bit. More committed rows than the checkpoint was trained with (`max_inference_delay`) are
        given to the network all the same, which extrapolates, and the log says so once. Shipped
        `pick_place`, trained with 12, succeeded in 20 of 20 episodes at 16.
        """
        request = InferenceRequest(
            observation=observation,
            prev_action_chunk=prev_action_chunk,
            inference_delay=inference_delay,
            seed=seed,
        )
        return (blocks[0] for _, blocks in self._answers([request], sampler))

    def infer_batch(self, requests: Sequence[InferenceRequest], *, sampler: SamplerPart) -> list[Answer]:
        """As `BatchPolicy.infer_batch`: each network call serves all requests."""
        blocks: list[list[np.ndarray]] = [[] for _ in requests]
        calls: list[list[int]] = [[] for _ in requests]
        for num_calls, new in self._answers(requests, sampler) if requests else ():
            for i, rows in enumerate(new):
                if len(rows):
                    blocks[i].append(rows)
                    calls[i].append(num_calls)
        return [Answer(blocks=tuple(b), num_calls=tuple(c)) for b, c in zip(blocks, calls, strict=True)]

    def _answers(
        self, requests: Sequence[InferenceRequest], sampler: SamplerPart
    ) -> Iterator[tuple[int, list[np.ndarray]]]:
        """(network calls so far, the rows (m, D) of each answer that are new), checked at the call."""
        self._check_sampler(sampler)
        config, schema = self._checkpoint.feature_config, self._checkpoint.schema
        seen = [r.observation for r in requests]
        if self._estimator is not None:
            seen = self._estimator.see(seen, self.schema)
        features = [state_features(observation, schema, config) for observation in seen]
        origins = [row_origin(self.action_spec, r.observation.state) for r in requests]
        planned = [self._checked_rows(r, sampler) for r in requests]
        batch = Batch(
            features=np.array(features),
            tasks=[self._task_index(r.observation.task) for r in requests],
            planned=[rows - origin for rows, origin in zip(planned, origins, strict=True)],
            delays=[r.inference_delay for r in requests],
            seeds=[r.seed for r in requests],
        )
        committed = [rows[:d] for rows, d in zip(planned, batch.delays, strict=True)]
        return self._new_rows(batch, sampler, np.array(origins), committed)

    def _new_rows(
        self, batch: Batch, sampler: SamplerPart, origins: np.ndarray, committed: list[np.ndarray]
    ) -> Iterator[tuple[int, list[np.ndarray]]]:
        sent = [0] * len(committed)
        for progress in self._sampler.run(batch, sampler):
            rows = progress.rows + origins[:, None]
            for chunk, kept in zip(rows, committed, strict=True):
                chunk[: len(kept)] = kept  # to the last bit, not by way of the normaliser and back
            ends = progress.num_final
            yield (
                progress.num_calls,
                [chunk[a:b] for chunk, a, b in zip(rows, sent, ends, strict=True)],
            )
            sent = ends

    # ---- checking ------------------------------------------------------------------------------

    def _check_sampler(self, sampler: SamplerPart) -> None:
        if not isinstance(sampler, self.samplers):
            valid = ", ".join(kind.__name__ for kind in self.samplers)
            raise InvalidValueError(
                f"policy {self.name!r} does not take the sampler {sampler}; it takes {valid}"
            )
        check_options(sampler)
        if isinstance(sampler, BestOfSamples) and sampler.num_contrast and self._weak is None:
            raise InvalidValueError(f"policy {self.name!r} has no weaker checkpoint to contrast samples with")

    def _task_index(self, task: str) -> int:
        if task not in self.tasks:
            valid = ", ".join(repr(text) for text in self.tasks)
            raise ValueError(f"policy {self.name!r} does not know the task {task!r}; valid: {valid}")
        return self.tasks.index(task)

    def _checked_rows(self, request: InferenceRequest, sampler: SamplerPart) -> np.ndarray:
        spec, d = self.action_spec, request.inference_delay
        given = request.prev_action_chunk
        rows = np.zeros((0, spec.dim)) if given is None else np.asarray(given, float)
        if d and isinstance(sampler, PREFIXLESS):
            raise ValueError(f"{type(sampler).__name__} cannot keep a committed prefix; use a clamped prefix")
        if rows.ndim != 2 or rows.shape[1] != spec.dim or len(rows) > spec.horizon:
            raise ValueError(
                f"a previous chunk has up to {spec.horizon} rows of {spec.dim} numbers, got {rows.shape}"
            )
        if not 0 <= d <= min(len(rows), spec.horizon - 1):
            raise ValueError(f"of {len(rows)} rows, at most {spec.horizon - 1} can be committed; got {d}")
        if not np.isfinite(rows).all():
            raise ValueError("the previous chunk holds NaN or infinite numbers")
        if d > self.max_inference_delay and isinstance(sampler, TRAINED_BY_LENGTH) and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%d committed rows, policy %s was trained with up to %d: it extrapolates from here on",
                d, self.name, self.max_inference_delay,
            )  # fmt: skip
        return rows
