"""Trains a `SceneEstimator` on images of demonstrations and random views: `train_estimator`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from policies.flow.features import Normaliser
from policies.flow.train import learning_rate, multiplies_bfloat16
from policies.vision.estimator import Estimator, hand_numbers, scene_numbers, stack_pictures
from policies.vision.network import EstimatorConfig, SceneEstimator
from robot_runtime.core.values.state import ARM, Observation
from robot_runtime.errors import InvalidValueError

NEARBY = 0.15
"""Largest distance from the end effector of points in the reported error [m]."""


@dataclass(frozen=True, kw_only=True)
class EstimatorTrainConfig:
    """Training settings."""

    seed: int = 0
    steps: int = 4000
    batch_size: int = 64
    """Half of a batch are random views, if there are any."""
    learning_rate: float = 1e-3
    warmup_steps: int = 200
    held_out: float = 0.05
    """Share of the demonstrations and of the random views, the last ones, for measuring the error."""
    bfloat16: bool = field(default_factory=multiplies_bfloat16)
    """Whether to compute in bfloat16 (weights stay float32)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Seen:
    """Holds observations of one kind, and their targets as tensors."""

    observations: Sequence[Observation]
    """Their images are stacked when drawn, since stacking all at once would hold them twice."""
    scene: Tensor
    """(n, K), normalised."""
    hand: Mapping[str, Tensor]
    """(n, H) by arm."""

    def __len__(self) -> int:
        return len(self.scene)


def train_estimator(
    demonstrated: Sequence[Observation],
    config: EstimatorTrainConfig,
    *,
    cameras: Mapping[str, tuple[int, int]],
    on_hand: Mapping[str, str] | None = None,
    points: tuple[int, ...] = (),
    points_alike: bool = False,
    random_views: Sequence[Observation] = (),
    init: Estimator | None = None,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> tuple[Estimator, dict[str, float]]:
    """The estimator, and its errors on the held-out samples, see `errors`.

    cameras: (height, width) of its cameras by name; on_hand: the arm of each wrist camera.
    points: sizes of the points in B that the scene begins with; points_alike: see `EstimatorConfig`.
    init: an estimator of the same sizes to start from, which is not changed. on_step: called with the steps
        done and a running mean of the loss.
    InvalidValueError: there is no camera, images differ in size or are missing, a wrist camera has no point
        to see, or `init` has another configuration.
    """
    carried = on_hand or {}
    sizes = EstimatorConfig(
        cameras=tuple(cameras),
        on_hand=tuple(carried),
        carried_by=tuple(carried.values()),
        hands=_hands(demonstrated[0]) or (ARM,),
        size=_one_size(cameras),
        scene_dim=len(demonstrated[0].environment_state),
        points=points,
        points_alike=points_alike,
    )
    if sizes.on_hand and not sizes.in_space:
        raise InvalidValueError(
            f"camera {sizes.on_hand[0]!r} is on a hand and needs points in space, the scene has none"
        )
    if init is not None and init.network.config != sizes:
        raise InvalidValueError(
            f"the estimator to start from has {init.network.config}, the demonstrations need {sizes}"
        )
    with torch.random.fork_rng(devices=[]):  # initial weights
        torch.manual_seed(config.seed)
        network = SceneEstimator(sizes)
    if init is None:
        scene = Normaliser.fit(np.array([o.environment_state for o in (*demonstrated, *random_views)]))
    else:
        network.load_state_dict(init.network.state_dict())
        scene = init.scene
    estimator = Estimator(network=network, scene=scene)
    kinds = [kind for kind in (demonstrated, random_views) if len(kind)]
    num_train = [max(1, round(len(kind) * (1.0 - config.held_out))) for kind in kinds]
    data = [_targets(kind[:n], estimator) for kind, n in zip(kinds, num_train, strict=True)]
    _fit(network, data, config, on_step)
    held_out = zip(("demonstrations", "glimpses"), kinds, num_train, strict=False)
    figures = [errors(estimator, kind[n:], name) for name, kind, n in held_out]
    return estimator, {name: value for each in figures for name, value in each.items()}


def errors(estimator: Estimator, seen: Sequence[Observation], name: str) -> dict[str, float]:
    """The estimator's errors by name: `near_m`, the median position error of points near the end effector
    [m]; `z`, the root mean square of all errors over their deviations, 1 if those are right."""
    config = estimator.network.config
    if not len(seen):
        return {}
    estimates = np.concatenate([estimator.estimate(seen[i : i + 256]) for i in range(0, len(seen), 256)])
    truth = np.array([scene_numbers(o, config.points, config.hands) for o in seen])
    mean, std = np.split(estimates, 2, axis=1)
    out = {f"{name}_z": float(np.sqrt(np.mean(((mean - truth) / std) ** 2)))}
    num_near = 3 * len(config.in_space) * len(config.hands)
    distance = np.linalg.norm((mean - truth)[:, :num_near].reshape(len(seen), -1, 3), axis=2)
    is_near = np.linalg.norm(truth[:, :num_near].reshape(len(seen), -1, 3), axis=2) < NEARBY
    if is_near.any():
        out[f"{name}_near_m"] = float(np.median(distance[is_near]))
    return out


def _hands(observation: Observation) -> tuple[str, ...]:
    """The arms with a measured end-effector pose."""
    return tuple(name for name in observation.state.parts if observation.state.hand(name) is not None)


def _one_size(cameras: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """The size of all cameras' images; InvalidValueError if they differ."""
    sizes = set(cameras.values())
    if len(sizes) != 1:
        have = ", ".join(f"{name} {height} x {width}" for name, (height, width) in cameras.items())
        raise InvalidValueError(f"expected cameras with images of one size, got {have or 'none'}")
    return sizes.pop()


def _targets(seen: Sequence[Observation], estimator: Estimator) -> _Seen:
    """Targets of all observations; InvalidValueError: an image is missing or has another size."""
    config = estimator.network.config
    for i, observation in enumerate(seen):
        try:
            stack_pictures(observation, config)
        except ValueError as error:
            raise InvalidValueError(f"observation {i}: {error}") from error
    scene = estimator.scene.features(np.array([o.environment_state for o in seen]))
    hand = {
        arm: torch.tensor(np.array([hand_numbers(o, config, arm) for o in seen]), dtype=torch.float32)
        for arm in set(config.carried_by)
    }
    return _Seen(
        observations=seen,
        scene=torch.tensor(scene, dtype=torch.float32),
        hand=hand,
    )


def _fit(
    network: SceneEstimator,
    data: Sequence[_Seen],
    config: EstimatorTrainConfig,
    on_step: Callable[[int, float], None],
) -> None:
    """Train the network. data: kinds of observations, which have equal shares of every batch."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=1e-3)
    draw = torch.Generator().manual_seed(config.seed)
    mean_loss = 0.0
    network.train()
    for step in range(config.steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, config)
        batch = _draw(data, config.batch_size, draw)
        images = np.stack([stack_pictures(o, network.config) for o in batch.observations])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=config.bfloat16):
            estimates = network(_augmented(torch.from_numpy(images), draw))
        loss = _loss(network.config, estimates, batch)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        mean_loss += (loss.item() - mean_loss) / min(step + 1, 100)
        on_step(step + 1, mean_loss)
    network.eval().requires_grad_(False)


def _draw(data: Sequence[_Seen], batch_size: int, draw: torch.Generator) -> _Seen:
    num = batch_size // len(data)
    index = [torch.randint(len(kind), (num,), generator=draw) for kind in data]
    drawn = list(zip(data, index, strict=True))
    return _Seen(
        observations=[kind.observations[k] for kind, i in drawn for k in i.tolist()],
        scene=torch.cat([kind.scene[i] for kind, i in drawn]),
        hand={arm: torch.cat([kind.hand[arm][i] for kind, i in drawn]) for arm in data[0].hand},
    )


def _loss(config: EstimatorConfig, estimates: list[tuple[Tensor, Tensor]], batch: _Seen) -> Tensor:
    """The sum of every camera's loss."""
    targets = [
        batch.scene if (arm := config.hand_of(name)) is None else batch.hand[arm] for name in config.cameras
    ]
    losses = [nll(m.float(), s.float(), target) for (m, s), target in zip(estimates, targets, strict=True)]
    return torch.stack(losses).sum()


def _augmented(images: Tensor, draw: torch.Generator) -> Tensor:
    """Images (B, cameras, h, w, 3) uint8 with random brightness, tint and noise.

    They are not shifted or cropped, because the position of an object in the image is what is learned.
    """
    batch, cameras = images.shape[:2]
    gain = 1.0 + 0.15 * torch.randn(batch, cameras, 1, 1, 3, generator=draw)
    offset = 8.0 * torch.randn(batch, cameras, 1, 1, 3, generator=draw)
    noise = 4.0 * torch.randn(images.shape, generator=draw)
    return (images * gain + offset + noise).clamp(0, 255).to(torch.uint8)


def nll(mean: Tensor, log_std: Tensor, target: Tensor, *, beta: float = 0.5) -> Tensor:
    """Gaussian negative log-likelihood, weighted by the deviation to the power 2 beta (Seitzer et al. 2022).

    Without that weight, numbers that are hard at first are treated as noise.
    """
    error = F.mse_loss(mean, target, reduction="none")
    loss = 0.5 * error * torch.exp(-2.0 * log_std) + log_std
    return (loss * torch.exp(2.0 * beta * log_std).detach()).mean()
