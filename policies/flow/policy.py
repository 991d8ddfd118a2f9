"""`FlowPolicy`: a checkpoint behind the `Policy` protocol."""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float

from policies.flow.checkpoint import Checkpoint
from policies.flow.features import row_origin, state_features
from policies.flow.sampler import constant_timetable, sample
from robot_runtime.core.action import ActionSpec
from robot_runtime.core.method import ClampedPrefix, ConstantSchedule, SamplerPart
from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Observation


class FlowPolicy:
    """Predicts chunks with a trained flow. Holds no state between calls and changes none of torch's."""

    def __init__(self, checkpoint: Checkpoint, *, device: str = "cpu") -> None:
        self._checkpoint = checkpoint
        self._device = torch.device(device)
        self._model = checkpoint.model.to(self._device)

    @property
    def name(self) -> str:
        return self._checkpoint.name

    @property
    def schema(self) -> Schema:
        return self._checkpoint.schema

    @property
    def action_spec(self) -> ActionSpec:
        return self._checkpoint.action_spec

    @property
    def tasks(self) -> tuple[str, ...]:
        return self._checkpoint.tasks

    def infer(
        self,
        observation: Observation,
        *,
        prev_action_chunk: Float[np.ndarray, "n D"] | None = None,
        inference_delay: int = 0,
        sampler: SamplerPart,
        seed: int,
    ) -> Iterator[Float[np.ndarray, "n D"]]:
        """As `Policy.infer`; arguments are checked at the call, all rows come in one block.

        More committed rows than trained with are kept to all the same; the rows after them may be worse.
        """
        features = state_features(observation, self.schema, self._checkpoint.feature_config)
        task = self._task_index(observation.task)
        committed = self._checked_rows(prev_action_chunk, inference_delay, sampler)[:inference_delay]
        num_steps = self._checkpoint.num_steps if sampler.num_steps is None else sampler.num_steps
        if num_steps < 1:
            raise ValueError(f"a sampler takes at least 1 step, got {num_steps}")
        origin = row_origin(self.action_spec, observation.state)
        rows = self._sample(features, task, committed - origin, num_steps, seed) + origin
        rows[: len(committed)] = committed  # to the last bit, not by way of the normaliser and back
        return iter([rows])

    def _task_index(self, task: str) -> int:
        if task not in self.tasks:
            valid = ", ".join(repr(text) for text in self.tasks)
            raise ValueError(f"policy {self.name!r} does not know the task {task!r}; valid: {valid}")
        return self.tasks.index(task)

    def _checked_rows(
        self, prev_action_chunk: np.ndarray | None, inference_delay: int, sampler: SamplerPart
    ) -> np.ndarray:
        spec = self.action_spec
        rows = np.zeros((0, spec.dim)) if prev_action_chunk is None else np.asarray(prev_action_chunk, float)
        match sampler:
            case ConstantSchedule() if inference_delay:
                raise ValueError("the constant schedule cannot keep a committed prefix; use a clamped prefix")
            case ConstantSchedule() | ClampedPrefix():
                pass
            case _:
                raise ValueError(f"policy {self.name!r} does not know the sampler part {sampler}")
        if rows.ndim != 2 or rows.shape[1] != spec.dim or len(rows) > spec.horizon:
            raise ValueError(
                f"a previous chunk has up to {spec.horizon} rows of {spec.dim} numbers, got {rows.shape}"
            )
        if not 0 <= inference_delay <= min(len(rows), spec.horizon - 1):
            raise ValueError(
                f"of {len(rows)} rows, at most {spec.horizon - 1} can be committed; got {inference_delay}"
            )
        if not np.isfinite(rows).all():
            raise ValueError("the previous chunk holds NaN or infinite numbers")
        return rows

    @torch.inference_mode()
    def _sample(
        self, features: np.ndarray, task: int, prefix: np.ndarray, num_steps: int, seed: int
    ) -> Float[np.ndarray, "H D"]:
        """Relative rows from features (F,) and a relative prefix (d, D)."""
        spec, checkpoint = self.action_spec, self._checkpoint
        # Drawn on the CPU, so that a seed means the same noise on every device.
        noise = torch.randn(1, spec.horizon, spec.dim, generator=torch.Generator().manual_seed(seed))
        timetable = constant_timetable(num_steps=num_steps, horizon=spec.horizon, num_prefix_rows=len(prefix))
        context = self._model.encode(
            self._tensor(checkpoint.features.features(features)[None]),
            torch.tensor([task], device=self._device),
        )
        rows = sample(
            lambda x, t: self._model.velocity(x, t, context),
            noise=noise.to(self._device),
            timetable=timetable.to(self._device),
            prefix=self._tensor(checkpoint.rows.normalise(prefix)[None]),
        )
        return checkpoint.rows.restore(rows[0].double().cpu().numpy())

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(array, dtype=torch.float32, device=self._device)
