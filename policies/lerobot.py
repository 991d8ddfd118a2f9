"""LeRobot's own policies behind the `Policy` protocol: `load_lerobot` serves a folder LeRobot has saved.

    Observation ─► observation.* ─► their preprocessor ─► predict_action_chunk ─► their postprocessor ─► rows
                                                          or, for a flow, our samplers

A small file beside theirs, `robot_runtime.json`, says what their tensors cannot: what the columns of an
action mean, how far apart rows are, and what a robot has to offer.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from policies.flow.features import FeatureConfig, row_origin, state_features
from policies.flow.inference import ChunkSampler
from policies.flow.sampled import SampledPolicy
from policies.flow.transfers import pinned_batch
from policies.loading import SIDECAR
from policies.policy import InferenceRequest, InfersByBatch, NewRows
from robot_runtime.core.action import ActionSpec, GripperWidth, JointPosition
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
from robot_runtime.recorder import named_numbers

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
    state_names: tuple[str, ...] = ()
    """What the numbers of `observation.state` are, as a recording names them (`recorder.named_numbers`)."""
    features: FeatureConfig | None = None
    """Instead of names: `state_features` but for the scene, which is `observation.environment_state`."""
    tasks: tuple[str, ...] = ()
    adds_origin: bool = True
    """Whether absolute columns come out relative to the measured joints or hand, as our training has them."""
    trained_for: tuple[str, ...] = ()
    """Sampler parts, by name, that a flow was trained for; those that need no training it takes anyway."""
    max_inference_delay: int = 0
    """Most committed rows it was trained with."""
    joint_unit_rad: float = 1.0
    """What 1 of its numbers for a joint is [rad]: pi/180 for LeRobot's arms, which count in degrees."""
    gripper_unit_m: float = 1.0
    """What 1 of its numbers for the gripper is [m]: a hundredth of the stroke for per cent."""

    def save(self, folder: Path) -> None:
        """Write it beside LeRobot's files."""
        data = {
            "schema": self.schema.to_dict(),
            "action_spec": self.action_spec.to_dict(),
            "state_names": list(self.state_names),
            "features": None if self.features is None else asdict(self.features),
            "tasks": list(self.tasks),
            "adds_origin": self.adds_origin,
            "trained_for": list(self.trained_for),
            "max_inference_delay": self.max_inference_delay,
            "joint_unit_rad": self.joint_unit_rad,
            "gripper_unit_m": self.gripper_unit_m,
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
                state_names=tuple(data.get("state_names", ())),
                features=None if data["features"] is None else FeatureConfig(**data["features"]),
                tasks=tuple(data["tasks"]),
                adds_origin=data.get("adds_origin", True),
                trained_for=_known_samplers(data.get("trained_for", ())),
                max_inference_delay=int(data.get("max_inference_delay", 0)),
                joint_unit_rad=float(data.get("joint_unit_rad", 1.0)),
                gripper_unit_m=float(data.get("gripper_unit_m", 1.0)),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path} does not describe a LeRobot policy: {error}") from error

    def seen(self, observations: Sequence[Observation]) -> dict[str, Any]:
        """A batch as LeRobot names it, in its units; ValueError names what an observation lacks."""
        theirs = [self._in_its_units(o) for o in observations]
        batch: dict[str, Any] = {TASK: [o.task for o in observations]}
        if self.features is not None:
            return batch | tensors_of(theirs, self.schema, self.features)
        if self.schema.environment_state_dim:
            batch[SCENE] = torch.from_numpy(np.array([o.environment_state for o in theirs], np.float32))
        rows = np.array([self._state(o.state) for o in theirs], np.float32)
        if not np.isfinite(rows).all():
            raise ValueError("the state holds NaN or infinite numbers")
        return batch | {STATE: torch.from_numpy(rows)} | pictures_of(theirs, self.schema)

    def _state(self, state: RobotState) -> list[float]:
        numbers = named_numbers(state)
        if missing := [name for name in self.state_names if name not in numbers]:
            raise ValueError(f"the policy needs {', '.join(missing)}; the state has {', '.join(numbers)}")
        return [numbers[name] for name in self.state_names]

    def column_units(self) -> Float[np.ndarray, " D"]:
        """What 1 of its numbers is in each column of a row [rad or m]."""
        units = np.ones(self.action_spec.dim)
        for field, columns in self.action_spec.columns():
            if isinstance(field, JointPosition):
                units[columns] = self.joint_unit_rad
            elif isinstance(field, GripperWidth):
                units[columns] = self.gripper_unit_m
        return units

    def origin(self, state: RobotState) -> Float[np.ndarray, " D"]:
        """What its rows count from."""
        spec = self.action_spec
        return row_origin(spec, state) if self.adds_origin else np.zeros(spec.dim)

    def _in_its_units(self, observation: Observation) -> Observation:
        state = observation.state
        width = state.gripper_width
        theirs = replace(
            state,
            q=state.q / self.joint_unit_rad,
            dq=state.dq / self.joint_unit_rad,
            gripper_width=None if width is None else width / self.gripper_unit_m,
        )
        return replace(observation, state=theirs)


def tensors_of(
    observations: Sequence[Observation], schema: Schema, features: FeatureConfig
) -> dict[str, Float[Tensor, "b n"]]:
    """The robot's numbers, the scene's if there are any, and pictures, under LeRobot's names."""
    rows = np.array([state_features(o, schema, features) for o in observations], dtype=np.float32)
    robot_dim = rows.shape[1] - schema.environment_state_dim
    batch = {STATE: torch.from_numpy(rows[:, :robot_dim].copy())}
    if schema.environment_state_dim:
        batch[SCENE] = torch.from_numpy(rows[:, robot_dim:].copy())
    return batch | pictures_of(observations, schema)


def pictures_of(observations: Sequence[Observation], schema: Schema) -> dict[str, Float[Tensor, "b 3 h w"]]:
    """Pictures in [0, 1] under LeRobot's names."""
    out = {}
    for camera in schema.cameras:
        pixels = np.array([o.images[camera].pixels for o in observations])
        out[f"{PICTURES}.{camera}"] = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255.0
    return out


def load_lerobot(
    folder: Path,
    *,
    device: str = "cpu",
    dtype: str | None = None,
    is_compiled: bool = False,
    sidecar: Sidecar | None = None,
) -> "LeRobotPolicy | LeRobotFlowPolicy":
    """What LeRobot has saved in a folder.

    device, dtype, is_compiled: as in `load_policy`. sidecar: instead of the one that is there.
    CheckpointError: it holds no policy of LeRobot's that predicts chunks, or no sidecar.
    InvalidValueError: a type whose dtype cannot be chosen, or that is no flow and was to be compiled.
    """
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    sidecar = sidecar or Sidecar.load(folder)
    try:
        config = PreTrainedConfig.from_pretrained(folder)
        _set_up(config, device, dtype, is_compiled=is_compiled)
        policy = get_policy_class(config.type).from_pretrained(folder, config=config).eval()
        before, after = make_pre_post_processors(
            config,
            pretrained_path=str(folder),
            preprocessor_overrides={"device_processor": {"device": device}},
            postprocessor_overrides={"device_processor": {"device": "cpu"}},
        )
    except InvalidValueError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder} holds no policy of LeRobot's: {error}") from error
    from policies.lerobot_flow import FLOWS

    name = f"{config.type} {folder.name}"
    if config.type in FLOWS:
        return LeRobotFlowPolicy(name, policy, before, after, sidecar, is_compiled=is_compiled)
    return LeRobotPolicy(name, policy, before, after, sidecar)


def _set_up(config: Any, device: str, dtype: str | None, *, is_compiled: bool) -> None:
    from policies.lerobot_flow import FLOWS

    config.device = device
    if dtype is not None:
        if not hasattr(config, "dtype"):
            raise InvalidValueError(f"this is {config.type}, whose dtype is its own")
        config.dtype = dtype
    if is_compiled and config.type not in FLOWS:
        raise InvalidValueError(f"this is {config.type}; {', '.join(FLOWS)} can be compiled")


class LeRobotPolicy(InfersByBatch):
    """Answers with whole chunks, in one call of theirs. Knows no committed rows.

    One that looks at several observations is shown the newest as often: a request knows no earlier ones.
    """

    samplers: tuple[type[SamplerPart], ...] = (ConstantSchedule,)
    max_inference_delay = 0
    recipe = ""
    roll_forward = None

    def __init__(self, name: str, policy: Any, before: Any, after: Any, sidecar: Sidecar) -> None:
        """policy, before, after: LeRobot's."""
        self.name, self._policy, self._before, self._after = name, policy, before, after
        self._config: Any = policy.config
        self._sidecar, self._device = sidecar, torch.device(policy.config.device)
        draws_nothing = self._config.type == "act"
        takes_noise = getattr(self._config, "noise_scheduler_type", None) == "DDIM"
        self._answers_together = draws_nothing or (self._config.type == "diffusion" and takes_noise)
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
        origins = [self._sidecar.origin(o.state) for o in observations]
        rows = (
            self.predict(observations, [request.seed for request in requests]) * self._sidecar.column_units()
        )
        num_calls = self._num_calls()
        self.num_evaluations += num_calls * len(requests)
        answered = [row + origin for row, origin in zip(rows, origins, strict=True)]
        return iter([NewRows(num_calls=num_calls, rows=answered)])

    def predict(
        self, observations: Sequence[Observation], seeds: Sequence[int]
    ) -> Float[np.ndarray, "b H D"]:
        """Their rows in their units. Batches do not matter: noise is drawn for each request by itself."""
        size = len(observations) if self._answers_together else 1
        chunks = []
        for i in range(0, len(observations), size):
            batch = self._before(pinned_batch(self._sidecar.seen(observations[i : i + size]), self._device))
            with torch.no_grad():
                chunks.append(self._after(self._sampled(batch, seeds[i : i + size])).float().cpu().numpy())
        return np.concatenate(chunks).astype(float)

    def _sampled(self, batch: dict[str, Any], seeds: Sequence[int]) -> Tensor:
        noise = {}
        if self._config.type == "diffusion":
            shape = self._config.horizon, self._config.action_feature.shape[0]
            drawn = [torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
            noise["noise"] = torch.stack(drawn).to(self._config.device)
        with torch.random.fork_rng():
            torch.manual_seed(seeds[0])
            return whole_chunk(self._policy, batch, **noise)

    def _num_calls(self) -> int:
        return int(getattr(self._config, "num_inference_steps", None) or 1)


def whole_chunk(policy: Any, batch: dict[str, Any], **noise: Tensor) -> Tensor:
    """A chunk (B, H, D) of any policy of LeRobot's, from what is seen now alone.

    Those that keep earlier observations make their input of them in `select_action`, which is called for
    that: what it has predicted is the chunk.
    """
    policy.reset()
    if not set(getattr(policy, "_queues", {})) - {ACTION}:
        out: Tensor = policy.predict_action_chunk(batch, **noise)
        return out
    predict, chunks = policy.predict_action_chunk, []

    def keep(*given: Any, **named: Any) -> Tensor:
        chunks.append(predict(*given, **named))
        return chunks[-1]

    policy.predict_action_chunk = keep
    try:
        policy.select_action(batch, **noise)
    finally:
        del policy.predict_action_chunk
    return chunks[0].transpose(0, 1) if policy.config.type == "tdmpc" else chunks[0]


class LeRobotFlowPolicy(SampledPolicy):
    """A flow of theirs under our samplers; committed rows and early first rows if it was trained for them."""

    recipe = ""
    roll_forward = None

    def __init__(
        self, name: str, policy: Any, before: Any, after: Any, sidecar: Sidecar, *, is_compiled: bool = False
    ) -> None:
        """policy, before, after: LeRobot's. is_compiled: as in `load_policy`."""
        from policies.lerobot_flow import LeRobotFlow

        spec = sidecar.action_spec
        units = torch.from_numpy(sidecar.column_units()).float()
        network = LeRobotFlow(
            policy,
            lambda rows: after(rows) * units,
            horizon=spec.horizon,
            dim=spec.dim,
            is_compiled=is_compiled,
        )
        super().__init__(ChunkSampler(network))
        self.name, self._before, self._sidecar = name, before, sidecar
        self.schema, self.action_spec, self.tasks = sidecar.schema, spec, sidecar.tasks
        self.samplers = UNTRAINED + tuple(
            part
            for part in get_args(SamplerPart)
            if part.__name__ in sidecar.trained_for and part not in UNTRAINED
        )
        self.max_inference_delay = sidecar.max_inference_delay
        self._device = network.device

    def _seen(self, observations: Sequence[Observation]) -> dict[str, Any]:
        return dict(self._before(pinned_batch(self._sidecar.seen(observations), self._device)))

    def _origin(self, state: RobotState) -> Float[np.ndarray, " D"]:
        return self._sidecar.origin(state)


def _known_samplers(names: Sequence[str]) -> tuple[str, ...]:
    valid = [part.__name__ for part in get_args(SamplerPart)]
    for name in names:
        if name not in valid:
            raise ValueError(f"there is no sampler part {name!r}; there are {', '.join(valid)}")
    return tuple(names)
