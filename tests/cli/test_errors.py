"""What fails for a reason of the machine is one sentence; a mistake of the program stays a traceback."""

import ctypes.util
import errno
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

from robot_runtime.cli.options import need
from robot_runtime.error_text import EXTRA_OF, drop_mujoco_gl, sentence, writing
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


def test_all_extras_of_a_command_are_named_at_once():
    with pytest.raises(ModuleNotFoundError) as caught:
        need("json", "no_such_module", "nor_this", extras=("sim", "calibration"))
    assert sentence(caught.value) == (
        "this command needs no_such_module and nor_this, which are not installed: pip install "
        "'robot-runtime[sim,calibration]', or add --extra sim --extra calibration to uv run"
    )


WITHOUT = """
import sys
from robot_runtime.cli import main

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

MISSING = set(sys.argv[1].split(","))
import robot_runtime.cli.options as options
found = options.find_spec
options.find_spec = lambda name: None if name in MISSING else found(name)
sys.meta_path.insert(0, Without())
for line in sys.stdin.read().splitlines():
    print(line, flush=True)
    print("code", main(line.split()), flush=True)
"""
OF_CALIBRATION = (
    "calibrate board --output {tmp}/board",
    "calibrate intrinsics . --board {file}",
    "calibrate anchor .",
    "calibrate hand-eye . --board {file} --intrinsics {file} --output {tmp}/x.json",
    "calibrate robot-world . --board {file} --intrinsics {file} --output {tmp}/x.json",
    "calibrate chest . --board {file} --intrinsics {file} --output {tmp}/x.json",
    "calibrate tcp --preset umi --output {tmp}/x.json",
    "calibrate gripper . --intrinsics {file} --open-m 0.08 --output {tmp}/x.json",
    "calibrate camera-imu . --output {tmp}/x.json",
    "capture check .",
    "capture match . {file}",
    "capture import --chest video:{file} --output {tmp}/y",
    "capture record {file} --output {tmp}/y",
)


def said_without(missing: str, lines: tuple[str, ...], tmp_path: Path) -> list[str]:
    """Of each command, in an interpreter without those modules, what is said in place of its work."""
    given = "\n".join(line.format(tmp=tmp_path, file=ROOT / "pyproject.toml") for line in lines)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing],
        input=given,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.count("code 1") == len(lines), done.stdout + done.stderr
    return done.stderr.splitlines()


def test_each_command_that_lacks_an_extra_says_how_to_install_it(tmp_path):
    said = said_without("cv2,scipy,av,mujoco,torch,lerobot,pyarrow,matplotlib", OF_CALIBRATION, tmp_path)
    assert len(said) == len(OF_CALIBRATION)
    assert all("pip install 'robot-runtime[calibration]'" in line for line in said), said
    others = {
        "capture sample --output {tmp}/z": "[sim,calibration]",
        "capture label . --output {tmp}/z": "[calibration,lerobot]",
        "capture label . --output {tmp}/z --task fetch": "[calibration,sim,lerobot]",
        "capture poses . --output {tmp}/z": "[calibration,sfm]",
        "capture replay .": "[sim,lerobot]",
        "demo capture --output {tmp}/z": "[sim,policies,calibration,lerobot]",
        "dataset check .": "[lerobot]",
    }
    said = said_without("cv2,scipy,av,mujoco,torch,lerobot,pyarrow,matplotlib", tuple(others), tmp_path)
    assert all(extras in line for extras, line in zip(others.values(), said, strict=True)), said


@pytest.mark.long
def test_a_sample_capture_needs_no_torch():
    alone = "import sys, sim.capture.session; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", alone], cwd=ROOT, check=False).returncode == 0


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Where the machine's temporary files go."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_what_cannot_be_written_is_kept_elsewhere(tmp_path, elsewhere):
    with pytest.raises(RobotRuntimeError, match=r"No such file or directory.*it is kept as ") as caught:
        keep_text(tmp_path / "missing" / "results.json", "[1]")
    kept = Path(str(caught.value).split()[-1])
    assert kept.is_relative_to(elsewhere)
    assert kept.read_text() == "[1]"


def test_a_mistake_in_what_writes_is_not_taken_for_a_full_disk_and_leaves_nothing(tmp_path, elsewhere):
    with pytest.raises(ZeroDivisionError):
        keep(tmp_path / "x", lambda path: path.write_text(str(1 / 0)))
    assert list(elsewhere.iterdir()) == []


def test_results_that_were_there_are_replaced_by_whole_ones_only(tmp_path, elsewhere):
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


@pytest.mark.parametrize("value", ["osmesa", "elg", " OSMesa "])
def test_a_command_goes_on_without_a_setting_that_mujoco_cannot_be_imported_with(value):
    if value != "elg" and ctypes.util.find_library("OSMesa"):
        pytest.skip("this machine has OSMesa")
    code = (
        "from robot_runtime.error_text import drop_mujoco_gl as drop; drop(); import mujoco; print('went on')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "MUJOCO_GL": value},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert f"warning: MUJOCO_GL={value} does not work on this machine" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.endswith("went on\n")


@pytest.mark.parametrize("value", ["", "egl", "disabled", "glfw"])
def test_a_setting_that_mujoco_takes_is_left(monkeypatch, capsys, value):
    monkeypatch.setenv("MUJOCO_GL", value)
    drop_mujoco_gl()
    assert os.environ["MUJOCO_GL"] == value
    assert capsys.readouterr().err == ""


def test_a_setting_that_draws_otherwise_is_named_where_no_picture_can_be_drawn():
    code = "from sim.scene.render import make_context; make_context(8, 8)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYOPENGL_PLATFORM": "osmesa"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "the environment sets PYOPENGL_PLATFORM=osmesa: unset it" in done.stderr
