"""Low-rank adapters that act on open rows only (LoRA, arXiv 2106.09685; REMAC, arXiv 2601.20130)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LoraLinear(nn.Linear):
    """A linear layer with a low-rank addition, initialised to zero.

        y = W x + b + gate * (alpha / rank) * B A (x + shift)

    gate is 1 for open rows and 0 for committed ones and for context. REMAC adds a projection of that mask to
    x; behind the gate only its value at 1 is used, which is `shift`. W and b keep the names of `nn.Linear`,
    so weights of a network without adapters fit.
    """

    def __init__(self, in_size: int, out_size: int, *, rank: int, alpha: float, dropout: float) -> None:
        super().__init__(in_size, out_size)
        self.scale, self.dropout = alpha / rank, dropout
        self.lora_a = nn.Parameter(torch.randn(rank, in_size) * in_size**-0.5)
        self.lora_b = nn.Parameter(torch.zeros(out_size, rank))
        self.lora_shift = nn.Parameter(torch.zeros(in_size))

    def forward(self, x: Tensor, gate: Tensor | None = None) -> Tensor:
        """x (..., in) to (..., out); gate (..., 1), or None for the frozen layer alone."""
        out = super().forward(x)
        if gate is None:
            return out
        low = F.dropout(F.linear(x + self.lora_shift, self.lora_a), self.dropout, self.training)
        return out + (self.scale * gate) * F.linear(low, self.lora_b)


def lora_parameters(module: nn.Module) -> list[nn.Parameter]:
    """The adapters' parameters, in order."""
    return [parameter for name, parameter in module.named_parameters() if ".lora_" in name]
