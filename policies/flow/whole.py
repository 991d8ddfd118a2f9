"""A complete description of a chunk, for a network that runs all its steps at once: `WholeChunk`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.flow.sampler import PreviousRows, timetable
from robot_runtime.core.method.sampler_parts import (
    ClampedPrefix,
    ConstantSchedule,
    HorizonAwareSchedule,
    SamplerPart,
)

PLAIN = (ConstantSchedule, ClampedPrefix, HorizonAwareSchedule)
"""Sampler parts whose steps follow from their timetable alone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WholeChunk:
    """B requests and the Euler steps for all of them."""

    seen: Any
    noise: Tensor
    """(B, H, R)."""
    kept: Tensor
    """(B, H, R) rows of the plans."""
    is_kept: Tensor
    """(B, H), on the host: which of those are kept."""
    times: Tensor
    """(N+1, B, H), float64 and on the host: flow times, 0 noise and 1 action."""
    counts: list[list[int]]
    """After each step the number of final rows of each request, until all requested rows are final."""

    @property
    def leaves(self) -> tuple[int, ...]:
        """Steps, counted from 1, after which rows are released."""
        before = [[0] * len(self.counts[0]), *self.counts]
        return tuple(k + 1 for k, now in enumerate(self.counts) if now != before[k])


Whole = Callable[[WholeChunk], Iterator[Tensor] | None]
"""Rows (B, H, R) after each step of `leaves`; None: this chunk has to be computed step by step."""


def whole_chunk(
    part: SamplerPart,
    *,
    seen: Any,
    noise: Tensor,
    previous: PreviousRows,
    num_steps: int,
    finish: Sequence[np.ndarray],
    ends: Sequence[int],
) -> WholeChunk:
    """The `WholeChunk` of one of the `PLAIN` parts.

    finish: (H,) for each request, the steps after which its rows are final. ends: rows that each requests.
    """
    counts = []
    for step in range(1, num_steps + 1):
        counts.append([int((f[:end] <= step).sum()) for f, end in zip(finish, ends, strict=True)])
        if counts[-1] == list(ends):
            break
    committed = previous.is_committed
    is_kept = torch.zeros_like(committed) if isinstance(part, ConstantSchedule) else committed
    times = timetable(part, previous=previous, num_steps=num_steps)
    return WholeChunk(seen=seen, noise=noise, kept=previous.rows, is_kept=is_kept, times=times, counts=counts)
