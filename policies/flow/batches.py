"""Training batches, one kind per recipe.

x = (1-t) noise + t action     the network learns v = action - noise, t from 0 (noise) to 1 (action);
                               openpi's and FASTER's t runs the other way and their v has the other sign
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from policies.flow.dataset import Dataset
from policies.flow.recipes import MixedSchedule, Offset, Prefix


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """Inputs of the network and the targets of its output."""

    features: Tensor
    """(B, F), or (B, K, F) for branches that share an observation."""
    tasks: Tensor
    """(B,)"""
    x: Tensor
    """Rows (B, H, D) shown: noisy, or clean under a prefix. Branches add K here and below."""
    t: Tensor
    """(B, H) flow times shown."""
    target: Tensor
    """(B, H, D) velocities."""
    weight: Tensor
    """(B, H, 1) or (B, H, D) of the squared errors; zero bears no loss."""
    is_prefix: Tensor
    """(B, H) rows shown as committed."""
    hidden_rows: Tensor | None = None
    """(B, H) prefix rows that open rows do not see."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Draw:
    """The samples of one training step before a recipe is applied."""

    dataset: Dataset
    index: Tensor
    features: Tensor
    rows: Tensor
    noise: Tensor
    generator: Generator

    def rand(self, *shape: int) -> Tensor:
        """Uniform numbers in [0, 1)."""
        return torch.rand(shape, generator=self.generator)

    def times(self) -> Tensor:
        """Flow times (B,) in [0, 0.999], density falling to zero at 1: 1 - Beta(1.5, 1), as openpi (pi0).

        Most are near the noise, where the network has to choose what to do. They are stratified over the
        batch, which keeps the distribution and lowers the variance of the loss.
        """
        batch = len(self.index)
        u = (torch.arange(batch) + self.rand(batch)) / batch
        return 0.999 * (1.0 - u ** (1.0 / 1.5))

    def prefix(self, lengths: Tensor) -> Tensor:
        """True (B, H) where a row is committed: the sample's own commitment, else `lengths` (B,) rows."""
        given = self.dataset.num_committed[self.index]
        return torch.arange(self.rows.shape[1]) < torch.where(given > 0, given, lengths)[:, None]

    def some_lengths(self, max_delay: int, probability: float) -> Tensor:
        """Lengths (B,), uniform in 1..max_delay with that probability, else 0."""
        batch = len(self.index)
        lengths = torch.randint(1, max_delay + 1, (batch,), generator=self.generator)
        return lengths * (self.rand(batch) < probability)

    def all_lengths(self, max_delay: int) -> Tensor:
        """Lengths (B,), uniform in 0..max_delay."""
        return torch.randint(0, max_delay + 1, (len(self.index),), generator=self.generator)

    def batch(
        self,
        t: Tensor,
        is_prefix: Tensor,
        *,
        clean: Tensor | None = None,
        weight: Tensor | None = None,
        hidden_rows: Tensor | None = None,
    ) -> Batch:
        """Rows noisy by t (B, H), the prefix replaced by `clean`, the rest bearing loss."""
        x = torch.lerp(self.noise, self.rows, t[..., None])
        if clean is not None:
            x = torch.where(is_prefix[..., None], clean, x)
        return Batch(
            features=self.features,
            tasks=self.dataset.tasks[self.index],
            x=x,
            t=t,
            target=self.rows - self.noise,
            weight=(~is_prefix)[..., None].float() if weight is None else weight,
            is_prefix=is_prefix,
            hidden_rows=hidden_rows,
        )


def plain_batch(draw: Draw) -> Batch:
    """A batch in which all rows of a sample share one flow time."""
    t = draw.times()[:, None].expand(draw.rows.shape[:2])
    return draw.batch(t, torch.zeros(t.shape, dtype=torch.bool))


def prefix_batch(draw: Draw, recipe: Prefix) -> Batch:
    """A batch with committed rows nearly clean at time 1 (arXiv 2512.05964).

    row    0   1  ...  d-1  |   d   d+1  ...  H-1
    t      1   1  ...   1   |   t    t   ...   t      one t per sample
    """
    is_prefix = draw.prefix(draw.some_lengths(recipe.max_delay, recipe.probability))
    t = torch.where(is_prefix, 1.0, draw.times()[:, None])
    clean = draw.rows + recipe.noise * torch.randn(draw.rows.shape, generator=draw.generator)
    return draw.batch(t, is_prefix, clean=clean)


def mixed_batch(draw: Draw, recipe: MixedSchedule) -> Batch:
    """A batch with committed rows clean at time 1, open ones on the horizon-aware schedule or at one time."""
    lengths = draw.all_lengths(recipe.max_delay)
    is_prefix = draw.prefix(lengths)
    rho = draw.times()
    aware = horizon_aware_times(
        rho, is_prefix.sum(dim=1), is_prefix.shape[1], alpha=recipe.alpha, num_steps=recipe.num_steps
    )
    is_aware = draw.rand(len(rho)) < recipe.probability
    t = torch.where(is_aware[:, None], aware, torch.where(is_prefix, 1.0, rho[:, None]))
    return draw.batch(t, is_prefix, clean=draw.rows)


def horizon_aware_times(
    t: Tensor, num_prefix: Tensor, horizon: int, *, alpha: float, num_steps: int
) -> Tensor:
    """Flow times (B, H) of the rows when the whole chunk is at t (B,): FASTER, equations 5 to 10.

    Row i of d..H-1 has the relative position q = (i - d) / (H - 1 - d) and is finished when the chunk reaches
    1 - (1 - q^alpha) u0; the paper counts the other way, rho = 1 - t, tau_i = 1 - t_i. At the sampler's steps
    these are `core.schedule.flow_times`; training draws t anywhere.
    """
    i, d = torch.arange(horizon), num_prefix[:, None]
    q = (i - d).clamp(min=0) / (horizon - 1 - d).clamp(min=1)
    u = (1.0 - q**alpha) * ((num_steps - 1) / num_steps)
    tau = ((1.0 - t[:, None] - u) / (1.0 - u)).clamp(0.0, 1.0)
    return torch.where(i < d, 1.0, 1.0 - tau)


def offset_batch(draw: Draw, recipe: Offset, input_noise: float) -> Batch:
    """A batch whose chunks begin k rows after the scene was seen, from the robot state expected by then.

    A sample with commitments begins at its last given row, where its robot is certain to be.
    """
    given = draw.dataset.num_committed[draw.index]
    k = torch.where(given > 0, given - 1, draw.all_lengths(recipe.max_delay))
    robot, rows, exists = _branch(draw, k)
    # The robot's features are replaced, so their input noise is drawn again.
    robot = robot + input_noise * torch.randn(robot.shape, generator=draw.generator)
    t = draw.times()[:, None].expand(exists.shape)
    return Batch(
        features=torch.cat([robot, draw.features[:, robot.shape[1] :]], dim=1),
        tasks=draw.dataset.tasks[draw.index],
        x=torch.lerp(draw.noise, rows, t[..., None]),
        t=t,
        target=rows - draw.noise,
        weight=exists[..., None].float(),
        is_prefix=torch.zeros(exists.shape, dtype=torch.bool),
    )


def shared_batch(draw: Draw, recipe: Offset, input_noise: float) -> Batch:
    """A batch of all branches k = 0..max_delay of every sample, each with its own noise and time.

    Branches that would begin with a row that was given bear no loss.
    """
    branches = recipe.max_delay + 1
    parts = [_branch(draw, torch.full(draw.index.shape, k)) for k in range(branches)]
    robot, rows, exists = (torch.stack(part, dim=1) for part in zip(*parts, strict=True))  # (B, K, ...)
    robot = robot + input_noise * torch.randn(robot.shape, generator=draw.generator)
    noise = torch.randn(rows.shape, generator=draw.generator)
    t = torch.stack([draw.times() for _ in range(branches)], dim=1)[..., None].expand(exists.shape)
    scene = draw.features[:, None, robot.shape[-1] :].expand(-1, branches, -1)
    is_valid = torch.arange(branches) >= draw.dataset.num_committed[draw.index][:, None] - 1  # (B, K)
    return Batch(
        features=torch.cat([robot, scene], dim=-1),
        tasks=draw.dataset.tasks[draw.index],
        x=torch.lerp(noise, rows, t[..., None]),
        t=t,
        target=rows - noise,
        weight=(exists & is_valid[..., None])[..., None].float(),
        is_prefix=torch.zeros(exists.shape, dtype=torch.bool),
    )


def _branch(draw: Draw, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(robot features (B, R), rows (B, H, D), which of them exist (B, H)) of chunks that begin at row k (B,).

    Rows past the end repeat the last one, as VLASH's loader does.
    """
    horizon, rows = draw.rows.shape[1], draw.dataset.statistics.rows
    mean, std = torch.tensor(rows.mean).float(), torch.tensor(rows.std).float()
    i = torch.arange(horizon) + k[:, None]  # (B, H)
    source = i.clamp(max=horizon - 1)[..., None].expand_as(draw.rows)
    relative = (mean + std * draw.rows).gather(1, source)
    shift = draw.dataset.future_shift[draw.index, k][:, None]
    return draw.dataset.future_robot[draw.index, k], (relative - shift - mean) / std, i < horizon
