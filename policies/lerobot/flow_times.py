"""Caches what a network computes from flow times alone, once for each distinct one: `TimeTable`.

    flow times (B, H)        .0 .0 .0 .0     .1 .1 .1 .1     1. .2 .2 .1
    distinct, looked up      .0              .1              .1 .2 1.
    computed                 .0              .1                 .2 1.

These values do not depend on the observation: a constant schedule of ten steps needs ten table rows in all,
and a schedule with a flow time per row as many as it has distinct ones.

    pi0.5            the scale, shift and gate of all norms of the expert           (B, H, norms * 3 * W)
    pi0, SmolVLA     the flow time's contribution to a row's token                  (B, H, W), `FoldedRows`
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from lerobot.policies.common.vla_utils import create_sinusoidal_pos_embedding
from torch import Tensor, nn

from policies.flow.transfers import to_device

MAX_KNOWN = 1024
"""Flow times whose rows are kept; beyond that the table is cleared."""
MAX_STEPS = 512
"""Steps whose table indices are kept: every step of a schedule for every batch size."""
BLOCK = 16
"""Number of flow times computed at once."""


class TimeTable:
    """Rows of a table by flow time, computed at their first use."""

    def __init__(self, of: Callable[[Tensor], Tensor], *, stays: bool = False) -> None:
        """
        of: maps flow times (n, 1) as LeRobot counts, 1 noise and 0 action, to (n, 1, M).
        stays: keep the table at one address, with room for all MAX_KNOWN, as recorded graphs need.
        """
        self._of, self._stays = of, stays
        self._places: dict[float, int] = {}
        self._steps: OrderedDict[tuple[tuple[int, ...], bytes], int | Tensor] = OrderedDict()
        """Table indices of steps, by their times."""
        self._table: Tensor | None = None
        self.num_computed = 0
        """Flow times that went through the network so far."""

    @torch.no_grad()
    def __call__(self, times: Tensor, device: torch.device) -> Tensor:
        """Table rows (B, H, M) of flow times (B, H), 0 noise and 1 action, float64 and on the host."""
        where = self._where(times, device)
        if isinstance(where, int):
            return self.rows(where).expand(*times.shape, -1).contiguous()  # one shape and layout for the step
        return self.rows(where)

    def _where(self, times: Tensor, device: torch.device) -> int | Tensor:
        """The table index common to all times, or one each, on the device; cached for recurring steps."""
        step = tuple(times.shape), times.numpy().tobytes()
        if (where := self._steps.get(step)) is None:
            places = self.places(times, device)
            first = int(places.flatten()[0])
            where = first if bool((places == first).all()) else to_device(places, device)
            self._steps[step] = where
            if len(self._steps) > MAX_STEPS:
                self._steps.popitem(last=False)
        self._steps.move_to_end(step)
        return where

    @torch.no_grad()
    def places(self, times: Tensor, device: torch.device) -> Tensor:
        """Table indices of flow times of any shape, counted as in `__call__`; on the host.

        Missing rows are computed. A table that `stays` takes at most MAX_KNOWN at a time.
        """
        distinct, which = torch.unique(times, return_inverse=True)
        values = distinct.tolist()
        if unknown := [value for value in values if value not in self._places]:
            if len(self._places) + len(unknown) > MAX_KNOWN:
                self._places, unknown = {}, values
                self._steps.clear()
            self._learn(unknown, device)
        return torch.tensor([self._places[value] for value in values])[which]

    def rows(self, places: Tensor | int) -> Tensor:
        """Table rows (..., M) at indices (...)."""
        assert self._table is not None, "indices come from `places`, which fills the table"
        return self._table[places]

    def _learn(self, values: list[float], device: torch.device) -> None:
        ours = torch.tensor(values, dtype=torch.float64).float()
        theirs = (1.0 - to_device(ours, device))[:, None]
        rows = torch.cat([self._of(block)[:, 0] for block in theirs.split(BLOCK)])
        first, end = len(self._places), len(self._places) + len(values)
        if self._table is None or (end > len(self._table) and not self._stays):
            larger = rows.new_zeros((MAX_KNOWN if self._stays else end, rows.shape[1]))
            if first:
                assert self._table is not None
                larger[:first] = self._table[:first]
            self._table = larger
        self._table[first:end] = rows
        self._places |= {value: first + i for i, value in enumerate(values)}
        self.num_computed += len(values)


class FoldedRows(nn.Module):
    """Maps rows to the expert's tokens in pi0 and SmolVLA, with consecutive linear layers in one product.

    LeRobot:  out(silu(A (in x + b) + C e(t) + c))         folded:  out(silu((A in) x + time_part(t)))

    e(t) is the flow time's sines and cosines; time_part(t) = C e(t) + A b + c is for a `TimeTable`.
    """

    def __init__(self, model: Any, width: int) -> None:
        super().__init__()
        self._config, self._width = model.config, width
        first, mix = model.action_in_proj, model.action_time_mlp_in
        of_rows, of_time = mix.weight.data.double().split(width, dim=1)
        bias = of_rows @ first.bias.data.double() + mix.bias.data.double()
        weight, dtype = (of_rows @ first.weight.data.double()), first.weight.dtype
        self.rows = nn.Parameter(weight.to(dtype), requires_grad=False)
        self.time = nn.Parameter(of_time.to(dtype), requires_grad=False)
        self.bias = nn.Parameter(bias.to(dtype), requires_grad=False)
        self.out = model.action_time_mlp_out

    def time_part(self, t: Tensor) -> Tensor:
        """The contribution (B, H, W) of flow times (B, H) as LeRobot counts."""
        return F.linear(
            embedded_times(self._config, t, self._width).to(self.time.dtype), self.time, self.bias
        )

    def forward(self, x: Tensor, time_part: Tensor) -> Tensor:
        """Tokens (B, H, W) of rows (B, H, R)."""
        out: Tensor = self.out(F.silu(F.linear(x, self.rows) + time_part))
        return out


def embedded_times(config: Any, t: Tensor, width: int) -> Tensor:
    """Sines and cosines (B, H, width) of flow times (B, H)."""
    flat = create_sinusoidal_pos_embedding(
        t.flatten(), width, config.min_period, config.max_period, device=t.device
    )
    return flat.unflatten(0, t.shape)


def pi05_condition(model: Any, t: Tensor) -> Tensor:
    """pi0.5's condition (B, H, width) of flow times (B, H)."""
    times = embedded_times(model.config, t, model.action_in_proj.out_features).to(t.dtype)
    return F.silu(model.time_mlp_out(F.silu(model.time_mlp_in(times))))
