"""Scene estimation: `Estimator` predicts from images what a tracker would measure, with standard deviations.

    chest  ─► convolutions ─► peak of each feature map ─► the scene in the base ───────────────────┐
    wrist  ─► convolutions ─► peak of each feature map ─► points in the end effector ─ rotated by ─┴─► fused
                                                                                       kinematics

Every number has a deviation, and estimates of a point by two cameras are weighted by theirs. No camera's
network gets the robot state: in demonstrations the end effector moves to the cup, and a network that inferred
one from the other would never notice its errors. The end-effector pose enters by kinematics alone.

A flow policy behind the estimator is trained on estimates, so it learns their errors; an object that no
camera shows has a large deviation.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from pathlib import Path

import numpy as np
import pinocchio as pin
import torch
from jaxtyping import Float, UInt8
from msgspec import structs
from safetensors.torch import save_file
from torch import Tensor

from policies.budget import Budget
from policies.files import ESTIMATOR, read_json, read_tensors, refuse_oversized, value_of
from policies.flow.features import NEAR, Normaliser, points_from_hand
from policies.vision.network import EstimatorConfig, SceneEstimator
from robot_runtime.core.values.row_statistics import measured_hand
from robot_runtime.core.values.state import ARM, Observation
from robot_runtime.errors import CheckpointError

WEIGHTS = "estimator.safetensors"
_EDGE, _LEAST_VARIANCE, _UNKNOWN = 0.95, 1e-6, 1e4


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianEstimate:
    """Holds means and variances."""

    mean: Float[np.ndarray, "b n"]
    variance: Float[np.ndarray, "b n"]

    def fused(self, other: "GaussianEstimate") -> "GaussianEstimate":
        """Both estimates, weighted by their inverse variances."""
        variance = 1.0 / (1.0 / self.variance + 1.0 / other.variance)
        mean = variance * (self.mean / self.variance + other.mean / other.variance)
        return GaussianEstimate(mean=mean, variance=variance)


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimator:
    """A trained network with the normaliser of its output."""

    network: SceneEstimator
    scene: Normaliser
    """(K,)"""

    def estimate(self, observations: Sequence[Observation]) -> Float[np.ndarray, "b n"]:
        """Estimates of points relative to the end effector (`policies.flow.features`) and of the scene, then
        their deviations.

        Only images and the end-effector pose are used. ValueError: one of them is missing.
        """
        config, device = self.network.config, next(self.network.parameters()).device
        images = np.stack([stack_pictures(o, config) for o in observations])
        hands = {arm: [_hand(o, arm) for o in observations] for arm in config.hands if config.in_space}
        with torch.no_grad():
            estimates = [_numbers(*each) for each in self.network(torch.from_numpy(images).to(device))]
        by_camera = list(zip(estimates, config.cameras, strict=True))
        by_base = [t for t, name in by_camera if name not in config.on_hand]
        shape = (len(observations), config.scene_dim)
        nothing = GaussianEstimate(mean=np.zeros(shape), variance=np.ones(shape))
        scene = reduce(GaussianEstimate.fused, by_base) if by_base else nothing
        mean = self.scene.mean + self.scene.std * scene.mean
        variance = self.scene.std**2 * scene.variance
        p_BE = {arm: np.array([X_BE.translation for X_BE in poses]) for arm, poses in hands.items()}
        first = next(iter(p_BE.values()), np.zeros((len(observations), 3)))
        points = [GaussianEstimate(mean=mean[:, p] - first, variance=variance[:, p]) for p in config.in_space]
        for each, name in by_camera:
            if (arm := config.hand_of(name)) is not None:
                points = _fuse_from_hand(points, each, hands[arm], p_BE[arm] - first, config)
        for p, r in zip(config.in_space, points, strict=True):
            mean[:, p], variance[:, p] = first + r.mean, r.variance
        near = [
            _saturated(GaussianEstimate(mean=r.mean - (p_BE[arm] - first), variance=r.variance))
            for arm in p_BE
            for r in points
        ]
        means = [*(t.mean for t in near), mean]
        stds = [np.sqrt(v) for v in (*(t.variance for t in near), variance)]
        return np.concatenate([*means, *stds], axis=1)

    def see(self, observations: Sequence[Observation]) -> list[Observation]:
        """Observations with estimates and log deviations in place of images."""
        mean, std = np.split(self.estimate(observations), 2, axis=1)
        scenes = np.concatenate([mean, np.log(std)], axis=1)
        return [
            structs.replace(o, images={}, environment_state=scene)
            for o, scene in zip(observations, scenes, strict=True)
        ]

    @property
    def num_estimates(self) -> int:
        """Number of estimates and deviations that replace the scene."""
        config = self.network.config
        return 2 * (3 * len(config.in_space) * len(config.hands) + config.scene_dim)

    @property
    def cameras(self) -> dict[str, tuple[int, int]]:
        """Its cameras: (height, width) of each one's images."""
        config = self.network.config
        return dict.fromkeys(config.cameras, (config.size[0], config.size[1]))

    def save(self, folder: Path) -> None:
        """Write the estimator beside the policy's own files."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ESTIMATOR).write_text(json.dumps(asdict(self.network.config), indent=2) + "\n")
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        for name in ("mean", "std"):
            tensors[f"scene.{name}"] = torch.from_numpy(getattr(self.scene, name).copy())
        save_file({name: value.contiguous() for name, value in tensors.items()}, folder / WEIGHTS)

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> "Estimator":
        """The estimator in a folder; CheckpointError if it is missing or damaged."""
        data, tensors = read_json(folder / ESTIMATOR), read_tensors(folder / WEIGHTS)
        try:
            config = value_of(EstimatorConfig, data)
            refuse_oversized(config)
            weights = {name[8:]: value for name, value in tensors.items() if name.startswith("network.")}
            with Budget(folder / WEIGHTS):
                network = SceneEstimator(config)
            network.load_state_dict(weights)
            scene = Normaliser(mean=tensors["scene.mean"].numpy(), std=tensors["scene.std"].numpy())
            if scene.mean.shape != (config.scene_dim,) or not (scene.std > 0.0).all():
                raise ValueError(f"statistics of the scene have shape {scene.mean.shape}")
        except (ValueError, KeyError, TypeError, RuntimeError, IndexError) as error:
            raise CheckpointError(f"{folder} holds no scene estimator: {error}") from error
        return cls(network=network.eval().requires_grad_(False).to(device), scene=scene)


def scene_numbers(
    observation: Observation, points: tuple[int, ...], hands: Sequence[str] = (ARM,)
) -> Float[np.ndarray, " S"]:
    """The true values of `Estimator.estimate`, without deviations; hands: arms of the end effectors."""
    scene, state = observation.environment_state, observation.state
    near = [r for arm in hands for r in points_from_hand(state, scene, points, arm=arm)]
    return np.concatenate([*near, scene])


def hand_numbers(
    observation: Observation, config: EstimatorConfig, arm: str = ARM
) -> Float[np.ndarray, " H"]:
    """The true values for a wrist camera: each point of three numbers in E, saturating at `NEAR`, -1 to 1.

    For points that look alike it is only the nearest.
    """
    X_EB = _hand(observation, arm).inverse()
    points = [X_EB.act(observation.environment_state[point]) for point in config.in_space]
    if config.points_alike and points:
        points = [min(points, key=lambda p_E: float(np.linalg.norm(p_E)))]
    return np.tanh(np.concatenate([np.zeros(0), *points]) / NEAR)


def _hand(observation: Observation, arm: str) -> pin.SE3:
    return measured_hand(observation.state, arm)


def _numbers(mean: Tensor, log_std: Tensor) -> GaussianEstimate:
    variance = (2.0 * log_std).exp().double().cpu().numpy()
    return GaussianEstimate(mean=mean.double().cpu().numpy(), variance=variance)


def _fuse_from_hand(
    points: list[GaussianEstimate],
    estimate: GaussianEstimate,
    hands: Sequence[pin.SE3],
    offset: Float[np.ndarray, "b 3"],
    config: EstimatorConfig,
) -> list[GaussianEstimate]:
    """Points relative to the first end effector, fused with the estimates of a wrist camera.

    hands, offset: pose of that camera's end effector in B, and its position relative to the first one.
    If points look alike, the estimate is assigned to the likeliest one: data association by likelihood.
    """

    def seen(point: slice) -> GaussianEstimate:
        r = _from_hand_in_base(estimate, point, hands)
        return GaussianEstimate(mean=r.mean + offset, variance=r.variance)

    if not config.points_alike:
        return [r.fused(seen(slice(3 * i, 3 * i + 3))) for i, r in enumerate(points)]
    one = seen(slice(0, 3))
    fits = [
        ((r.mean - one.mean) ** 2 / (s := r.variance + one.variance) + np.log(s)).sum(axis=1) for r in points
    ]
    likeliest = np.argmin(fits, axis=0)
    out = []
    for i, r in enumerate(points):
        is_it, fused = (likeliest == i)[:, None], r.fused(one)
        out.append(
            GaussianEstimate(
                mean=np.where(is_it, fused.mean, r.mean),
                variance=np.where(is_it, fused.variance, r.variance),
            )
        )
    return out


def _from_hand_in_base(
    estimate: GaussianEstimate, point: slice, hands: Sequence[pin.SE3]
) -> GaussianEstimate:
    """A wrist camera's estimate of a point: relative to the end effector, axes of B [m].

    Its deviation grows with distance; along an axis that is close to saturation, nothing is known.
    """
    share, variance = estimate.mean[:, point], estimate.variance[:, point]
    is_known = np.abs(share) + 2.0 * np.sqrt(variance) < _EDGE
    share = np.where(is_known, share, 0.0)
    p_E = NEAR * np.arctanh(share)
    variance_E = np.where(is_known, variance * (NEAR / (1.0 - share**2)) ** 2, _UNKNOWN)
    R_BE = np.array([X_BE.rotation for X_BE in hands])
    mean = np.einsum("bij,bj->bi", R_BE, p_E)
    return GaussianEstimate(
        mean=mean, variance=np.einsum("bij,bj->bi", R_BE**2, variance_E) + _LEAST_VARIANCE
    )


def _saturated(r: GaussianEstimate) -> GaussianEstimate:
    """Points relative to the end effector, saturated as in the features; their deviation is half the distance
    between the saturated values one deviation to either side."""
    std = np.sqrt(r.variance)
    low, high = NEAR * np.tanh((r.mean - std) / NEAR), NEAR * np.tanh((r.mean + std) / NEAR)
    mean = NEAR * np.tanh(r.mean / NEAR)
    return GaussianEstimate(mean=mean, variance=(0.5 * (high - low)) ** 2 + _LEAST_VARIANCE)


def stack_pictures(observation: Observation, config: EstimatorConfig) -> UInt8[np.ndarray, "c h w 3"]:
    """The images of the estimator's cameras; ValueError names one that is missing or has another size."""
    out = []
    for name in config.cameras:
        if name not in observation.images:
            have = ", ".join(observation.images) or "none"
            raise ValueError(f"the policy needs an image of camera {name!r}, the observation has {have}")
        pixels = observation.images[name].pixels
        if pixels.shape[:2] != config.size:
            raise ValueError(
                f"the policy needs images of {config.size} pixels, {name!r} has {pixels.shape[:2]}"
            )
        out.append(pixels)
    return np.stack(out)
