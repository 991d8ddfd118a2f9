"""Arrows point inward, none lead round in a circle, and every module can be the first to be imported."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.source_tree import MODULES, PACKAGES, ROOT, arrows, circles, imports, others_packages, parents

KNOWS: dict[str, set[str]] = {
    "robot_runtime": set(),
    "drivers": {"robot_runtime"},
    "calibration": {"robot_runtime"},
    "policies": {"robot_runtime"},
    "sim": {"robot_runtime", "drivers", "policies", "calibration"},
}
"""Besides itself. Commands of `robot_runtime` find what they use of others by `robot_runtime.providers`."""
ROOMS = (
    "core", "wire", "transport", "log", "dataset", "teleop", "robot", "page", "server", "evaluation",
    "robot_file", "cli", "commands",
)  # fmt: skip
"""Folders of `robot_runtime`, from the ground up; each knows those before it."""
FLOORS = {"values": 0, "method": 1, "policy": 2, "policy_info": 2, "robot": 2, "plan": 3}
"""Of `robot_runtime.core`, from the ground up; everything else in it stands on top."""
TOP_FLOOR = 4
SHARED_WITH_COMMANDS = {"sim.capture.robot", "sim.episodes.replay"}
"""What `sim.provided` does for `capture label` and `replay`, with their types."""


def package_of(module: str) -> str:
    return module.partition(".")[0]


def is_command(module: str) -> bool:
    """Of any package: the frame, or what an entry point names."""
    return module.split(".")[1:2] in (["cli"], ["commands"])


def room_of(module: str) -> int | None:
    """None: it is no folder of `robot_runtime`, or beside them."""
    package, _, rest = module.partition(".")
    folder = rest.partition(".")[0]
    is_folder = package == "robot_runtime" and (ROOT / package / folder).is_dir() and folder != ""
    return ROOMS.index(folder) if is_folder else None


def floor_of(module: str) -> int:
    """Within core; -1 for what is not in it."""
    parts = module.split(".")
    if parts[:2] != ["robot_runtime", "core"]:
        return -1
    return FLOORS.get(parts[2], TOP_FLOOR) if len(parts) > 2 else 0


def all_arrows() -> list[tuple[str, str]]:
    return [(name, to) for name, others in arrows(in_functions=True).items() for to in sorted(others)]


def test_packages_know_only_those_that_lie_further_in():
    wrong = [
        (name, to)
        for name, to in all_arrows()
        if package_of(to) not in KNOWS[package_of(name)] | {package_of(name)}
    ]
    assert not wrong


def test_folders_know_only_those_that_lie_further_in():
    rooms = [(name, to, room_of(name), room_of(to)) for name, to in all_arrows()]
    wrong = [(name, to) for name, to, at, of in rooms if at is not None and of is not None and at < of]
    assert not wrong


def test_only_commands_and_what_is_provided_to_them_import_commands():
    def may(module: str) -> bool:
        return is_command(module) or module.endswith(".provided") or module in SHARED_WITH_COMMANDS

    assert not [(name, to) for name, to in all_arrows() if is_command(to) and not may(name)]


def test_core_is_built_floor_upon_floor():
    assert not [(name, to) for name, to in all_arrows() if -1 < floor_of(name) < floor_of(to)]


def test_no_package_knows_the_scripts_or_the_tests():
    outside = {"scripts", "tests"}
    wrong = [
        (name, to) for name, path in MODULES.items() for to in imports(path) if package_of(to) in outside
    ]
    assert not wrong


def test_no_modules_import_each_other_in_a_circle_not_even_from_within_functions():
    assert not circles(arrows(in_functions=True))
    assert not circles(arrows(in_functions=True, of_scripts=True))


def runs(name: str) -> set[str]:
    """What importing it runs: what it imports and the packages around that, but for those it lies in."""
    at_once = arrows(in_functions=False)[name]
    return (at_once | {package for to in at_once for package in parents(to)}) - parents(name) - {name}


def test_nor_through_the_packages_they_lie_in():
    assert not circles({name: runs(name) for name in MODULES})


EXTRAS = (
    "torch", "safetensors", "jaxtyping", "mujoco", "franky_sim", "av", "matplotlib", "PIL", "grpc", "cv2",
    "websockets", "lerobot", "transformers", "huggingface_hub", "viser", "trimesh", "scipy", "reportlab",
)  # fmt: skip
NEED_GATEWAYS = {"robot_runtime.server.gateways.lerobot", "robot_runtime.server.gateways.openpi"}
"""The extra of that name: they serve clients of other projects."""
NEED_PAGE = {"robot_runtime.page.web"}
"""The extra of that name."""
NEED_PLOTS = {"robot_runtime.evaluation.plots"}
"""The extra `sim`, whose results they draw."""


def loaded_before(modules: list[str]) -> dict[str, str | None]:
    """For each of them that one that it imports with which most is loaded; None: it imports none of them."""

    @cache
    def loads(module: str) -> frozenset[str]:
        return frozenset({module}).union(*map(loads, runs(module)))

    def of(module: str) -> str | None:
        first = sorted(arrows(in_functions=False)[module] & {*modules})
        return max(first, key=lambda name: len(loads(name)), default=None)

    return {module: of(module) for module in modules}


def failures_alone(modules: list[str], *, blocked: tuple[str, ...] = ()) -> dict[str, str]:
    """Of modules of ours, each of which could be the first of ours that its process imports."""
    others = others_packages(modules) - {"jaxtyping"}  # core looks whether that has been imported before it
    preload = {name for name in others if name.partition(".")[0] not in blocked}
    orders = {"modules": modules, "after": loaded_before(modules), "preload": sorted(preload)}
    command = [sys.executable, "-P", str(ROOT / "tests" / "import_alone.py")]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    out = subprocess.run(
        command, input=json.dumps(orders | {"blocked": blocked}), capture_output=True, text=True, env=env
    )
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


def modules_of(*packages: str) -> list[str]:
    names = [name for name in MODULES if package_of(name) in packages and not name.endswith(".__main__")]
    return sorted(names)


def test_every_module_of_the_runtime_can_be_the_first_and_needs_no_extra():
    need_one = NEED_GATEWAYS | NEED_PAGE | NEED_PLOTS
    assert failures_alone(sorted({*modules_of("robot_runtime")} - need_one), blocked=EXTRAS) == {}
    assert failures_alone(sorted(need_one)) == {}


@pytest.mark.long
def test_every_module_around_the_runtime_can_be_the_first():
    assert failures_alone(modules_of(*PACKAGES[1:])) == {}


@pytest.fixture(scope="module")
def folder_with_the_same_names(tmp_path_factory) -> Path:
    """A project of somebody who has packages called drivers, policies and sim, and no idea that we have."""
    folder = tmp_path_factory.mktemp("project")
    for name in PACKAGES[1:]:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"raise RuntimeError('the {name} of the user')")
    return folder


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "import robot_runtime; [getattr(robot_runtime, name) for name in robot_runtime.__all__]"),
        ("-c", "import robot_runtime.server.server, robot_runtime.robot.runner, robot_runtime.commands.run"),
        ("-m", "robot_runtime.cli", "--help"),
        ("-m", "robot_runtime.cli", "serve", "--help"),
        ("-m", "robot_runtime.cli", "eval", "--task", "track", "--policy", "sine", "--episodes", "1"),
        (str(Path(sys.executable).with_name("robot-runtime")), "--help"),
    ],
    ids=lambda arguments: " ".join(arguments).replace(str(Path(sys.executable).parent), ""),
)
def test_a_users_packages_of_the_same_names_break_nothing(arguments, folder_with_the_same_names):
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    if arguments[0] == "-c":  # the working folder comes before everything else
        env["PYTHONPATH"] = os.pathsep.join((str(folder_with_the_same_names), str(ROOT)))
    out = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=folder_with_the_same_names, env=env
    )
    assert out.returncode == 0, out.stderr
