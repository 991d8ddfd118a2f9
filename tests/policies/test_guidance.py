"""RTC against a transcription of the published algorithm that shares no code with ours."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from policies.flow.guidance import guidance_weight, soft_mask
from policies.flow.sampler import PreviousRows, denoise
from robot_runtime.core.method.sampler_parts import RtcGuidance, SoftMask

H, D, NUM_STEPS = 8, 3, 5
WIDTH = H * D
_generator = torch.Generator().manual_seed(0)
W_IN, W_OUT = (0.4 * torch.randn(WIDTH, WIDTH, generator=_generator, dtype=torch.float64) for _ in range(2))


def field(x: Tensor, t: float) -> Tensor:
    """A velocity (H, D) whose Jacobian is far from the identity and mixes rows and columns."""
    return (W_OUT @ torch.tanh(W_IN @ x.reshape(-1) + t)).view(H, D)


def batched(x: Tensor, t: Tensor, is_prefix: Tensor | None) -> Tensor:
    return torch.stack([field(item, float(times[0])) for item, times in zip(x, t, strict=True)])


def published_mask(mask: SoftMask, d: int, n: int) -> list[float]:
    """Equation 5, with n for H - s."""
    weights = []
    for i in range(H):
        if i < min(d, n):
            weights.append(1.0)
        elif i >= n or mask is SoftMask.HARD:
            weights.append(0.0)
        else:
            c = (n - i) / (n - d + 1)
            weights.append(c * (math.exp(c) - 1.0) / (math.e - 1.0) if mask is SoftMask.EXP else c)
    return weights


def published_rtc(noise: Tensor, y: Tensor, weights: list[float], *, beta: float, exact: bool) -> Tensor:
    """Algorithm 1's guided inference: one chunk, the Jacobian written out as a matrix."""
    x = noise.clone()
    for step in range(NUM_STEPS):
        tau = step / NUM_STEPS
        estimate = x + (1.0 - tau) * field(x, tau)
        error = torch.stack([weights[i] * (y[i] - estimate[i]) for i in range(H)]).reshape(-1)
        if exact:
            jacobian = torch.autograd.functional.jacobian(
                lambda z, tau=tau: z + (1.0 - tau) * field(z.view(H, D), tau).reshape(-1), x.reshape(-1)
            )
            assert isinstance(jacobian, Tensor)
            error = jacobian.T @ error
        inverse_r2 = (tau**2 + (1.0 - tau) ** 2) / (1.0 - tau) ** 2
        weight = beta if tau == 0.0 else min(beta, (1.0 - tau) / tau * inverse_r2)
        x = x + (field(x, tau) + weight * error.view(H, D)) / NUM_STEPS
    return x


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("mask", list(SoftMask))
@pytest.mark.parametrize(("d", "n"), [(0, 6), (2, 6), (4, 4), (3, 8), (0, 0), (7, 8)])
def test_guidance_is_the_published_algorithm(exact: bool, mask: SoftMask, d: int, n: int) -> None:
    generator = torch.Generator().manual_seed(10 * d + n)
    noise = torch.randn(2, H, D, generator=generator, dtype=torch.float64)
    rows = torch.randn(2, H, D, generator=generator, dtype=torch.float64)
    rows[0, n:] = 0.0  # the second item plans one row less and is committed to one
    rows[1, max(n - 1, 0) :] = 0.0
    second = (min(1, max(n - 1, 0)), max(n - 1, 0))
    previous = PreviousRows(
        rows=rows, num_rows=torch.tensor([n, second[1]]), num_committed=torch.tensor([d, second[0]])
    )
    part = RtcGuidance(exact_jacobian=exact, mask=mask, max_guidance_weight=5.0)
    *_, ours = denoise(part, batched, noise=noise, previous=previous, num_steps=NUM_STEPS)
    for item, (delay, planned) in enumerate([(d, n), second]):
        weights = published_mask(mask, delay, planned)
        theirs = published_rtc(noise[item], rows[item], weights, beta=5.0, exact=exact)
        torch.testing.assert_close(ours[item], theirs, atol=1e-6, rtol=0.0)


def test_the_exact_jacobian_matters_for_a_field_that_mixes_rows() -> None:
    noise, y = torch.zeros(H, D, dtype=torch.float64), torch.ones(H, D, dtype=torch.float64)
    weights = published_mask(SoftMask.EXP, 2, 6)
    exact = published_rtc(noise, y, weights, beta=5.0, exact=True)
    identity = published_rtc(noise, y, weights, beta=5.0, exact=False)
    assert (exact - identity).abs().max() > 0.1


def test_the_weight_of_the_guidance_is_the_published_one_at_five_steps() -> None:
    weights = guidance_weight(torch.arange(5, dtype=torch.float64) / 5, 5.0)
    expected = [5.0, 4.25, 13 / 6, 13 / 6, 4.25]
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))
    assert guidance_weight(torch.tensor(0.5), 5.0) == 2.0
    assert guidance_weight(torch.tensor(0.5), 0.0) == 0.0


def mask_of(mask: SoftMask, d: int, n: int, horizon: int = H) -> list[float]:
    weights: list[float] = soft_mask(
        mask, start=torch.tensor([d]), end=torch.tensor([n]), horizon=horizon
    ).tolist()[0]
    return weights


def test_the_soft_mask_draws_the_published_number_line() -> None:
    """H = 8, d = 2, s = 2, so n = 6: five equal steps of c from row 1 to row 6."""
    assert mask_of(SoftMask.LINEAR, 2, 6) == pytest.approx([1, 1, 0.8, 0.6, 0.4, 0.2, 0, 0])
    exp = [c * (math.exp(c) - 1) / (math.e - 1) for c in (0.8, 0.6, 0.4, 0.2)]
    assert mask_of(SoftMask.EXP, 2, 6) == pytest.approx([1, 1, *exp, 0, 0], abs=1e-6)
    assert mask_of(SoftMask.HARD, 2, 6) == [1, 1, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("mask", list(SoftMask))
def test_nothing_planned_weighs_nothing(mask: SoftMask) -> None:
    assert mask_of(mask, 0, 0) == [0.0] * H


def test_without_committed_rows_even_the_first_is_only_drawn_softly() -> None:
    assert mask_of(SoftMask.LINEAR, 0, 3) == pytest.approx([0.75, 0.5, 0.25, 0, 0, 0, 0, 0])
    assert mask_of(SoftMask.HARD, 0, 3) == [0.0] * H


@pytest.mark.parametrize("mask", list(SoftMask))
@pytest.mark.parametrize("d", [4, 5, 8])
def test_a_delay_that_reaches_the_end_of_the_plan_is_a_hard_mask(mask: SoftMask, d: int) -> None:
    assert mask_of(mask, d, 4) == [1, 1, 1, 1, 0, 0, 0, 0]


@given(d=st.integers(0, 20), n=st.integers(0, 20), mask=st.sampled_from(SoftMask))
def test_a_soft_mask_never_rises_and_vanishes_where_nothing_is_planned(
    d: int, n: int, mask: SoftMask
) -> None:
    weights = mask_of(mask, d, n, horizon=20)
    assert all(0.0 <= b <= a <= 1.0 for a, b in pairwise(weights))
    assert all(w == 1.0 for w in weights[: min(d, n)])
    assert all(w == 0.0 for w in weights[n:])
