"""Training losses, one per recipe.

Batches that need a sample of the network itself are made here, the others in `batches`.
"""

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from policies.flow.batches import (
    Batch,
    Draw,
    mixed_batch,
    offset_batch,
    plain_batch,
    prefix_batch,
    shared_batch,
)
from policies.flow.dataset import Dataset
from policies.flow.recipes import LambdaMask, Masked, MixedSchedule, Offset, Plain, Prefix, Recipe


class Network:
    """The model for one step, its weights cast to another type inside the graph.

    Gradients therefore arrive in float32. Autocast would keep the residual stream in float32 and convert at
    every layer, which takes twice as long.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        self._model, self._dtype = model, dtype
        self._weights = {name: p.to(dtype) for name, p in model.named_parameters()}

    def velocity(self, features: Tensor, tasks: Tensor, x: Tensor, t: Tensor, **options: object) -> Tensor:
        """As the model's forward, in float32 (or float64 where the rows are)."""
        arguments = (features.to(self._dtype), tasks, x.to(self._dtype), t)
        out: Tensor = functional_call(self._model, self._weights, arguments, options)
        return out.to(x.dtype)

    def batch_velocity(self, batch: Batch, **options: object) -> Tensor:
        """Velocities of a batch."""
        shown = {"is_prefix": batch.is_prefix, "hidden_rows": batch.hidden_rows}
        return self.velocity(batch.features, batch.tasks, batch.x, batch.t, **shown, **options)

    @torch.no_grad()
    def denoise(
        self,
        features: Tensor,
        tasks: Tensor,
        noise: Tensor,
        num_steps: int,
        *,
        clean: Tensor | None = None,
        is_prefix: Tensor | None = None,
        with_lora: bool = True,
    ) -> Tensor:
        """Rows (B, H, D) from noise in equal steps of one flow time; committed rows are kept clean."""
        x = noise
        for i in range(num_steps):
            if clean is not None and is_prefix is not None:
                x = torch.where(is_prefix[..., None], clean, x)
            t = torch.full(x.shape[:2], i / num_steps, dtype=x.dtype)
            options = {"is_prefix": is_prefix, "with_lora": with_lora}
            x = x + self.velocity(features, tasks, x, t, **options) / num_steps
        return x


def recipe_loss(
    network: Network,
    dataset: Dataset,
    index: Tensor,
    recipe: Recipe,
    generator: Generator,
    *,
    input_noise: float,
    progress: float,
    latents: Tensor | None = None,
) -> Tensor:
    """Loss of the samples in `index` (B,). progress: share of the training done, from 0 to 1.

    latents: (B, E) of their images, in place of the last features.
    """
    features = dataset.features[index]
    features = features + input_noise * torch.randn(features.shape, generator=generator)
    if latents is not None:
        features = torch.cat([features[:, : -latents.shape[1]], latents], dim=1)
    rows = dataset.rows[index]
    noise = torch.randn(rows.shape, generator=generator)
    draw = Draw(dataset=dataset, index=index, features=features, rows=rows, noise=noise, generator=generator)
    match recipe:
        case Plain():
            batch = plain_batch(draw)
        case Prefix():
            batch = prefix_batch(draw, recipe)
        case Offset(shared_observation=True):
            batch = shared_batch(draw, recipe, input_noise)
        case Offset():
            batch = offset_batch(draw, recipe, input_noise)
        case Masked():
            return masked_loss(network, draw, recipe, progress)
        case LambdaMask():
            batch = lambda_batch(network, draw, recipe)
        case MixedSchedule():
            batch = mixed_batch(draw, recipe)
        case _:
            raise ValueError(f"the recipe {recipe} trains no flow")
    return weighted_error(network.batch_velocity(batch) - batch.target, batch.weight)


def weighted_error(error: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean squared error, with weights (..., 1) or (..., D) that are expanded to (..., D)."""
    weight = weight.expand_as(error)
    return (weight * error.square()).sum() / weight.sum().clamp(min=1.0)


def masked_loss(network: Network, draw: Draw, recipe: Masked, progress: float) -> Tensor:
    """REMAC's objective: noisy rows come partly from the frozen policy's own chunk, targets never do."""
    is_prefix = draw.prefix(draw.all_lengths(recipe.max_delay))
    sigma = recipe.sigma_start + (recipe.sigma_end - recipe.sigma_start) * progress
    is_own = draw.rand(len(draw.index)) >= sigma  # (B,)
    action = draw.rows.clone()
    if is_own.any():
        fresh = torch.randn(draw.rows.shape, generator=draw.generator)[is_own]
        tasks = draw.dataset.tasks[draw.index][is_own]
        action[is_own] = network.denoise(
            draw.features[is_own], tasks, fresh, recipe.num_steps, with_lora=False
        )
    t = draw.times()[:, None].expand(is_prefix.shape)
    batch = draw.batch(t, is_prefix, clean=None)
    x = torch.lerp(draw.noise, action, t[..., None])
    shown = (batch.features, batch.tasks, x, t)
    velocity = network.velocity(*shown, is_prefix=is_prefix)
    with torch.no_grad():
        frozen = network.velocity(*shown, is_prefix=is_prefix, with_lora=False)
    keep = weighted_error(velocity - frozen, is_prefix[..., None].float())
    return weighted_error(velocity - batch.target, batch.weight) + recipe.keep_weight * keep


def lambda_batch(network: Network, draw: Draw, recipe: LambdaMask) -> Batch:
    """A batch with committed rows clean at the common time, some hidden; open rows are weighted by the error
    of a sampled chunk."""
    is_prefix = draw.prefix(draw.some_lengths(recipe.max_delay, recipe.probability))
    d, horizon = is_prefix.sum(dim=1), is_prefix.shape[1]
    t = draw.times()[:, None].expand(is_prefix.shape)
    is_early = torch.arange(horizon) < (d - recipe.num_always_seen)[:, None]
    hidden = is_early & (draw.rand(*is_prefix.shape) < recipe.hide_probability)
    weight = (~is_prefix)[..., None].expand_as(draw.rows).float()
    has_prefix = d > 0
    if has_prefix.any():
        sampled = network.denoise(
            draw.features[has_prefix],
            draw.dataset.tasks[draw.index][has_prefix],
            draw.noise[has_prefix],
            recipe.num_steps,
            clean=draw.rows[has_prefix],
            is_prefix=is_prefix[has_prefix],
        )
        error = (sampled - draw.rows[has_prefix]).abs()
        weight[has_prefix] *= error_weights(error, weight[has_prefix], recipe)
    return draw.batch(t, is_prefix, clean=draw.rows, weight=weight, hidden_rows=hidden)


def error_weights(error: Tensor, is_open: Tensor, recipe: LambdaMask) -> Tensor:
    """Errors divided by their mean where `is_open` is 1, clamped to the recipe's bounds."""
    mean = (error * is_open).sum() / is_open.sum().clamp(min=1.0)
    return (error / mean.clamp(min=1e-9)).clamp(recipe.weight_min, recipe.weight_max)
