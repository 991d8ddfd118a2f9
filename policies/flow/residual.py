"""Training of A2C2's correction head (arXiv 2509.23224) on a frozen policy.

    observation i (older)                observation i + k (newer), same episode
    the policy's chunk from it    --->   demonstrated row `lead` from there, minus the chunk's row k + lead

Pairs come from demonstrations of one episode in order of time. The head learns from states that an expert
(with disturbances) visits, not from those that its own corrections cause.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from policies.correction import save_correction
from policies.flow.checkpoint import Checkpoint, save
from policies.flow.dataset import Demonstration
from policies.flow.features import MIN_STD, state_features
from policies.flow.losses import Network
from policies.flow.recipes import Plain, Residual, recipe_to_dict
from policies.flow.support import declared
from robot_runtime.core.plan.correction import MAX_SIGMA, CorrectionHead, correction_inputs
from robot_runtime.core.values.row_statistics import row_origin
from robot_runtime.errors import InvalidValueError
from robot_runtime.results import keep


@dataclass(frozen=True, kw_only=True)
class ResidualConfig:
    """Settings for training a head."""

    recipe: Residual = field(default_factory=Residual)
    seed: int = 0
    """Seed of pairs, the policy's noise, weights and shuffling."""
    num_chunks: int = 20_000
    """Number of older observations for which the policy's chunk is computed.

    A head trained on 4000 does well on the expert's states and badly on its own, where its errors feed back
    through the measured velocity: success on `track` at 300 ms was 73 %, with 20,000 it was 100 % (n = 30).
    """
    ages_per_chunk: int = 8
    """Number of newer observations paired with each chunk."""
    steps: int = 6000
    batch_size: int = 512
    learning_rate: float = 2e-3
    weight_decay: float = 1e-3


def train_residual(
    demonstrations: Sequence[Demonstration],
    config: ResidualConfig,
    *,
    init: Checkpoint,
    folder: Path,
    on_step: Callable[[int, float], None] | None = None,
) -> Path:
    """Write the frozen policy's checkpoint with a correction head beside it; returns the folder.

    InvalidValueError: init is not of recipe plain, or no two demonstrations are of one episode.
    """
    if not isinstance(init.recipe, Plain):
        raise InvalidValueError(
            f"the recipe residual needs a policy of the recipe plain to correct, got {init.recipe}"
        )
    inputs, targets = residual_pairs(demonstrations, config, init)
    head, loss = _fit_head(inputs, targets, config, init, on_step)
    training = {**init.training, "recipe": recipe_to_dict(config.recipe), "init": init.info.name}
    training |= {"residual_pairs": len(inputs), "residual_steps": config.steps}
    training["residual_loss"] = round(loss, 5)
    horizon, rows = init.info.action_spec.horizon, init.info.capabilities.execution_horizon
    can = declared(
        config.recipe,
        horizon=horizon,
        prefix_at_rest=init.info.capabilities.prefix_at_rest,
        execution_horizon=rows,
    )
    info = replace(init.info, name=folder.name, capabilities=can)
    frozen = replace(init, info=info, recipe=config.recipe, training=training)

    def write(to: Path) -> None:
        save(frozen, to)
        save_correction(head, to)

    keep(folder, write)
    return folder


def residual_pairs(
    demonstrations: Sequence[Demonstration], config: ResidualConfig, policy: Checkpoint
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N, I) and targets (N, D) [rad, m] of the head."""
    recipe, spec = config.recipe, policy.info.action_spec
    older, newer = draw_pairs(demonstrations, config, spec.dt_ns, spec.horizon)
    if not len(older):
        raise InvalidValueError(
            "a residual head needs demonstrations of one episode in order of time; found no pair"
        )
    seen, chunk_of = np.unique(older, return_inverse=True)
    chunks = _chunks([demonstrations[i] for i in seen], policy, config.seed)
    inputs, targets = [], []
    for i, j, c in zip(older, newer, chunk_of, strict=True):
        new, chunk = demonstrations[j], chunks[c]
        k = (new.observation.state.t_ns - demonstrations[i].observation.state.t_ns) / spec.dt_ns
        inputs.append(correction_inputs(new.observation, chunk, k, spec=spec, lead=recipe.lead))
        targets.append(new.rows[recipe.lead] - chunk[round(k) + recipe.lead])
    return np.array(inputs), np.array(targets)


def draw_pairs(
    demonstrations: Sequence[Demonstration], config: ResidualConfig, dt_ns: int, horizon: int
) -> tuple[np.ndarray, np.ndarray]:
    """Index pairs (older, newer) of one episode, 0 to max_age rows apart, whose newer row `lead` was chosen.

    A new episode begins where time does not advance by one row.
    """
    recipe, rng = config.recipe, np.random.default_rng(config.seed)
    t_ns = np.array([d.observation.state.t_ns for d in demonstrations])
    episode = np.concatenate([[0], np.cumsum(np.abs(np.diff(t_ns) - dt_ns) > dt_ns // 2)])
    is_chosen = np.array([d.num_committed <= recipe.lead for d in demonstrations])
    reach = min(recipe.max_age, horizon - 1 - recipe.lead)
    starts = rng.permutation(len(t_ns))[: config.num_chunks]
    older = np.repeat(starts, config.ages_per_chunk)
    newer = older + rng.integers(0, reach + 1, len(older))
    newer = np.minimum(newer, len(t_ns) - 1)
    fits = (episode[older] == episode[newer]) & is_chosen[newer]
    return older[fits], newer[fits]


def _chunks(demonstrations: Sequence[Demonstration], policy: Checkpoint, seed: int) -> np.ndarray:
    """The policy's chunks (N, H, D), one for each observation, as it would answer at run time."""
    spec, network = policy.info.action_spec, Network(policy.model, torch.float32)
    generator, out = torch.Generator().manual_seed(seed), []
    for first in range(0, len(demonstrations), 256):
        seen = [d.observation for d in demonstrations[first : first + 256]]
        features = np.array([state_features(o, policy.info.schema, policy.feature_config) for o in seen])
        rows = network.denoise(
            torch.tensor(policy.features.features(features), dtype=torch.float32),
            torch.tensor([policy.info.tasks.index(o.task) for o in seen]),
            torch.randn(len(seen), spec.horizon, spec.dim, generator=generator),
            policy.num_steps,
        )
        origins = np.array([row_origin(spec, o.state) for o in seen])[:, None]
        out.append(policy.rows.restore(rows.double().numpy()) + origins)
    return np.concatenate(out)


def _fit_head(
    inputs: np.ndarray,
    targets: np.ndarray,
    config: ResidualConfig,
    policy: Checkpoint,
    on_step: Callable[[int, float], None] | None,
) -> tuple[CorrectionHead, float]:
    """The head, and the running mean of its loss in squared standard deviations of the targets."""
    mean, std = inputs.mean(axis=0), np.maximum(inputs.std(axis=0), MIN_STD)
    out_std = np.maximum(np.sqrt(np.square(targets).mean(axis=0)), MIN_STD)
    x = torch.tensor((inputs - mean) / std, dtype=torch.float32).clamp(-MAX_SIGMA, MAX_SIGMA)
    y = torch.tensor(targets / out_std, dtype=torch.float32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        layers = _layers(x.shape[1], config.recipe.width, y.shape[1])
    generator = torch.Generator().manual_seed(config.seed)
    optimiser = torch.optim.AdamW(
        layers.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.steps)
    smooth_loss = 0.0
    for step in range(config.steps):
        index = torch.randint(len(x), (config.batch_size,), generator=generator)
        loss = (layers(x[index]) - y[index]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        smooth_loss += (loss.item() - smooth_loss) * max(0.01, 1.0 / (step + 1))
        if on_step is not None:
            on_step(step + 1, smooth_loss)
    arrays = {"in_mean": mean, "in_std": std, "out_std": out_std}
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    for number, layer in enumerate(linear, start=1):
        arrays[f"w{number}"] = layer.weight.detach().numpy().T.copy()
        arrays[f"b{number}"] = layer.bias.detach().numpy()
    head = CorrectionHead(
        action_spec=policy.info.action_spec,
        lead=config.recipe.lead,
        max_age=config.recipe.max_age,
        arrays={name: np.asarray(value, dtype=np.float32) for name, value in arrays.items()},
    )
    return head, smooth_loss


def _layers(in_size: int, width: int, out_size: int) -> nn.Sequential:
    """The head's layers, initialised to give no correction."""
    last = nn.Linear(width, out_size)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(in_size, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), last)
