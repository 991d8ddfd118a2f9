"""`FlowPolicy`: a checkpoint of ours behind the `Policy` protocol."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float

from policies.flow.checkpoint import Checkpoint
from policies.flow.features import state_features
from policies.flow.inference import CheckpointNetwork, ChunkSampler
from policies.flow.sampled import SampledPolicy
from policies.vision.encoder import ImageEncoder
from policies.vision.estimator import Estimator
from robot_runtime.core.method.sampler_parts import BestOfSamples, SamplerPart
from robot_runtime.core.values.mismatches import check_task
from robot_runtime.core.values.row_statistics import RowStatistics, row_origin
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import CheckpointError, InvalidValueError


class FlowPolicy(SampledPolicy):
    """Predicts chunks with a trained flow; it changes none of torch's global state."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str = "cpu",
        weak: Checkpoint | None = None,
        estimator: Estimator | ImageEncoder | None = None,
    ) -> None:
        """
        weak: an earlier checkpoint of the same training, for the forward contrast of `BestOfSamples`.
        estimator: predicts the scene from images, or latents, for a checkpoint trained on its output.
        """
        if weak is not None and (weak.info.action_spec, weak.info.tasks) != (
            checkpoint.info.action_spec,
            checkpoint.info.tasks,
        ):
            raise ValueError(f"{weak.info.name!r} and {checkpoint.info.name!r} differ in rows or tasks")
        takes = checkpoint.info.schema.environment_state_dim
        if estimator is not None and (gives := estimator.num_estimates) != takes:
            raise CheckpointError(
                f"{checkpoint.info.name!r} takes {takes} scene numbers, its estimator gives {gives}"
            )
        networks = [CheckpointNetwork(c, torch.device(device)) for c in (checkpoint, weak) if c is not None]
        super().__init__(ChunkSampler(*networks))
        self._checkpoint, self._weak, self._estimator = checkpoint, weak, estimator
        rows = checkpoint.rows
        info = checkpoint.info.with_statistics(
            RowStatistics(mean=rows.mean, std=rows.std, from_measured=True)
        )
        if estimator is not None:
            schema = replace(info.schema, environment_state_dim=0, cameras=estimator.cameras)
            info = replace(info, schema=schema)
        if isinstance(estimator, ImageEncoder):
            info = replace(info, n_obs_steps=estimator.n_obs_steps)
        if not checkpoint.feature_config.needs_hand:
            info = replace(info, schema=info.schema.without_hands())
        self.info = info

    def _seen(self, observations: Sequence[Observation]) -> tuple[Float[np.ndarray, "B F"], list[int]]:
        config, schema = self._checkpoint.feature_config, self._checkpoint.info.schema
        seen = observations
        if self._estimator is not None:
            seen = self._estimator.see(observations)
        features = [state_features(observation, schema, config) for observation in seen]
        return np.array(features), [self._task_index(observation.task) for observation in observations]

    def _origin(self, state: RobotState) -> Float[np.ndarray, " D"]:
        return row_origin(self.info.action_spec, state)

    def _check_sampler(self, sampler: SamplerPart) -> None:
        super()._check_sampler(sampler)
        if isinstance(sampler, BestOfSamples) and sampler.num_contrast and self._weak is None:
            raise InvalidValueError(
                f"policy {self.info.name!r} has no weaker checkpoint to contrast samples with"
            )

    def _task_index(self, task: str) -> int:
        check_task(task, policy=self.info.name, tasks=self.info.tasks)
        return self.info.tasks.index(task)
