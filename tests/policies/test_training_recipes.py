"""Every recipe trained for a moment: the loss falls, and the checkpoint says what it was trained for."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest
import torch
from safetensors.torch import load_file

from policies.correction import load_correction
from policies.flow.checkpoint import Checkpoint, load
from policies.flow.recipes import (
    LambdaMask,
    Masked,
    MixedSchedule,
    Offset,
    Plain,
    Prefix,
    Recipe,
    Residual,
)
from policies.flow.residual import ResidualConfig, draw_pairs, residual_pairs, train_residual
from policies.flow.train import TrainConfig, train
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import CheckpointError
from tests.policies.toy import SCHEMA, SPEC, Sample, make_observation, rows_past

CONFIG = TrainConfig(
    recipe=Plain(), steps=60, batch_size=32, learning_rate=3e-3, warmup_steps=5, ema_decay=0.9,
    width=16, num_layers=2, num_heads=2, bfloat16=False,
)  # fmt: skip


def make_samples(n: int = 200) -> list[Sample]:
    out = []
    for i in range(n):
        observation = make_observation(1000 + i)
        out.append(Sample(observation, rows_past(observation, 1 if i % 2 else -1), 2 if i % 5 == 0 else 0))
    return out


def fit(folder: Path, config: TrainConfig, init: Checkpoint | None = None) -> tuple[Checkpoint, list[float]]:
    losses: list[float] = []
    train(
        make_samples(),
        config,
        schema=SCHEMA,
        action_spec=SPEC,
        folder=folder,
        init=init,
        hand_pose=lambda q: pin.SE3.Identity(),
        on_step=lambda step, loss: losses.append(loss),
    )
    return load(folder), losses


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return fit(tmp_path_factory.mktemp("recipes") / "plain", CONFIG)[0]


RECIPES = [
    Plain(),
    Prefix(max_delay=4),
    Offset(tracking_lag_s=0.0, max_delay=3),
    Offset(tracking_lag_s=0.0, max_delay=3, shared_observation=True),
    LambdaMask(max_delay=4),
    MixedSchedule(max_delay=4),
]


@pytest.mark.long
@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_a_recipe_trained_from_scratch_lowers_its_loss_and_is_saved(recipe: Recipe, tmp_path: Path) -> None:
    trained, losses = fit(tmp_path / "policy", replace(CONFIG, recipe=recipe))
    assert np.mean(losses[-5:]) < 0.75 * np.mean(losses[:5])
    assert trained.recipe == recipe
    assert trained.training["recipe"]["max_delay" if recipe.max_delay else "name"]


@pytest.mark.long
@pytest.mark.parametrize(
    "recipe",
    [
        Prefix(max_delay=4),
        Offset(tracking_lag_s=0.0, max_delay=3),
        LambdaMask(max_delay=4),
        MixedSchedule(max_delay=4),
        Masked(),
    ],
    ids=str,
)
def test_a_recipe_that_starts_from_a_policy_keeps_its_statistics_and_begins_lower(
    recipe: Recipe, plain: Checkpoint, tmp_path: Path
) -> None:
    tuned, losses = fit(tmp_path / "policy", replace(CONFIG, recipe=recipe, steps=5), plain)
    assert tuned.recipe == recipe
    assert np.array_equal(tuned.rows.mean, plain.rows.mean)
    assert np.array_equal(tuned.features.std, plain.features.std)
    _, from_scratch = fit(tmp_path / "scratch", replace(CONFIG, recipe=Plain(), steps=2))
    assert losses[0] < from_scratch[0]


def test_the_masked_recipe_trains_its_adapters_and_nothing_else(plain: Checkpoint, tmp_path: Path) -> None:
    tuned, _ = fit(tmp_path / "policy", replace(CONFIG, recipe=Masked(max_delay=4), steps=10), plain)
    before, after = plain.model.state_dict(), tuned.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(after[name].any() for name in after if name.endswith("lora_b"))


@pytest.mark.parametrize("recipe", [Masked(), Residual()])
def test_a_recipe_that_adds_to_a_policy_is_not_trained_without_one(recipe: Recipe, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"plain|residual"):
        fit(tmp_path / "policy", replace(CONFIG, recipe=recipe))


def test_a_policy_does_not_lend_itself_to_other_tasks(plain: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the policy to start from knows"):
        train(
            [Sample(make_observation(0, task="fly"), rows_past(make_observation(0), 1))],
            CONFIG, schema=SCHEMA, action_spec=SPEC, folder=tmp_path, init=plain,
        )  # fmt: skip


# ---- residual ----------------------------------------------------------------------------------------------


def make_episodes(num_episodes: int = 12, length: int = 12) -> list[Sample]:
    """Joint 0 is to follow the scene's first number, which changes at random from row to row."""
    rng, out = np.random.default_rng(0), []
    for _ in range(num_episodes):
        q = rng.normal(size=7)
        for i in range(length):
            state = RobotState(
                t_ns=i * SPEC.dt_ns, q=q, dq=np.zeros(7), X_BE=pin.SE3.Identity(), gripper_width=0.04
            )
            goal = rng.normal(size=2)
            observation = Observation(state=state, environment_state=goal, task=make_observation(0).task)
            rows = np.column_stack([np.tile(q, (SPEC.horizon, 1)), np.full(SPEC.horizon, 0.08)])
            rows[:, 0] += 0.3 * goal[0] * np.linspace(0.0, 1.0, SPEC.horizon)
            out.append(Sample(observation, rows, 3 if i == 5 else 0))
    return out


HEAD = ResidualConfig(
    recipe=Residual(max_age=4, width=16), num_chunks=100, ages_per_chunk=6, steps=200, batch_size=64
)


def test_pairs_are_of_one_episode_in_order_of_time_and_end_where_rows_were_chosen() -> None:
    samples = make_episodes()
    older, newer = draw_pairs(samples, HEAD, SPEC.dt_ns, SPEC.horizon)
    assert set((newer - older).tolist()) == {0, 1, 2, 3, 4}
    assert (older // 12 == newer // 12).all()
    assert all(samples[j].num_committed == 0 for j in newer)


def test_a_target_is_what_was_demonstrated_minus_what_the_policy_had_planned(plain: Checkpoint) -> None:
    samples = make_episodes()
    inputs, targets = residual_pairs(samples, HEAD, plain)
    older, newer = draw_pairs(samples, HEAD, SPEC.dt_ns, SPEC.horizon)
    i, j = older[0], newer[0]
    width = SPEC.dim
    scene_end = 7 + 1 + 7 + 2
    base = inputs[0, scene_end : scene_end + width] + [*samples[j].observation.state.q, 0.0]
    np.testing.assert_allclose(base + targets[0], samples[j].rows[1], atol=1e-9)
    k = j - i
    np.testing.assert_allclose(inputs[0, -2:], [np.sin(np.pi * k / 8), np.cos(np.pi * k / 8)], atol=1e-12)


def test_a_residual_head_learns_and_is_read_without_torch(plain: Checkpoint, tmp_path: Path) -> None:
    losses: list[float] = []
    samples = make_episodes()
    folder = train_residual(
        samples, HEAD, init=plain, folder=tmp_path / "policy", on_step=lambda step, loss: losses.append(loss)
    )
    assert np.mean(losses[-10:]) < 0.7 * losses[0]
    assert load(folder).recipe == HEAD.recipe
    frozen, before = load_file(folder / "model.safetensors"), plain.model.state_dict()
    assert all(torch.equal(frozen[f"model.{name}"], before[name]) for name in before)
    head = load_correction(folder)
    inputs, targets = residual_pairs(samples, HEAD, plain)
    error = np.square((head.forward(inputs) - targets) / head.arrays["out_std"]).mean()
    assert error < np.square(targets / head.arrays["out_std"]).mean() * 0.7


def test_a_residual_head_needs_a_plain_policy_and_episodes(plain: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a policy of the recipe plain"):
        train_residual(make_episodes(), HEAD, init=replace(plain, recipe=Prefix()), folder=tmp_path)
    given = [replace(sample, num_committed=4) for sample in make_episodes()]
    with pytest.raises(ValueError, match="found no pair"):
        train_residual(given, HEAD, init=plain, folder=tmp_path)


def test_a_policy_without_a_head_says_so(toy_folder: Path) -> None:
    with pytest.raises(CheckpointError, match="not trained with recipe residual"):
        load_correction(toy_folder)
