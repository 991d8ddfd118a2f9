"""What recipes add to the network: adapters, hidden rows, a jump in position."""

import pytest
import torch

from policies.flow.model import FlowTransformer, copy_weights
from policies.flow.recipes import LambdaMask, Masked, Plain
from tests.policies.draws import B, H, make_data, make_model, masked_model


def test_adapters_start_as_identity() -> None:
    dataset = make_data(Masked())
    model, plain = masked_model(dataset), make_model(dataset=dataset, seed=1)
    copy_weights(plain, model)
    rows, t, tasks = dataset.rows, torch.rand(B, H), dataset.tasks
    expected = plain(dataset.features, tasks, rows, t)
    assert torch.equal(model(dataset.features, tasks, rows, t), expected)
    with torch.no_grad():
        model.row_in.lora_b.add_(1.0)
    assert not torch.allclose(model(dataset.features, tasks, rows, t), expected)
    assert torch.equal(model(dataset.features, tasks, rows, t, with_lora=False), expected)


def test_adapters_act_on_open_rows_only() -> None:
    dataset = make_data(Masked())
    model = masked_model(dataset)
    x, gate = torch.randn(1, 5, 8), torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0])[None, :, None]
    with torch.no_grad():
        model.row_in.lora_b.add_(1.0)
    changed = (model.row_in(x, gate) != model.row_in(x)).any(dim=-1)
    assert changed.tolist() == [[False, False, True, True, True]]


def visible(model: FlowTransformer, is_prefix: torch.Tensor, hidden_rows: torch.Tensor | None) -> list[str]:
    """Who sees whom, x for yes: by the effect of a token's input on the attention of one layer."""
    hidden = model._hidden(is_prefix, hidden_rows)
    table = ~(hidden if hidden.ndim == 2 else hidden[0, 0])
    return ["".join("x" if seen else "." for seen in row) for row in table]


def test_the_lambda_mask_shows_the_context_to_all_and_rows_to_the_next_few() -> None:
    dataset = make_data(LambdaMask())
    model = make_model(dataset=dataset, causal_window=2, suffix_offset=12)
    is_prefix, hidden = torch.zeros(1, H, dtype=torch.bool), torch.zeros(1, H, dtype=torch.bool)
    is_prefix[:, :4], hidden[:, :3] = True, True
    assert visible(model, is_prefix, None) == [
        "xx........",  # state
        "xx........",  # task
        "xxx.......",  # row 0
        "xxxx......",
        "xxxxx.....",
        "xx.xxx....",
        "xx..xxx...",
        "xx...xxx..",
        "xx....xxx.",
        "xx.....xxx",
    ]
    assert visible(model, is_prefix, hidden)[5:8] == ["xx.xxx....", "xx...xx...", "xx...xxx.."]


def test_what_a_row_does_not_see_does_not_change_its_velocity() -> None:
    dataset = make_data(LambdaMask())
    model = make_model(dataset=dataset, causal_window=1, suffix_offset=12)
    rows, t = dataset.rows[:1].clone(), torch.full((1, H), 0.3)
    context = model.encode(dataset.features[:1], dataset.tasks[:1])
    before = model.velocity(rows, t, context)
    rows[:, 3] += 1.0
    changed = (model.velocity(rows, t, context) != before).any(dim=-1)[0]
    assert changed.tolist() == [
        False,
        False,
        False,
        True,
        True,
        True,
        False,
        False,
    ]  # two layers: two rows on


def test_open_rows_jump_in_position_and_committed_rows_have_velocity_zero() -> None:
    dataset = make_data(LambdaMask())
    model = make_model(dataset=dataset, causal_window=4, suffix_offset=12)
    is_prefix = torch.arange(H)[None] < 3
    used = model._positions(is_prefix)[0]
    expected = [0, 1, 2, 3, 4, *range(2 + 3 + 12, 2 + H + 12)]
    assert torch.equal(used, model.position[expected])
    context = model.encode(dataset.features[:1], dataset.tasks[:1])
    velocity = model.velocity(dataset.rows[:1], torch.full((1, H), 0.5), context, is_prefix)
    assert velocity[0, :3].eq(0.0).all()
    assert velocity[0, 3:].ne(0.0).any(dim=-1).all()


def test_a_position_jump_starts_where_the_plain_network_was() -> None:
    dataset = make_data(Plain())
    plain = make_model(dataset=dataset)
    jumping = make_model(dataset=dataset, seed=1, suffix_offset=4)
    copy_weights(plain, jumping)
    context = plain.encode(dataset.features, dataset.tasks)
    t, is_prefix = torch.rand(B, H), torch.arange(H).expand(B, H) < 3
    expected = plain.velocity(dataset.rows, t, context)
    torch.testing.assert_close(jumping.velocity(dataset.rows, t, context), expected)
    torch.testing.assert_close(jumping.velocity(dataset.rows, t, context, is_prefix)[:, 3:], expected[:, 3:])


def test_weights_of_another_network_are_refused() -> None:
    dataset = make_data(Plain())
    split = make_model(dataset=dataset, robot_dim=dataset.robot_dim)
    with pytest.raises(ValueError, match="those of another network"):
        copy_weights(make_model(dataset=dataset), split)
