"""Seeing the scene: `Estimator` tells from pictures what a tracker would have measured, and how surely.

    chest  ─► convolutions ─► where each feature map is hottest ─► the scene from the base ──────────┐
    wrist  ─► convolutions ─► where each feature map is hottest ─► points from the hand ─ turned by ─┴─► both,
                                                                                          kinematics     fused

Every number comes with a deviation, and what two cameras say of a point is weighed by theirs. No camera is
told where the robot is: in demonstrations the hand goes to where the cup is, and what has learnt to tell the
one from the other is never wrong on its own. Where the hand is comes in by kinematics alone.

A flow policy behind it is trained on estimates, so it knows how far they err, and a thing that no camera
shows comes with a large deviation.
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
    """Numbers and their variances."""

    mean: Float[np.ndarray, "b n"]
    variance: Float[np.ndarray, "b n"]

    def fused(self, other: "GaussianEstimate") -> "GaussianEstimate":
        """Both weighed by how sure they are."""
        variance = 1.0 / (1.0 / self.variance + 1.0 / other.variance)
        mean = variance * (self.mean / self.variance + other.mean / other.variance)
        return GaussianEstimate(mean=mean, variance=variance)


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimator:
    """A trained network with what normalises its numbers."""

    network: SceneEstimator
    scene: Normaliser
    """(K,)"""

    def estimate(self, observations: Sequence[Observation]) -> Float[np.ndarray, "b n"]:
        """What is seen: points from the hand (`policies.flow.features`) and the scene, then their deviations.

        Only pictures and the hand's pose are looked at. ValueError: one of them is missing.
        """
        config, device = self.network.config, next(self.network.parameters()).device
        pictures = np.stack([stack_pictures(o, config) for o in observations])
        hands = {arm: [_hand(o, arm) for o in observations] for arm in config.hands if config.in_space}
        with torch.no_grad():
            told = [_numbers(*each) for each in self.network(torch.from_numpy(pictures).to(device))]
        by_camera = list(zip(told, config.cameras, strict=True))
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
        """Observations with estimates in place of pictures; of the deviations, the logarithms."""
        mean, std = np.split(self.estimate(observations), 2, axis=1)
        scenes = np.concatenate([mean, np.log(std)], axis=1)
        return [
            structs.replace(o, images={}, environment_state=scene)
            for o, scene in zip(observations, scenes, strict=True)
        ]

    @property
    def num_estimates(self) -> int:
        """How many numbers take the scene's place."""
        config = self.network.config
        return 2 * (3 * len(config.in_space) * len(config.hands) + config.scene_dim)

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
        for name in ("mean", "std"):
            tensors[f"scene.{name}"] = torch.from_numpy(getattr(self.scene, name).copy())
        save_file({name: value.contiguous() for name, value in tensors.items()}, folder / WEIGHTS)

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> "Estimator":
        """CheckpointError says what is wrong with the folder."""
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
    """What `Estimator.estimate` would tell if it knew, without the deviations; hands: arms whose they are."""
    scene, state = observation.environment_state, observation.state
    near = [r for arm in hands for r in points_from_hand(state, scene, points, arm=arm)]
    return np.concatenate([*near, scene])


def hand_numbers(
    observation: Observation, config: EstimatorConfig, arm: str = ARM
) -> Float[np.ndarray, " H"]:
    """What a camera on the hand of an arm tells: each point of three numbers in E, saturating at `NEAR`, -1
    to 1.

    Of points that look alike it is the nearest alone.
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
    told: GaussianEstimate,
    hands: Sequence[pin.SE3],
    offset: Float[np.ndarray, "b 3"],
    config: EstimatorConfig,
) -> list[GaussianEstimate]:
    """Points, counted from the first hand, with what a camera on a hand tells of them.

    hands, offset: where that hand is in B, and from the first one.
    The one point that it tells of those that look alike is the likeliest one: data association by likelihood.
    """

    def seen(point: slice) -> GaussianEstimate:
        r = _from_hand_in_base(told, point, hands)
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


def _from_hand_in_base(told: GaussianEstimate, point: slice, hands: Sequence[pin.SE3]) -> GaussianEstimate:
    """A point as a camera on the hand tells it: from the hand, axes of B [m].

    The farther, the less sure; along an axis on which it may be beyond half a metre, nothing is known.
    """
    share, variance = told.mean[:, point], told.variance[:, point]
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
    """Points from the hand as the network is told them; sure only as far as a deviation to either side is."""
    std = np.sqrt(r.variance)
    low, high = NEAR * np.tanh((r.mean - std) / NEAR), NEAR * np.tanh((r.mean + std) / NEAR)
    mean = NEAR * np.tanh(r.mean / NEAR)
    return GaussianEstimate(mean=mean, variance=(0.5 * (high - low)) ** 2 + _LEAST_VARIANCE)


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
