"""Exploits that SmolVLA's rows attend only to earlier ones: final rows are cached, unneeded ones left out.

    call k    |-- prefix --|-- final before call k-1 --|-- still noisy --|-- not requested --|
              cached once    cached when it was final    computed           left out

A committed or finished row keeps its flow time and is free of noise, so its keys and values do not change
either. Rows of pi0 and pi0.5 attend to each other, so all of them are computed in every call.
"""

from typing import Any

import torch
from torch import Tensor

from policies.flow.transfers import to_device


class CausalSuffix:
    """Computes the velocity of one chunk's rows after its prefix is encoded, for one sample per request."""

    def __init__(self, model: Any, denoise: Any) -> None:
        """
        model: LeRobot's `VLAFlowMatching`; its `embed_suffix` takes flow times by row.
        denoise: its own step, a closure over the prefix.
        """
        cells = (cell.cell_contents for cell in denoise.__closure__)
        held = dict(zip(denoise.__code__.co_freevars, cells, strict=True))
        self._model, self._cache = model, held["past_key_values"]
        self._is_prefix: Tensor = held["prefix_pad_masks"]  # (B, P), True for what is not padding
        self._num_kept = 0
        self.num_computed = 0
        """Rows of each request that went through the network so far."""

    def __call__(self, x: Tensor, t: Tensor, num_final: int) -> Tensor:
        """LeRobot's velocity (B, n, R) of the first n rows at flow times (B, n), 1 noise and 0 action.

        num_final: number of leading rows at 0, action; from the next call on they are no longer computed and
            have velocity 0.
        """
        kept, n, both = self._num_kept, x.shape[1], self._model.vlm_with_expert
        # In some layers LeRobot counts positions from the first row given: include row 0.
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
        """The mask (B, rows, P + kept + rows): a row attends to prefix, kept rows, itself, earlier ones."""
        batch = len(self._is_prefix)
        prefix = self._is_prefix[:, None, :].expand(-1, len(index), -1)
        seen = torch.cat([torch.arange(kept, device=index.device), index])
        looks_back = seen <= index[:, None]
        if kept:
            looks_back[:-1, -1] = False  # row 0 is among the kept rows
        return torch.cat([prefix, looks_back.expand(batch, -1, -1)], dim=2)
