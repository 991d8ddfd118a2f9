"""LeRobot's own policies behind the `Policy` protocol: `load_lerobot` serves a folder LeRobot has saved.

    Observation ─► observation.* ─► their preprocessor ─► predict_action_chunk ─► their postprocessor ─► rows
                                                          or, for a flow, our samplers

A small file beside theirs, `robot_runtime.json`, says what their tensors cannot: what the columns of an
action mean, how far apart rows are, and what a robot has to offer.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from policies.flow.features import FeatureConfig, row_origin, state_features
from policies.flow.inference import ChunkSampler
from policies.flow.sampled import SampledPolicy
from policies.loading import SIDECAR
from policies.policy import InferenceRequest, InfersByBatch, NewRows
from robot_runtime.core.action import ActionSpec
from robot_runtime.core.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ConstantSchedule,
    RtcGuidance,
    SamplerPart,
)
from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Observation, RobotState
from robot_runtime.errors import CheckpointError, InvalidValueError

STATE, SCENE, ACTION = "observation.state", "observation.environment_state", "action"
PICTURES, TASK = "observation.images", "task"
UNTRAINED = (ConstantSchedule, AveragedSamples, BestOfSamples, RtcGuidance)
"""Sampler parts that any flow takes."""


@dataclass(frozen=True, kw_only=True)
class Sidecar:
    """What LeRobot's own files leave open."""

    schema: Schema
    action_spec: ActionSpec
    """Rows as the policy predicts them, after `row_origin` has been added."""
    features: FeatureConfig
    """What of the robot is in `observation.state`; the scene is `observation.environment_state`."""
    tasks: tuple[str, ...] = ()
    adds_origin: bool = True
    """Whether absolute columns come out relative to the measured joints or hand, as our training has them."""
    trained_for: tuple[str, ...] = ()
    """Sampler parts, by name, that a flow was trained for; those that need no training it takes anyway."""
    max_inference_delay: int = 0
    """Most committed rows it was trained with."""

    def save(self, folder: Path) -> None:
        """Write it beside LeRobot's files."""
        data = {
            "schema": self.schema.to_dict(),
            "action_spec": self.action_spec.to_dict(),
            "features": asdict(self.features),
            "tasks": list(self.tasks),
            "adds_origin": self.adds_origin,
            "trained_for": list(self.trained_for),
            "max_inference_delay": self.max_inference_delay,
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
                adds_origin=data.get("adds_origin", True),
                trained_for=_known_samplers(data.get("trained_for", ())),
                max_inference_delay=int(data.get("max_inference_delay", 0)),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path} does not describe a LeRobot policy: {error}") from error


def tensors_of(
    observations: Sequence[Observation], schema: Schema, features: FeatureConfig
) -> dict[str, Float[Tensor, "b n"]]:
    """A batch as LeRobot names it: the robot's numbers, the scene's if there are any, and pictures."""
    rows = np.array([state_features(o, schema, features) for o in observations], dtype=np.float32)
    robot_dim = rows.shape[1] - schema.environment_state_dim
    batch = {STATE: torch.from_numpy(rows[:, :robot_dim].copy())}
    if schema.environment_state_dim:
        batch[SCENE] = torch.from_numpy(rows[:, robot_dim:].copy())
    for camera in schema.cameras:
        pixels = np.array([o.images[camera].pixels for o in observations])
        batch[f"{PICTURES}.{camera}"] = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255.0
    return batch


def load_lerobot(folder: Path, *, device: str = "cpu") -> "LeRobotPolicy | LeRobotFlowPolicy":
    """What LeRobot has saved in a folder.

    CheckpointError: it holds no policy of LeRobot's that predicts chunks, or no sidecar.
    """
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    sidecar = Sidecar.load(folder)
    try:
        config = PreTrainedConfig.from_pretrained(folder)
        config.device = device
        policy = get_policy_class(config.type).from_pretrained(folder, config=config).eval()
        before, after = make_pre_post_processors(config, pretrained_path=str(folder))
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder} holds no policy of LeRobot's: {error}") from error
    from policies.lerobot_flow import FLOWS

    kind = LeRobotFlowPolicy if config.type in FLOWS else LeRobotPolicy
    return kind(f"{config.type} {folder.name}", policy, before, after, sidecar)


class LeRobotPolicy(InfersByBatch):
    """Answers with whole chunks, in one call of theirs. Knows no committed rows."""

    samplers: tuple[type[SamplerPart], ...] = (ConstantSchedule,)
    max_inference_delay = 0
    recipe = ""
    roll_forward = None

    def __init__(self, name: str, policy: Any, before: Any, after: Any, sidecar: Sidecar) -> None:
        """policy, before, after: LeRobot's."""
        self.name, self._policy, self._before, self._after = name, policy, before, after
        self._config: Any = policy.config
        self._sidecar = sidecar
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

    def infer_batch(self, requests: Sequence[InferenceRequest], *, sampler: SamplerPart) -> Iterator[NewRows]:
        """As `BatchPolicy.infer_batch`; all rows come at once."""
        if not isinstance(sampler, ConstantSchedule) or any(r.inference_delay for r in requests):
            raise InvalidValueError(f"policy {self.name!r} samples by itself and knows no committed rows")
        observations = [request.observation for request in requests]
        batch = self._before(tensors_of(observations, self.schema, self._sidecar.features))
        with torch.no_grad():
            chunk = self._after(self._predict(batch, [request.seed for request in requests]))
        num_calls = self._num_calls()
        self.num_evaluations += num_calls * len(requests)
        rows = chunk.numpy().astype(float)
        origins = [_origin(self._sidecar, o.state) for o in observations]
        answered = [row + origin for row, origin in zip(rows, origins, strict=True)]
        return iter([NewRows(num_calls=num_calls, rows=answered)])

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


class LeRobotFlowPolicy(SampledPolicy):
    """A flow of theirs under our samplers; committed rows and early first rows if it was trained for them."""

    recipe = ""
    roll_forward = None

    def __init__(self, name: str, policy: Any, before: Any, after: Any, sidecar: Sidecar) -> None:
        """policy, before, after: LeRobot's."""
        from policies.lerobot_flow import LeRobotFlow

        spec = sidecar.action_spec
        super().__init__(ChunkSampler(LeRobotFlow(policy, after, horizon=spec.horizon, dim=spec.dim)))
        self.name, self._before, self._sidecar = name, before, sidecar
        self.schema, self.action_spec, self.tasks = sidecar.schema, spec, sidecar.tasks
        self.samplers = UNTRAINED + tuple(
            part
            for part in get_args(SamplerPart)
            if part.__name__ in sidecar.trained_for and part not in UNTRAINED
        )
        self.max_inference_delay = sidecar.max_inference_delay

    def _seen(self, observations: Sequence[Observation]) -> dict[str, Any]:
        batch: dict[str, Any] = dict(tensors_of(observations, self.schema, self._sidecar.features))
        batch[TASK] = [o.task for o in observations]
        return dict(self._before(batch))

    def _origin(self, state: RobotState) -> Float[np.ndarray, " D"]:
        return _origin(self._sidecar, state)


def _origin(sidecar: Sidecar, state: RobotState) -> Float[np.ndarray, " D"]:
    spec = sidecar.action_spec
    return row_origin(spec, state) if sidecar.adds_origin else np.zeros(spec.dim)


def _known_samplers(names: Sequence[str]) -> tuple[str, ...]:
    valid = [part.__name__ for part in get_args(SamplerPart)]
    for name in names:
        if name not in valid:
            raise ValueError(f"there is no sampler part {name!r}; there are {', '.join(valid)}")
    return tuple(names)
