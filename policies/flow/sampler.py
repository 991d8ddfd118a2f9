"""Integrates noise to rows: Euler steps along the velocity, each row on its own timetable.

A timetable is a table (N+1, B, H): the flow time of every row before step 0 and after each of N steps.

    step      constant schedule         clamped prefix, d = 2     horizon-aware, d = 1, N = 4
              row 0    1    2    3      row 0    1    2    3      row 0    1    2    3
    0             0    0    0    0          1    1    0    0          1    0    0    0       0 noise
    1           .25  .25  .25  .25          1    1  .25  .25          1    1   .3  .25
    2            .5   .5   .5   .5          1    1   .5   .5          1    1   .6   .5
    3           .75  .75  .75  .75          1    1  .75  .75          1    1   .9  .75
    4             1    1    1    1          1    1    1    1          1    1    1    1       1 action
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from policies.flow.guidance import guided, soft_mask
from policies.flow.transfers import to_device
from robot_runtime.core.method.sampler_parts import (
    AveragedSamples,
    BestOfSamples,
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    LambdaMaskedPrefix,
    PrefixPreservedStart,
    RtcGuidance,
    SamplerPart,
)
from robot_runtime.core.method.schedule import flow_times

Velocity = Callable[[Tensor, Tensor], Tensor]
"""Rows (B, H, D) and their flow times (B, H) to velocities (B, H, D)."""
PrefixVelocity = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""The same with a mask (B, H) of committed rows; None for a network that does not take it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PreviousRows:
    """Rows of the robots' plans, one item of the batch each, padded with zeros to the horizon."""

    rows: Tensor
    """(B, H, D) normalised; zero from row n on."""
    num_rows: Tensor
    """(B,) number of planned rows, n; on the host like the next, where both are read."""
    num_committed: Tensor
    """(B,) number of those that will have run before the answer can, d <= n."""

    @property
    def is_committed(self) -> Tensor:
        """The mask (B, H) of committed rows, on the host."""
        return torch.arange(self.rows.shape[1]) < self.num_committed[:, None]

    def repeat(self, num_samples: int) -> "PreviousRows":
        """Every item repeated `num_samples` times, copies side by side."""
        return PreviousRows(
            rows=self.rows.repeat_interleave(num_samples, 0),
            num_rows=self.num_rows.repeat_interleave(num_samples),
            num_committed=self.num_committed.repeat_interleave(num_samples),
        )


def constant_timetable(*, num_steps: int, is_finished: Tensor) -> Tensor:
    """A timetable (N+1, B, H) of equal steps, except for rows (B, H) that are finished from the start."""
    steps = torch.linspace(0.0, 1.0, num_steps + 1, dtype=torch.float64)
    return torch.where(is_finished, 1.0, steps[:, None, None])  # (N + 1, B, H)


def horizon_aware_timetable(part: HorizonAwareSchedule, *, num_committed: Tensor, horizon: int) -> Tensor:
    """The timetable of `core.schedule.flow_times` for every item, each with its own d."""
    tables = {
        d: torch.as_tensor(flow_times(part, horizon=horizon, inference_delay=d))
        for d in set(num_committed.tolist())
    }
    return torch.stack([tables[d] for d in num_committed.tolist()], dim=1)


def timetable(part: SamplerPart, *, previous: PreviousRows, num_steps: int) -> Tensor:
    """The timetable (N+1, B, H) of a sampler part, float64 and on the host."""
    committed = previous.is_committed
    match part:
        case HorizonAwareSchedule():
            return horizon_aware_timetable(
                part, num_committed=previous.num_committed, horizon=committed.shape[1]
            )
        case ClampedPrefix():
            return constant_timetable(num_steps=num_steps, is_finished=committed)
        case _:
            return constant_timetable(num_steps=num_steps, is_finished=torch.zeros_like(committed))


def num_final(times: Tensor) -> int:
    """Number of first rows that are at flow time 1, action, throughout a batch (B, H)."""
    return int((times == 1.0).all(dim=0).cumprod(dim=0).sum())


def integrate(
    velocity: Velocity,
    *,
    start: Tensor,
    timetable: Tensor,
    kept: Tensor,
    is_kept: Tensor,
    renoises: bool = False,
) -> Iterator[Tensor]:
    """Rows (B, H, D) after each step from `start`; where is_kept (B, H) they equal `kept` throughout.

    renoises: each step restarts from `start` instead of x and interpolates to the end point that the velocity
        predicts: (1 - t') start + t' (x + (1 - t) v). X-VLA does so (arXiv 2510.10274, LeRobot's code).
    """
    x = torch.where(is_kept[..., None], kept, start)
    for t, t_next in pairwise(to_device(timetable.to(x.dtype)[..., None], x.device)):
        v = velocity(x, t[..., 0])
        x = (1.0 - t_next) * start + t_next * (x + (1.0 - t) * v) if renoises else x + (t_next - t) * v
        x = torch.where(is_kept[..., None], kept, x)
        yield x


def denoise(
    part: SamplerPart,
    velocity: PrefixVelocity,
    *,
    noise: Tensor,
    previous: PreviousRows,
    num_steps: int,
    renoises: bool = False,
) -> Iterator[Tensor]:
    """Rows (B, H, D) after every step of a sampler part, from noise (B, H, D); the last are the sample.

    renoises: as in `integrate`.
    """
    device = noise.device
    committed = to_device(previous.is_committed, device)
    free = torch.zeros_like(committed)
    unconditioned: Velocity = partial(_unconditioned, velocity)
    conditioned: Velocity = partial(_conditioned, velocity, committed)
    times = timetable(part, previous=previous, num_steps=num_steps)
    follow = partial(integrate, timetable=times, kept=previous.rows, renoises=renoises)
    match part:
        case ConstantSchedule() | BestOfSamples() | AveragedSamples():
            return follow(unconditioned, start=noise, is_kept=free)
        case ClampedPrefix() | HorizonAwareSchedule():
            return follow(unconditioned, start=noise, is_kept=committed)
        case RtcGuidance(exact_jacobian=exact, mask=mask, max_guidance_weight=beta):
            d, n = previous.num_committed, previous.num_rows
            weights = to_device(soft_mask(mask, start=d, end=n, horizon=noise.shape[1]), device)
            with_guidance = guided(
                unconditioned,
                target=previous.rows,
                weights=weights,
                max_guidance_weight=beta,
                exact_jacobian=exact,
            )
            return follow(with_guidance, start=noise, is_kept=free)
        case PrefixPreservedStart():
            is_planned = to_device(previous.num_rows > 0, device)
            start = torch.where(is_planned[:, None, None], previous.rows, noise)
            return follow(conditioned, start=start, is_kept=committed)
        case LambdaMaskedPrefix():
            return follow(conditioned, start=noise, is_kept=committed)


def _unconditioned(velocity: PrefixVelocity, x: Tensor, t: Tensor) -> Tensor:
    return velocity(x, t, None)


def _conditioned(velocity: PrefixVelocity, is_prefix: Tensor, x: Tensor, t: Tensor) -> Tensor:
    return velocity(x, t, is_prefix)
