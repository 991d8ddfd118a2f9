"""From noise to rows: Euler steps along the velocity, each row on its own timetable.

A timetable is a table (N+1, H): the flow time of every row before step 0 and after each of N steps.

    step      constant schedule            clamped prefix, d = 2
              row 0    1    2    3         row 0    1    2    3
    0             0    0    0    0             1    1    0    0       0 noise, 1 action
    1            .5   .5   .5   .5             1    1   .5   .5
    2             1    1    1    1             1    1    1    1
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

Velocity = Callable[[Tensor, Tensor], Tensor]
"""Rows (B, H, D) and their flow times (B, H) to velocities (B, H, D)."""


def constant_timetable(*, num_steps: int, horizon: int, num_prefix_rows: int = 0) -> Tensor:
    """Equal steps for all rows but the prefix, which is finished from the start."""
    steps = torch.linspace(0.0, 1.0, num_steps + 1)
    table = steps[:, None].repeat(1, horizon)  # (N + 1, H)
    table[:, :num_prefix_rows] = 1.0
    return table


def sample(velocity: Velocity, *, noise: Tensor, timetable: Tensor, prefix: Tensor) -> Tensor:
    """Rows (B, H, D) reached from noise (B, H, D); the first d equal the prefix (B, d, D) throughout."""
    d, x = prefix.shape[1], noise.clone()
    x[:, :d] = prefix
    for t, t_next in pairwise(timetable):
        x = x + (t_next - t)[:, None] * velocity(x, t.expand(x.shape[:2]))
        x[:, :d] = prefix
    return x
