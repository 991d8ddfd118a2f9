"""SmolVLA's rows look back only: what will not change again is computed once, what nobody wants not at all.

    call k    |-- prefix --|-- final before call k-1 --|-- still moving --|-- not asked for --|
              cached once    cached when it was final    computed            left out

A committed or finished row keeps its flow time, and its noise is gone, so its keys and values stay too. Rows
of pi0 and pi0.5 look at each other: there all are computed in every call.
"""

from typing import Any

import torch
from torch import Tensor

from policies.flow.transfers import to_device


class CausalSuffix:
    """The velocity of one chunk's rows, after its prefix has been encoded. For one sample of each request."""

    def __init__(self, model: Any, denoise: Any) -> None:
        """
        model: LeRobot's `VLAFlowMatching`; its `embed_suffix` takes flow times by row.
        denoise: its own step, which holds the prefix.
        """
        cells = (cell.cell_contents for cell in denoise.__closure__)
        held = dict(zip(denoise.__code__.co_freevars, cells, strict=True))
        self._model, self._cache = model, held["past_key_values"]
        self._is_prefix: Tensor = held["prefix_pad_masks"]  # (B, P), True for what is not padding
        self._num_kept = 0
        self.num_computed = 0
        """Rows that went through the network so far, of each request."""

    def __call__(self, x: Tensor, t: Tensor, num_final: int) -> Tensor:
        """Their velocity (B, n, R) of the first n rows at their flow times (B, n), 1 noise and 0 action.

        num_final: how many of the first are at 0, action; from the next call on they are not computed any
            more and have velocity 0.
        """
        kept, n, both = self._num_kept, x.shape[1], self._model.vlm_with_expert
        # LeRobot counts the positions of some layers from the first row it sees: show it row 0 as well.
        order = [*range(kept, n), 0] if kept else [*range(n)]
        index = to_device(torch.tensor(order), x.device)
        rows, _, _ = self._model.embed_suffix(x[:, index], t[:, index])
        first = self._is_prefix.sum(dim=-1, keepdim=True)
        (_, out), _ = both.forward(
            attention_mask=self._mask(index, kept),
            position_ids=first + index,
            past_key_values=self._cache,
            inputs_embeds=[None, rows],
            use_cache=True,
        )
        self.num_computed += len(order)
        self._num_kept = min(num_final, n)
        self._cache.crop(self._is_prefix.shape[1] + self._num_kept)
        velocity: Tensor = self._model.action_out_proj(out[:, : n - kept].to(torch.float32))
        return torch.cat([torch.zeros_like(x[:, :kept]), velocity], dim=1)

    def _mask(self, index: Tensor, kept: int) -> Tensor:
        """(B, rows, P + kept + rows): each row sees the prefix, what is kept, itself and those before it."""
        batch = len(self._is_prefix)
        prefix = self._is_prefix[:, None, :].expand(-1, len(index), -1)
        seen = torch.cat([torch.arange(kept, device=index.device), index])
        looks_back = seen <= index[:, None]
        if kept:
            looks_back[:-1, -1] = False  # row 0 is among those kept
        return torch.cat([prefix, looks_back.expand(batch, -1, -1)], dim=2)
