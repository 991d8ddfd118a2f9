"""What fails for a reason of the machine is one sentence; a mistake of the program stays a traceback."""

import errno
import tomllib
from pathlib import Path

import pytest

from robot_runtime.cli.errors import EXTRA_OF, sentence, writing
from robot_runtime.cli.options import need
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.results import keep, keep_text

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (InvalidValueError("too much"), "too much"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "x.json"), "x.json: Permission denied"),
        (ModuleNotFoundError(name="huggingface_hub.utils"), "needs huggingface_hub, which is not installed"),
        (ModuleNotFoundError(name="diffusers"), "pip install 'robot-runtime[lerobot]'"),
        (ModuleNotFoundError(name="robot_runtime.nothing"), None),
        (ConnectionResetError(errno.ECONNRESET, "reset"), None),
        (ZeroDivisionError(), None),
    ],
)
def test_an_error_of_the_machine_is_one_sentence(error, words):
    said = sentence(error)
    assert said == words if said is None or words is None else words in said


def test_every_extra_that_is_named_is_there():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRA_OF.values()) <= set(extras)


def test_a_module_that_is_needed_late_is_missed_at_once():
    with pytest.raises(ModuleNotFoundError) as caught:
        need("json", "no_such_module")
    assert caught.value.name == "no_such_module"


def test_what_cannot_be_written_is_kept_elsewhere(tmp_path):
    with pytest.raises(RobotRuntimeError, match=r"No such file or directory.*it is kept as ") as caught:
        keep_text(tmp_path / "missing" / "results.json", "[1]")
    assert Path(str(caught.value).split()[-1]).read_text() == "[1]"


def test_a_mistake_in_what_writes_is_not_taken_for_a_full_disk(tmp_path):
    with pytest.raises(ZeroDivisionError):
        keep(tmp_path / "x", lambda path: path.write_text(str(1 / 0)))


def test_results_that_were_there_are_replaced_by_whole_ones_only(tmp_path):
    path = tmp_path / "x.json"
    keep_text(path, "old")
    (tmp_path / "x.json.part").mkdir()  # so that the new one cannot be written
    with pytest.raises(RobotRuntimeError):
        keep_text(path, "new")
    assert path.read_text() == "old"


def test_a_full_disk_s_error_names_what_was_written(tmp_path):
    def fill() -> None:
        with writing(tmp_path / "dataset"), Path("/dev/full").open("w") as file:
            file.write("x")

    with pytest.raises(OSError, match="No space left") as caught:
        fill()
    assert sentence(caught.value) == f"{tmp_path / 'dataset'}: No space left on device"
