import pytest
import torch
from torch import nn

from policies.flow.muon import Muon, half_orthogonal

SHAPES = [(96, 96), (288, 96), (96, 384), (33, 40)]


def drawn(shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def stepped(optimiser: torch.optim.Optimizer, matrices: list[nn.Parameter], steps: int = 4) -> None:
    for step in range(steps):
        for place, matrix in enumerate(matrices):
            matrix.grad = drawn(tuple(matrix.shape), seed=100 * step + place)
        optimiser.step()


def test_in_bfloat16_it_takes_the_steps_of_torchs_own_to_the_last_bit() -> None:
    ours, torchs = ([nn.Parameter(drawn(shape)) for shape in SHAPES] for _ in range(2))
    stepped(Muon(ours, lr=3e-3, weight_decay=0.1, dtype=torch.bfloat16), ours)
    its = torch.optim.Muon(torchs, lr=3e-3, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    stepped(its, torchs)
    assert all(torch.equal(a, b) for a, b in zip(ours, torchs, strict=True))


def test_in_float32_its_steps_are_nearly_those_of_bfloat16() -> None:
    single, half = ([nn.Parameter(drawn(shape)) for shape in SHAPES] for _ in range(2))
    before = [matrix.detach().clone() for matrix in single]
    stepped(Muon(single, lr=3e-3, weight_decay=0.0, dtype=torch.float32), single)
    stepped(Muon(half, lr=3e-3, weight_decay=0.0, dtype=torch.bfloat16), half)
    for a, b, start in zip(single, half, before, strict=True):
        assert 0.0 < (a - b).norm() < 0.1 * (a - start).norm()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_stretches_every_direction_by_about_one(shape: tuple[int, int]) -> None:
    left, _, right = torch.linalg.svd(drawn(shape), full_matrices=False)
    given = left * torch.logspace(0.0, -1.5, min(shape)) @ right
    kept = given.clone()
    after = torch.linalg.svdvals(half_orthogonal(given, torch.float32))
    assert after.min() > 0.5
    assert after.max() < 1.5
    assert torch.equal(given, kept)


def test_a_matrix_without_a_gradient_stays_and_a_gradient_of_zero_does_no_harm() -> None:
    still, pushed = (nn.Parameter(drawn((40, 40))) for _ in range(2))
    pushed.grad = torch.zeros(40, 40)
    Muon([still, pushed], lr=1e-2, weight_decay=0.0, dtype=torch.float32).step()
    assert torch.equal(still, pushed)
    assert bool(pushed.isfinite().all())
