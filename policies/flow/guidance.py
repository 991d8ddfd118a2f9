"""Real-time chunking: each Euler step is guided towards the previous chunk.

arXiv 2506.07339, equations 2 to 5:

    t                 0 ---------------- t ------------------ 1
    estimate                             x + (1 - t) v(x, t)  result if v stayed constant
    error                                W (y - estimate)     y the previous chunk, W its soft mask
    guided velocity                      v + w(t) J^T error   J the estimate's Jacobian by x

    w(t) = min(beta, (1-t)/t * (t^2 + (1-t)^2) / (1-t)^2)     infinite at t = 0, so beta there; 2 at t = 1/2

Flow time runs as in the paper. The exact form differentiates through the network; LeRobot 0.6 replaces J by
the identity. All rows are normalised, as the network sees them.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from robot_runtime.core.method.sampler_parts import SoftMask


def soft_mask(mask: SoftMask, *, start: Tensor, end: Tensor, horizon: int) -> Tensor:
    """Weights (B, H) of rows, float64: 1 below start (B,), falling to 0 at end (B,), 0 from there on.

    start: committed rows, d; at most `end` counts.
    end: planned rows, n; the paper's H - s.
    """
    end = end[:, None].double()
    start = torch.minimum(start[:, None], end)
    row = torch.arange(horizon, device=end.device)  # (H,)
    c = ((end - row) / (end - start + 1)).clamp(0.0, 1.0)  # (B, H)
    match mask:
        case SoftMask.EXP:
            weights = c * torch.expm1(c) / math.expm1(1.0)
        case SoftMask.LINEAR:
            weights = c
        case SoftMask.HARD:
            weights = torch.zeros_like(c)
    return torch.where(row < start, 1.0, weights)


def guidance_weight(t: Tensor, max_guidance_weight: float) -> Tensor:
    """w(t), t in [0, 1): the gain of the error at flow time t."""
    pull = (t.square() + (1.0 - t).square()) / (t * (1.0 - t))  # (1-t)/t / r^2, infinite at t = 0
    return pull.clamp(max=max_guidance_weight)


def guided(
    velocity: Callable[[Tensor, Tensor], Tensor],
    *,
    target: Tensor,
    weights: Tensor,
    max_guidance_weight: float,
    exact_jacobian: bool,
) -> Callable[[Tensor, Tensor], Tensor]:
    """A velocity guided towards target (B, H, D) by weights (B, H); torch must not be in inference mode."""
    weights = weights.to(target.dtype)[..., None]

    def guided_velocity(x: Tensor, t: Tensor) -> Tensor:
        remaining = (1.0 - t)[..., None]  # (B, H, 1)
        with torch.set_grad_enabled(exact_jacobian):
            x = x.detach().requires_grad_(exact_jacobian)
            v = velocity(x, t)
            estimate = x + remaining * v
        pull = weights * (target - estimate.detach())
        if exact_jacobian:
            (pull,) = torch.autograd.grad(estimate, x, pull)
        return v.detach() + guidance_weight(t, max_guidance_weight)[..., None] * pull

    return guided_velocity


def calls_per_step(exact_jacobian: bool) -> int:
    """Passes through the network per guided step; a backward pass counts as two."""
    return 3 if exact_jacobian else 1
