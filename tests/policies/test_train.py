from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec import structs
from safetensors.torch import load_file

from policies.flow.dataset import Dataset, make_dataset
from policies.flow.demonstrations import load_demonstrations, save_demonstrations
from policies.flow.features import MIN_STD, MIN_STD_TURN, FeatureConfig, turns_in_features
from policies.flow.losses import Network, recipe_loss
from policies.flow.model import FlowTransformer, ModelConfig
from policies.flow.recipes import Prefix, Recipe
from policies.flow.train import TrainConfig, learning_rate
from policies.lerobot.train import LeRobotTrainConfig, train_lerobot
from policies.vision.train import EstimatorTrainConfig
from robot_runtime.core.values.state import ArmState, BaseState, GripperState, RobotState
from robot_runtime.errors import InvalidValueError
from tests.policies.toy import SCHEMA, SPEC, Sample, make_observation, rows_past, train_toy


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_file(folder / "model.safetensors"))


def test_the_seed_decides_the_weights(tmp_path: Path) -> None:
    torch.manual_seed(1)
    first = weights(train_toy(tmp_path / "first", steps=5))
    torch.manual_seed(2)
    again = weights(train_toy(tmp_path / "again", steps=5))
    other = weights(train_toy(tmp_path / "other", steps=5, seed=1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.position"], other["model.position"])


def make_samples(n: int = 32) -> list[Sample]:
    return [Sample(o, rows_past(o, 1)) for o in map(make_observation, range(n))]


def loss_of(model: FlowTransformer, dataset: Dataset, recipe: Recipe, dtype: torch.dtype) -> torch.Tensor:
    generator, index = torch.Generator().manual_seed(0), torch.arange(32)
    network = Network(model, dtype)
    return recipe_loss(network, dataset, index, recipe, generator, input_noise=0.01, progress=0.0)


def test_prefix_rows_bear_no_loss() -> None:
    recipe = Prefix(probability=1.0, max_delay=1, noise=0.0)
    dataset = make_dataset(make_samples(), SCHEMA, SPEC, FeatureConfig())
    torch.manual_seed(0)
    sizes = ModelConfig(state_dim=dataset.features.shape[1], num_tasks=1, action_dim=SPEC.dim, horizon=8)
    model = FlowTransformer(sizes)  # its last layer is zero: velocity 0, and the loss is mean (a - noise)^2
    shifted = replace(dataset, rows=dataset.rows + 100.0 * (torch.arange(8) == 0)[:, None])
    losses = [loss_of(model, d, recipe, torch.float32) for d in (dataset, shifted)]
    assert torch.equal(losses[0], losses[1])


@pytest.mark.parametrize(
    "config", [TrainConfig, EstimatorTrainConfig, partial(LeRobotTrainConfig, network="act")]
)
@pytest.mark.parametrize(
    ("processor", "is_quick"),
    [
        ({"avx2": True, "avx512_bf16": False}, False),
        ({"avx512_bf16": True}, True),
        ({"avx512_bf16": False, "amx_bf16": True}, True),
        ({"neon": True, "bf16": False}, False),
        ({"neon": True, "bf16": True}, True),
    ],
)
def test_bfloat16_is_for_processors_that_have_it(monkeypatch, config, processor, is_quick) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    assert config().bfloat16 is is_quick
    assert config(bfloat16=not is_quick).bfloat16 is not is_quick


def test_computing_in_bfloat16_gives_nearly_the_same_gradients_in_float32() -> None:
    dataset = make_dataset(make_samples(), SCHEMA, SPEC, FeatureConfig())
    gradients = []
    for bfloat16 in (False, True):
        torch.manual_seed(0)
        model = FlowTransformer(
            ModelConfig(state_dim=dataset.features.shape[1], num_tasks=1, action_dim=SPEC.dim, horizon=8)
        )
        loss_of(model, dataset, Prefix(), torch.bfloat16 if bfloat16 else torch.float32).backward()
        gradients.append(model.velocity_out.weight.grad)
    assert gradients[1].dtype == torch.float32
    assert (gradients[0] - gradients[1]).norm() < 0.02 * gradients[0].norm()


def test_the_learning_rate_rises_then_falls_to_zero() -> None:
    config = TrainConfig(steps=100, warmup_steps=10, learning_rate=1.0)
    rates = [learning_rate(step, config) for step in range(101)]
    assert np.argmax(rates) in (9, 10)
    assert rates[100] == pytest.approx(0.0)


def test_rows_of_another_shape_are_refused() -> None:
    observation = make_observation(0)
    with pytest.raises(ValueError, match=r"demonstration 0 needs \(8, 8\) finite rows, got shape \(3, 8\)"):
        make_dataset([Sample(observation, np.zeros((3, 8)))], SCHEMA, SPEC, FeatureConfig())


def test_a_demonstration_that_shows_no_numbers_is_named() -> None:
    good, observation = make_observation(0), make_observation(1)
    lost = structs.replace(observation, environment_state=np.full(len(observation.environment_state), np.nan))
    samples = [Sample(each, np.zeros((SPEC.horizon, SPEC.dim))) for each in (good, lost)]
    with pytest.raises(InvalidValueError, match=r"demonstration 1 cannot be learned from: .*NaN"):
        make_dataset(samples, SCHEMA, SPEC, FeatureConfig())


def test_demonstrations_survive_a_file(tmp_path: Path) -> None:
    path, samples = tmp_path / "any_name", make_samples(3)
    save_demonstrations(path, samples)
    for ours, theirs in zip(samples, load_demonstrations(path), strict=True):
        assert np.array_equal(ours.rows, theirs.rows)
        assert np.array_equal(ours.observation.state.q, theirs.observation.state.q)
        assert np.array_equal(ours.observation.environment_state, theirs.observation.environment_state)
        assert ours.observation.task == theirs.observation.task


def test_a_mobile_base_survives_the_file_too(tmp_path: Path) -> None:
    base = {"x_WB": np.array([1.0, 2.0, 0.3]), "V_WB_B": np.array([0.1, 0.2, 0.3])}
    samples = [
        replace(
            s,
            observation=structs.replace(s.observation, state=replace(s.observation.state, **base)),
        )
        for s in make_samples(2)
    ]
    save_demonstrations(tmp_path / "demonstrations.npz", samples)
    for kept in load_demonstrations(tmp_path / "demonstrations.npz"):
        assert np.array_equal(kept.observation.state.x_WB, base["x_WB"])
        assert np.array_equal(kept.observation.state.V_WB_B, base["V_WB_B"])


def test_parts_of_any_name_survive_the_file_with_what_is_measured_of_them(tmp_path: Path) -> None:
    parts = {
        "gripper": ArmState(q=np.array([1.0, 2.0]), dq=np.array([3.0, 4.0])),  # a hand of two joints
        "left_gripper": GripperState(width=0.02),
        "rear": BaseState(V_WB_B=np.array([5.0, 6.0, 7.0])),
    }
    state = RobotState(t_ns=1, parts=parts, measured={"q": np.array([8.0]), "force": np.array([9.0, 10.0])})
    sample = make_samples(1)[0]
    sample = replace(sample, observation=structs.replace(sample.observation, state=state))
    path = tmp_path / "demonstrations.npz"
    save_demonstrations(path, [sample, sample])
    kept = load_demonstrations(path)[1].observation.state
    assert list(kept.parts) == list(parts)
    assert kept.arm("gripper").q.tolist() == [1.0, 2.0]
    assert kept.hand("gripper") is None
    assert kept.gripper("left_gripper").width == 0.02
    assert kept.base("rear").x_WB is None
    assert kept.base("rear").V_WB_B.tolist() == [5.0, 6.0, 7.0]
    assert {name: x.tolist() for name, x in kept.measured.items()} == {"q": [8.0], "force": [9.0, 10.0]}
    less = replace(
        sample, observation=structs.replace(sample.observation, state=RobotState(t_ns=1, parts=parts))
    )
    with pytest.raises(ValueError, match="stored demonstrations need q in every state"):
        save_demonstrations(path, [sample, less])


def test_a_file_of_something_else_holds_no_demonstrations(tmp_path: Path) -> None:
    path = tmp_path / "demonstrations.npz"
    np.savez(path, x=np.zeros(3))
    with pytest.raises(ValueError, match="holds no demonstrations"):
        load_demonstrations(path)


def test_lerobots_networks_do_not_take_the_noise_of_a_hands_turn_for_its_measure(tmp_path: Path) -> None:
    """All hands of `make_samples` have the same turn."""
    folder = train_lerobot(
        make_samples(8),
        LeRobotTrainConfig(network="act", steps=1, batch_size=4, width=16),
        schema=SCHEMA,
        action_spec=SPEC,
        features=FeatureConfig(use_joint_velocity=False),
        folder=tmp_path / "act",
    )
    [file] = folder.glob("policy_preprocessor_*normalizer*.safetensors")
    least = load_file(file)["observation.state.std"].min().item()
    turn = turns_in_features(SCHEMA, FeatureConfig())[0]
    assert load_file(file)["observation.state.std"][turn].tolist() == pytest.approx([MIN_STD_TURN] * 6)
    assert least == pytest.approx(MIN_STD)  # of the width, which is no turn
