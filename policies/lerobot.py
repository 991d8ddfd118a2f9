"""LeRobot's own policies behind the `Policy` protocol: `LeRobotPolicy` serves a folder LeRobot has saved.

    Observation ─► observation.* ─► their preprocessor ─► predict_action_chunk ─► their postprocessor ─► rows
                                                                                      + row origin

A small file beside theirs, `robot_runtime.json`, says what their tensors cannot: what the columns of an
action mean, how far apart rows are, and what a robot has to offer.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from policies.flow.features import FeatureConfig, row_origin, state_features
from policies.loading import SIDECAR
from policies.policy import Answer, InferenceRequest
from robot_runtime.core.action import ActionSpec
from robot_runtime.core.sampler_parts import ConstantSchedule, SamplerPart
from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Observation
from robot_runtime.errors import CheckpointError, InvalidValueError

STATE, SCENE, ACTION = "observation.state", "observation.environment_state", "action"


@dataclass(frozen=True, kw_only=True)
class Sidecar:
    """What LeRobot's own files leave open."""

    schema: Schema
    action_spec: ActionSpec
    """Rows as the policy predicts them, after `row_origin` has been added."""
    features: FeatureConfig
    """What of the robot is in `observation.state`; the scene is `observation.environment_state`."""
    tasks: tuple[str, ...] = ()

    def save(self, folder: Path) -> None:
        """Write it beside LeRobot's files."""
        data = {
            "schema": self.schema.to_dict(),
            "action_spec": self.action_spec.to_dict(),
            "features": asdict(self.features),
            "tasks": list(self.tasks),
        }
        (folder / SIDECAR).write_text(json.dumps(data, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path) -> "Sidecar":
        """Read it; CheckpointError says what is wrong with it."""
        path = folder / SIDECAR
        try:
            data = json.loads(path.read_text())
            return cls(
                schema=Schema.from_dict(data["schema"]),
                action_spec=ActionSpec.from_dict(data["action_spec"]),
                features=FeatureConfig(**data["features"]),
                tasks=tuple(data["tasks"]),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path} does not describe a LeRobot policy: {error}") from error


def tensors_of(
    observations: Sequence[Observation], schema: Schema, features: FeatureConfig
) -> dict[str, Float[Tensor, "b n"]]:
    """A batch as LeRobot names it: the robot's numbers, and the scene's if there are any."""
    rows = np.array([state_features(o, schema, features) for o in observations], dtype=np.float32)
    robot_dim = rows.shape[1] - schema.environment_state_dim
    batch = {STATE: torch.from_numpy(rows[:, :robot_dim].copy())}
    if schema.environment_state_dim:
        batch[SCENE] = torch.from_numpy(rows[:, robot_dim:].copy())
    return batch


class LeRobotPolicy:
    """Answers with whole chunks, in one call of theirs. Knows no committed rows."""

    samplers: tuple[type[SamplerPart], ...] = (ConstantSchedule,)
    max_inference_delay = 0
    recipe = ""
    roll_forward = None

    def __init__(self, folder: Path, *, device: str = "cpu") -> None:
        """CheckpointError: the folder holds no policy of LeRobot's that predicts chunks, or no sidecar."""
        from lerobot.configs.policies import PreTrainedConfig
        from lerobot.policies.factory import get_policy_class, make_pre_post_processors

        self._sidecar = Sidecar.load(folder)
        try:
            config = PreTrainedConfig.from_pretrained(folder)
            config.device = device
            self._policy = get_policy_class(config.type).from_pretrained(folder, config=config)
            self._before, self._after = make_pre_post_processors(config, pretrained_path=str(folder))
        except (OSError, ValueError, KeyError) as error:
            raise CheckpointError(f"{folder} holds no policy of LeRobot's: {error}") from error
        self._config: Any = config
        self.name = f"{config.type} {folder.name}"
        self.num_evaluations = 0
        """As `BatchPolicy.num_evaluations`."""

    @property
    def schema(self) -> Schema:
        return self._sidecar.schema

    @property
    def action_spec(self) -> ActionSpec:
        return self._sidecar.action_spec

    @property
    def tasks(self) -> tuple[str, ...]:
        return self._sidecar.tasks

    def infer(
        self,
        observation: Observation,
        *,
        prev_action_chunk: Float[np.ndarray, "n D"] | None = None,
        inference_delay: int = 0,
        sampler: SamplerPart,
        seed: int,
    ) -> Iterator[Float[np.ndarray, "n D"]]:
        """As `Policy.infer`; all rows come at once."""
        request = InferenceRequest(
            observation=observation,
            prev_action_chunk=prev_action_chunk,
            inference_delay=inference_delay,
            seed=seed,
        )
        (answer,) = self.infer_batch([request], sampler=sampler)
        return iter(answer.blocks)

    def infer_batch(self, requests: Sequence[InferenceRequest], *, sampler: SamplerPart) -> list[Answer]:
        """As `BatchPolicy.infer_batch`."""
        if not isinstance(sampler, ConstantSchedule) or any(r.inference_delay for r in requests):
            raise InvalidValueError(f"policy {self.name!r} samples by itself and knows no committed rows")
        observations = [request.observation for request in requests]
        batch = self._before(tensors_of(observations, self.schema, self._sidecar.features))
        with torch.no_grad():
            chunk = self._after(self._predict(batch, [request.seed for request in requests]))
        num_calls = self._num_calls()
        self.num_evaluations += num_calls * len(requests)
        rows = chunk.numpy().astype(float)
        return [
            Answer(blocks=(row + row_origin(self.action_spec, o.state),), num_calls=(num_calls,))
            for row, o in zip(rows, observations, strict=True)
        ]

    def _predict(self, batch: dict[str, Tensor], seeds: list[int]) -> Tensor:
        """Normalised rows; the noise is drawn for each request by itself, so that batches do not matter."""
        if self._config.type != "diffusion":
            return self._policy.predict_action_chunk(batch)
        spec = self.action_spec
        noise = torch.stack(
            [torch.randn((spec.horizon, spec.dim), generator=torch.Generator().manual_seed(s)) for s in seeds]
        )
        noise = noise.to(self._config.device)
        one_step = {key: value.unsqueeze(1) for key, value in batch.items() if key in (STATE, SCENE)}
        return self._policy.predict_action_chunk(one_step, noise=noise)

    def _num_calls(self) -> int:
        return int(getattr(self._config, "num_inference_steps", None) or 1)
