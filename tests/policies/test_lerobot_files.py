"""A folder that a stranger has made runs no code, asks for nothing, and is refused in a sentence."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from policies.files import METADATA, OLDER_METADATA
from policies.lerobot.files import AFTER, BEFORE, CONFIG, WEIGHTS, checked_config
from policies.lerobot.metadata import PolicyMetadata
from policies.load import load_policy
from robot_runtime.errors import CheckpointError
from tests.policies.test_lerobot_types import described, save

pytest.importorskip("lerobot", reason="whose folders they are")


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    folder = save("act", tmp_path_factory.mktemp("act"))
    described(folder)
    return folder


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "act"))


def change(folder: Path, file: str, **values) -> None:
    data = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(data | values))


def change_step(folder: Path, file: str, index: int, entry: dict) -> None:
    data = json.loads((folder / file).read_text())
    data["steps"][index] = entry
    (folder / file).write_text(json.dumps(data))


def test_a_step_that_names_a_class_is_refused_and_its_command_is_not_run(folder: Path, tmp_path: Path):
    marker = tmp_path / "ran"
    step = {"class": "subprocess.Popen", "config": {"args": ["touch", str(marker)]}}
    change_step(folder, BEFORE, 0, step)
    with pytest.raises(CheckpointError, match=r"expected a step with registry_name, .*subprocess.Popen"):
        load_policy(folder)
    change_step(folder, BEFORE, 0, {"registry_name": "device_processor"} | step)
    with pytest.raises(CheckpointError, match="expected a step with registry_name"):
        load_policy(folder)
    (folder / METADATA).unlink()
    with pytest.raises(CheckpointError, match="expected a step with registry_name"):
        described(folder)
    assert not marker.exists()


@pytest.mark.long
@pytest.mark.parametrize("file", [BEFORE, AFTER])
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"registry_name": "groot_n1_7_vlm_encode_v1"}, "there is no step 'groot_n1_7_vlm_encode_v1'"),
        ({"registry_name": ["device_processor"]}, "there is no step"),
        ({"registry_name": "device_processor", "config": {"args": 1}}, "device_processor takes device, fl"),
        ({"registry_name": "device_processor", "config": []}, "device_processor takes"),
        (
            {"registry_name": "normalizer_processor", "state_file": "../other.safetensors"},
            "expected a state_file NAME.safetensors",
        ),
        ({"registry_name": "normalizer_processor", "state_file": "a.bin"}, "expected a state_file"),
        ({"registry_name": "tokenizer_processor", "config": {"tokenizer_name": "evil/words"}}, "a folder in"),
        ({"registry_name": "tokenizer_processor", "config": {"tokenizer_name": "/etc"}}, "a folder inside"),
        ({"registry_name": "tokenizer_processor", "config": {"tokenizer": "x"}}, "tokenizer_processor takes"),
        (
            {"registry_name": "rename_observations_processor", "config": {"rename_map": {"a": "b"}}},
            "only images",
        ),
        ("device_processor", "expected a step with registry_name"),
        (
            {"registry_name": "device_processor", "config": {"float_dtype": "float16"}},
            "float_dtype = 'float16' cannot be run, only None or float32",
        ),
        (
            {"registry_name": "tokenizer_processor", "config": {"task_key": "instruction"}},
            "task_key = 'instruction' cannot be run, only task",
        ),
        ({"registry_name": "tokenizer_processor", "config": {"padding_side": []}}, "only left or right"),
    ],
)
def test_steps_that_are_not_of_the_list_are_refused(folder: Path, file: str, entry, words: str):
    change_step(folder, file, 0, entry)
    with pytest.raises(CheckpointError, match=words):
        load_policy(folder)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"type": "os.system"}, "type is 'os.system'; supported LeRobot policies: act"),
        ({"type": "groot"}, "type is 'groot'"),
        ({"type": None}, "type is None"),
        ({"temporal_ensemble_coeff": "a"}, "is no configuration of act"),
        ({"n_action_steps": 7}, "is no configuration of act: .*upper bound"),
        ({"input_features": {}}, "1 to 64 named features"),
        (
            {"output_features": {"act": {"type": "ACTION", "shape": [3]}}},
            "expected an action to be predicted",
        ),
        ({"normalization_mapping": {"ACTION": "LOG"}}, "normalisation mode is one"),
        ({"vision_backbone": "get_model"}, "vision_backbone is one of"),
    ],
)
def test_a_configuration_that_cannot_be_run_is_refused(folder: Path, values: dict, words: str):
    change(folder, CONFIG, **values)
    with pytest.raises(CheckpointError, match=words):
        load_policy(folder)


@pytest.mark.parametrize("file", [BEFORE, AFTER])
def test_a_folder_of_an_older_lerobot_is_told_how_to_become_one_of_today(folder: Path, file: str):
    (folder / file).unlink()
    with pytest.raises(CheckpointError, match=f"has no {file}: LeRobot before 0.4 .*migrate_policy_norm"):
        load_policy(folder)


def test_a_configuration_nested_200_000_deep_is_a_sentence(folder: Path):
    for file in (CONFIG, BEFORE, METADATA):
        text = (folder / file).read_text()
        (folder / file).write_text('{"a": ' * 200_000 + "1" + "}" * 200_000)
        with pytest.raises(CheckpointError, match="nested deeper than"):
            load_policy(folder)
        (folder / file).write_text(text)


@pytest.mark.parametrize("text", ["", "[]", "nul", '{"a": NaN}', '{"a": 1e400}', "\x00\xff", '{"a": 1e300}'])
def test_files_that_are_no_json_within_bounds_are_a_sentence(folder: Path, text: str):
    for file in (CONFIG, BEFORE, AFTER, METADATA):
        kept = (folder / file).read_text()
        (folder / file).write_bytes(text.encode("latin1"))
        with pytest.raises(CheckpointError, match=file):
            load_policy(folder)
        (folder / file).write_text(kept)


def test_weights_and_statistics_that_are_damaged_missing_or_not_finite_are_a_sentence(folder: Path):
    statistics = next(path.name for path in folder.glob("policy_postprocessor*.safetensors"))
    for file in (WEIGHTS, statistics):
        kept = (folder / file).read_bytes()
        (folder / file).write_bytes(kept[: len(kept) // 2])
        with pytest.raises(CheckpointError):
            load_policy(folder)
        (folder / file).write_bytes(kept)
        tensors = load_file(folder / file)
        name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
        tensors[name] = torch.full_like(tensors[name], torch.nan)
        save_file(tensors, folder / file)
        with pytest.raises(CheckpointError, match="holds NaN or infinite numbers"):
            load_policy(folder)
        (folder / file).write_bytes(kept)
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"has no model.safetensors; pytorch_model.bin is not read"):
        load_policy(folder)


def test_a_weight_that_is_not_there_does_not_stay_as_it_was_drawn(folder: Path):
    tensors = load_file(folder / WEIGHTS)
    tensors.pop(next(name for name in tensors if "action_head" in name))
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(CheckpointError, match=r"holds no act: "):
        load_policy(folder)


def test_a_network_larger_than_its_file_is_refused_before_it_is_made(folder: Path):
    change(folder, CONFIG, dim_model=65536, dim_feedforward=65536)
    with pytest.raises(CheckpointError, match="too small for the network"):
        load_policy(folder)


def test_what_training_has_normalised_has_statistics_of_its_size(folder: Path):
    file = next(path for path in folder.glob("policy_postprocessor*.safetensors"))
    tensors = load_file(file)
    for damaged, words in (
        ({name: x for name, x in tensors.items() if name != "action.std"}, "has no statistics of action"),
        (tensors | {"action.std": torch.ones(4)}, r"statistics of action have shapes \[3\] and \[4\]"),
        (tensors | {"action.std": -torch.ones(3)}, "have a negative range"),
    ):
        save_file(damaged, file)
        with pytest.raises(CheckpointError, match=words):
            load_policy(folder)
    data = json.loads((folder / AFTER).read_text())
    data["steps"] = data["steps"][1:]
    (folder / AFTER).write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match="does not normalise action by MEAN_STD"):
        load_policy(folder)


def can(**values: object) -> dict:
    return {"policy": {"capabilities": values}}


def change_metadata(folder: Path, changes: dict) -> None:
    data = json.loads((folder / METADATA).read_text())
    (folder / METADATA).write_text(json.dumps(merged(data, changes)))


def merged(old: dict, new: dict) -> dict:
    both = {k: merged(old[k], v) if isinstance(v, dict) and k in old and v else v for k, v in new.items()}
    return old | both


@pytest.mark.long
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"policy": {"action_spec": {"fields": [], "horizon": 6, "dt_ns": 1}}}, "does not describe"),
        (can(max_inference_delay=9), "has max_inference_delay 9; expected 0 to 6"),
        ({"joint_unit_rad": 0}, "a scale is finite and not 0"),
        ({"gripper_action": {"scale": 0.0, "offset": 0.0}}, "a scale is finite and not 0"),
        (can(samplers=["Telepathy"]), "Invalid enum value 'Telepathy'"),
        (can(samplers=["ClampedPrefix"]), "act is not one, and takes no committed rows"),
        ({"gripper_acton": {"scale": 0.08}}, "there is no 'gripper_acton', but state_names, "),
        ({"joint_unit_rad": -1.0}, "joint_unit_rad above 0"),
        (
            {"state_names": ["joint_0", "joint_1", "effort"]},
            "the policy needs effort; the state has arm.joint_1",
        ),
        ({"state_names": ["joint_0", "joint_1", "base_vx"]}, "the policy needs base.vx"),
        ({"state_names": ["joint_0", "joint_0", "gripper_width"]}, "has a name twice"),
        ({"features": {}}, "declares numbers of the state: 5; the policy has 3"),
        ({"policy": {"tasks": "any"}}, "Expected `array`, got `str` - at `\\$.tasks`"),
        ({"task": []}, "there is no 'task', but state_names, features"),
        ({"state_names": ["joint_0", "joint_1"]}, "declares numbers of the state: 2; the policy has 3"),
    ],
)
def test_metadata_that_says_what_cannot_be_is_refused(folder: Path, values: dict, words: str):
    change_metadata(folder, values)
    with pytest.raises(CheckpointError, match=words):
        load_policy(folder)


def test_a_horizon_or_cameras_that_the_policy_has_not_are_refused(folder: Path):
    data = json.loads((folder / METADATA).read_text())
    for part, key, value, words in (
        ("action_spec", "horizon", 50, "declares rows of a chunk: 50; the policy has 6"),
        ("schema", "cameras", {"chest": [96, 96]}, "declares cameras: "),
    ):
        change_metadata(folder, {"policy": {part: {key: value}}})
        with pytest.raises(CheckpointError, match=words):
            load_policy(folder)
        (folder / METADATA).write_text(json.dumps(data))


def test_a_sound_folder_passes(sound: Path):
    assert checked_config(sound)["type"] == "act"


def test_a_description_under_its_older_name_loads_as_what_it_always_was(folder: Path):
    said = PolicyMetadata.load(folder)
    data = json.loads((folder / METADATA).read_text())
    policy = data.pop("policy")
    older = data | {
        "schema": policy["schema"] | {"action_fields": policy["action_spec"]["fields"]},
        "action_spec": policy["action_spec"],
        "tasks": policy["tasks"],
        "trained_for": [],
        "max_inference_delay": 0,
        "execution_horizon": None,
    }
    (folder / METADATA).unlink()
    (folder / OLDER_METADATA).write_text(json.dumps(older))
    assert replace(PolicyMetadata.load(folder).info, name=said.info.name) == said.info
    assert load_policy(folder).info.action_spec == said.info.action_spec
    PolicyMetadata.load(folder).save(folder)
    assert (folder / METADATA).is_file()
    assert not (folder / OLDER_METADATA).exists()
