"""Merges the products of LeRobot's networks into fewer and larger ones before torch compiles them: `fuse`.

    queries, keys, values    one product instead of three
    gate and up              one instead of two
    heads that share keys    rows of one product, and the keys are not copied for each head
    last layer               of a prefix only gives keys and values; unused outputs are not computed
    flow time                its effect on every norm of pi0.5's expert, in one product; for pi0 and SmolVLA
                             the products before the first nonlinearity are merged, and the flow time's part
                             is added; values of flow times alone are cached in `policies.lerobot.flow_times`
    images                   of all cameras pass through the image encoder together

Results change only by rounding, and all have one format (`policies.lerobot.precision`). Networks with other
layers are left unchanged, which is logged.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from lerobot.policies.common.vla_utils import clone_past_key_values
from lerobot.policies.pi_gemma import PiGemmaRMSNorm
from lerobot.utils.constants import OPENPI_ATTENTION_MASK_VALUE
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.gemma.modeling_gemma import GemmaAttention, GemmaMLP, apply_rotary_pos_emb
from transformers.models.smolvlm.modeling_smolvlm import SmolVLMVisionEmbeddings

from policies.lerobot.flow_times import FoldedRows, pi05_condition
from policies.lerobot.fused_smolvla import fuse_smolvla
from policies.lerobot.precision import layer_format

logger = logging.getLogger(__name__)


def fuse(policy: Any) -> Callable[[Tensor], Tensor] | None:
    """Change a policy's network in place, which renames its weights.

    Returns the function for a `TimeTable`, whose rows `denoise_step` takes from here on in place of flow
    times. None: it takes flow times as before, because its layers are not of the kind merged here.

    policy: SmolVLA, pi0 or pi0.5, with flow times by row (`flow.take_flow_times_by_row`).
    """
    model = policy.eval().model
    is_pi = hasattr(model, "paligemma_with_expert")
    both = model.paligemma_with_expert if is_pi else model.vlm_with_expert
    policy.eval = lambda: policy  # LeRobot calls it for every chunk, which walks a thousand layers
    if not is_pi:
        vision = both.get_vlm_model().vision_model
        vision.embeddings.__class__ = WholePictures
        vision.forward = partial(_seen_whole, vision)
    vlm_layers = both.paligemma.model.language_model.layers if is_pi else ()
    expert_layers = both.gemma_expert.model.layers if is_pi else both.lm_expert.layers
    if (why := _unusual([*vlm_layers, *expert_layers])) is not None:
        logger.warning("layers of %s are left unmerged, which is slower: %s", policy.config.type, why)
        if not is_pi:
            model.denoise_step = partial(_smolvla_step, model)
        return None
    both.forward = partial(_expert_alone, both.forward)
    if not is_pi:
        if not fuse_smolvla(model, _side_by_side):
            logger.warning("layers of smolvla are left unmerged, which is slower: their attention differs")
            model.denoise_step = partial(_smolvla_step, model)
            return _fold_rows(model, both.expert_hidden_size, with_masks=True)
        return _fold_rows(model, both.expert_hidden_size)
    vlm, expert = both.paligemma.model, both.gemma_expert.model
    for layer in (*vlm.language_model.layers, *expert.layers):
        _fuse_attention(layer.self_attn)
        layer.mlp.__class__ = GateAndUp
        layer.mlp.gate_proj = _side_by_side((layer.mlp.gate_proj, layer.mlp.up_proj))
        del layer.mlp.up_proj
    model.embed_prefix = partial(_pi_prefix, both)
    if any(isinstance(m, PiGemmaRMSNorm) and m.dense is not None for m in expert.modules()):
        return _fuse_norms(model, expert, layer_format(policy))
    return _fold_rows(model, model.action_in_proj.out_features)


def _unusual(layers: Sequence[Any]) -> str | None:
    """The reason why products of these layers cannot be merged; None if they can."""
    for i, layer in enumerate(layers):
        attention, mlp = layer.self_attn, layer.mlp
        products = {name: getattr(attention, f"{name}_proj") for name in ("q", "k", "v", "o")}
        products |= {name: getattr(mlp, f"{name}_proj") for name in ("gate", "up", "down")}
        for name, product in products.items():
            if type(product) is not nn.Linear:
                return f"{name}_proj of layer {i} is a {type(product).__name__}"
        d = attention.head_dim
        q, k, v = (products[name].out_features for name in ("q", "k", "v"))
        if k != v or q % d or k % d or q % k or products["o"].in_features != q:
            return f"layer {i} makes {q} numbers of queries, {k} of keys and {v} of values, with heads of {d}"
    return None


class WholePictures(SmolVLMVisionEmbeddings):
    """Embeds images without masked patches, as LeRobot's are, so that no mask is read from the device."""

    def forward(self, pixel_values: Tensor, patch_attention_mask: Tensor | None) -> Tensor:
        """pixel_values: (B, 3, h, w). Each patch's position is rounded to a learned one."""
        patches, side = self.patch_embedding(pixel_values), self.num_patches_per_side
        boundaries = torch.arange(1 / side, 1.0, 1 / side, device=patches.device)
        centres = (
            torch.arange(n, dtype=torch.float32, device=patches.device) * (1.0 / n) for n in patches.shape[2:]
        )
        rows, columns = (
            torch.bucketize(centre.clamp(max=1.0 - 1e-6).to(pixel_values.dtype), boundaries, right=True)
            for centre in centres
        )
        positions = (rows[:, None] * side + columns).flatten()
        out: Tensor = patches.flatten(2).transpose(1, 2) + self.position_embedding(positions)
        return out


def _seen_whole(vision: Any, pixel_values: Tensor, patch_attention_mask: Tensor | None = None) -> Any:
    """The forward pass of LeRobot's vision transformer, in which every patch attends to every other.

    The original builds a mask on the host and inspects it on the device, although it masks nothing. Compiled,
    it cannot inspect the mask, applies it in every layer, and misses faster kernels that take no mask.
    """
    patches = vision.embeddings(pixel_values=pixel_values, patch_attention_mask=patch_attention_mask)
    encoded = vision.encoder(inputs_embeds=patches, attention_mask=None).last_hidden_state
    return BaseModelOutput(last_hidden_state=vision.post_layernorm(encoded))


class AllHeads(GemmaAttention):
    """Attention whose `q_proj` gives queries, keys and values; queries with shared keys form one matrix."""

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        **_: Any,
    ) -> tuple[Tensor, Tensor]:
        """hidden_states: (B, n, W). attention_mask: (B, 1, n, keys), to be added."""
        assert position_embeddings is not None
        each = self.q_proj(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        num_shared = each.shape[1] // (self.num_key_value_groups + 2)
        q, k, v = each.split([each.shape[1] - 2 * num_shared, num_shared, num_shared], dim=1)
        q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
        if past_key_values is not None:
            k, v = past_key_values.update(k, v, self.layer_idx)
        k, v, attention_mask = _aligned(k, v, attention_mask)
        grouped = q.unflatten(1, (num_shared, -1))  # (B, shared, group, n, d)
        weights = (grouped.flatten(2, 3) @ k.transpose(2, 3)).unflatten(2, grouped.shape[2:4]) * self.scaling
        if attention_mask is not None:
            weights = weights + attention_mask[:, :, None]
        weights = weights.softmax(dim=-1, dtype=torch.float32).to(v.dtype).flatten(2, 3)
        out = (weights @ v).unflatten(2, grouped.shape[2:4]).flatten(1, 2).transpose(1, 2)  # (B, n, heads, d)
        return self.o_proj(out.flatten(2)), weights


def _aligned(k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Keys and values (B, shared, n, d), with masked padding that makes n a multiple of 8.

    Products of other sizes run on slower kernels: 8 numbers of 16 bits are loaded at once.
    """
    missing = -k.shape[2] % 8
    if mask is None or not missing:
        return k, v, mask
    k, v = F.pad(k, (0, 0, 0, missing)), F.pad(v, (0, 0, 0, missing))
    return k, v, F.pad(mask, (0, missing), value=OPENPI_ATTENTION_MASK_VALUE)


class GateAndUp(GemmaMLP):
    """An MLP whose `gate_proj` gives both gate and up."""

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x).chunk(2, dim=-1)
        out: Tensor = self.down_proj(self.act_fn(gate) * up)
        return out


class ModulatedNorm(PiGemmaRMSNorm):
    """A norm whose condition (B, H, norms * 3 * W) holds the effect of flow times on all norms."""

    index: int

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor]:
        assert cond is not None
        width = 3 * self.dim
        scale, shift, gate = cond[..., self.index * width : (self.index + 1) * width].chunk(3, dim=-1)
        normed = self._norm(x) * (1 + scale.float()) + shift.float()
        return normed.to(x.dtype), gate.to(x.dtype)


def _fuse_attention(attention: Any) -> None:
    attention.__class__ = AllHeads
    attention.q_proj = _side_by_side((attention.q_proj, attention.k_proj, attention.v_proj))
    del attention.k_proj, attention.v_proj


def _fuse_norms(model: Any, expert: Any, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    norms = [norm for norm in expert.modules() if isinstance(norm, PiGemmaRMSNorm) and norm.dense is not None]
    model.time_modulation = _side_by_side([norm.dense for norm in norms])
    for i, norm in enumerate(norms):
        norm.__class__, norm.index = ModulatedNorm, i
        del norm.dense
    model.embed_suffix = partial(_modulated, model)

    def modulations(t: Tensor) -> Tensor:
        out: Tensor = model.time_modulation(pi05_condition(model, t).to(dtype))
        return out

    return modulations


def _fold_rows(model: Any, width: int, *, with_masks: bool = False) -> Callable[[Tensor], Tensor]:
    """Replace `embed_suffix` by one with `FoldedRows`; returns the function for a `TimeTable`.

    with_masks: for LeRobot's own step, which needs masks; they are made from lists on the host.
    """
    folded = FoldedRows(model, width)
    embed_suffix = model.embed_suffix

    def embedded(*given: Tensor) -> tuple[Any, ...]:
        """Tokens of the state, which pi0 puts before the rows, and of rows."""
        *state, x, time_part = given
        rows = folded(x, time_part)
        if with_masks:
            _, *masks = embed_suffix(*state, x, x.new_zeros(len(x)))
            return rows, *masks
        if not state:
            return rows, None, None
        first = model.state_proj(state[0].to(model.state_proj.weight.dtype))
        return torch.cat([first[:, None], rows], dim=1), None, None, None

    model.embed_suffix = embedded
    return folded.time_part


def _modulated(model: Any, x: Tensor, modulations: Tensor) -> tuple[Tensor, None, None, Tensor]:
    return model.action_in_proj(x), None, None, modulations


def _pi_prefix(
    both: Any, images: list[Tensor], img_masks: list[Tensor], tokens: Tensor, masks: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """As LeRobot's `embed_prefix`: images camera by camera, then words, all attending to each other."""
    image_tokens = both.embed_image(torch.cat(images)).unflatten(0, (len(images), -1))  # (cameras, B, n, W)
    is_there = [mask[:, None].expand(-1, image_tokens.shape[2]) for mask in img_masks]
    pad_masks = torch.cat([*is_there, masks], dim=1)
    embedded = torch.cat([*image_tokens, both.embed_language_tokens(tokens)], dim=1)
    return embedded, pad_masks, torch.zeros_like(pad_masks, dtype=torch.bool)


def _expert_alone(forward: Callable, **given: Any) -> tuple[list[Tensor | None], Any]:
    """The forward pass without the prefix's output: only its keys and values are used."""
    (_, suffix), cache = forward(**given)
    return [None, suffix], cache


def _smolvla_step(
    model: Any, prefix_pad_masks: Tensor, past_key_values: Any, x_t: Tensor, timestep: Tensor
) -> Tensor:
    """LeRobot's step on a copy of its cache, which it appends to and crops: this way it can be one graph."""
    copy = clone_past_key_values(past_key_values)
    out: Tensor = type(model).denoise_step(model, prefix_pad_masks, copy, x_t, timestep)
    return out


def _side_by_side(layers: Iterable[nn.Linear]) -> nn.Linear:
    """One layer whose output is the concatenated output of several layers of the same input."""
    layers = list(layers)
    first, width = layers[0], sum(layer.out_features for layer in layers)
    has_bias = first.bias is not None
    out = nn.Linear(first.in_features, width, bias=has_bias, device="meta")
    out.weight = nn.Parameter(torch.cat([layer.weight.data for layer in layers]), requires_grad=False)
    if has_bias:
        out.bias = nn.Parameter(torch.cat([layer.bias.data for layer in layers]), requires_grad=False)
    return out
