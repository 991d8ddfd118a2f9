"""Seeing the scene: `SceneEstimator` tells from pictures what a tracker would have measured, and how surely.

    pictures ─► convolutions ─► where each feature map is hottest ─┐
    joints, hand, gripper, base ───────────────────────────────────┴─► mean and deviation of every number

A flow policy behind it is trained on estimates, so it knows how far they err, and a thing that no camera
shows comes with a large deviation. What is estimated is the scene as seen from the base, and its points as
seen from the hand (`policies.flow.features`), which is where millimetres matter.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from policies.flow.features import FeatureConfig, Normaliser, state_features
from policies.loading import ESTIMATOR
from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Observation
from robot_runtime.errors import CheckpointError

WEIGHTS = "estimator.safetensors"
MIN_LOG_STD, MAX_LOG_STD = -5.0, 1.0


@dataclass(frozen=True, kw_only=True)
class EstimatorConfig:
    """Sizes of the network, and what it looks at."""

    cameras: tuple[str, ...]
    size: tuple[int, int]
    """Height and width of every picture [pixels]."""
    robot_dim: int
    """Numbers of the robot's own state."""
    scene_dim: int
    """Numbers that are estimated."""
    channels: tuple[int, ...] = (24, 48, 64)
    """Of the convolutions; each but the last halves the picture."""
    num_keypoints: int = 32
    """Feature maps whose hottest places are told."""
    width: int = 256

    def __post_init__(self) -> None:
        for name in ("cameras", "size", "channels"):
            object.__setattr__(self, name, tuple(getattr(self, name)))


class _Eye(nn.Module):
    """One camera: where each of its feature maps is hottest, and how much of it there is."""

    grid: Tensor  # (2, h * w): x and y of every cell, -1 to 1

    def __init__(self, config: EstimatorConfig) -> None:
        super().__init__()
        sizes = (3, *config.channels)
        layers: list[nn.Module] = []
        for i, (n, m) in enumerate(pairwise(sizes)):
            stride = 1 if i + 1 == len(config.channels) else 2
            layers += [nn.Conv2d(n, m, 3 if i else 5, stride, 1 if i else 2), nn.BatchNorm2d(m), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.maps = nn.Conv2d(sizes[-1], config.num_keypoints, 1)
        shrink = 2 ** (len(config.channels) - 1)
        h, w = -(-config.size[0] // shrink), -(-config.size[1] // shrink)
        y, x = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
        self.register_buffer("grid", torch.stack([x.ravel(), y.ravel()]), persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:
        """Pictures (B, 3, h, w), about -1 to 1, to numbers (B, 3 * keypoints + channels)."""
        seen = self.layers(pictures)
        maps = self.maps(seen).flatten(2).float()  # (B, K, h * w)
        where = torch.softmax(maps, dim=-1) @ self.grid.T  # (B, K, 2)
        strength = torch.tanh(0.1 * maps.amax(dim=-1))
        return torch.cat([where.flatten(1), strength, seen.mean(dim=(2, 3)).float()], dim=1)


class SceneEstimator(nn.Module):
    """Pictures and the robot's own state to mean and logarithm of the deviation of every scene number.

    All numbers are normalised.
    """

    def __init__(self, config: EstimatorConfig) -> None:
        super().__init__()
        self.config = config
        self.eyes = nn.ModuleList(_Eye(config) for _ in config.cameras)
        seen = len(config.cameras) * (3 * config.num_keypoints + config.channels[-1])
        self.head = nn.Sequential(
            nn.Linear(seen + config.robot_dim, config.width),
            nn.SiLU(),
            nn.Linear(config.width, config.width),
            nn.SiLU(),
            nn.Linear(config.width, 2 * config.scene_dim),
        )

    def forward(self, pictures: Tensor, robot: Tensor) -> tuple[Tensor, Tensor]:
        """Pictures (B, cameras, h, w, 3) uint8 and robot (B, R) to mean and log deviation (B, S)."""
        x = pictures.permute(1, 0, 4, 2, 3).to(robot.dtype) / 127.5 - 1.0
        seen = [
            eye(one.contiguous(memory_format=torch.channels_last))
            for eye, one in zip(self.eyes, x, strict=True)
        ]
        mean, log_std = self.head(torch.cat([*seen, robot], dim=1)).chunk(2, dim=1)
        return mean, MIN_LOG_STD + (MAX_LOG_STD - MIN_LOG_STD) * torch.sigmoid(log_std)


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimator:
    """A trained network with what normalises its numbers."""

    network: SceneEstimator
    robot: Normaliser
    """(R,)"""
    scene: Normaliser
    """(S,)"""

    def estimate(self, observations: Sequence[Observation], schema: Schema) -> Float[np.ndarray, "b n"]:
        """For each observation the scene's numbers (S) in their own units, then their deviations (S).

        schema: of the robot; only its own state and its pictures are looked at.
        """
        config, device = self.network.config, next(self.network.parameters()).device
        robot = self.robot.features(np.array([robot_features(o, schema) for o in observations]))
        pictures = np.stack([stack_pictures(o, config) for o in observations])
        with torch.no_grad():
            mean, log_std = self.network(
                torch.from_numpy(pictures).to(device),
                torch.tensor(robot, dtype=torch.float32, device=device),
            )
        scene = self.scene.mean + self.scene.std * mean.double().cpu().numpy()
        return np.concatenate([scene, self.scene.std * log_std.exp().double().cpu().numpy()], axis=1)

    def see(self, observations: Sequence[Observation], schema: Schema) -> list[Observation]:
        """Observations with estimates in place of pictures."""
        scenes = self.estimate(observations, schema)
        return [
            replace(o, images={}, environment_state=scene)
            for o, scene in zip(observations, scenes, strict=True)
        ]

    @property
    def num_estimates(self) -> int:
        """How many numbers take the scene's place."""
        return 2 * self.network.config.scene_dim

    @property
    def cameras(self) -> dict[str, tuple[int, int]]:
        """What it looks through: (height, width) of each camera's pictures."""
        config = self.network.config
        return dict.fromkeys(config.cameras, (config.size[0], config.size[1]))

    def save(self, folder: Path) -> None:
        """Write it beside the policy's own files."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ESTIMATOR).write_text(json.dumps(asdict(self.network.config), indent=2) + "\n")
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        for name in ("robot", "scene"):
            normaliser: Normaliser = getattr(self, name)
            tensors[f"{name}.mean"] = torch.from_numpy(normaliser.mean.copy())
            tensors[f"{name}.std"] = torch.from_numpy(normaliser.std.copy())
        save_file({name: value.contiguous() for name, value in tensors.items()}, folder / WEIGHTS)

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> "Estimator":
        """CheckpointError says what is wrong with the folder."""
        try:
            config = EstimatorConfig(**json.loads((folder / ESTIMATOR).read_text()))
            tensors = load_file(folder / WEIGHTS)
            network = SceneEstimator(config)
            weights = {name[8:]: value for name, value in tensors.items() if name.startswith("network.")}
            network.load_state_dict(weights)
            parts = {
                name: Normaliser(mean=tensors[f"{name}.mean"].numpy(), std=tensors[f"{name}.std"].numpy())
                for name in ("robot", "scene")
            }
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
            raise CheckpointError(f"{folder} holds no scene estimator: {error}") from error
        return cls(network=network.eval().requires_grad_(False).to(device), **parts)


def robot_features(observation: Observation, schema: Schema) -> Float[np.ndarray, " R"]:
    """The robot's own numbers, whatever the scene."""
    alone = replace(observation, environment_state=np.zeros(0))
    return state_features(alone, replace(schema, environment_state_dim=0), FeatureConfig())


def scene_numbers(
    observation: Observation, schema: Schema, points: tuple[int, ...]
) -> Float[np.ndarray, " S"]:
    """What is estimated: points from the hand, then the scene; of an observation that has them."""
    features = state_features(observation, schema, FeatureConfig(points=points))
    return features[len(robot_features(observation, schema)) :]


def stack_pictures(observation: Observation, config: EstimatorConfig) -> UInt8[np.ndarray, "c h w 3"]:
    """The pictures of the estimator's cameras; ValueError names one that is missing or has another size."""
    out = []
    for name in config.cameras:
        if name not in observation.images:
            have = ", ".join(observation.images) or "none"
            raise ValueError(f"the policy needs a picture of camera {name!r}, there are {have}")
        pixels = observation.images[name].pixels
        if pixels.shape[:2] != config.size:
            raise ValueError(
                f"the policy needs pictures of {config.size} pixels, {name!r} has {pixels.shape[:2]}"
            )
        out.append(pixels)
    return np.stack(out)


def nll(mean: Tensor, log_std: Tensor, target: Tensor, *, beta: float = 0.5) -> Tensor:
    """Gaussian negative log-likelihood, weighed by the deviation to the power 2 beta (Seitzer et al. 2022).

    Without that weight, numbers that are hard at first are given up as noise.
    """
    error = F.mse_loss(mean, target, reduction="none")
    loss = 0.5 * error * torch.exp(-2.0 * log_std) + log_std
    return (loss * torch.exp(2.0 * beta * log_std).detach()).mean()
