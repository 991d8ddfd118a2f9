"""A robot file names code: drivers of its folder, of the user's sources and of packages that declare some."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from robot_runtime.errors import RobotRuntimeError
from robot_runtime.robot_file import RobotFile, open_robot
from robot_runtime.robot_file.teleop import open_teleop

ARM = """
open("RAN", "w").close()
from subprocess import Popen, run


class MyArm:
    num_joints = 7
    def read(self): ...
    def write(self, command): ...
    def stop(self): ...


class Bus:
    def __init__(self, arm=None): self.arm = MyArm()


class Recorder:
    def read(self): ...
    def stop(self): ...


def arm(): return MyArm()
def declared() -> MyArm: return MyArm()
def wrong() -> Recorder: return Recorder()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of the user; Python finds an installed package in `site-packages` beside it."""
    home = tmp_path / "robots"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site-packages")])
    for place in (home, tmp_path, home / "my_package"):
        place.mkdir(exist_ok=True)
        (place / "arms_for_code.py").write_text(ARM)
    (home / "my_package" / "__init__.py").touch()
    before = set(sys.modules)
    yield home
    for name in set(sys.modules) - before:
        del sys.modules[name]


def installed(folder: Path, name: str, *, declares: bool) -> None:
    site = folder.parent / "site-packages"
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text(ARM)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if declares:
        (info / "entry_points.txt").write_text(f"[robot_runtime.drivers]\n{name}-arm = {name}:declared\n")


def robot_file(text: str) -> str:
    Path("robot.toml").write_text(text)
    return "robot.toml"


def refused(text: str) -> str:
    with pytest.raises(RobotRuntimeError) as caught, open_robot(robot_file(text)):
        pass
    return str(caught.value)


@pytest.mark.parametrize("section", ["parts", "devices", "sensors", "cameras", "operator"])
@pytest.mark.parametrize(
    "driver",
    [
        "subprocess:Popen",
        "subprocess:run",
        "os:system",
        "os.path:join",
        "builtins:exec",
        "runpy:run_path",
        "antigravity:fly",
        "drivers.child:Child",
        "robot_runtime.page.process:PageProcess",
        "tests.cli.test_robot_code:robot_file",
        "numpy:load",
        "msgspec:Raw",
        "../arms_for_code.py:MyArm",
        "/usr/lib/python3.12/subprocess.py:Popen",
    ],
)
def test_a_robot_file_runs_nothing_that_is_no_driver(folder: Path, section: str, driver: str) -> None:
    name = "arm" if section == "operator" else "x"
    text = f'[{section}.{name}]\ndriver = "{driver}"\nargs = "touch RAN"\nshell = true\n'
    parts = "" if section == "parts" else '[parts.arm]\ndriver = "ideal-arm"\n'
    sentence = refused(text + parts)
    assert f"robot.toml: {section}.{name}: " in sentence
    assert driver.partition(":")[0] in sentence
    assert "\n" not in sentence
    assert not (folder / "RAN").exists()


@pytest.mark.parametrize("name", ["Popen", "run"])
def test_what_a_file_beside_the_robot_file_has_imported_from_elsewhere_is_no_driver(name: str) -> None:
    sentence = refused(f'[devices.x]\ndriver = "arms_for_code.py:{name}"\n[parts.arm]\ndriver = "ideal-arm"')
    assert "subprocess is of Python's standard library" in sentence


@pytest.mark.parametrize(
    "driver",
    [
        "arms_for_code.py:MyArm",
        "my_package/arms_for_code.py:MyArm",
        "my_package.arms_for_code:MyArm",
        "arms_for_code.py:arm",
        "arms_for_code:declared",
    ],
)
def test_drivers_of_the_users_own_files_and_packages_are_made(driver: str) -> None:
    with open_robot(robot_file(f'[parts.arm]\ndriver = "{driver}"')) as opened:
        assert type(opened.robot.parts["arm"]).__name__ == "MyArm"


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        (
            "arms_for_code.py:Recorder",
            "expected a class with the methods read, write, stop, got Recorder without write",
        ),
        ("arms_for_code.py:wrong", "got Recorder without write"),
        (
            "arms_for_code:arm",
            "is a function that does not declare what it makes: expected a return annotation, as -> Arm",
        ),
        ("arms_for_code.py:sys", "unknown object of"),
    ],
)
def test_a_class_without_the_methods_of_its_section_is_refused_before_it_is_made(
    driver: str, words: str
) -> None:
    assert words in refused(f'[parts.arm]\ndriver = "{driver}"')


def test_an_installed_package_is_named_once_it_declares_drivers(folder: Path) -> None:
    installed(folder, "silent_vendor", declares=False)
    installed(folder, "vendor_of_code", declares=True)
    assert "declares no entry point in the group robot_runtime.drivers" in refused(
        '[parts.arm]\ndriver = "silent_vendor:MyArm"'
    )
    assert not Path("RAN").exists()
    for driver in ("vendor_of_code:MyArm", "vendor_of_code-arm"):
        with open_robot(robot_file(f'[parts.arm]\ndriver = "{driver}"')) as opened:
            assert type(opened.robot.parts["arm"]).__name__ == "MyArm"
    for driver in ("vendor_of_code:Popen", "vendor_of_code:arm", "vendor_of_code:Recorder"):
        refused(f'[parts.arm]\ndriver = "{driver}"')


def test_a_data_sheet_is_found_where_drivers_are(folder: Path) -> None:
    for sheet in ("/usr/lib/python3.12/this.py:s", "../arms_for_code.py:arm", "this:s"):
        sentence = refused(f'[parts.arm]\ndriver = "ideal-arm"\n[parts.arm.limits]\nof = "{sheet}"')
        assert "data sheet" in sentence or "outside the folder" in sentence
    assert not (folder / "RAN").exists()
    assert "this" not in sys.modules


def test_private_attributes_of_a_device_are_not_reached() -> None:
    text = '[devices.bus]\ndriver = "arms_for_code.py:Bus"\n[parts.x]\ndriver = "@bus.{}"\n'
    assert "has no '__init__'" in refused(text.format("__init__.__globals__"))
    with open_robot(robot_file(text.format("arm"))) as opened:
        assert opened.robot.kind("x") == "arm"


def test_a_file_lists_the_code_that_it_runs_without_running_it(folder: Path) -> None:
    installed(folder, "vendor_of_code", declares=True)
    text = """
        [devices.bus]
        driver = "arms_for_code.py:Bus"
        [parts.gripper]
        driver = "ideal-gripper"
        [parts.arm]
        driver = "vendor_of_code-arm"
        limits = { of = "my_package.arms_for_code:LIMITS" }
        [parts.lift]
        driver = "@bus.arm"
        [parts.bad]
        driver = "subprocess:Popen"
        [parts.absent]
        driver = "no_such_package.arms:Arm"
    """
    code = {place: str(each) for place, each in RobotFile.load(robot_file(text)).code().items()}
    ideal = Path(__file__).parents[2] / "drivers" / "ideal.py"
    vendor = folder.parent / "site-packages" / "vendor_of_code" / "__init__.py"
    assert code == {
        "devices.bus": f"{folder}/arms_for_code.py:Bus",
        "parts.gripper": f"drivers.ideal:IdealGripper, {ideal}",
        "parts.arm": f"vendor_of_code:declared, {vendor}",
        "parts.arm.limits": f"my_package.arms_for_code:LIMITS, {folder}/my_package/arms_for_code.py",
        "parts.absent": "no_such_package.arms:Arm, which is not found",
    }
    assert not (folder / "RAN").exists()
    assert "my_package" not in sys.modules


def test_a_person_may_type_a_teleoperator_of_any_file_but_none_of_the_standard_library(folder: Path) -> None:
    (folder.parent / "stick.py").write_text(
        "class Stick:\n    def read(self): ...\n    def close(self): ...\n"
    )
    with ExitStack() as held:
        found = open_teleop(f"{folder.parent}/stick.py:Stick", held)
        assert type(found["teleop"]).__name__ == "Stick"
        with pytest.raises(RobotRuntimeError, match="subprocess is of Python's standard library"):
            open_teleop("subprocess:Popen:args=[touch,RAN]", held)
