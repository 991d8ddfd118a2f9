import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from policies.flow.checkpoint import load, write_card
from policies.flow.policy import FlowPolicy
from policies.loading import load_policy
from policies.shipped import shipped_checkpoints
from robot_runtime.core.method import ConstantSchedule
from robot_runtime.errors import CheckpointError, UnknownNameError
from tests.policies.toy import SCHEMA, SPEC, TASK, make_observation


@pytest.fixture
def folder(toy_folder: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(toy_folder, tmp_path / "toy"))


def test_a_loaded_checkpoint_answers_bit_for_bit_like_the_trained_one(
    toy_policy: FlowPolicy, folder: Path
) -> None:
    loaded = load_policy(folder)
    assert (loaded.name, loaded.schema, loaded.action_spec, loaded.tasks) == ("toy", SCHEMA, SPEC, (TASK,))
    for seed in range(3):
        observation = make_observation(seed)
        ours = next(toy_policy.infer(observation, sampler=ConstantSchedule(), seed=seed))
        theirs = next(loaded.infer(observation, sampler=ConstantSchedule(), seed=seed))
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_folder_without_one_of_its_files_is_no_checkpoint(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(CheckpointError, match=f"not a checkpoint: it has no {missing}"):
        load(folder)


def test_an_unknown_name_is_answered_with_the_shipped_ones() -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint folder 'nothing'; .*shipped: ") as error:
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


def test_another_format_is_refused_with_both_numbers(folder: Path) -> None:
    rewrite_config(folder, format=99)
    with pytest.raises(CheckpointError, match="expected checkpoint format 1, found 99"):
        load(folder)


def test_weights_of_another_network_do_not_fit_the_configuration(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    rewrite_config(folder, model={**config["model"], "width": 64})
    with pytest.raises(CheckpointError, match="do not fit together"):
        load(folder)


def test_the_model_card_shows_training_and_results(folder: Path) -> None:
    write_card(load(folder), folder, {"synchronous": {"success": "98 %", "episodes": 200}})
    card = (folder / "README.md").read_text()
    assert "| steps | 800 |" in card
    assert "| synchronous | 98 % | 200 |" in card


def test_weights_are_stored_as_float32(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    assert {str(t.dtype) for name, t in tensors.items() if name.startswith("model.")} == {"torch.float32"}


def test_every_shipped_checkpoint_loads() -> None:
    for name in shipped_checkpoints():
        assert load_policy(name).name == name


def test_an_unknown_policy_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="'wave'; valid: hold, "):
        load_policy("wave")
