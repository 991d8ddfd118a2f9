from dataclasses import replace

import pytest
import torch

from policies.flow.batches import shared_batch
from policies.flow.losses import Network, error_weights, lambda_batch, masked_loss, weighted_error
from policies.flow.model import FlowTransformer
from policies.flow.recipes import LambdaMask, Masked, Offset
from tests.policies.draws import H, make_data, make_draw, make_model, masked_model


def test_branches_that_share_an_observation_equal_branches_alone() -> None:
    recipe = Offset(max_delay=3, shared_observation=True)
    dataset = make_data(recipe)
    model = make_model(dataset=dataset, robot_dim=dataset.robot_dim).double()
    batch = shared_batch(make_draw(dataset), recipe, input_noise=0.0)
    features, x, t = batch.features.double(), batch.x.double(), batch.t.double()
    together = model(features, batch.tasks, x, t)
    for k in range(4):
        alone = model(features[:, k], batch.tasks, x[:, k], t[:, k])
        torch.testing.assert_close(together[:, k], alone, rtol=0.0, atol=1e-12)
    losses = [
        weighted_error(together[:, k] - batch.target[:, k].double(), batch.weight[:, k].double())
        for k in range(4)
    ]
    rows = batch.weight.sum(dim=(0, 2, 3))
    shared = weighted_error(together - batch.target.double(), batch.weight.double())
    torch.testing.assert_close(shared, (torch.stack(losses) * rows).sum() / rows.sum())


class SpyNetwork(Network):
    """Notes what it is asked."""

    def __init__(self, model: FlowTransformer) -> None:
        super().__init__(model, torch.float32)
        self.asked: list[tuple[torch.Tensor, torch.Tensor, dict]] = []

    def velocity(self, features, tasks, x, t, **options):
        self.asked.append((x, t, options))
        return super().velocity(features, tasks, x, t, **options)


@pytest.mark.parametrize(("sigma", "num_calls"), [(1.0, 2), (0.0, 2 + 5)])
def test_the_masked_curriculum_goes_from_demonstrations_to_the_policys_own_chunks(
    sigma: float, num_calls: int
) -> None:
    recipe = Masked(max_delay=4, sigma_start=1.0, sigma_end=0.0)
    dataset = make_data(recipe)
    network, draw = SpyNetwork(masked_model(dataset)), make_draw(dataset)
    masked_loss(network, draw, recipe, progress=1.0 - sigma)
    assert len(network.asked) == num_calls  # with and without adapters, and 5 steps of the frozen policy
    x, t, options = network.asked[-2]
    assert (t == t[:, :1]).all()  # committed rows are noisy too
    demonstrated = torch.lerp(draw.noise, draw.rows, t[..., None])
    assert torch.allclose(x, demonstrated) == (sigma == 1.0)
    assert set(options["is_prefix"].sum(dim=1).tolist()) == {0, 1, 2, 3, 4}
    assert all(not asked[2]["with_lora"] for asked in network.asked[:-2])


def test_masked_bears_loss_on_open_rows_and_keeps_the_others() -> None:
    recipe = Masked(keep_weight=0.5)
    dataset = make_data(recipe, num_committed=3)
    shifted = replace(dataset, rows=dataset.rows.clone())
    shifted.rows[:, :3] += 100.0  # targets of committed rows; with adapters at zero nothing else sees them
    frozen = masked_model(dataset)
    with torch.no_grad():
        frozen.row_in.weight.zero_()
    losses = [
        masked_loss(Network(frozen, torch.float32), make_draw(d), recipe, 0.0) for d in (dataset, shifted)
    ]
    assert torch.equal(*losses)


def test_a_lambda_prefix_is_clean_at_the_common_time_and_hidden_but_for_its_last_rows() -> None:
    recipe = LambdaMask(max_delay=5, probability=0.7)
    dataset = make_data(recipe)
    network = Network(make_model(dataset=dataset, causal_window=4, suffix_offset=12), torch.float32)
    draw = make_draw(dataset)
    batch = lambda_batch(network, draw, recipe)
    d = batch.is_prefix.sum(dim=1)
    assert set(d.tolist()) == set(range(6))
    assert torch.equal(batch.x[batch.is_prefix], draw.rows[batch.is_prefix])
    assert (batch.t == batch.t[:, :1]).all()
    assert batch.weight[batch.is_prefix].eq(0.0).all()
    assert batch.weight[d == 0].eq(1.0).all()
    some = batch.weight[d > 0][~batch.is_prefix[d > 0]]
    assert some.min() >= 0.5
    assert some.max() <= 5.0
    assert len(some.unique()) > 100
    can_hide = torch.arange(H) < (d - 2)[:, None]
    assert not batch.hidden_rows[~can_hide].any()
    assert 0.3 < batch.hidden_rows[can_hide].float().mean() < 0.7


def test_errors_weigh_relative_to_their_mean_within_bounds() -> None:
    error, is_open = torch.tensor([9.0, 1.0, 1.0, 0.0, 100.0]), torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0])
    weights = error_weights(error, is_open, LambdaMask())
    torch.testing.assert_close(weights[:4], torch.tensor([9 / 2.75, 0.5, 0.5, 0.5]))
    assert weights[4] == 5.0
