"""Trains small versions of LeRobot's ACT and Diffusion Policy on our demonstrations: `train_lerobot`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from policies.flow.dataset import Demonstration
from policies.flow.features import FeatureConfig, Normaliser, turns_in_features, turns_in_rows
from policies.flow.train import learning_rate, multiplies_bfloat16
from policies.lerobot.metadata import ACTION, SCENE, STATE, PolicyMetadata, tensors_of
from policies.resume import Resumable, Training
from policies.vision.encoder import IMAGENET
from policies.vision.end_to_end import image_stamps
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.row_statistics import row_origin
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Observation
from robot_runtime.dataset.recording import PICTURES
from robot_runtime.errors import InvalidValueError
from robot_runtime.results import keep

Network = Literal["act", "diffusion"]
_UNET_MULTIPLE = 8
"""Rows of Diffusion's three levels are a multiple of this."""


@dataclass(frozen=True, kw_only=True)
class LeRobotTrainConfig:
    """Training settings, for about a million weights and no dropout, as in our own network.

    LeRobot's own sizes are 27 and 200 times that. Seconds per step of 128 chunks of 32 rows on one core: ACT
    0.23 (with dropout and four layers in its variational encoder, which only training uses: 0.53), Diffusion
    0.15 (levels twice as wide: 0.31).

    Diffusion learns the rows (`prediction_type="sample"`) and not the noise, LeRobot's default. After 600
    steps on `pick_place` the error of its rows on learned samples was 0.26 of their deviation (ACT's 0.16),
    with noise 0.82, and with noise and rows scaled to their extremes, LeRobot's default, 2.6: in ten steps
    from pure noise, errors of the first steps are amplified by the later ones.
    """

    network: Network
    seed: int = 0
    """Seed of initial weights, order and noise."""
    steps: int = 4000
    batch_size: int = 128
    learning_rate: float = 5e-4
    """Peak: linear warm-up, then half a cosine down to zero."""
    warmup_steps: int = 300
    width: int = 128
    """Width of a token (ACT), or of the last of three levels (Diffusion)."""
    num_inference_steps: int = 10
    """DDIM steps of the Diffusion Policy."""
    bfloat16: bool = field(default_factory=multiplies_bfloat16)
    """Whether to compute in bfloat16 (weights stay float32): on a processor with instructions for it, ACT
    trains twice as fast, Diffusion by a fifth."""


def train_lerobot(
    demonstrations: Sequence[Demonstration],
    config: LeRobotTrainConfig,
    *,
    schema: Schema,
    action_spec: ActionSpec,
    features: FeatureConfig,
    folder: Path,
    n_obs_steps: int = 1,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
    resume: Path | None = None,
) -> Path:
    """Train on the demonstrations without given rows, which these policies do not take; returns the folder.

    schema: with cameras, whose images are learned from too. n_obs_steps: observations of a sample, for
    Diffusion; ACT takes one. resume: file of the training's state, from which an interrupted one continues.
    on_step: called with the number of steps done and a running mean of the loss.
    InvalidValueError: no demonstration is left.
    """
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    free = [d for d in demonstrations if d.num_committed == 0]
    if not free:
        raise InvalidValueError(f"none of {len(demonstrations)} demonstrations is free of given rows")
    if n_obs_steps > 1 and config.network == "act":
        raise InvalidValueError(f"LeRobot's ACT takes one observation, got {n_obs_steps}")
    seen = [frame for d in free for frame in d.observation.frames(n_obs_steps)]
    data = tensors_of(seen, schema, features)
    rows = np.array([d.rows - row_origin(action_spec, d.observation.state) for d in free])
    data[ACTION] = torch.tensor(rows, dtype=torch.float32)
    peer = _peer_config(config, data, action_spec, schema.cameras, n_obs_steps)
    turns = {STATE: turns_in_features(schema, features), ACTION: turns_in_rows(action_spec)}
    mean, std = (torch.tensor(each)[:, None, None] for each in IMAGENET)
    images = {f"{PICTURES}.{name}": {"mean": mean, "std": std} for name in schema.cameras}
    before, after = make_pre_post_processors(peer, dataset_stats=_statistics(data, turns) | images)
    with torch.random.fork_rng(devices=[]):  # initial weights, dropout and what their losses draw
        torch.manual_seed(config.seed)
        policy = get_policy_class(peer.type)(peer)
        batches = _Batches(before(data), seen, schema.cameras, n_obs_steps)
        kept = None
        if resume is not None:
            about = config, n_obs_steps, dict(schema.cameras)
            stamps = image_stamps([d.observation for d in free], n_obs_steps)
            kept = Resumable(resume, about, data[STATE], data[ACTION], stamps)
        _fit(policy, batches, config, on_step, kept)
    tasks = tuple(sorted({d.observation.task for d in free}))
    info = PolicyInfo(
        name=f"{peer.type} {folder.name}",
        action_spec=action_spec,
        schema=schema,
        tasks=tasks,
        n_obs_steps=n_obs_steps,
    )
    metadata = PolicyMetadata(info=info, features=features)

    def write(to: Path) -> None:
        to.mkdir(parents=True, exist_ok=True)
        for part in (policy, before, after):
            part.save_pretrained(to)
        metadata.save(to)

    keep(folder, write)
    if kept is not None:
        kept.finish()
    return folder


class _Batches:
    """Samples by their indices: numbers, and images (b, 3, h, w) in [0, 1], normalised as ImageNet's."""

    def __init__(
        self,
        numbers: dict[str, Any],
        seen: Sequence[Observation],
        cameras: Mapping[str, tuple[int, int]],
        n_obs_steps: int,
    ) -> None:
        """numbers: normalised, of `n_obs_steps` observations of each sample, as `seen`; one action each."""
        self._numbers, self._seen, self._cameras, self._steps = numbers, seen, cameras, n_obs_steps

    def __len__(self) -> int:
        return len(self._numbers[ACTION])

    def of(self, chosen: Tensor, *, diffusion_horizon: int | None) -> dict[str, Tensor]:
        """A batch; diffusion_horizon: of Diffusion, whose rows begin at the oldest observation.

        Its observations have an axis for their history, and rows before the newest one are masked.
        """
        frames = (chosen[:, None] * self._steps + torch.arange(self._steps)).reshape(-1)
        out = {key: self._numbers[key][frames] for key in (STATE, SCENE) if key in self._numbers}
        mean, std = (torch.tensor(each)[:, None, None] for each in IMAGENET)
        for camera in self._cameras:
            pixels = np.stack([self._seen[i].images[camera].pixels for i in frames.tolist()])
            images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255.0
            out[f"{PICTURES}.{camera}"] = (images - mean) / std
        rows = self._numbers[ACTION][chosen]
        before = after = 0
        if diffusion_horizon is not None:
            out = {key: each.reshape(-1, self._steps, *each.shape[1:]) for key, each in out.items()}
            before = self._steps - 1
            after = diffusion_horizon - before - rows.shape[1]
        num = rows.shape[1]
        at = torch.arange(-before, num + after)
        out["action_is_pad"] = ((at < 0) | (at >= num)).expand(len(rows), -1)
        return out | {ACTION: rows[:, at.clamp(0, num - 1)]}


def _peer_config(
    config: LeRobotTrainConfig,
    data: dict[str, Tensor],
    spec: ActionSpec,
    cameras: Mapping[str, tuple[int, int]],
    n_obs_steps: int,
) -> Any:
    from lerobot.configs.types import FeatureType, NormalizationMode, PolicyFeature
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig

    kinds = {STATE: FeatureType.STATE, SCENE: FeatureType.ENV}
    mean_std = NormalizationMode.MEAN_STD
    common: dict[str, Any] = {
        "input_features": {
            key: PolicyFeature(type=kind, shape=(data[key].shape[1],))
            for key, kind in kinds.items()
            if key in data
        }
        | {
            f"{PICTURES}.{name}": PolicyFeature(type=FeatureType.VISUAL, shape=(3, *size))
            for name, size in cameras.items()
        },
        "output_features": {ACTION: PolicyFeature(type=FeatureType.ACTION, shape=(spec.dim,))},
        "normalization_mapping": {"STATE": mean_std, "ENV": mean_std, "ACTION": mean_std}
        | {"VISUAL": mean_std},
        "n_action_steps": spec.horizon,
        "pretrained_backbone_weights": None,
        "device": "cpu",
        "push_to_hub": False,
    }
    if config.network == "act":
        return ACTConfig(
            chunk_size=spec.horizon,
            dim_model=config.width,
            n_heads=4,
            dim_feedforward=4 * config.width,
            latent_dim=16,
            n_vae_encoder_layers=2,
            dropout=0.0,
            **common,
        )
    return DiffusionConfig(
        n_obs_steps=n_obs_steps,
        horizon=-(-(spec.horizon + n_obs_steps - 1) // _UNET_MULTIPLE) * _UNET_MULTIPLE,
        do_mask_loss_for_padding=True,
        down_dims=(config.width // 4, config.width // 2, config.width),
        noise_scheduler_type="DDIM",
        num_inference_steps=config.num_inference_steps,
        prediction_type="sample",
        clip_sample=False,
        crop_shape=None,
        **common,
    )


def _statistics(
    data: Mapping[str, Tensor], turns: Mapping[str, Sequence[slice]]
) -> dict[str, dict[str, Tensor]]:
    """Mean and deviation of each number, as in our training; turns: slices that hold rotations."""
    out = {}
    for key, values in data.items():
        flat = values.reshape(-1, values.shape[-1]).numpy()
        fit = Normaliser.fit(flat, turns=turns.get(key, ()))
        out[key] = {"mean": torch.tensor(fit.mean).float(), "std": torch.tensor(fit.std).float()}
    return out


def _fit(
    policy: Any,
    data: _Batches,
    config: LeRobotTrainConfig,
    on_step: Callable[[int, float], None],
    kept: Resumable | None,
) -> None:
    optimiser = torch.optim.AdamW(policy.parameters(), lr=config.learning_rate, weight_decay=1e-4)
    draw = torch.Generator().manual_seed(config.seed)
    tensors = [*policy.parameters(), *policy.buffers()]
    training = Training(tensors=tensors, optimisers=[optimiser], generator=draw)
    policy.train()
    if kept is not None:
        kept.resume(training)
    for step in range(training.step, config.steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, config)
        chosen = torch.randint(len(data), (config.batch_size,), generator=draw)
        is_diffusion = config.network == "diffusion"
        batch = data.of(chosen, diffusion_horizon=policy.config.horizon if is_diffusion else None)
        with torch.autocast("cpu", torch.bfloat16, enabled=config.bfloat16):
            loss, _ = policy.forward(batch)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        optimiser.step()
        training.loss += (loss.item() - training.loss) / min(step + 1, 100)
        training.step = step + 1
        on_step(training.step, training.loss)
        if kept is not None:
            kept.keep(training)
    policy.eval()
