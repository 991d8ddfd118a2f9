import pytest
import torch

from policies.flow.selection import backward_loss, best_sample, coherence_weights, forward_loss, medoid

N, K, H, D = 5, 2, 4, 3


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return sum(float(((a[i] - b[i]) ** 2).sum()) ** 0.5 for i in range(len(a)))


def test_rho_weighs_the_planned_rows_as_published() -> None:
    weights = coherence_weights(rho=0.5, start=torch.tensor([1, 0]), end=torch.tensor([3, 0]), horizon=H)
    torch.testing.assert_close(weights, torch.tensor([[1.0, 0.5, 0.25, 0.0], [0.0] * 4]).double())


def test_without_rho_the_weights_are_those_of_guidance() -> None:
    weights = coherence_weights(rho=None, start=torch.tensor([2]), end=torch.tensor([4]), horizon=H)
    assert weights[0, :2].tolist() == [1.0, 1.0]
    assert 1.0 > weights[0, 2] > weights[0, 3] > 0.0


def test_backward_coherence_is_the_published_sum() -> None:
    samples, previous, weights = random(2, N, H, D), random(2, H, D, seed=1), random(2, H, seed=2).abs()
    ours = backward_loss(samples, previous, weights)
    for b in range(2):
        for n in range(N):
            theirs = sum(
                float(weights[b, i]) * float(((samples[b, n, i] - previous[b, i]) ** 2).sum()) ** 0.5
                for i in range(H)
            )
            assert float(ours[b, n]) == pytest.approx(theirs, rel=1e-5)


def test_forward_contrast_is_the_published_sum() -> None:
    samples, positives, negatives = random(1, N, H, D), random(1, K, H, D, seed=1), random(1, K, H, D, seed=2)
    ours = forward_loss(samples, positives, negatives)
    for n in range(N):
        near = sum(distance(samples[0, n], positives[0, k]) for k in range(K))
        far = sum(distance(samples[0, n], negatives[0, k]) for k in range(K))
        assert float(ours[0, n]) == pytest.approx((near - far) / N, rel=1e-5, abs=1e-6)


def test_the_sample_that_goes_on_with_the_plan_is_the_best() -> None:
    samples = random(3, N, H, D)
    previous = torch.stack([samples[b, k] for b, k in enumerate([4, 0, 2])])
    weights = torch.tensor([[1.0, 1.0, 0.0, 0.0]]).expand(3, H)
    previous[:, 2:] = 7.0  # nothing is planned there
    best = best_sample(samples, previous=previous, weights=weights)
    assert torch.equal(best, torch.stack([samples[b, k] for b, k in enumerate([4, 0, 2])]))


def test_without_a_plan_the_first_sample_is_taken() -> None:
    samples = random(1, N, H, D)
    best = best_sample(samples, previous=torch.zeros(1, H, D), weights=torch.zeros(1, H))
    assert torch.equal(best, samples[:, 0])


def test_contrast_decides_between_samples_that_agree_equally_with_the_plan() -> None:
    """Rows 2 and 3 are not planned; the weak policy ends at +1 and the strong one mostly at -1."""
    ends = torch.tensor([1.0, -1.0, -1.0, -1.0, 1.0])
    samples = torch.zeros(1, 5, H, 1)
    samples[0, :, 2:, 0] = ends[:, None]
    weak = torch.zeros(1, 5, H, 1)
    weak[0, :, 2:] = 1.0
    planned = {"previous": torch.zeros(1, H, 1), "weights": torch.tensor([[1.0, 1.0, 0.0, 0.0]])}
    assert best_sample(samples, **planned)[0, -1, 0] == 1.0  # of equals, the first
    assert best_sample(samples, **planned, weak=weak, num_contrast=4)[0, -1, 0] == -1.0


def test_contrast_takes_the_samples_that_agree_best_with_the_plan() -> None:
    """As the comparison in the RTC paper: the K best of either policy, by the same backward loss."""
    samples, weak, previous = random(1, N, H, D), random(1, N, H, D, seed=1), random(1, H, D, seed=2)
    weights = torch.ones(1, H)
    agreement = [distance(samples[0, n], previous[0]) for n in range(N)]
    weak_agreement = [distance(weak[0, n], previous[0]) for n in range(N)]
    positives = sorted(range(N), key=lambda n: agreement[n])[:K]
    negatives = sorted(range(N), key=lambda n: weak_agreement[n])[:K]
    loss = [
        agreement[n]
        + sum(distance(samples[0, n], samples[0, k]) for k in positives) / N
        - sum(distance(samples[0, n], weak[0, k]) for k in negatives) / N
        for n in range(N)
    ]
    best = best_sample(samples, previous=previous, weights=weights, weak=weak, num_contrast=K)
    assert torch.equal(best[0], samples[0, min(range(N), key=lambda n: loss[n])])


def test_the_medoid_is_a_sample_amid_the_others() -> None:
    samples = torch.tensor([0.0, 10.0, 1.0, 2.0]).view(1, 4, 1, 1)
    assert medoid(samples).item() == 1.0
