"""A step of pi0's and pi0.5's expert that reads the prefix without copying it: `step_on_prefix`.

    LeRobot's step     prefix ─► copy ─► cache, filled with a copy of the copy ─► this step's rows appended
    here               prefix ─────────────────────────────────────────────────► this step's rows appended

LeRobot's step appends to the cache that it is given, which therefore cannot be the prefix's own.
"""

from typing import Any

import torch
from lerobot.policies.common.vla_utils import prepare_attention_masks_4d
from torch import Tensor


class ReadPrefix:
    """A cache for attention that gives the prefix's keys and values, followed by a layer's own."""

    def __init__(self, cache: Any) -> None:
        """cache: the prefix's, from transformers; it is not changed."""
        self._layers = [(keys, values) for keys, values, *_ in cache]

    def get_seq_length(self) -> int:
        """Length of the prefix."""
        return int(self._layers[0][0].shape[2])

    def update(self, keys: Tensor, values: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values (B, heads, P + n, d) for a layer's own (B, heads, n, d)."""
        held_keys, held_values = self._layers[layer]
        return torch.cat([held_keys, keys], dim=2), torch.cat([held_values, values], dim=2)


def seen_by_rows(num_latest: int, prefix_pad_masks: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """The additive attention mask (B, 1, n, P + n) of a step's rows, and their positions (B, n).

    num_latest: rows of the chunk, which attend to all; the state before them attends to no row.
    """
    order = torch.arange(num_rows, device=prefix_pad_masks.device)
    is_row = order >= num_rows - num_latest
    sees_rows = (is_row[None, :] <= is_row[:, None]).expand(len(prefix_pad_masks), -1, -1)
    sees_prefix = prefix_pad_masks[:, None, :].expand(-1, num_rows, -1)
    is_seen = torch.cat([sees_prefix, sees_rows], dim=2)
    return prepare_attention_masks_4d(is_seen), prefix_pad_masks.sum(dim=-1, keepdim=True) + order


def step_on_prefix(
    model: Any,
    seen: tuple[Tensor, Tensor],
    past_key_values: Any,
    x_t: Tensor,
    timestep: Tensor,
    state: Tensor | None = None,
) -> Tensor:
    """LeRobot's velocity (B, H, R), as from `denoise_step` of a `PI0Pytorch` or `PI05Pytorch`.

    seen: from `seen_by_rows`. state: the state that pi0 puts before the rows.
    """
    shown = (x_t, timestep) if state is None else (state, x_t, timestep)
    rows, _, _, condition = model.embed_suffix(*shown)
    mask, positions = seen
    (_, out), _ = model.paligemma_with_expert.forward(
        attention_mask=mask,
        position_ids=positions,
        past_key_values=ReadPrefix(past_key_values),
        inputs_embeds=[None, rows],
        use_cache=False,
        adarms_cond=[None, condition],
    )
    velocity: Tensor = model.action_out_proj(out[:, -model.config.chunk_size :].to(torch.float32))
    return velocity
