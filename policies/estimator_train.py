"""Trains a `SceneEstimator` on demonstrations with pictures: `train_estimator`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from policies.estimator import (
    Estimator,
    EstimatorConfig,
    SceneEstimator,
    nll,
    robot_features,
    scene_numbers,
    stack_pictures,
)
from policies.flow.dataset import Demonstration
from policies.flow.demonstrations import StoredDemonstration
from policies.flow.features import Normaliser
from policies.flow.train import learning_rate
from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Observation
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class EstimatorTrainConfig:
    """How to train."""

    seed: int = 0
    steps: int = 3000
    batch_size: int = 64
    learning_rate: float = 1e-3
    warmup_steps: int = 200
    held_out: float = 0.05
    """Share of the demonstrations, the last ones, that the error is measured on."""
    bfloat16: bool = True


def train_estimator(
    demonstrations: Sequence[Demonstration],
    config: EstimatorTrainConfig,
    *,
    schema: Schema,
    points: tuple[int, ...],
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> tuple[Estimator, dict[str, float]]:
    """The estimator, and its held-out errors: root mean squares over all numbers, of those it is sure of.

    schema: with the cameras that are looked at. on_step: steps done, running mean loss.
    InvalidValueError: there is no camera, pictures differ in size, or a demonstration has not all of them.
    """
    seen = [d.observation for d in demonstrations]
    robot = np.array([robot_features(o, schema) for o in seen])
    scene = np.array([scene_numbers(o, schema, points) for o in seen])
    sizes = EstimatorConfig(
        cameras=tuple(schema.cameras),
        size=_one_size(schema.cameras),
        robot_dim=robot.shape[1],
        scene_dim=scene.shape[1],
    )
    pictures = torch.from_numpy(_all_pictures(seen, sizes))
    with torch.random.fork_rng(devices=[]):  # initial weights
        torch.manual_seed(config.seed)
        network = SceneEstimator(sizes)
    estimator = Estimator(network=network, robot=Normaliser.fit(robot), scene=Normaliser.fit(scene))
    data = (
        pictures,
        torch.tensor(estimator.robot.features(robot), dtype=torch.float32),
        torch.tensor(estimator.scene.features(scene), dtype=torch.float32),
    )
    num_train = max(1, round(len(seen) * (1.0 - config.held_out)))
    _fit(estimator.network, [part[:num_train] for part in data], config, on_step)
    return estimator, _errors(estimator, [part[num_train:] for part in data])


def with_estimates(
    demonstrations: Sequence[Demonstration], estimator: Estimator, schema: Schema, *, batch_size: int = 256
) -> list[StoredDemonstration]:
    """The demonstrations as a flow policy behind the estimator sees them."""
    out: list[StoredDemonstration] = []
    for first in range(0, len(demonstrations), batch_size):
        batch = demonstrations[first : first + batch_size]
        for d, seen in zip(batch, estimator.see([d.observation for d in batch], schema), strict=True):
            out.append(StoredDemonstration(observation=seen, rows=d.rows, num_committed=d.num_committed))
    return out


def estimated_schema(schema: Schema, estimator: Estimator) -> Schema:
    """Of the flow policy behind it."""
    return replace(schema, environment_state_dim=estimator.num_estimates, cameras={})


def _one_size(cameras: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Of all cameras' pictures; InvalidValueError."""
    sizes = set(cameras.values())
    if len(sizes) != 1:
        have = ", ".join(f"{name} {height} x {width}" for name, (height, width) in cameras.items())
        raise InvalidValueError(f"an estimator looks at pictures of one size, got {have or 'none'}")
    return sizes.pop()


def _all_pictures(seen: Sequence[Observation], config: EstimatorConfig) -> UInt8[np.ndarray, "n c h w 3"]:
    """Of all demonstrations; InvalidValueError."""
    out = np.empty((len(seen), len(config.cameras), *config.size, 3), dtype=np.uint8)
    for i, observation in enumerate(seen):
        try:
            out[i] = stack_pictures(observation, config)
        except ValueError as error:
            raise InvalidValueError(f"demonstration {i}: {error}") from error
    return out


def _fit(
    network: SceneEstimator,
    data: Sequence[Tensor],
    config: EstimatorTrainConfig,
    on_step: Callable[[int, float], None],
) -> None:
    pictures, robot, scene = data
    optimiser = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=1e-3)
    draw = torch.Generator().manual_seed(config.seed)
    mean_loss = 0.0
    network.train()
    for step, index in enumerate(_batches(len(scene), config.batch_size, config.steps, draw)):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, config)
        shown = _augmented(pictures[index], draw)
        noisy = robot[index] + 0.02 * torch.randn(len(index), robot.shape[1], generator=draw)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.bfloat16):
            mean, log_std = network(shown, noisy)
        loss = nll(mean.float(), log_std.float(), scene[index])
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        mean_loss += (loss.item() - mean_loss) / min(step + 1, 100)
        on_step(step + 1, mean_loss)
    network.eval().requires_grad_(False)


def _augmented(pictures: Tensor, draw: torch.Generator) -> Tensor:
    """Brighter or darker, tinted, noisy: (B, cameras, h, w, 3) uint8 to the same.

    Not shifted or cropped: where a thing is in the picture is what is to be learnt.
    """
    batch, cameras = pictures.shape[:2]
    gain = 1.0 + 0.15 * torch.randn(batch, cameras, 1, 1, 3, generator=draw)
    offset = 8.0 * torch.randn(batch, cameras, 1, 1, 3, generator=draw)
    noise = 4.0 * torch.randn(pictures.shape, generator=draw)
    return (pictures * gain + offset + noise).clamp(0, 255).to(torch.uint8)


def _errors(estimator: Estimator, data: Sequence[Tensor]) -> dict[str, float]:
    pictures, robot, scene = data
    if not len(scene):
        return {}
    with torch.no_grad():
        parts = [estimator.network(p, r) for p, r in zip(pictures.split(256), robot.split(256), strict=True)]
    mean = torch.cat([m for m, _ in parts])
    sure = torch.cat([s for _, s in parts]).exp() < 0.1
    error = (mean - scene).square()
    return {
        "rms": float(error.mean().sqrt()),
        "rms_where_sure": float(error[sure].mean().sqrt()) if sure.any() else float("nan"),
        "share_sure": float(sure.float().mean()),
    }


def _batches(num: int, batch_size: int, steps: int, draw: torch.Generator) -> Iterator[Tensor]:
    for _ in range(steps):
        yield torch.randint(num, (batch_size,), generator=draw)
