"""What policies of one server are called."""

from pathlib import Path

import pytest

from policies.commands.serve import Serve, distinct_names, serve, split_name
from policies.lerobot.metadata import PolicyMetadata
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ActionSpec, GripperWidth, JointPosition
from robot_runtime.errors import InvalidValueError

NAME = "act pretrained_model"


def folders(root: Path, *paths: str) -> list[str]:
    for path in paths:
        (root / path).mkdir(parents=True)
    return [str(root / path) for path in paths]


@pytest.mark.parametrize(
    ("paths", "differ"),
    [
        (
            ("checkpoints/000100/pretrained_model", "checkpoints/000200/pretrained_model"),
            ("000100", "000200"),
        ),
        (("a/checkpoints/last/pretrained_model", "b/checkpoints/last/pretrained_model"), ("a", "b")),
        (("a/1/pretrained_model", "a/2/pretrained_model", "b/1/pretrained_model"), ("a 1", "a 2", "b 1")),
    ],
)
def test_policies_of_one_name_are_told_apart_by_the_nearest_ancestors_that_differ(
    tmp_path: Path, paths: tuple[str, ...], differ: tuple[str, ...]
):
    sources = [*folders(tmp_path, *paths), "hold"]
    names = distinct_names([*(NAME for _ in paths), "hold"], sources)
    assert names == [*(f"{NAME} {each}" for each in differ), "hold"]


def test_a_clash_that_no_folder_tells_apart_is_refused_with_the_option_that_names_them(tmp_path: Path):
    (folder,) = folders(tmp_path, "pretrained_model")
    for sources in ([folder, folder], ["a.py:policy", "b.py:policy"]):
        with pytest.raises(InvalidValueError, match=r"got 'act pretrained_model' for .*--policy NAME=POLICY"):
            distinct_names([NAME, NAME], sources)


def test_a_policy_is_named_before_an_equals_sign_unless_that_is_a_folder(tmp_path: Path):
    (folder,) = folders(tmp_path, "lr=3")
    assert split_name(folder) == ("", folder)
    assert split_name(f"mine={folder}") == ("mine", folder)
    assert split_name("hold") == ("", "hold")


@pytest.mark.parametrize(
    ("names", "options", "words"),
    [
        ("{}", {"openpi": "127.0.0.1:0"}, "of policy 'one' nothing says what an open gripper is"),
        ("{}", {"lerobot": "127.0.0.1:0"}, "of policy 'one' nothing says what an open gripper is"),
        ('{"convention": "si", "groot": {"joint_range": [[0, 1]]}}', {"groot": "127.0.0.1:0"}, "joint_unit"),
        (
            '{"convention": "si", "parts": {"left_arm": {}}}',
            {"lerobot": "127.0.0.1:0"},
            "parts of the policy",
        ),
        ("{}", {"policy": ("one", "one")}, "expected policies of different names"),
    ],
)
def test_names_that_do_not_fit_a_policy_are_refused_before_its_weights_are_loaded(
    tmp_path: Path, monkeypatch, names: str, options: dict, words: str
):
    monkeypatch.chdir(tmp_path)
    spec = ActionSpec(fields=(JointPosition(2), GripperWidth()), horizon=4, dt_ns=10**8)
    (tmp_path / "one").mkdir()
    PolicyMetadata(info=PolicyInfo(name="one", action_spec=spec), adds_origin=False).save(tmp_path / "one")
    (tmp_path / "names.json").write_text(names)
    with pytest.raises(InvalidValueError, match=words):
        serve([], Serve(**({"policy": ("one",), "names": Path("names.json")} | options)))
