"""Training: conditional flow matching on demonstrated chunks, with committed prefixes.

    x_t = (1-t) noise + t a     the network learns v = a - noise, so t runs from 0 (noise) to 1 (action);
                                openpi's t runs the other way and its v has the other sign

With probability `prefix_probability` the first d rows of a sample are shown as they are, at t = 1, and bear
no loss: training-time RTC (arXiv 2512.05964). The same weights then serve with and without a prefix.

    row    0   1  ...  d-1  |   d   d+1  ...  H-1
    t      1   1  ...   1   |   t    t   ...   t      one t per sample

There the prefix always agrees with what is seen, because both come from one demonstration. A robot that is
surprised is committed to rows that do not: a demonstration that says so itself (`num_committed`) teaches what
to do then.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call

from policies.flow.checkpoint import Checkpoint, save
from policies.flow.features import FeatureConfig, Normaliser, row_origin, state_features
from policies.flow.model import FlowTransformer, ModelConfig
from robot_runtime.core.action import ActionSpec
from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Observation


class Demonstration(Protocol):
    """One training sample: what was seen, and what the demonstrator did from then on."""

    @property
    def observation(self) -> Observation: ...

    @property
    def rows(self) -> Float[np.ndarray, "H D"]:
        """Rows in the action spec's columns; row 0 is due at the observation."""
        ...

    @property
    def num_committed(self) -> int:
        """First rows that were given and not chosen: an older plan's, which runs whatever was seen since."""
        ...


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train; with the demonstrations it decides the weights to the last bit on one machine."""

    seed: int = 0
    """Of initial weights, shuffling, noise and flow times."""
    steps: int = 10_000
    """Gradient steps."""
    batch_size: int = 128
    learning_rate: float = 1.5e-3
    """Peak of the schedule: linear warm-up, then half a cosine down to zero."""
    warmup_steps: int = 300
    weight_decay: float = 1e-3
    max_gradient_norm: float = 1.0
    ema_decay: float = 0.999
    """Of the moving average of the weights, which is what gets saved."""
    prefix_probability: float = 0.25
    """Share of samples without committed rows of their own that are shown their first rows as a prefix."""
    max_prefix: int = 12
    """Longest prefix; its length is uniform in 1..max_prefix [rows]."""
    prefix_noise: float = 0.01
    """Noise on prefix rows [standard deviations]: at run time they come from a plan, not a demonstrator."""
    input_noise: float = 0.01
    """Noise on state features [standard deviations]."""
    bfloat16: bool = True
    """Compute in bfloat16 (weights and average stay float32): 3 times as fast on a CPU with avx512_bf16."""
    width: int = 128
    """Of a token in the network."""
    num_layers: int = 4
    """Of the network."""
    num_heads: int = 4
    """Of each attention layer."""
    features: FeatureConfig = field(default_factory=FeatureConfig)
    """What the network sees."""
    num_steps: int = 5
    """Euler steps when nobody asks for another number."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Demonstrations as tensors, and the statistics that normalised them."""

    features: Tensor
    """(N, F) normalised."""
    tasks: Tensor
    """(N,) indices into `task_texts`."""
    rows: Tensor
    """(N, H, D) relative and normalised."""
    num_committed: Tensor
    """(N,) rows that were given."""
    task_texts: tuple[str, ...]
    feature_stats: Normaliser
    row_stats: Normaliser


def make_dataset(
    demonstrations: Sequence[Demonstration], schema: Schema, spec: ActionSpec, config: FeatureConfig
) -> Dataset:
    """ValueError: a demonstration does not fit schema or spec."""
    if not demonstrations:
        raise ValueError("training needs at least one demonstration, got none")
    texts = tuple(sorted({d.observation.task for d in demonstrations}))
    rows = np.empty((len(demonstrations), spec.horizon, spec.dim))
    features = []
    for i, d in enumerate(demonstrations):
        features.append(state_features(d.observation, schema, config))
        if d.rows.shape != rows.shape[1:] or not np.isfinite(d.rows).all():
            raise ValueError(
                f"demonstration {i} needs {rows.shape[1:]} finite rows, got shape {d.rows.shape}"
            )
        rows[i] = d.rows - row_origin(spec, d.observation.state)
    feature_stats, row_stats = Normaliser.fit(np.array(features)), Normaliser.fit(rows)
    return Dataset(
        features=torch.tensor(feature_stats.features(np.array(features)), dtype=torch.float32),
        tasks=torch.tensor([texts.index(d.observation.task) for d in demonstrations]),
        rows=torch.tensor(row_stats.normalise(rows), dtype=torch.float32),
        num_committed=torch.tensor([d.num_committed for d in demonstrations]),
        task_texts=texts,
        feature_stats=feature_stats,
        row_stats=row_stats,
    )


def train(
    demonstrations: Sequence[Demonstration],
    config: TrainConfig,
    *,
    schema: Schema,
    action_spec: ActionSpec,
    folder: Path,
    notes: dict[str, object] | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> Path:
    """Train on demonstrations and write a checkpoint named after its folder; returns the folder.

    notes: what else the checkpoint should say about its training (episodes, say).
    on_step: called with the number of steps done and a running mean of the loss.
    """
    dataset = make_dataset(demonstrations, schema, action_spec, config.features)
    model_config = ModelConfig(
        state_dim=dataset.features.shape[1],
        num_tasks=len(dataset.task_texts),
        action_dim=action_spec.dim,
        horizon=action_spec.horizon,
        width=config.width,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = FlowTransformer(model_config)
    final_loss = _fit(model, dataset, config, on_step)
    training = {**(notes or {}), "demonstrations": len(demonstrations), **asdict(config)}
    training["final_loss"] = round(final_loss, 5)
    checkpoint = Checkpoint(
        name=folder.name,
        model=model,
        model_config=model_config,
        feature_config=config.features,
        features=dataset.feature_stats,
        rows=dataset.row_stats,
        schema=replace(schema, cameras={}),
        action_spec=action_spec,
        tasks=dataset.task_texts,
        num_steps=config.num_steps,
        training=training,
    )
    save(checkpoint, folder)
    return folder


def _fit(
    model: FlowTransformer,
    dataset: Dataset,
    config: TrainConfig,
    on_step: Callable[[int, float], None] | None,
) -> float:
    """Leave the averaged weights in the model; returns the running mean of the loss."""
    generator = torch.Generator().manual_seed(config.seed)
    parameters: list[Tensor] = list(model.parameters())
    average = [p.detach().clone() for p in parameters]
    optimiser = torch.optim.AdamW(parameters, lr=0.0, weight_decay=config.weight_decay, fused=True)
    batches = _batches(len(dataset.rows), config.batch_size, generator)
    smooth_loss = 0.0
    for step in range(config.steps):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(step, config)
        loss = flow_loss(model, dataset, next(batches), config, generator)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, config.max_gradient_norm)
        optimiser.step()
        optimiser.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(average, parameters, 1.0 - min(config.ema_decay, (1 + step) / (10 + step)))
        smooth_loss += (loss.item() - smooth_loss) * max(0.01, 1.0 / (step + 1))
        if on_step is not None:
            on_step(step + 1, smooth_loss)
    with torch.no_grad():
        for parameter, value in zip(parameters, average, strict=True):
            parameter.copy_(value)
    return smooth_loss


def learning_rate(step: int, config: TrainConfig) -> float:
    """Linear warm-up, then half a cosine to zero at the last step."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(config.steps - config.warmup_steps, 1)
    return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * progress))


def _batches(num_samples: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Index batches without end; every sample once per round, rounds joined without a short batch."""
    pending = torch.empty(0, dtype=torch.long)
    while True:
        while len(pending) < batch_size:
            pending = torch.cat([pending, torch.randperm(num_samples, generator=generator)])
        yield pending[:batch_size]
        pending = pending[batch_size:]


def flow_loss(
    model: FlowTransformer, dataset: Dataset, index: Tensor, config: TrainConfig, generator: torch.Generator
) -> Tensor:
    """Mean squared error of the velocity over all numbers that are not prefix."""
    features, rows = dataset.features[index], dataset.rows[index]  # (B, F), (B, H, D)
    batch, horizon, _ = rows.shape
    features = features + config.input_noise * torch.randn(features.shape, generator=generator)
    noise = torch.randn(rows.shape, generator=generator)
    is_prefix = _draw_prefix(dataset.num_committed[index], horizon, config, generator)  # (B, H)
    t = torch.where(is_prefix, 1.0, _draw_times(batch, generator)[:, None])  # (B, H)
    x = (1.0 - t)[..., None] * noise + t[..., None] * rows
    shaky = rows + config.prefix_noise * torch.randn(rows.shape, generator=generator)
    x = torch.where(is_prefix[..., None], shaky, x)
    # The cast is part of the graph, so gradients arrive in float32. Autocast would keep the residual stream
    # in float32 and convert at every layer, which takes twice as long.
    dtype = torch.bfloat16 if config.bfloat16 else torch.float32
    weights = {name: p.to(dtype) for name, p in model.named_parameters()}
    velocity = functional_call(model, weights, (features.to(dtype), dataset.tasks[index], x.to(dtype), t))
    error = (velocity.float() - (rows - noise)).square().mean(dim=-1)  # (B, H)
    return error[~is_prefix].mean()


def _draw_times(batch: int, generator: torch.Generator) -> Tensor:
    """Flow times (B,) in [0, 0.999], density falling to zero at 1: 1 - Beta(1.5, 1), as openpi (pi0).

    Most are near the noise, where the network has to choose what to do. Stratified over the batch, which
    takes nothing from the distribution and much from the variance of the loss.
    """
    u = (torch.arange(batch) + torch.rand(batch, generator=generator)) / batch
    return 0.999 * (1.0 - u ** (1.0 / 1.5))


def _draw_prefix(
    num_committed: Tensor, horizon: int, config: TrainConfig, generator: torch.Generator
) -> Tensor:
    """True (B, H) where a row is shown as committed."""
    batch = len(num_committed)
    lengths = torch.randint(1, config.max_prefix + 1, (batch,), generator=generator)
    has_prefix = torch.rand(batch, generator=generator) < config.prefix_probability
    lengths = torch.where(num_committed > 0, num_committed, lengths * has_prefix)
    return torch.arange(horizon) < lengths[:, None]
