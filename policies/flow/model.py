"""The network: a small transformer that predicts the flow's velocity for every row of a chunk.

    flow time   t=0 ------------ t ------------ t=1
                noise   x_t = (1-t) noise + t a   action        v = dx/dt = a - noise

t grows from noise to action. openpi and its descendants count the other way (1 is noise, 0 is the action),
so their velocity is minus ours. Every row carries its own t, which is what lets a committed prefix (t=1)
stand beside rows that are still noise (arXiv 2512.05964).

    tokens   [state] [task] [row 0] [row 1] ... [row H-1]      full self-attention, no mask
    time      own    own     t_0     t_1    ...  t_{H-1}       into each token's layer norm (adaLN)

One adaLN projection serves all layers (adaLN-single, PixArt-alpha, arXiv 2310.00426): a projection per layer
would cost half as much again as the layer. The offset PixArt adds per layer is left to the weights around it.

Sized for a CPU core, where arithmetic is cheap and passes over memory are not. Hence SiLU (a third of
tanh-GELU's time), and attention written out: in bfloat16 the fused kernel's backward takes 33 ms a layer
where the written-out products take 3 ms (batch 128, one core, torch 2.11).
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes of the network."""

    state_dim: int
    """Numbers in the state feature vector."""
    num_tasks: int
    action_dim: int
    """Columns of a row, D."""
    horizon: int
    """Rows of a chunk, H."""
    width: int = 128
    """Numbers in a token; a multiple of `num_heads`."""
    num_layers: int = 4
    num_heads: int = 4
    mlp_ratio: int = 4


NUM_CONTEXT_TOKENS = 2  # state, task


class TimeEmbedding(nn.Module):
    """Flow times, each as a vector of `width`: sines and cosines, then two layers."""

    frequencies: Tensor  # (width / 2,) [rad]

    def __init__(self, width: int) -> None:
        super().__init__()
        frequencies = torch.exp(torch.linspace(math.log(0.5), math.log(128.0), width // 2)) * math.pi
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.layer_in = nn.Linear(width, width)
        self.layer_out = nn.Linear(width, width)

    def forward(self, t: Tensor) -> Tensor:
        angles = t[..., None] * self.frequencies  # (B, H, width / 2), in float32 whatever the weights are
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1)
        out: Tensor = self.layer_out(F.silu(self.layer_in(waves.to(self.layer_in.weight.dtype))))
        return out  # (B, H, width)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Layer norm whose shift and scale come from outside, token by token."""
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=1e-6), scale)


class Block(nn.Module):
    """Self-attention and an MLP, each behind a modulated norm and a gate."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, hidden = config.width, config.mlp_ratio * config.width
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_in = nn.Linear(width, hidden)
        self.mlp_out = nn.Linear(hidden, width)

    def forward(self, x: Tensor, modulation: list[Tensor]) -> Tensor:
        """Tokens (B, T, width) to tokens; the modulation is shift, scale, gate (B, T, width) twice."""
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = modulation
        x = torch.addcmul(x, gate_a, self.attend(modulate(x, shift_a, scale_a)))
        return torch.addcmul(x, gate_m, self.mlp_out(F.silu(self.mlp_in(modulate(x, shift_m, scale_m)))))

    def attend(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)  # (B, heads, T, width / heads)
        weights = torch.softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2), dim=-1)
        out: Tensor = self.attention_out((weights @ v).transpose(1, 2).reshape(batch, tokens, width))
        return out


class FlowTransformer(nn.Module):
    """Velocity of every row of a noisy chunk, given the state, the task and each row's flow time."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.width
        self.state_in = nn.Sequential(
            nn.Linear(config.state_dim, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)
        )
        self.task_in = nn.Embedding(config.num_tasks, width)
        self.row_in = nn.Linear(config.action_dim, width)
        self.position = nn.Parameter(0.1 * torch.randn(NUM_CONTEXT_TOKENS + config.horizon, width))
        self.time_in = TimeEmbedding(width)
        self.context_time = nn.Parameter(0.1 * torch.randn(NUM_CONTEXT_TOKENS, width))
        self.modulation = nn.Linear(width, 6 * width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.velocity_out = nn.Linear(width, config.action_dim)
        for layer in (self.modulation, self.velocity_out):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        with torch.no_grad():  # shift 0, scale 1, gate 1: a plain pre-norm transformer to start with
            self.modulation.bias.view(6, width)[[1, 2, 4, 5]] = 1.0

    def forward(self, state: Tensor, task: Tensor, rows: Tensor, t: Tensor) -> Tensor:
        """`velocity` of rows given `encode` of state and task, in one call for training."""
        return self.velocity(rows, t, self.encode(state, task))

    def encode(self, state: Tensor, task: Tensor) -> Tensor:
        """State features (B, F) and task indices (B,) to context tokens (B, 2, width), once per chunk."""
        return torch.stack([self.state_in(state), self.task_in(task)], dim=1)

    def velocity(self, rows: Tensor, t: Tensor, context: Tensor) -> Tensor:
        """Velocity (B, H, D) of rows (B, H, D) at flow times (B, H), given context (B, 2, width)."""
        condition = torch.cat([self.context_time.expand_as(context), self.time_in(t)], dim=1)
        condition = condition + context.sum(dim=1, keepdim=True)  # (B, 2 + H, width)
        modulation = [part.contiguous() for part in self.modulation(F.silu(condition)).chunk(6, dim=-1)]
        x = torch.cat([context, self.row_in(rows)], dim=1) + self.position  # (B, 2 + H, width)
        for block in self.blocks:
            x = block(x, modulation)
        x = F.layer_norm(x[:, NUM_CONTEXT_TOKENS:], x.shape[-1:], eps=1e-6)
        velocity: Tensor = self.velocity_out(x)
        return velocity


def num_parameters(model: nn.Module) -> int:
    """Trainable numbers in a network."""
    return sum(parameter.numel() for parameter in model.parameters())
