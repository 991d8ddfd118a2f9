"""Merges the products of SmolVLA's prefix and step: `fuse_smolvla`, called by `policies.lerobot.fused.fuse`.

    images                   of all cameras pass through the image encoder together
    queries, keys, values    one product instead of three, in layers whose rows attend to each other
    gate and up              one instead of two
    keys and values          of layers in which rows attend to the prefix only: projected once per chunk
    positions, masks         sines, cosines and attention masks are computed once per chunk
    heads that share keys    rows of one attention; the keys are not copied for each head

The step reads the prefix's cache without changing it, so it can be one graph.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from policies.lerobot.once_a_chunk import OnceAChunk

ALIGNED = 8
"""Keys get masked padding to a multiple of it: 8 numbers of 16 bits are loaded at once."""
MAX_WAVELENGTH = 10_000.0
"""The value in LeRobot's `apply_rope`, independent of the configuration."""
Rotation = tuple[Tensor, Tensor]
"""Cosines and sines (B, 1, n, d/2)."""


def fuse_smolvla(model: Any, side_by_side: Callable[[tuple[nn.Linear, ...]], nn.Linear]) -> bool:
    """Change a `VLAFlowMatching` in place; returns False, without a change, if its layers are unusual.

    side_by_side: merges layers of one input into one layer.
    """
    both, config = model.vlm_with_expert, model.config
    if (
        both.num_expert_layers != both.num_vlm_layers
        or not config.use_cache
        or "cross" not in both.attention_mode
    ):
        return False
    for i, layer in enumerate(both.lm_expert.layers):
        attention, mlp = layer.self_attn, layer.mlp
        if _sees_rows(both, i):
            attention.q_proj = side_by_side((attention.q_proj, attention.k_proj, attention.v_proj))
            del attention.k_proj, attention.v_proj
        mlp.gate_proj = side_by_side((mlp.gate_proj, mlp.up_proj))
        del mlp.up_proj
    if not config.add_image_special_tokens and model.prefix_length <= 0:
        # Rounded as LeRobot rounds it, but once, and not on the host in every chunk.
        dtype = next(both.get_vlm_model().connector.parameters()).dtype
        scale = torch.tensor(both.config.text_config.hidden_size**0.5, dtype=dtype).item()
        model.embed_prefix = partial(_prefix, model, scale)
    both.forward = partial(_projected, both, both.forward)
    model.denoise_step = OnceAChunk(partial(_seen_by_rows, model), partial(_step, model))
    return True


def _sees_rows(both: Any, layer: int) -> bool:
    """Whether rows attend to each other in this layer, and not to the prefix only."""
    every = both.self_attn_every_n_layers
    return bool(every > 0 and layer % every == 0)


def _prefix(
    model: Any,
    scale: float,
    images: list[Tensor],
    img_masks: list[Tensor],
    tokens: Tensor,
    masks: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """As LeRobot's `embed_prefix`: images by camera, words, then the state, to which those do not attend."""
    both = model.vlm_with_expert
    image_tokens = both.embed_image(torch.cat(images)).unflatten(0, (len(images), -1))  # (cameras, B, n, W)
    image_tokens = image_tokens * scale
    words = both.embed_language_tokens(tokens)
    states = model.state_proj(state)
    states = states[:, None] if states.ndim == 2 else states
    embedded = torch.cat([*image_tokens, words * math.sqrt(words.shape[-1]), states], dim=1)
    is_there = [mask[:, None].expand(-1, image_tokens.shape[2]) for mask in img_masks]
    is_state = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
    pad_masks = torch.cat([*is_there, masks, is_state], dim=1)
    starts_block = torch.cat([torch.zeros_like(pad_masks[:, states.shape[1] :]), is_state], dim=1)
    return embedded, pad_masks, starts_block


def _projected(both: Any, forward: Callable, **given: Any) -> tuple[list[Tensor | None], Any]:
    """The forward pass of the prefix, with the expert's projections of its keys and values in the cache."""
    out, cache = forward(**given)
    for i, layer in enumerate(both.lm_expert.layers):
        if not _sees_rows(both, i):
            held, attention = cache.layers[i], layer.self_attn
            held.keys = _padded(_seen_as(attention.k_proj, held.keys, attention.head_dim))
            held.values = _padded(_seen_as(attention.v_proj, held.values, attention.head_dim))
    return out, cache


def _seen_as(project: nn.Linear, cached: Tensor, head_dim: int) -> Tensor:
    """Keys or values (B, heads, P, d) of the prefix's layer, projected by the expert's layer."""
    flat = cached.transpose(1, 2).flatten(2).to(project.weight.dtype)
    out: Tensor = project(flat).unflatten(-1, (-1, head_dim)).transpose(1, 2)
    return out


def _padded(keys: Tensor) -> Tensor:
    return F.pad(keys, (0, 0, 0, -keys.shape[2] % ALIGNED))


def _seen_by_rows(
    model: Any, prefix_pad_masks: Tensor, num_rows: int
) -> tuple[Rotation, Rotation, Tensor, Tensor]:
    """Positions and masks of rows, in layers where they attend to each other, or to the prefix only."""
    both = model.vlm_with_expert
    head_dim = both.vlm.config.text_config.head_dim
    order = torch.arange(num_rows, device=prefix_pad_masks.device)
    first = prefix_pad_masks.sum(dim=-1, keepdim=True)
    among_rows, alone = _rotation(first + order, head_dim), _rotation(order[None], head_dim)
    sees_prefix = prefix_pad_masks[:, None, :].expand(-1, num_rows, -1)
    looks_back = (order <= order[:, None]).expand(len(prefix_pad_masks), -1, -1)
    num_groups = both.num_attention_heads // both.num_key_value_heads
    sees_rows = _for_heads(torch.cat([sees_prefix, looks_back], dim=2), num_groups)
    return among_rows, alone, sees_rows, _for_heads(sees_prefix, num_groups)


def _step(
    model: Any,
    seen: tuple[Rotation, Rotation, Tensor, Tensor],
    past_key_values: Any,
    x_t: Tensor,
    timestep: Tensor,
    state: None = None,
) -> Tensor:
    """LeRobot's `denoise_step`, after a prefix by `_projected`. seen: from `_seen_by_rows`."""
    both, head_dim = model.vlm_with_expert, model.vlm_with_expert.vlm.config.text_config.head_dim
    rows, _, _ = model.embed_suffix(x_t, timestep)
    among_rows, alone, sees_rows, sees_prefix = seen
    for i, layer in enumerate(both.lm_expert.layers):
        attention, held = layer.self_attn, past_key_values.layers[i]
        normed = layer.input_layernorm(rows).to(attention.q_proj.weight.dtype)
        each = attention.q_proj(normed).unflatten(-1, (-1, head_dim)).transpose(1, 2)
        if _sees_rows(both, i):
            shared = both.num_key_value_heads
            q, k, v = each.split([each.shape[1] - 2 * shared, shared, shared], dim=1)
            q, k = _rotated(q, among_rows), _rotated(k, among_rows)
            keys, values = (_padded(torch.cat(pair, dim=2)) for pair in ((held.keys, k), (held.values, v)))
            out = _attended(q, keys, values, sees_rows)
        else:
            out = _attended(_rotated(each, alone), held.keys, held.values, sees_prefix)
        added = attention.o_proj(out.to(attention.o_proj.weight.dtype))
        rows = (added + rows).to(added.dtype)
        gate, up = layer.mlp.gate_proj(layer.post_attention_layernorm(rows)).chunk(2, dim=-1)
        rows = layer.mlp.down_proj(layer.mlp.act_fn(gate) * up) + rows
    normed = both.lm_expert.norm(rows)
    velocity: Tensor = model.action_out_proj(normed.to(torch.float32))
    return velocity


def _rotation(positions: Tensor, head_dim: int) -> Rotation:
    """The rotation for positions (B, n), as in LeRobot's `apply_rope`."""
    half = torch.arange(head_dim // 2, dtype=torch.float32, device=positions.device)
    radians = positions[:, None, :, None].float() / MAX_WAVELENGTH ** ((2.0 / head_dim) * half)
    return radians.cos(), radians.sin()


def _rotated(x: Tensor, by: Rotation) -> Tensor:
    cos, sin = by
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


def _for_heads(is_seen: Tensor, num_groups: int) -> Tensor:
    """The mask (B, n, keys) repeated for the heads that share keys, (B, 1, groups * n, keys padded)."""
    is_seen = F.pad(is_seen, (0, -is_seen.shape[2] % ALIGNED), value=False)
    return is_seen.repeat(1, num_groups, 1)[:, None]


def _attended(q: Tensor, k: Tensor, v: Tensor, is_seen: Tensor) -> Tensor:
    """The attention's output (B, n, heads * d). q: (B, heads, n, d); k, v: (B, shared, keys, d)."""
    num_rows = q.shape[2]
    grouped = q.unflatten(1, (k.shape[1], -1)).flatten(2, 3)  # (B, shared, group * n, d)
    out = F.scaled_dot_product_attention(grouped, k.to(q.dtype), v.to(q.dtype), attn_mask=is_seen)
    return out.unflatten(2, (-1, num_rows)).flatten(1, 2).transpose(1, 2).flatten(2)
