"""A robot described by a file: what it becomes, and what is refused before anything moves."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from robot_runtime.core.camera_watch import CameraLimits
from robot_runtime.core.plan.limits import BaseLimits, GripperLimits, JointLimits
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.values.fields import JointVelocity
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.robot_file import RobotFile, open_robot

GOOD = """
    name = "left"
    control_hz = 250

    [state_limits]
    timeout_s = 0.2

    [camera_limits]
    has_noise = false

    [parts.arm]
    driver = "ideal-arm"
    q = [0, 0, 0, -1.5, 0, 1.5, 0]
    home = [0, 0, 0, -1.5, 0, 1.5, 0]

    [parts.arm.limits]
    of = "fr3"
    share = 0.5

    [parts.gripper]
    driver = "ideal-gripper"

    [parts.gripper.limits]
    low = 0
    high = 0.08
    speed = 0.1
    acceleration = 2
    jerk = 100
"""
OWN = """
class Bridge:
    closed = []

    def __init__(self, url):
        self.url = url
        self.arm = Lift(self)

    def close(self):
        Bridge.closed.append(self.url)


class Lift:
    num_joints = 2

    def __init__(self, bridge, *, speed=1.0):
        if speed <= 0:
            raise ValueError("speed has to be above 0")
        self.bridge = bridge

    def read(self): ...
    def write(self, command): ...
    def stop(self): ...

    def close(self):
        Bridge.closed.append("lift")


def broken():
    return 1 / 0
"""


def written(folder: Path, text: str, name: str = "robot.toml") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return written(tmp_path, GOOD)


def refused(path: Path, *settings: str) -> str:
    """The sentence with which a file, so changed, is refused."""
    with pytest.raises(RobotRuntimeError) as caught, open_robot(str(path), settings):
        pass
    return str(caught.value)


def test_a_file_becomes_the_values_that_a_user_of_python_builds(good: Path) -> None:
    with open_robot(str(good)) as opened:
        robot = opened.robot
        assert list(robot.parts) == ["arm", "gripper"]
        np.testing.assert_array_equal(robot.parts["arm"].read().q, [0, 0, 0, -1.5, 0, 1.5, 0])
        assert robot.limits is not None
        arm, gripper = robot.limits.parts["arm"], robot.limits.parts["gripper"]
        assert isinstance(arm, JointLimits)
        assert arm.dq_max[0] == 1.31
        assert arm.dq_curve is not None
        assert isinstance(gripper, GripperLimits)
        assert gripper.motion is not None
        assert gripper.motion.speed == 0.1
        assert opened.home == {"arm": (0, 0, 0, -1.5, 0, 1.5, 0)}
        assert opened.options == {
            "name": "left",
            "control_hz": 250.0,
            "state_limits": StateLimits(timeout_ns=200_000_000),
            "camera_limits": CameraLimits(has_noise=False),
        }


def test_what_is_set_stands_over_what_the_file_says(good: Path) -> None:
    with open_robot(str(good), ["control_hz=100", "parts.gripper.width=0.01", "name=right"]) as opened:
        assert opened.options["control_hz"] == 100.0
        assert opened.options["name"] == "right"
        assert opened.robot.parts["gripper"].read() == 0.01


def test_devices_are_shared_by_name_and_closed_after_what_uses_them(tmp_path: Path) -> None:
    written(tmp_path, OWN, "own.py")
    text = """
        [devices.bus]
        driver = "own.py:Bridge"
        url = "ws://robot"

        [devices.mast]
        driver = "own.py:Lift"
        bridge = "@bus"

        [parts.lift]
        driver = "own.py:Lift"
        bridge = "@mast.bridge"
        command = "joint_velocity"
        joint_names = ["low", "high"]

        [parts.head]
        driver = "@bus.arm"
    """
    with open_robot(str(written(tmp_path, text))) as opened:
        lift, head = opened.robot.parts["lift"], opened.robot.parts["head"]
        assert lift.bridge is head.bridge  # type: ignore[union-attr]
        assert opened.robot.actions == (JointVelocity(2, part="lift", names=("low", "high")),)
        closed = type(lift.bridge).closed  # type: ignore[union-attr]
        assert closed == []
    assert closed == ["lift", "lift", "ws://robot"]


def test_one_number_stands_for_all_joints_and_a_base_has_three(tmp_path: Path) -> None:
    written(tmp_path, OWN, "own.py")
    text = """
        [devices.bus]
        driver = "own.py:Bridge"
        url = "x"
        [parts.lift]
        driver = "@bus.arm"
        [parts.lift.limits]
        q_min = 0
        q_max = [0.5, 1.0]
        dq_max = 0.1
        ddq_max = 1
        dddq_max = 10
        [parts.cart_base]
        driver = "ideal-gripper"
        [parts.cart_base.limits]
        speed = [0.3, 0.3, 0.6]
        acceleration = 1
        jerk = 5
    """
    with open_robot(str(written(tmp_path, text))) as opened:
        limits = opened.robot.limits
        assert limits is not None
        assert limits.arm("lift").q_min.tolist() == [0.0, 0.0]
        assert limits.arm("lift").q_max.tolist() == [0.5, 1.0]
        base = limits.parts["cart_base"]
        assert isinstance(base, BaseLimits)
        assert base.motion.jerk.tolist() == [5.0, 5.0, 5.0]
        assert not base.is_differential
    differential = text.replace("[0.3, 0.3, 0.6]", "[0.5, 0, 1.0]")
    with open_robot(str(written(tmp_path, differential))) as opened:
        assert opened.robot.limits is not None
        base = opened.robot.limits.parts["cart_base"]
        assert isinstance(base, BaseLimits)
        assert base.is_differential
    standing = text.replace("[0.3, 0.3, 0.6]", "[0, 0.5, 1.0]")
    with (
        pytest.raises(InvalidValueError, match=r"parts.cart_base.limits: a base needs speeds"),
        open_robot(str(written(tmp_path, standing))),
    ):
        pass


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("parts.arm.driver=franka-am", "unknown driver 'franka-am'; did you mean franka-arm"),
        ("parts.arm.q=[9]", "parts.arm.limits.of is of 7 joints, IdealArm has 1"),
        ("parts.arm.qq=1", "parts.arm has an unknown key 'qq'"),
        ("part.arm.driver=x", "the file has an unknown key 'part'; did you mean parts?"),
        ("parts.arm.limits.dq_mx=1", "unknown key 'dq_mx'; did you mean dq_max"),
        ("parts.arm.limits.of=fr4", "did you mean fr3 or fer?"),
        ("parts.arm.limits.share=1.5", "takes a number above 0 and up to 1, got 1.5"),
        ("parts.arm.limits.q_min=[1, 2]", "parts.arm.limits.q_min takes 7 numbers, or one for all, got 2"),
        ("parts.arm.limits.q_min=-9", "q_min of joint 1 is -9, beyond the -2.7437 of the data sheet"),
        ("parts.arm.limits.dq_max=2.7", "dq_max of joint 1 is 2.7, beyond the 2.62 of the data sheet"),
        ("parts.arm.limits.speed=1", "limits of joints are q_min"),
        ("parts.arm.limits.dq_max='fast'", "dq_max takes numbers, got 'fast'"),
        ("parts.arm.limits.q_min=[1, 0, 0, -3, 0, 1, 3.1]", "parts.arm.limits: q_min of joint 7 is 3.1"),
        ("parts.arm.limits.dddq_max=-5", "parts.arm.limits.dddq_max takes numbers above 0, got -5"),
        ("parts.arm.limits.q_max=nan", "parts.arm.limits.q_max takes finite numbers, got nan"),
        ("parts.gripper.limits.low=0.1", "parts.gripper.limits: low is 0.1 m, which is above its high, 0.08"),
        ("parts.gripper.limits.low='shut'", "parts.gripper.limits.low takes numbers, got 'shut'"),
        ("parts.gripper.limit.low=0", "parts.gripper has an unknown key 'limit'; did you mean limits"),
        ("parts.arms.host=10.0.0.1", "parts has no arms; did you mean arm?"),
        ("parts.arm.home=[1, 2]", "parts.arm.home has 2 numbers, IdealArm has 7 joints"),
        ("parts.arm.home=[9,0,0,-1.5,0,1.5,0]", "joint 1 is 9 rad, its limits are from -2.7437 to 2.7437"),
        (
            "parts.arm.latency_s=-1",
            "parts.arm.latency_s: the latency of parts.arm has to be between 0 and 1 s",
        ),
        ("parts.arm.command=joint_positions", "did you mean joint_position"),
        ("parts.arm.joint_names=['a']", "joint_names are 1, IdealArm has 7 joints"),
        ("parts.arm=3", "parts.arm is a table, [parts.arm], got 3"),
        ("parts.head.q=[1]", "parts.head needs its driver"),
        ("parts.head.driver=@bus.head", "there is no [devices.bus]"),
        ("parts.head.driver=none.py:Head", "there is no such file"),
        ("parts.head.driver=nowhere.heads:Head", "there is no module nowhere"),
        ("operator.hold.driver=key", "operator has an unknown key 'hold'; did you mean hold_to_run"),
        ("state_limits.timout_s=1", "did you mean timeout_s"),
        ("control_hz=0", "control_hz takes a number above 0"),
        ("camera_limits=3", "camera_limits is a table, [camera_limits], got 3"),
        ("camera_limits.has_noise='no'", "camera_limits.has_noise takes true or false, got 'no'"),
        ("state_limits.max_jump=nan", "state_limits.max_jump takes a finite number, got nan"),
        ("state_limits.max_jump=-1.0", "state_limits: max_jump takes a number above 0, got -1.0"),
        ("state_limits.max_error_of={arm='far'}", "state_limits.max_error_of takes a table of numbers, got"),
        ("parts.arm.limits.of=[1]", "parts.arm.limits.of is [1], expected a data sheet"),
        (f"parts.arm.limits.dq_max=1{'0' * 400}", "parts.arm.limits.dq_max takes numbers, got 1000"),
        ("parts.arm.limits.dddq_max=true", "parts.arm.limits.dddq_max takes numbers, got True"),
        ("parts.gripper.limits.low='wide'", "parts.gripper.limits.low takes numbers, got 'wide'"),
        ("parts.gripper.limits.high=inf", "parts.gripper.limits.high takes finite numbers, got inf"),
        ("parts.arm.home=[nan,0,0,0,0,0,0]", "parts.arm.home takes a list of finite numbers"),
        ("parts.arm.home=[true,0,0,0,0,0,0]", "parts.arm.home takes a list of finite numbers"),
        ("parts.arm.command=[1]", "parts.arm.command is [1], expected one of joint_position"),
        ("parts.arm.joint_names='abcdefg'", "parts.arm.joint_names takes a list of texts, got 'abcdefg'"),
        ("parts.arm.joint_names=7", "parts.arm.joint_names takes a list of texts, got 7"),
        ("parts.arm.q=[[1]]", "parts.arm: q is the positions of its joints [rad], got [[1.0]]"),
        ("parts.gripper.width='x'", "parts.gripper.width takes a finite number, got 'x'"),
        ("parts.gripper.width=inf", "parts.gripper.width takes a finite number, got inf"),
        (f"parts.arm.q={'[' * 3000}", "maximum recursion depth exceeded"),
        (f"control_hz={'9' * 5000}", "Exceeds the limit"),
        (
            "parts.arm.home=[0,-45,0,-90,0,90,0]",
            "parts.arm.home is -90 rad, beyond the 50.2655 of any such machine: is that in degrees?",
        ),
        ("parts.gripper.limits.high=80", "the gripper's high is 80 m, beyond the 0.5 of any such machine"),
        ("parts.gripper.limits.speed=100", "the gripper's speed is 100 m/s, beyond the 5 of any such"),
        ("parts.arm.limits.q_min=-170", "q_min is -170 rad, beyond the 50.2655 of any such machine: is that"),
        ("parts.arm.limits.unusual=1", "parts.arm.limits.unusual takes true or false, got 1"),
        ("parts.arm.q", "a setting is written as parts.arm.host=VALUE, got 'parts.arm.q'"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused_with_the_place_and_what_would_do(
    good: Path, setting: str, sentence: str
) -> None:
    assert sentence in refused(good, setting)


KINDS = """
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal


class Bus: ...


class Part:
    def __init__(
        self,
        *,
        bus: Bus | None = None,
        names: Sequence[str] = (),
        size: tuple[int, int] | None = None,
        table: Mapping[str, float] = {},
        unit: Literal["deg", "rad"] = "rad",
        place: Path | str = "",
        is_on: bool = True,
        count: int = 0,
        late_s: float = 0.0,
        anything=None,
    ) -> None: ...

    def read(self): ...
    def write(self, command): ...
    def stop(self): ...
"""


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("bus='ws://x'", '"@NAME", a Bus of [devices.NAME]'),
        ("names='abc'", "a list of texts"),
        ("names=[1]", "a list of texts"),
        ("size=[1, 2, 3]", "a list of 2 whole numbers"),
        ("table={a = inf}", "a table of numbers"),
        ("unit='m'", "one of 'deg', 'rad'"),
        ("is_on=1", "true or false"),
        ("count=1.5", "a whole number"),
        ("count=true", "a whole number"),
        ("late_s=nan", "a finite number"),
        ("late_s=2020-01-01", "a finite number"),
    ],
)
def test_what_is_of_another_kind_than_a_driver_is_annotated_with_is_refused_before_it_is_made(
    tmp_path: Path, setting: str, wanted: str
) -> None:
    written(tmp_path, KINDS, "kinds.py")
    path = written(tmp_path, "[parts.head]\ndriver = 'kinds.py:Part'")
    key = setting.partition("=")[0]
    assert f"parts.head.{key} takes {wanted}, got " in refused(path, f"parts.head.{setting}")


def test_errors_name_the_file_and_of_a_driver_the_place(tmp_path: Path) -> None:
    written(tmp_path, OWN, "own.py")
    path = written(
        tmp_path,
        """
        [devices.bus]
        driver = "own.py:Bridge"
        url = "x"
        [parts.lift]
        driver = "own.py:Lift"
        bridge = "@bus"
        """,
    )
    assert refused(path, "parts.lift.speed=0").startswith(
        f"{path}: parts.lift: own.py:Lift does not take this"
    )
    assert "has no 'arms'; did you mean arm?" in refused(path, "parts.lift.bridge=@bus.arms")
    assert "lacks url, which own.py:Bridge needs" in refused(path, "devices.bus={driver = 'own.py:Bridge'}")
    assert f"{path}: " in (said := refused(path, "parts.lift.driver=own.py:Lft"))
    assert "did you mean Lift?" in said
    assert "ZeroDivisionError" in refused(path, "parts.head.driver=own.py:broken")


def test_a_folder_of_the_users_that_is_called_drivers_hides_none_of_ours(good: Path) -> None:
    (good.parent / "drivers").mkdir()
    (good.parent / "drivers" / "ideal.py").write_text("raise RuntimeError('not this one')")
    written(good.parent / "drivers", OWN, "lifts.py")
    text = """
        from robot_runtime.robot_file import open_robot

        with open_robot("robot.toml") as opened:
            print(type(opened.robot.parts["arm"]).__name__)
        own = "parts.lift={driver = 'drivers.lifts:Lift', bridge = 'none'}"
        with open_robot("robot.toml", [own]) as opened:
            print(type(opened.robot.parts["lift"]).__name__)
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        cwd=good.parent,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.stdout.split() == ["IdealArm", "Lift"], said.stderr


def test_devices_that_were_made_are_closed_when_a_later_one_cannot_be(tmp_path: Path) -> None:
    written(tmp_path, OWN.replace("closed = []", "closed = Log.closed"), "shut.py").write_text(
        "import sys, types\n"
        "Log = sys.modules.setdefault('shut_log', types.SimpleNamespace(closed=[]))\n"
        + OWN.replace("closed = []", "closed = Log.closed")
    )
    path = written(
        tmp_path,
        """
        [devices.bus]
        driver = "shut.py:Bridge"
        url = "x"
        [parts.lift]
        driver = "shut.py:broken"
        """,
    )
    refused(path)
    assert sys.modules["shut_log"].closed == ["x"]  # type: ignore[attr-defined]


def test_what_fails_can_be_kept_and_the_rest_be_had(good: Path) -> None:
    failed: dict[str, RobotRuntimeError] = {}
    settings = ["parts.gripper.width='wide'", "parts.arm.home=[1, 2]", "operator.arm.driver=kye"]
    settings += ["devices.bus.driver=bsu", "parts.left_gripper={driver = 'ideal-gripper', width = '@bus'}"]
    with open_robot(str(good), settings, failed=failed) as opened:
        assert list(opened.robot.parts) == ["arm"]
        assert opened.robot.limits is not None
        assert list(opened.robot.limits.parts) == ["arm"]
    places = ["devices.bus", "parts.gripper", "parts.left_gripper", "operator.arm", "parts.arm.home"]
    assert list(failed) == places
    assert str(failed["parts.left_gripper"]) == "parts.left_gripper.width needs [devices.bus], which failed"


def test_what_is_no_file_and_no_toml_is_said_in_a_sentence(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in refused(tmp_path / "absent.toml")
    assert "is no TOML" in refused(written(tmp_path, "parts = ["))
    unquoted = refused(written(tmp_path, "[parts.arm]\nhost = 172.16.0.2  # of the arm\n"))
    assert "line 2" in unquoted
    assert unquoted.endswith(
        '\n    host = 172.16.0.2  # of the arm; strings need quotes: host = "172.16.0.2"'
    )
    assert "quotes" not in refused(written(tmp_path, "[parts.arm\nq = [1, 2]\n"))
    assert "a robot has parts" in refused(written(tmp_path, "name = 'x'"))
    with (
        pytest.raises(InvalidValueError, match=r"--set is for a robot that a \.toml file describes"),
        open_robot("my_robot.py:robot", ["a=1"]),
    ):
        pass


def test_a_file_is_read_without_importing_any_driver(good: Path) -> None:
    file = RobotFile.load(good, ["parts.arm.driver=not_there.py:Arm"])
    assert file.table["parts"]["arm"]["driver"] == "not_there.py:Arm"
