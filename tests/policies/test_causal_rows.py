"""Where rows look back only, what is finished need not be computed again.

call k    |-- context --|-- final before call k-1 --|-- still moving --|
            computed once                            computed
"""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from policies.flow.model import Block, FlowTransformer, ModelConfig, modulate
from policies.flow.sampler import PreviousRows, denoise
from robot_runtime.core.method.sampler_parts import HorizonAwareSchedule
from robot_runtime.core.method.schedule import finish_steps

H, D, DELAY = 16, 3, 2
PART = HorizonAwareSchedule(num_steps=10)


def make_model(causal_window: int | None) -> FlowTransformer:
    torch.manual_seed(0)
    config = ModelConfig(
        state_dim=4, num_tasks=1, action_dim=D, horizon=H, width=16, num_layers=3, num_heads=2,
        causal_window=causal_window,
    )  # fmt: skip
    model = FlowTransformer(config).requires_grad_(False)
    for parameter in model.parameters():  # layers that start at zero would prove nothing
        parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double()


class KeptKeys:
    """The network's velocity, written out so that tokens which will not change again are computed once."""

    def __init__(self, model: FlowTransformer, context: Tensor) -> None:
        self.model, self.context = model, context
        self.finish = finish_steps(PART, horizon=H, inference_delay=DELAY)
        self.num_kept, self.num_computed, self.num_calls = 0, 0, 0
        empty = torch.empty(len(context), 0, 3 * model.row_in.out_features, dtype=context.dtype)
        self.qkv = [empty for _ in model.blocks]  # (B, kept tokens, 3 width) of every layer

    def __call__(self, rows: Tensor, t: Tensor, is_prefix: Tensor | None) -> Tensor:
        model, n, skip = self.model, self.context.shape[1], self.num_kept
        times = torch.cat([model.context_time.expand_as(self.context), model.time_in(t)], dim=1)
        condition = (times + self.context.sum(dim=1, keepdim=True))[:, skip:]
        modulation = model.modulation(F.silu(condition)).chunk(6, dim=-1)
        x = (torch.cat([self.context, model.row_in(rows)], dim=1) + model.position)[:, skip:]
        self.num_computed += x.shape[1]
        self.num_kept = n + int((self.finish <= self.num_calls).sum())  # were final in this call
        self.num_calls += 1
        for layer, block in enumerate(model.blocks):
            x = self._through(layer, block, x, modulation)
        x = F.layer_norm(x, x.shape[-1:], eps=1e-6)
        moving = model.velocity_out(x[:, max(n - skip, 0) :])
        return F.pad(moving, (0, 0, H - moving.shape[1], 0))  # what is kept moves no more

    def _through(self, layer: int, block: Block, x: Tensor, modulation: tuple[Tensor, ...]) -> Tensor:
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = modulation
        qkv = torch.cat([self.qkv[layer], block.qkv(modulate(x, shift_a, scale_a))], dim=1)
        self.qkv[layer] = qkv[:, : self.num_kept]
        q, k, v = qkv.unflatten(-1, (3, block.num_heads, -1)).permute(2, 0, 3, 1, 4)
        q = q[:, :, -x.shape[1] :]
        logits = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        logits = logits.masked_fill(self._hidden()[-x.shape[1] :], -torch.inf)
        mixed = (logits.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)
        x = x + gate_a * block.attention_out(mixed)
        up = block.mlp_in(modulate(x, shift_m, scale_m))
        return x + gate_m * block.mlp_out(F.silu(up))

    def _hidden(self) -> Tensor:
        n, window = self.context.shape[1], self.model.config.causal_window
        hidden = torch.zeros(n + H, n + H, dtype=torch.bool)
        for i in range(n + H) if window is not None else ():
            for j in range(n, n + H):
                hidden[i, j] = not i - window <= j <= i
        return hidden


def streams(model: FlowTransformer) -> tuple[list[Tensor], list[Tensor], KeptKeys]:
    """Rows after every step: by the network as it is, and with kept keys."""
    generator = torch.Generator().manual_seed(1)
    state, noise, planned = (
        torch.randn(size, generator=generator, dtype=torch.float64) for size in [(1, 4), (1, H, D), (1, H, D)]
    )
    context = model.encode(state, torch.tensor([0]))
    kept = KeptKeys(model, context)
    previous = PreviousRows(rows=planned, num_rows=torch.tensor([H]), num_committed=torch.tensor([DELAY]))
    plain, spared = (
        list(denoise(PART, velocity, noise=noise, previous=previous, num_steps=PART.num_steps))
        for velocity in (lambda x, t, _: model.velocity(x, t, context), kept)
    )
    return plain, spared, kept


@pytest.mark.parametrize("window", [1, 4, H])
def test_keeping_keys_and_values_of_finished_rows_changes_nothing(window: int) -> None:
    plain, spared, kept = streams(make_model(window))
    for ours, theirs in zip(spared, plain, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-12)
    assert kept.num_computed < 0.75 * PART.num_steps * (H + 2)


def test_where_rows_see_each_other_finished_ones_still_have_something_to_learn() -> None:
    plain, spared, _ = streams(make_model(None))
    torch.testing.assert_close(spared[0], plain[0], atol=1e-12, rtol=1e-12)  # nothing was kept as yet
    assert (spared[-1] - plain[-1]).abs().max() > 1e-3
