import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from policies.flow.checkpoint import load, save, write_card
from policies.flow.policy import FlowPolicy
from policies.flow.recipes import Prefix
from policies.load import load_policy, policy_names
from policies.shipped import find_checkpoint, shipped_checkpoints
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.errors import CheckpointError, UnknownNameError
from tests.policies.toy import SCHEMA, SPEC, TASK, make_observation

OWN_NETWORKS = ("-lambda-mask", "-masked")
"""Recipes whose networks have a mask, or adapters, of their own."""


@pytest.fixture
def folder(toy_folder: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(toy_folder, tmp_path / "toy"))


def test_a_loaded_checkpoint_answers_bit_for_bit_like_the_trained_one(
    toy_policy: FlowPolicy, folder: Path
) -> None:
    loaded = load_policy(folder)
    info = loaded.info
    assert (info.name, info.schema, info.action_spec, info.tasks) == ("toy", SCHEMA, SPEC, (TASK,))
    for seed in range(3):
        observation = make_observation(seed)
        ours = next(
            toy_policy.infer(ChunkRequest(observation=observation, sampler=ConstantSchedule(), seed=seed))
        )
        theirs = next(
            loaded.infer(ChunkRequest(observation=observation, sampler=ConstantSchedule(), seed=seed))
        )
        assert np.array_equal(ours, theirs)


def test_a_policys_weights_have_a_fingerprint_that_robots_are_told_and_a_retrained_one_is_the_same_policy(
    folder: Path,
) -> None:
    before = load_policy(folder).info
    assert len(before.weights) == 64
    assert PolicyInfo.from_dict(before.to_dict()).weights == before.weights
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if name.startswith("model."))
    save_file({**tensors, name: tensors[name] + 1.0}, folder / "model.safetensors")
    after = load_policy(folder).info
    assert after.weights != before.weights
    assert after.differences(before) == []


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_folder_without_one_of_its_files_is_no_checkpoint(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(CheckpointError, match=f"has no {missing}"):
        load(folder)


def test_an_unknown_name_is_answered_with_the_shipped_ones() -> None:
    with pytest.raises(
        CheckpointError, match=r"no checkpoint folder 'nothing'; shipped checkpoints: "
    ) as error:
        load("nothing")
    for name in shipped_checkpoints():
        assert name in str(error.value)


@pytest.mark.parametrize("spoilt", ["config.json", "model.safetensors"])
def test_a_cut_off_file_is_called_damaged(folder: Path, spoilt: str) -> None:
    path = folder / spoilt
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CheckpointError, match=f"{spoilt} is damaged"):
        load(folder)


def rewrite_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def says(folder: Path, **capabilities: object) -> dict:
    """What a configuration says of its policy, but for that."""
    policy = json.loads((folder / "config.json").read_text())["policy"]
    return {"policy": policy | {"capabilities": policy["capabilities"] | capabilities}}


def test_another_format_is_refused_with_both_numbers(folder: Path) -> None:
    rewrite_config(folder, format=99)
    with pytest.raises(CheckpointError, match="expected checkpoint format 1 or 2, found 99"):
        load(folder)


def test_weights_of_another_network_do_not_fit_the_configuration(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    rewrite_config(folder, model={**config["model"], "width": 64})
    with pytest.raises(CheckpointError, match="do not fit together"):
        load(folder)


ARM = {"kind": "arm", "has_hand": True}


def test_numbers_that_no_network_has_are_refused_before_there_is_room_for_them(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    policy = config["policy"]
    spec, schema = policy["action_spec"], policy["schema"]

    old_form = {key: value for key, value in schema.items() if key != "parts"}
    old_form |= {"has_gripper": True, "has_base": False}

    def of(**changes: object) -> dict:
        return {"policy": policy | changes}

    for changes, words in (
        ({"num_steps": -1}, "num_steps is a whole number from 1 to 256, got -1"),
        ({"num_steps": 10**9}, "num_steps is a whole number from 1 to 256"),
        ({"model": config["model"] | {"horizon": 2**30}}, "horizon lies in 0..65536"),
        ({"model": config["model"] | {"width": 65536}}, "too small for the network|do not fit together"),
        ({"model": config["model"] | {"num_layers": 2**30}}, "num_layers lies in 0..256"),
        ({"model": config["model"] | {"width": "128"}}, "Expected `int`, got `str`"),
        (of(action_spec=spec | {"horizon": 2**30}), "do not fit together"),
        (of(schema=schema | {"cameras": {"eye": [10**9, 1]}}), "do not fit together"),
        (of(schema=schema | {"cameras": 7}), "cameras are an object of names, got 7"),
        (of(schema=schema | {"parts": {"arm": ARM | {"num_joints": -7}}}), "do not fit together"),
        (of(schema=old_form | {"num_joints": -7}), "do not fit together"),
        (of(tasks="abc"), "Expected `array`, got `str`"),
        (of(tasks=["a", "b"]), "columns, rows or tasks differ"),
        ({"recipe": {"name": "prefix", "max_delay": -1}}, "max_delay is 1 or more .* got -1"),
        ({"recipe": {"name": "prefix", "max_delay": "x"}}, "Expected `int`"),
        (says(folder, execution_horizon=True), "rows, or none, got True"),
    ):
        (folder / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(CheckpointError, match=words):
            load(folder)


def test_a_configuration_nested_200_000_deep_or_with_nan_is_a_sentence(folder: Path) -> None:
    for text in ('{"a": ' * 200_000 + "1" + "}" * 200_000, "[" * 200_000, '{"format": NaN}', "[]", "1e999"):
        (folder / "config.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"config\.json"):
            load(folder)


@pytest.mark.parametrize("name", ["model.time.layer_in.weight", "rows.mean", "features.std"])
def test_weights_and_statistics_that_are_not_finite_are_refused(folder: Path, name: str) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = name if name in tensors else next(key for key in tensors if key.startswith("model."))
    tensors[name] = torch.full_like(tensors[name], torch.nan)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"{name} holds NaN or infinite numbers"):
        load(folder)


def test_a_checkpoint_says_how_often_it_is_best_asked(folder: Path) -> None:
    assert load_policy(folder).info.capabilities.execution_horizon is None
    rewrite_config(folder, **says(folder, execution_horizon=3))
    assert load_policy(folder).info.capabilities.execution_horizon == 3
    save(load(folder), folder)
    assert load(folder).info.capabilities.execution_horizon == 3
    assert "every 3 rows" in (folder / "README.md").read_text()


def test_a_file_of_format_1_loads_as_what_it_always_was(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    policy, info = config.pop("policy"), load(folder).info
    can = replace(info.capabilities, prefix_at_rest=True)  # all were of our own tasks
    older = config | {
        "format": 1,
        "name": policy["name"],
        "schema": policy["schema"] | {"action_fields": policy["action_spec"]["fields"]},
        "action_spec": policy["action_spec"],
        "tasks": policy["tasks"],
        "execution_horizon": None,
    }
    (folder / "config.json").write_text(json.dumps(older))
    assert load(folder).info == replace(info, capabilities=can)
    (folder / "config.json").write_text(json.dumps(older | {"execution_horizon": SPEC.horizon + 1}))
    with pytest.raises(CheckpointError, match=f"1 to {SPEC.horizon} rows, or none"):
        load(folder)


@pytest.mark.parametrize(("training", "knows_rest"), [({}, True), ({"env": "cart"}, False)])
def test_a_file_of_before_it_was_said_knows_rest_if_it_is_of_our_own_tasks(
    folder: Path, training: dict, knows_rest: bool
) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["policy"]["capabilities"]["prefix_at_rest"]
    config["training"] |= training
    (folder / "config.json").write_text(json.dumps(config))
    assert load(folder).info.capabilities.prefix_at_rest is knows_rest


@pytest.mark.parametrize("name", shipped_checkpoints())
def test_a_shipped_checkpoint_says_the_same_in_both_formats(name: str, tmp_path: Path) -> None:
    shipped = load(name)
    save(shipped, tmp_path)
    again = load(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["format"] == 2
    assert again.info == shipped.info
    assert (again.recipe, again.num_steps, again.training) == (
        shipped.recipe,
        shipped.num_steps,
        shipped.training,
    )


@pytest.mark.parametrize("rows", [0, SPEC.horizon + 1, "often", 2.0])
def test_a_checkpoint_cannot_want_to_be_asked_after_more_rows_than_it_has(folder: Path, rows: object) -> None:
    rewrite_config(folder, **says(folder, execution_horizon=rows))
    with pytest.raises(CheckpointError, match=f"1 to {SPEC.horizon} rows, or none, got {rows!r}"):
        load(folder)


def test_the_model_card_shows_training_and_results(folder: Path) -> None:
    write_card(load(folder), folder, {"synchronous": {"success": "98 %", "episodes": 200}})
    card = (folder / "README.md").read_text()
    assert "| steps | 800 |" in card
    assert "| synchronous | 98 % | 200 |" in card


def test_the_model_card_says_what_is_seen_and_of_whom_was_learned(folder: Path) -> None:
    checkpoint = load(folder)
    write_card(checkpoint, folder)
    card = (folder / "README.md").read_text()
    assert "It sees joints, the end-effector pose, gripper and " in card
    assert "Trained on simulated demonstrations only;" in card
    people = {**checkpoint.training, "datasets": "kitchen"}
    blind = replace(checkpoint.feature_config, use_joints=False)
    write_card(replace(checkpoint, feature_config=blind, training=people), folder)
    card = (folder / "README.md").read_text()
    assert "It sees the end-effector pose, gripper and " in card
    assert "Trained on kitchen;" in card
    assert "simulated" not in card


def test_weights_in_half_precision_compute_in_float32() -> None:
    stored = load_file(find_checkpoint("track-offset") / "model.safetensors")
    assert stored["model.task_in.weight"].dtype == torch.float16
    assert {t.dtype for t in load("track-offset").model.state_dict().values()} == {torch.float32}


def test_weights_are_stored_as_float32(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    assert {str(t.dtype) for name, t in tensors.items() if name.startswith("model.")} == {"torch.float32"}


def test_every_shipped_checkpoint_loads() -> None:
    for name in shipped_checkpoints():
        assert load_policy(name).info.name == name


def test_shipped_policies_that_see_come_with_their_eyes() -> None:
    seeing = [name for name in shipped_checkpoints() if name.endswith("-seeing")]
    assert seeing
    for name in seeing:
        assert load_policy(name).info.schema.cameras == {"chest": (96, 96), "wrist": (96, 96)}


def test_an_unknown_policy_is_answered_with_the_known_ones() -> None:
    known = ", ".join(sorted(policy_names()))
    assert "conveyor" in known
    with pytest.raises(UnknownNameError, match=f"'wave'; valid: {known}$"):
        load_policy("wave")


def test_a_checkpoint_from_before_recipes_was_trained_with_prefixes(folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["recipe"]
    for name in ("causal_window", "suffix_offset", "lora_rank", "lora_alpha", "lora_dropout", "robot_dim"):
        del config["model"][name]
    path.write_text(json.dumps(config))
    assert load(folder).recipe == Prefix(max_delay=12)


def test_an_unknown_recipe_does_not_fit(folder: Path) -> None:
    rewrite_config(folder, recipe={"name": "rtc"})
    with pytest.raises(CheckpointError, match="unknown recipe 'rtc'"):
        load(folder)


@pytest.mark.parametrize("name", [n for n in shipped_checkpoints() if not n.endswith(OWN_NETWORKS)])
def test_a_shipped_network_computes_what_it_always_did(name: str) -> None:
    """The network as it was before recipes, written down once more: equal to the last bit."""
    checkpoint = load(name)
    w, generator = checkpoint.model.state_dict(), torch.Generator().manual_seed(0)
    rows = torch.randn(2, 32, checkpoint.model_config.action_dim, generator=generator)
    t = torch.rand(2, 32, generator=generator)
    features = torch.randn(2, checkpoint.model_config.state_dim, generator=generator)

    def linear(layer: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w[layer + ".weight"], w[layer + ".bias"])

    def norm(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], eps=1e-6)

    state = linear("state_in.2", F.silu(linear("state_in.0", features)))
    context = torch.stack([state, w["task_in.weight"][[0, 0]]], dim=1)
    angles = t[..., None] * checkpoint.model.time_in.frequencies
    waves = torch.cat([angles.sin(), angles.cos()], dim=-1)
    times = linear("time_in.layer_out", F.silu(linear("time_in.layer_in", waves)))
    condition = torch.cat([w["context_time"].expand(2, 2, -1), times], dim=1)
    condition = condition + context.sum(dim=1, keepdim=True)
    modulation = [part.contiguous() for part in linear("modulation", F.silu(condition)).chunk(6, dim=-1)]
    shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = modulation
    x = torch.cat([context, linear("row_in", rows)], dim=1) + w["position"]
    for i in range(4):
        qkv = linear(f"blocks.{i}.qkv", torch.addcmul(shift_a, norm(x), scale_a))
        q, k, v = qkv.view(2, 34, 3, 4, -1).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = torch.softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2), dim=-1) @ v
        mixed = mixed.transpose(1, 2).reshape(2, 34, -1)
        x = torch.addcmul(x, gate_a, linear(f"blocks.{i}.attention_out", mixed))
        up = F.silu(linear(f"blocks.{i}.mlp_in", torch.addcmul(shift_m, norm(x), scale_m)))
        x = torch.addcmul(x, gate_m, linear(f"blocks.{i}.mlp_out", up))
    expected = linear("velocity_out", norm(x[:, 2:]))
    ours = checkpoint.model.velocity(rows, t, checkpoint.model.encode(features, torch.zeros(2).long()))
    assert torch.equal(ours, expected)
