"""Each recipe against its paper: which rows are clean, at which times, what bears loss."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
import torch

from policies.flow.dataset import Dataset, make_dataset, roll_forward
from policies.flow.features import FeatureConfig
from policies.flow.losses import (
    Draw,
    Network,
    error_weights,
    horizon_aware_times,
    lambda_batch,
    masked_loss,
    mixed_batch,
    offset_batch,
    plain_batch,
    prefix_batch,
    shared_batch,
    weighted_error,
)
from policies.flow.model import FlowTransformer, ModelConfig, copy_weights
from policies.flow.recipes import (
    RECIPE_NAMES,
    LambdaMask,
    Masked,
    MixedSchedule,
    Offset,
    Plain,
    Prefix,
    Recipe,
    make_recipe,
    recipe_from_dict,
    recipe_to_dict,
)
from robot_runtime.errors import InvalidValueError, UnknownNameError
from tests.policies.toy import SCHEMA, SPEC, Sample, make_observation

H, B = SPEC.horizon, 64


def make_samples(num_committed: int = 0, *, n: int = B) -> list[Sample]:
    """Rows that move evenly, each sample at its own speed, so that every row is told apart."""
    rng, out = np.random.default_rng(0), []
    for i in range(n):
        observation = make_observation(i)
        rows = np.cumsum(rng.normal(size=(H, SPEC.dim)), axis=0) * 0.1
        out.append(Sample(observation, rows + observation.state.q[0], num_committed))
    return out


def make_data(recipe: Recipe | None, num_committed: int = 0) -> Dataset:
    return make_dataset(
        make_samples(num_committed), SCHEMA, SPEC, FeatureConfig(), recipe=recipe, hand_pose=hand_pose
    )


def hand_pose(q: np.ndarray) -> pin.SE3:
    return pin.SE3(np.eye(3), q[:3])


def make_draw(dataset: Dataset, seed: int = 0) -> Draw:
    generator = torch.Generator().manual_seed(seed)
    index = torch.arange(len(dataset.rows))
    noise = torch.randn(dataset.rows.shape, generator=generator)
    return Draw(
        dataset=dataset, index=index, features=dataset.features, rows=dataset.rows, noise=noise,
        generator=generator,
    )  # fmt: skip


def make_model(*, dataset: Dataset, seed: int = 0, **changes: object) -> FlowTransformer:
    torch.manual_seed(seed)
    config = ModelConfig(
        state_dim=dataset.features.shape[1], num_tasks=1, action_dim=SPEC.dim, horizon=H, width=16,
        num_layers=2, num_heads=2, **changes,
    )  # fmt: skip
    model = FlowTransformer(config).eval()
    with torch.no_grad():  # the last layer starts at zero, which would hide everything
        for name, parameter in model.named_parameters():
            if "lora_" not in name:
                parameter.add_(0.2 * torch.randn(parameter.shape))
    return model


# ---- which demonstrations -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "kept"),
    [
        (Plain(), [0]),
        (Prefix(max_delay=3), [0, 1, 3]),
        (MixedSchedule(max_delay=3), [0, 1, 3]),
        (Offset(max_delay=3), [0, 1, 3, 4]),
        (LambdaMask(max_delay=4), [0, 1, 3, 4]),
    ],
)
def test_a_recipe_leaves_out_commitments_it_cannot_show(recipe: Recipe, kept: list[int]) -> None:
    samples = [replace(s, num_committed=d) for s, d in zip(make_samples(n=5), (0, 1, 3, 4, 6), strict=True)]
    dataset = make_dataset(samples, SCHEMA, SPEC, FeatureConfig(), recipe=recipe, hand_pose=hand_pose)
    assert dataset.num_committed.tolist() == kept


def test_statistics_do_not_depend_on_what_a_recipe_leaves_out() -> None:
    samples = [replace(s, num_committed=i % 3) for i, s in enumerate(make_samples(n=9))]
    means = [
        make_dataset(samples, SCHEMA, SPEC, FeatureConfig(), recipe=r).statistics.rows.mean
        for r in (Plain(), Prefix())
    ]
    assert np.array_equal(*means)


def test_a_data_set_of_commitments_only_is_refused_by_the_plain_recipe() -> None:
    with pytest.raises(ValueError, match="none of 64 demonstrations fits the recipe Plain"):
        make_data(Plain(), num_committed=2)


# ---- plain, prefix, mixed schedule ------------------------------------------------------------------------


def test_plain_shows_every_row_at_one_time_and_all_bear_loss() -> None:
    draw = make_draw(make_data(Plain()))
    batch = plain_batch(draw)
    assert (batch.t == batch.t[:, :1]).all()
    assert batch.weight.eq(1.0).all()
    assert not batch.is_prefix.any()
    expected = (1 - batch.t[..., None]) * draw.noise + batch.t[..., None] * draw.rows
    torch.testing.assert_close(batch.x, expected)
    torch.testing.assert_close(batch.target, draw.rows - draw.noise)


@pytest.mark.parametrize(
    "recipe", [Prefix(max_delay=5, noise=0.0, probability=0.7), MixedSchedule(max_delay=5)]
)
def test_a_prefix_is_clean_at_time_one_and_bears_no_loss(recipe: Prefix | MixedSchedule) -> None:
    draw = make_draw(make_data(recipe))
    batch = prefix_batch(draw, recipe) if isinstance(recipe, Prefix) else mixed_batch(draw, recipe)
    d = batch.is_prefix.sum(dim=1)
    assert set(d.tolist()) == set(range(6))
    assert torch.equal(batch.is_prefix, torch.arange(H) < d[:, None])
    assert torch.equal(batch.x[batch.is_prefix], draw.rows[batch.is_prefix])
    assert batch.t[batch.is_prefix].eq(1.0).all()
    assert torch.equal(batch.weight[..., 0] == 0, batch.is_prefix)


@pytest.mark.parametrize("recipe", [Prefix(), MixedSchedule()])
def test_a_commitment_of_the_demonstration_is_shown_as_it_is(recipe: Prefix | MixedSchedule) -> None:
    draw = make_draw(make_data(recipe, num_committed=3))
    batch = prefix_batch(draw, recipe) if isinstance(recipe, Prefix) else mixed_batch(draw, recipe)
    assert batch.is_prefix.sum(dim=1).eq(3).all()


def test_open_rows_of_the_mixed_schedule_are_at_one_time_or_on_the_horizon_aware_schedule() -> None:
    recipe = MixedSchedule(max_delay=2)
    batch = mixed_batch(make_draw(make_data(recipe)), recipe)
    last = batch.t[:, -1]  # u = 0 at the last row: its time is the chunk's own
    aware = horizon_aware_times(last, batch.is_prefix.sum(dim=1), H, alpha=0.6, num_steps=10)
    is_aware = torch.isclose(batch.t, aware, atol=1e-5).all(dim=1)
    is_constant = (torch.isclose(batch.t, last[:, None]) | batch.is_prefix).all(dim=1)
    assert (is_aware | is_constant).all()
    assert 0.2 < is_aware.float().mean() < 0.8
    assert batch.weight[~batch.is_prefix].eq(1.0).all()  # also rows that are clean already


def test_the_horizon_aware_schedule_finishes_rows_at_the_published_calls() -> None:
    """FASTER, H = 50, d = 3: the first s rows are finished after 1, 3, 4, 5, 8, 10 of 10 calls."""
    after = torch.arange(11) / 10
    t = horizon_aware_times(after, torch.full((11,), 3), 50, alpha=0.6, num_steps=10)
    assert t[:, :3].eq(1.0).all()
    assert t[0, 3:].eq(0.0).all()
    calls = [int((t[:, 3 : 3 + s] > 1 - 1e-5).all(dim=1).int().argmax()) for s in (1, 4, 8, 10, 25, 47)]
    assert calls == [1, 3, 4, 5, 8, 10]


# ---- offset ------------------------------------------------------------------------------------------------


def test_an_offset_chunk_begins_k_rows_later_where_the_robot_will_be() -> None:
    recipe = Offset(max_delay=3, tracking_lag_s=0.0)
    dataset, samples = make_data(recipe), make_samples()
    draw = make_draw(dataset)
    batch, statistics = offset_batch(draw, recipe, input_noise=0.0), dataset.statistics
    k = H - batch.weight[..., 0].sum(dim=1).int()  # rows past the end bear no loss
    assert set(k.tolist()) == {0, 1, 2, 3}
    assert torch.equal(batch.weight[..., 0] > 0, torch.arange(H) < (H - k)[:, None])
    action = statistics.rows.restore((batch.target + draw.noise).double().numpy())
    for i, offset in enumerate(k.tolist()):
        rows, state = samples[i].rows, samples[i].observation.state
        q = rows[offset, :7] if offset else state.q
        expected = rows[offset:] - np.append(q, 0.0)
        np.testing.assert_allclose(action[i, : H - offset], expected, atol=1e-5)
        features = batch.features[i].numpy()
        seen = features * statistics.features.std + statistics.features.mean
        np.testing.assert_allclose(seen[:7], q, atol=1e-5)
        np.testing.assert_allclose(features[-2:], dataset.features[i, -2:])  # the scene stays at t


def test_an_offset_chunk_after_a_commitment_begins_at_the_last_given_row() -> None:
    recipe = Offset(max_delay=5)
    batch = offset_batch(make_draw(make_data(recipe, num_committed=4)), recipe, input_noise=0.0)
    assert batch.weight[..., 0].sum(dim=1).eq(H - 3).all()


def test_a_rolled_forward_robot_follows_its_rows_like_a_servo_with_lag() -> None:
    sample, lag_s, step_s = make_samples()[0], 0.03, 1e-5
    state, rows = sample.observation.state, sample.rows
    states = roll_forward(state, rows, SPEC, num_rows=3, tracking_lag_s=lag_s, hand_pose=hand_pose)
    q, knots = state.q, np.arange(H) * SPEC.dt_s
    for step in range(round(3 * SPEC.dt_s / step_s)):  # the servo's equation in small steps
        at = (step + 0.5) * step_s
        setpoint = np.array([np.interp(at, knots, rows[:, joint]) for joint in range(7)])
        q = q + step_s * (setpoint - q) / lag_s
    np.testing.assert_allclose(states[3].q, q, atol=1e-3)
    np.testing.assert_allclose(states[3].dq, (rows[3, :7] - states[3].q) / lag_s)
    np.testing.assert_allclose(states[3].X_BE.translation, states[3].q[:3])
    assert states[3].t_ns == state.t_ns + 3 * SPEC.dt_ns
    assert states[3].gripper_width == rows[3, 7]
    assert states[0] is state


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


def test_shared_branches_that_would_begin_with_a_given_row_bear_no_loss() -> None:
    recipe = Offset(max_delay=4, shared_observation=True)
    batch = shared_batch(make_draw(make_data(recipe, num_committed=3)), recipe, input_noise=0.0)
    assert batch.weight.sum(dim=(2, 3))[0].tolist() == [0.0, 0.0, H - 2, H - 3, H - 4]


# ---- masked ------------------------------------------------------------------------------------------------


def masked_model(dataset: Dataset) -> FlowTransformer:
    return make_model(dataset=dataset, lora_rank=4, lora_alpha=8.0, lora_dropout=0.0)


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


# ---- lambda mask -------------------------------------------------------------------------------------------


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


def test_positions_that_would_mean_two_things_are_refused() -> None:
    with pytest.raises(InvalidValueError, match="position_offset must be at least max_delay, 12; got 10"):
        LambdaMask(position_offset=10)


# ---- starting from a plain policy --------------------------------------------------------------------------


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


# ---- recipes as values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECIPE_NAMES)
def test_a_recipe_survives_a_file(name: str) -> None:
    recipe = make_recipe(name)
    assert recipe_from_dict(recipe_to_dict(recipe)) == recipe
    assert recipe.max_delay >= 0


def test_an_unknown_recipe_or_option_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"recipe 'rtc'; valid: .*plain"):
        make_recipe("rtc")
    with pytest.raises(InvalidValueError, match="plain has no option max_delay; it has: none"):
        make_recipe("plain", max_delay=3)
