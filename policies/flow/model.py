"""The network: a small transformer that predicts the flow's velocity for every row of a chunk.

    flow time   t=0 ------------ t ------------ t=1
                noise   x_t = (1-t) noise + t a   action        v = dx/dt = a - noise

t grows from noise to action. openpi and its descendants count in reverse (1 is noise, 0 is the action), so
their velocity is minus ours. Every row has its own t, which allows a committed prefix (t=1) beside rows that
are still noise (arXiv 2512.05964).

    tokens   [state] [task] [row 0] [row 1] ... [row H-1]      full self-attention, no mask
    time      own    own     t_0     t_1    ...  t_{H-1}       into each token's layer norm (adaLN)

Three recipes change that: `causal_window` and `suffix_offset` (Xiaomi-Robotics-0), `lora_rank` (REMAC) and
`robot_dim` (VLASH's shared observation). Their defaults change nothing.

One adaLN projection serves all layers (adaLN-single, PixArt-alpha, arXiv 2310.00426): a projection per layer
would cost half as much as the layer itself. PixArt's offset per layer is left to the surrounding weights.

It is sized for a CPU core, where arithmetic is cheap and passes over memory are not. Hence SiLU (a third of
tanh-GELU's time) and explicit attention: in bfloat16 the fused kernel's backward takes 33 ms a layer, the
explicit products 3 ms (batch 128, one core, torch 2.11).
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from policies.flow.lora import LoraLinear
from robot_runtime.errors import InvalidValueError


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
    causal_window: int | None = None
    """Number of earlier rows that a row attends to; None for all rows. All rows attend to the context, which
    with a window attends only to itself."""
    suffix_offset: int = 0
    """Jump of the position from a chunk's last committed row to its first open one."""
    lora_rank: int = 0
    """Rank of the adapters for open rows; 0 for none."""
    lora_alpha: float = 8.0
    lora_dropout: float = 0.1
    robot_dim: int | None = None
    """Number of leading state features that describe the robot and form a token of the branch; the rest is
    the scene, which branches share. None keeps one state token."""

    def __post_init__(self) -> None:
        if self.robot_dim is not None and (self.causal_window, self.suffix_offset) != (None, 0):
            raise ValueError("a shared observation supports neither causal_window nor suffix_offset")

    @property
    def num_context_tokens(self) -> int:
        """Number of context tokens: state and task, or scene, task and robot."""
        return 2 if self.robot_dim is None else 3


NUM_SHARED_TOKENS = 2  # scene, task


class TimeEmbedding(nn.Module):
    """Embeds flow times as vectors of `width`: sines and cosines, then two layers."""

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
    """Layer norm with a given shift and scale for each token."""
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=1e-6), scale)


def linear(config: ModelConfig, in_size: int, out_size: int) -> nn.Linear:
    """A linear layer, with an adapter if the network has them."""
    if config.lora_rank == 0:
        return nn.Linear(in_size, out_size)
    rank, alpha, dropout = config.lora_rank, config.lora_alpha, config.lora_dropout
    return LoraLinear(in_size, out_size, rank=rank, alpha=alpha, dropout=dropout)


def apply(layer: nn.Module, x: Tensor, gate: Tensor | None) -> Tensor:
    """The layer, through its adapter where the gate (B, T, 1) is open; None leaves the adapter out."""
    out: Tensor = layer(x) if gate is None else layer(x, gate)
    return out


class Block(nn.Module):
    """Self-attention and an MLP, each behind a modulated norm and a gate."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, hidden = config.width, config.mlp_ratio * config.width
        self.num_heads = config.num_heads
        self.qkv = linear(config, width, 3 * width)
        self.attention_out = linear(config, width, width)
        self.mlp_in = linear(config, width, hidden)
        self.mlp_out = linear(config, hidden, width)

    def forward(
        self, x: Tensor, modulation: list[Tensor], hidden: Tensor | None = None, gate: Tensor | None = None
    ) -> Tensor:
        """Tokens (B, T, width) to tokens; the modulation is shift, scale, gate (B, T, width) twice.

        hidden: (T, T) or (B, 1, T, T), true where a token (row) does not attend to another (column).
        gate: (B, T, 1) for the adapters.
        """
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = modulation
        x = torch.addcmul(x, gate_a, self.attend(modulate(x, shift_a, scale_a), hidden, gate))
        up = apply(self.mlp_in, modulate(x, shift_m, scale_m), gate)
        return torch.addcmul(x, gate_m, apply(self.mlp_out, F.silu(up), gate))

    def attend(self, x: Tensor, hidden: Tensor | None, gate: Tensor | None) -> Tensor:
        batch, tokens, width = x.shape
        qkv = apply(self.qkv, x, gate).view(batch, tokens, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)  # (B, heads, T, width / heads)
        logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        if hidden is not None:
            logits = logits.masked_fill(hidden, -math.inf)
        mixed = (torch.softmax(logits, dim=-1) @ v).transpose(1, 2).reshape(batch, tokens, width)
        return apply(self.attention_out, mixed, gate)


class FlowTransformer(nn.Module):
    """Velocity of every row of a noisy chunk, given the state, the task and each row's flow time."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, tokens = config.width, config.num_context_tokens
        self.config = config
        scene_dim = config.state_dim - (config.robot_dim or 0)
        self.state_in = _state_encoder(scene_dim, width)
        self.robot_in = None if config.robot_dim is None else _state_encoder(config.robot_dim, width)
        self.task_in = nn.Embedding(config.num_tasks, width)
        self.row_in = linear(config, config.action_dim, width)
        num_positions = tokens + config.suffix_offset + config.horizon
        self.position = nn.Parameter(0.1 * torch.randn(num_positions, width))
        self.time_in = TimeEmbedding(width)
        self.context_time = nn.Parameter(0.1 * torch.randn(tokens, width))
        self.modulation = nn.Linear(width, 6 * width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.velocity_out = linear(config, width, config.action_dim)
        for layer in (self.modulation, self.velocity_out):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        with torch.no_grad():  # shift 0, scale 1, gate 1: it starts as a plain pre-norm transformer
            self.modulation.bias.view(6, width)[[1, 2, 4, 5]] = 1.0

    def forward(self, state: Tensor, task: Tensor, rows: Tensor, t: Tensor, **options: Any) -> Tensor:
        """`velocity` of rows given `encode` of state and task, in one call for training.

        States (B, K, F) with rows (B, K, H, D) are branches: see `branch_velocity`.
        """
        if state.ndim == 2:
            return self.velocity(rows, t, self.encode(state, task), **options)
        return self.branch_velocity(rows, t, self.encode_shared(state[:, 0], task), self.encode_robot(state))

    def encode(self, state: Tensor, task: Tensor) -> Tensor:
        """State features (B, F) and task indices (B,) to context tokens (B, 2 or 3, width), once a chunk."""
        if self.robot_in is None:
            return torch.stack([self.state_in(state), self.task_in(task)], dim=1)
        return torch.cat([self.encode_shared(state, task), self.encode_robot(state)[:, None]], dim=1)

    def encode_shared(self, state: Tensor, task: Tensor) -> Tensor:
        """Scene and task tokens (B, 2, width) of state features (B, F); the robot's features are not read."""
        return torch.stack([self.state_in(state[..., self.config.robot_dim :]), self.task_in(task)], dim=1)

    def encode_robot(self, state: Tensor) -> Tensor:
        """Robot tokens (..., width) of state features (..., F)."""
        assert self.robot_in is not None, "only a network with robot_dim has a robot token"
        out: Tensor = self.robot_in(state[..., : self.config.robot_dim])
        return out

    def velocity(
        self,
        rows: Tensor,
        t: Tensor,
        context: Tensor,
        is_prefix: Tensor | None = None,
        *,
        hidden_rows: Tensor | None = None,
        with_lora: bool = True,
    ) -> Tensor:
        """Velocity (B, H, D) of rows (B, H, D) at flow times (B, H), given context (B, 2 or 3, width).

        is_prefix: (B, H) committed rows, None for none. Networks without adapters and position jump ignore
            it; those with a jump give committed rows velocity 0.
        hidden_rows: (B, H) committed rows that no open row attends to.
        with_lora: False evaluates the frozen network.
        """
        if self.robot_in is not None:
            shared, robot = context[:, :NUM_SHARED_TOKENS], context[:, NUM_SHARED_TOKENS:]
            return self.branch_velocity(rows[:, None], t[:, None], shared, robot)[:, 0]
        if is_prefix is None:
            is_prefix = torch.zeros(t.shape, dtype=torch.bool, device=rows.device)
        n = context.shape[1]
        condition = torch.cat([self.context_time.expand_as(context), self.time_in(t)], dim=1)
        condition = condition + context.sum(dim=1, keepdim=True)  # (B, n + H, width)
        gate = (~is_prefix)[..., None].to(rows.dtype) if with_lora and self.config.lora_rank else None
        x = torch.cat([context, apply(self.row_in, rows, gate)], dim=1) + self._positions(is_prefix)
        x = self._transform(
            x,
            condition,
            hidden=self._hidden(is_prefix, hidden_rows),
            gate=None if gate is None else F.pad(gate, (0, 0, n, 0)),
        )
        velocity = apply(self.velocity_out, x[:, n:], gate)
        return velocity.masked_fill(is_prefix[..., None], 0.0) if self.config.suffix_offset else velocity

    def branch_velocity(self, rows: Tensor, t: Tensor, shared: Tensor, robot: Tensor) -> Tensor:
        """Velocity (B, K, H, D) of K chunks that share an observation (VLASH, arXiv 2512.01031, section 3.3).

            [scene task | robot_0 rows_0 | robot_1 rows_1 | ...]      positions start again in every branch
             <- attends <- attends to      <- attends to
                to itself  scene, task,       scene, task,
                           itself             itself

        rows (B, K, H, D), t (B, K, H), shared (B, 2, width), robot (B, K, width).
        """
        batch, branches, horizon, _ = rows.shape
        size = 1 + horizon
        scene = shared.sum(dim=1)  # (B, width)
        own = torch.cat([self.context_time[-1].expand(batch, branches, 1, -1), self.time_in(t)], dim=2)
        own = own + (scene[:, None] + robot)[:, :, None]  # (B, K, 1 + H, width)
        condition = self.context_time[:-1] + scene[:, None]
        tokens = torch.cat([robot[:, :, None], apply(self.row_in, rows, None)], dim=2)
        tokens = tokens + self.position[NUM_SHARED_TOKENS:]
        x = torch.cat([shared + self.position[:NUM_SHARED_TOKENS], tokens.flatten(1, 2)], dim=1)
        branch = torch.arange(branches, device=rows.device).repeat_interleave(size)
        branch = F.pad(branch, (NUM_SHARED_TOKENS, 0), value=-1)
        hidden = (branch[:, None] != branch) & (branch >= 0)  # no token attends to another branch
        x = self._transform(x, torch.cat([condition, own.flatten(1, 2)], dim=1), hidden=hidden, gate=None)
        x = x[:, NUM_SHARED_TOKENS:].view(batch, branches, size, -1)[:, :, 1:]
        return apply(self.velocity_out, x, None)

    def _transform(
        self, x: Tensor, condition: Tensor, *, hidden: Tensor | None, gate: Tensor | None
    ) -> Tensor:
        modulation = [part.contiguous() for part in self.modulation(F.silu(condition)).chunk(6, dim=-1)]
        for block in self.blocks:
            x = block(x, modulation, hidden, gate)
        return F.layer_norm(x, x.shape[-1:], eps=1e-6)

    def _positions(self, is_prefix: Tensor) -> Tensor:
        """Positions of all tokens, (2 + H, width), or (B, 2 + H, width) where prefix and open rows differ."""
        jump, horizon, n = self.config.suffix_offset, self.config.horizon, self.config.num_context_tokens
        if jump == 0:
            return self.position
        closed, open_ = self.position[n : n + horizon], self.position[n + jump :]
        rows = torch.where(is_prefix[..., None], closed, open_)  # (B, H, width)
        return torch.cat([self.position[:n].expand(len(rows), -1, -1), rows], dim=1)

    def _hidden(self, is_prefix: Tensor, hidden_rows: Tensor | None) -> Tensor | None:
        """The attention mask (2 + H, 2 + H) or (B, 1, 2 + H, 2 + H), true where hidden; None for full
        attention."""
        window, n = self.config.causal_window, self.config.num_context_tokens
        if window is None:
            return None
        i = torch.arange(n + is_prefix.shape[1], device=is_prefix.device)
        back = i[:, None] - i
        hidden = (i >= n) & ((back < 0) | (back > window))  # the context is never hidden
        if hidden_rows is None:
            return hidden
        blocked = F.pad(~is_prefix, (n, 0))[:, :, None] & F.pad(hidden_rows, (n, 0))[:, None, :]
        return (hidden | blocked)[:, None]


def _state_encoder(in_size: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(in_size, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))


def copy_weights(source: FlowTransformer, target: FlowTransformer) -> None:
    """Initialise a network with another one's weights; adapters keep their zero effect.

    A network without position jump can initialise one with it: its position of row i is used for row i both
    committed and open. InvalidValueError: the networks differ in any other respect.
    """
    weights = dict(source.state_dict())
    jump, n = target.config.suffix_offset, target.config.num_context_tokens
    if jump and source.config.suffix_offset == 0:
        old, new = weights["position"], target.position.detach().clone()
        new[: min(n + jump, len(old))] = old[: n + jump]
        new[n + jump :] = old[n:]
        weights["position"] = new
    try:
        missing = target.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        raise InvalidValueError(f"the weights to start from are those of another network: {error}") from error
    wrong = [name for name in missing.missing_keys if ".lora_" not in name] + missing.unexpected_keys
    if wrong:
        raise InvalidValueError(f"the weights to start from are those of another network: {', '.join(wrong)}")


def num_parameters(model: nn.Module) -> int:
    """Number of parameters of a network."""
    return sum(parameter.numel() for parameter in model.parameters())
