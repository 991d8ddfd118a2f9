"""Selects one chunk from several samples: bidirectional decoding (arXiv 2408.17355), the mean, the medoid.

The distance between chunks is the sum over rows of the Euclidean distance between rows, normalised.

    backward coherence   L_B(a) = sum_i w_i |a_i - y_i|        y the previous chunk, w_i = rho^i or RTC's mask
    forward contrast     L_F(a) = (sum |a - a+| - sum |a - a-|) / N
                                  a+ samples of this policy, a- samples of a weaker checkpoint of it

As in the RTC paper's comparison, a+ and a- are, for either policy, the K of N samples that agree best with
the previous chunk.
"""

import torch
from torch import Tensor

from policies.flow.guidance import soft_mask
from robot_runtime.core.method.sampler_parts import SoftMask


def coherence_weights(*, rho: float | None, start: Tensor, end: Tensor, horizon: int) -> Tensor:
    """w (B, H): rho^i on planned rows, i < end (B,); without rho, RTC's exponential mask from start (B,)."""
    if rho is None:
        return soft_mask(SoftMask.EXP, start=start, end=end, horizon=horizon)
    row = torch.arange(horizon, device=end.device)
    return torch.where(row < end[:, None], torch.full_like(row, rho, dtype=torch.float64) ** row, 0.0)


def backward_loss(samples: Tensor, previous: Tensor, weights: Tensor) -> Tensor:
    """L_B (B, N) of samples (B, N, H, D), given previous rows (B, H, D) and weights (B, H)."""
    distances = (samples - previous[:, None]).norm(dim=-1)  # (B, N, H)
    return (distances * weights[:, None].to(samples.dtype)).sum(dim=-1)


def forward_loss(samples: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
    """L_F (B, N) of samples (B, N, H, D), given positives and negatives (B, K, H, D)."""
    return (_distances(samples, positives) - _distances(samples, negatives)).sum(dim=-1) / samples.shape[1]


def best_sample(
    samples: Tensor,
    *,
    previous: Tensor,
    weights: Tensor,
    weak: Tensor | None = None,
    num_contrast: int = 0,
) -> Tensor:
    """The sample (B, H, D) with the least L_B, or the least L_B + L_F; the first of equals.

    weak: samples (B, N, H, D) of a weaker policy, K = `num_contrast` of which serve as contrast.
    """
    loss = backward_loss(samples, previous, weights)
    if weak is not None and num_contrast > 0:
        weak_loss = backward_loss(weak, previous, weights)
        positives = _take(samples, loss.argsort(dim=1, stable=True)[:, :num_contrast])
        negatives = _take(weak, weak_loss.argsort(dim=1, stable=True)[:, :num_contrast])
        loss = loss + forward_loss(samples, positives, negatives)
    return _take(samples, loss.argmin(dim=1, keepdim=True))[:, 0]


def medoid(samples: Tensor) -> Tensor:
    """The sample (B, H, D) with the smallest summed distance to the others (B, N, H, D)."""
    return _take(samples, _distances(samples, samples).sum(dim=-1).argmin(dim=1, keepdim=True))[:, 0]


def _distances(a: Tensor, b: Tensor) -> Tensor:
    """Distances (B, N, K) between chunks (B, N, H, D) and (B, K, H, D)."""
    return (a[:, :, None] - b[:, None]).norm(dim=-1).sum(dim=-1)


def _take(samples: Tensor, index: Tensor) -> Tensor:
    """Chunks (B, K, H, D) at index (B, K)."""
    return torch.stack([chunks[i] for chunks, i in zip(samples, index, strict=True)])
