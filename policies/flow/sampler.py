"""From noise to rows: Euler steps along the velocity, each row on its own timetable.

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
"""The same, told which rows (B, H) are committed; None for a network that is not to be told."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PreviousRows:
    """What the robots' plans say, one item of the batch each, padded with zeros to the horizon."""

    rows: Tensor
    """(B, H, D) normalised; zero from row n on."""
    num_rows: Tensor
    """(B,) how many were planned, n; as the next, on the host, where it is looked at."""
    num_committed: Tensor
    """(B,) how many of those will have run before the answer can, d <= n."""

    @property
    def is_committed(self) -> Tensor:
        """(B, H), on the host."""
        return torch.arange(self.rows.shape[1]) < self.num_committed[:, None]

    def repeat(self, num_samples: int) -> "PreviousRows":
        """Every item `num_samples` times over, copies side by side."""
        return PreviousRows(
            rows=self.rows.repeat_interleave(num_samples, 0),
            num_rows=self.num_rows.repeat_interleave(num_samples),
            num_committed=self.num_committed.repeat_interleave(num_samples),
        )


def constant_timetable(*, num_steps: int, is_finished: Tensor) -> Tensor:
    """(N+1, B, H): equal steps for all rows but those (B, H) that are finished from the start."""
    steps = torch.linspace(0.0, 1.0, num_steps + 1, dtype=torch.float64)
    return torch.where(is_finished, 1.0, steps[:, None, None])  # (N + 1, B, H)


def horizon_aware_timetable(part: HorizonAwareSchedule, *, num_committed: Tensor, horizon: int) -> Tensor:
    """`core.schedule.flow_times` of every item, which has d of its own."""
    tables = {
        d: torch.as_tensor(flow_times(part, horizon=horizon, inference_delay=d))
        for d in set(num_committed.tolist())
    }
    return torch.stack([tables[d] for d in num_committed.tolist()], dim=1)


def timetable(part: SamplerPart, *, previous: PreviousRows, num_steps: int) -> Tensor:
    """(N+1, B, H), float64 and on the host: when which row is how far."""
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
    """How many first rows are at flow time 1, action, in all of a batch (B, H)."""
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

    renoises: not Euler's step from x, but from `start` again, by the same share of the way to where the
        velocity points: (1 - t') start + t' (x + (1 - t) v). X-VLA's (arXiv 2510.10274, LeRobot's code).
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
    untold: Velocity = partial(_untold, velocity)
    told: Velocity = partial(_told, velocity, committed)
    times = timetable(part, previous=previous, num_steps=num_steps)
    follow = partial(integrate, timetable=times, kept=previous.rows, renoises=renoises)
    match part:
        case ConstantSchedule() | BestOfSamples() | AveragedSamples():
            return follow(untold, start=noise, is_kept=free)
        case ClampedPrefix() | HorizonAwareSchedule():
            return follow(untold, start=noise, is_kept=committed)
        case RtcGuidance(exact_jacobian=exact, mask=mask, max_guidance_weight=beta):
            d, n = previous.num_committed, previous.num_rows
            weights = to_device(soft_mask(mask, start=d, end=n, horizon=noise.shape[1]), device)
            drawn = guided(
                untold, target=previous.rows, weights=weights, max_guidance_weight=beta, exact_jacobian=exact
            )
            return follow(drawn, start=noise, is_kept=free)
        case PrefixPreservedStart():
            is_planned = to_device(previous.num_rows > 0, device)
            start = torch.where(is_planned[:, None, None], previous.rows, noise)
            return follow(told, start=start, is_kept=committed)
        case LambdaMaskedPrefix():
            return follow(told, start=noise, is_kept=committed)


def _untold(velocity: PrefixVelocity, x: Tensor, t: Tensor) -> Tensor:
    return velocity(x, t, None)


def _told(velocity: PrefixVelocity, is_prefix: Tensor, x: Tensor, t: Tensor) -> Tensor:
    return velocity(x, t, is_prefix)
