"""What goes into the wheel: what a robot or a first look needs, and no more than 15 MB of it."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from sim.commands.demo import SHOWS
from tests.source_tree import MODULES, ROOT

MAX_BYTES = 15_000_000


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built as an installer builds it, without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def names(wheel) -> set[str]:
    return set(ZipFile(wheel).namelist())


def test_it_is_small(wheel):
    assert wheel.stat().st_size <= MAX_BYTES


def test_it_has_every_module_and_no_tool_of_the_repository(names):
    files = {path.relative_to(ROOT).as_posix() for path in MODULES.values()}
    assert {name for name in names if name.endswith(".py")} == files
    assert not [name for name in names if name.startswith(("tests", "scripts", "docs"))]


def test_its_packages_are_typed_for_those_who_import_them(names):
    packages = {name.partition(".")[0] for name in MODULES}
    assert {f"{package}/py.typed" for package in packages} <= names


def test_it_has_the_weights_that_each_demo_needs_and_says_of_others_that_they_exist(names):
    weights = {name.split("/")[2] for name in names if name.endswith("/model.safetensors")}
    assert weights == {"pick_place", "track", "wipe"}
    for show in SHOWS.values():
        assert weights & set(show.tasks)
    assert "policies/checkpoints/clear/config.json" in names


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """An empty folder to work in; what was unpacked beside it comes before the repository."""
    folder = tmp_path_factory.mktemp("installed")
    ZipFile(wheel).extractall(folder / "packages")
    (folder / "work").mkdir()
    return folder


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(installed / "packages")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=installed / "work", env=env)


def test_installed_it_loads_the_weights_that_it_has(installed):
    out = run(installed, "-c", "from policies.load import load_policy; print(load_policy('track').info.name)")
    assert out.stdout.strip() == "track", out.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("serve", "--policy", "clear"), "the clone's folder policies/checkpoints/clear"),
        (
            ("eval", "--task", "clear", "--policy", "clear"),
            "the clone's folder policies/checkpoints/clear",
        ),
    ],
    ids=["serve", "eval"],
)
def test_installed_it_says_where_the_rest_is(arguments, words, installed):
    out = run(installed, "-m", "robot_runtime.cli", *arguments)
    assert out.returncode == 1
    assert words in out.stderr
    assert "Traceback" not in out.stderr
