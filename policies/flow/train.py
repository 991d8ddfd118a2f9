"""Training: one loop for all recipes, on demonstrated chunks.

Flow matching learns a velocity; the recipe determines the network's inputs and which rows bear loss
(described in `recipes.py`, done in `losses.py`). Most recipes fine-tune a plain policy (`init`), whose
weights, statistics and sizes they take over.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from policies.flow.checkpoint import Checkpoint, save
from policies.flow.dataset import (
    Dataset,
    Demonstration,
    HandPoses,
    Statistics,
    is_usable,
    make_dataset,
)
from policies.flow.features import FeatureConfig
from policies.flow.lora import lora_parameters
from policies.flow.losses import Network, recipe_loss
from policies.flow.model import FlowTransformer, ModelConfig, copy_weights
from policies.flow.muon import Muon
from policies.flow.recipes import (
    LambdaMask,
    Masked,
    Offset,
    Plain,
    Prefix,
    Recipe,
    Residual,
    recipe_to_dict,
)
from policies.flow.support import declared
from policies.resume import Resumable, Training
from policies.vision.encoder import ImageEncoder
from policies.vision.end_to_end import (
    LEARNING_RATE_SHARE,
    Sight,
    behind_encoder,
    latents_as_they_are,
    without_scene,
)
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import InvalidValueError
from robot_runtime.results import keep

MUON_MIN_SIZE = 32


def multiplies_bfloat16() -> bool:
    """Whether this processor has bfloat16 instructions; torch emulates them on others."""
    has = torch.cpu.get_capabilities()
    return any(has.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Training settings; with the demonstrations they fix the weights to the last bit on one machine."""

    recipe: Recipe = field(default_factory=Prefix)
    """Determines inputs and loss."""
    seed: int = 0
    """Seed of initial weights, shuffling, noise and flow times."""
    steps: int = 4000
    """Gradient steps."""
    batch_size: int = 128
    learning_rate: float = 3e-3
    """Peak of the schedule: linear warm-up, then half a cosine down to zero."""
    warmup_steps: int = 300
    weight_decay: float = 1e-3
    max_gradient_norm: float = 1.0
    ema_decay: float = 0.999
    """Decay of the moving average of the weights, which is what is saved."""
    input_noise: float = 0.01
    """Noise on state features [standard deviations]."""
    bfloat16: bool = field(default_factory=multiplies_bfloat16)
    """Whether to compute in bfloat16 (weights and average stay float32): 3 times as fast where the processor
    has instructions for it, several times as slow elsewhere."""
    width: int = 128
    """Size of a token in the network."""
    num_layers: int = 4
    """Transformer layers."""
    num_heads: int = 4
    """Attention heads per layer."""
    features: FeatureConfig = field(default_factory=FeatureConfig)
    """State features of the network."""
    num_steps: int = 5
    """Default number of Euler steps."""


def fine_tuning(recipe: Recipe, *, seed: int = 0) -> TrainConfig:
    """Default settings for fine-tuning: fewer steps, and a lower rate unless most weights are frozen.

    The recipe Offset on `strike` after 600 and 1800 steps: 46 and 47 of 50 at 200 ms, 26 and 27 at 300. It
    takes one or two minutes on a CPU core, twice that for recipes that sample chunks in training.
    """
    return TrainConfig(
        recipe=recipe,
        seed=seed,
        steps=600,
        learning_rate=1.5e-3 if isinstance(recipe, Masked) else 1e-3,
        warmup_steps=100,
        ema_decay=0.99,
    )


def train(
    demonstrations: Sequence[Demonstration],
    config: TrainConfig,
    *,
    schema: Schema,
    action_spec: ActionSpec,
    folder: Path,
    init: Checkpoint | None = None,
    hand_pose: HandPoses | None = None,
    execution_horizon: int | None = None,
    notes: dict[str, object] | None = None,
    on_step: Callable[[int, float], None] | None = None,
    device: str = "cpu",
    encoder: ImageEncoder | None = None,
    resume: Path | None = None,
) -> Path:
    """Train on demonstrations and write a checkpoint named after its folder; returns the folder.

    init: the policy to start from, which also sets the sizes of the network and the features.
    hand_pose: forward kinematics, of each arm if there are several, for the recipe Offset.
    execution_horizon: the one that the checkpoint declares.
    notes: further entries for the checkpoint's training record (episodes, say).
    on_step: called with the number of steps done and a running mean of the loss.
    device: torch device for training; another one draws other numbers.
    encoder: is trained too, on the demonstrations' images in place of their scene; it is kept in the folder.
    resume: file of the training's state, from which an interrupted one continues.
    InvalidValueError: demonstrations or init do not fit the recipe, or the state in that file does not fit.
    """
    config, recipe = _from_init(config, init), config.recipe
    if encoder is not None:
        schema = behind_encoder(schema, encoder)
        demonstrations = without_scene(demonstrations, encoder)
    with torch.device(device), torch.random.fork_rng(devices=[]):  # initial weights and dropout
        dataset = make_dataset(
            demonstrations,
            schema,
            action_spec,
            config.features,
            recipe=recipe,
            hand_pose=hand_pose,
            statistics=None if init is None else statistics_of(init),
        )
        sight = None
        if encoder is not None:
            dataset = replace(dataset, statistics=latents_as_they_are(dataset.statistics, encoder))
            used = [d for d in demonstrations if is_usable(d.num_committed, recipe)]
            encoder.network.to(device)
            sight = Sight(encoder, used, bfloat16=config.bfloat16)
        torch.manual_seed(config.seed)
        model = FlowTransformer(_model_config(dataset, config, action_spec))
        if init is not None:
            copy_weights(init.model, model)
        kept = None
        if resume is not None:
            about = config, encoder and encoder.network.config, init and init.info.name
            seen = () if sight is None else (sight.stamps(),)
            kept = Resumable(resume, about, dataset.features, dataset.rows, *seen)
        final_loss = _fit(model, dataset, config, on_step, sight, kept)
    model.cpu()
    if encoder is not None:
        encoder.network.cpu()
    training = {**(notes or {}), "init": None if init is None else init.info.name, **asdict(config)}
    training |= {"samples": len(dataset.rows), "final_loss": round(final_loss, 5)}
    training["recipe"] = recipe_to_dict(recipe)
    checkpoint = Checkpoint(
        info=PolicyInfo(
            name=folder.name,
            action_spec=action_spec,
            schema=replace(schema, cameras={}),
            tasks=dataset.statistics.tasks,
            capabilities=declared(
                recipe,
                horizon=action_spec.horizon,
                prefix_at_rest=any(d.num_committed > 0 for d in demonstrations),
                execution_horizon=execution_horizon,
            ),
        ),
        model=model,
        model_config=model.config,
        feature_config=config.features,
        features=dataset.statistics.features,
        rows=dataset.statistics.rows,
        num_steps=config.num_steps,
        training=training,
        recipe=recipe,
    )
    keep(folder, partial(_save, checkpoint, encoder))
    if kept is not None:
        kept.finish()
    return folder


def _save(checkpoint: Checkpoint, encoder: ImageEncoder | None, folder: Path) -> None:
    if encoder is not None:
        encoder.save(folder)
    save(checkpoint, folder)


def _from_init(config: TrainConfig, init: Checkpoint | None) -> TrainConfig:
    """The settings with the sizes of the policy to start from; refuses one that the recipe cannot use."""
    if isinstance(config.recipe, Residual):
        raise InvalidValueError("a residual head is trained by policies.flow.residual.train_residual")
    if isinstance(config.recipe, Masked) and (init is None or not isinstance(init.recipe, Plain)):
        raise InvalidValueError(
            "the recipe masked adds adapters to a policy of the recipe plain: give it as init"
        )
    if init is None:
        return config
    sizes = init.model_config
    return replace(
        config,
        features=init.feature_config,
        width=sizes.width,
        num_layers=sizes.num_layers,
        num_heads=sizes.num_heads,
    )


def statistics_of(checkpoint: Checkpoint) -> Statistics:
    """The statistics with which a policy normalises."""
    return Statistics(features=checkpoint.features, rows=checkpoint.rows, tasks=checkpoint.info.tasks)


def _model_config(dataset: Dataset, config: TrainConfig, spec: ActionSpec) -> ModelConfig:
    """The network a recipe needs."""
    sizes = ModelConfig(
        state_dim=dataset.features.shape[1],
        num_tasks=len(dataset.statistics.tasks),
        action_dim=spec.dim,
        horizon=spec.horizon,
        width=config.width,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
    )
    match config.recipe:
        case Masked(rank=rank, alpha=alpha, dropout=dropout):
            return replace(sizes, lora_rank=rank, lora_alpha=alpha, lora_dropout=dropout)
        case LambdaMask(window=window, position_offset=jump):
            return replace(sizes, causal_window=window, suffix_offset=jump)
        case Offset(shared_observation=True):
            return replace(sizes, robot_dim=dataset.robot_dim)
        case _:
            return sizes


def _fit(
    model: FlowTransformer,
    dataset: Dataset,
    config: TrainConfig,
    on_step: Callable[[int, float], None] | None,
    sight: Sight | None = None,
    kept: Resumable | None = None,
) -> float:
    """Train the model, and the encoder of `sight`; leave the averaged weights in them, and return the running
    mean of the loss. `kept`: where an interrupted training continues."""
    recipe, dtype = config.recipe, torch.bfloat16 if config.bfloat16 else torch.float32
    parameters, optimisers = _trained(model, config, dtype, sight)
    average = [p.detach().clone() for p in parameters]
    batch_size = config.batch_size
    if isinstance(recipe, Offset) and recipe.shared_observation:  # as many chunks, from fewer observations
        batch_size = max(1, batch_size // (recipe.max_delay + 1))
    generator = torch.Generator(torch.get_default_device()).manual_seed(config.seed)
    training = Training(tensors=[*parameters, *average], optimisers=optimisers, generator=generator)
    if kept is not None:
        kept.resume(training)
    for step in range(training.step, config.steps):
        for group in (group for optimiser in optimisers for group in optimiser.param_groups):
            group["lr"] = group["share"] * learning_rate(step, config)
        index = _next_batch(training, len(dataset.rows), batch_size)
        loss = recipe_loss(
            Network(model, dtype),
            dataset,
            index,
            recipe,
            generator,
            input_noise=config.input_noise,
            progress=step / max(config.steps - 1, 1),
            latents=None if sight is None else sight.latents(index, generator),
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, config.max_gradient_norm)
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(average, parameters, 1.0 - min(config.ema_decay, (1 + step) / (10 + step)))
        training.loss += (loss.item() - training.loss) * max(0.01, 1.0 / (step + 1))
        training.step = step + 1
        if on_step is not None:
            on_step(training.step, training.loss)
        if kept is not None:
            kept.keep(training)
    with torch.no_grad():
        for trained, value in zip(parameters, average, strict=True):
            trained.copy_(value)
    return training.loss


def _trained(
    model: FlowTransformer, config: TrainConfig, dtype: torch.dtype, sight: Sight | None
) -> tuple[list[Tensor], list[torch.optim.Optimizer]]:
    """What is trained, and its optimisers; `share` of a group is that of the learning rate."""
    if isinstance(config.recipe, Masked):
        model.requires_grad_(False)
        for parameter in lora_parameters(model):
            parameter.requires_grad_(True)
    parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    optimisers = _optimisers(model, config.weight_decay, dtype)
    for group in (group for optimiser in optimisers for group in optimiser.param_groups):
        group["share"] = 1.0
    if sight is not None:
        parameters += sight.parameters()
        optimisers.append(torch.optim.AdamW(sight.parameters(), lr=0.0, weight_decay=config.weight_decay))
        optimisers[-1].param_groups[0]["share"] = LEARNING_RATE_SHARE
    return parameters, optimisers


def _optimisers(
    model: FlowTransformer, weight_decay: float, dtype: torch.dtype
) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for the rest; one learning rate fits both.

    On `strike` with batches of 128 the held-out loss after 1000 steps was 0.031 with AdamW and 0.018 with
    Muon; a step takes 14 % longer. Muon is for large matrices: layers smaller than `MUON_MIN_SIZE` in one
    dimension (row and state inputs, velocity output, adapters) stay with AdamW.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    layers = [m.weight for m in model.modules() if isinstance(m, nn.Linear) and m.weight.requires_grad]
    matrices = [w for w in layers if min(w.shape) >= MUON_MIN_SIZE]
    rest = [p for p in trained if all(p is not w for w in matrices)]
    adamw = torch.optim.AdamW(rest, lr=0.0, weight_decay=weight_decay, fused=True)
    if not matrices:
        return [adamw]
    return [Muon(matrices, lr=0.0, weight_decay=weight_decay, dtype=dtype), adamw]


class Schedule(Protocol):
    """The settings of a learning-rate schedule."""

    @property
    def steps(self) -> int: ...

    @property
    def learning_rate(self) -> float: ...

    @property
    def warmup_steps(self) -> int: ...


def learning_rate(step: int, config: Schedule) -> float:
    """Linear warm-up, then half a cosine to zero at the last step."""
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(config.steps - config.warmup_steps, 1)
    return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * progress))


def _next_batch(training: Training, num_samples: int, batch_size: int) -> Tensor:
    """Indices of a batch: every sample once per epoch, epochs joined without a short batch."""
    while len(training.pending) < batch_size:
        drawn = torch.randperm(num_samples, generator=training.generator)
        training.pending = torch.cat([training.pending, drawn])
    out, training.pending = training.pending[:batch_size], training.pending[batch_size:]
    return out
