"""The doctor as a user calls it: what it says of a robot that is fine, and of one that is not."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from robot_runtime.commands.doctor import devices
from robot_runtime.commands.doctor.finding import Verdict
from robot_runtime.core.plan.limits import JointLimits, Limits
from robot_runtime.core.values.state import ArmState, RobotState
from robot_runtime.server.process import ServerProcess

ROOT = Path(__file__).parents[2]
FINE = """
    [parts.arm]
    driver = "ideal-arm"
    home = [0, -0.5, 0, -2, 0, 1.5, 0]
    [parts.arm.limits]
    of = "fr3"
    [parts.gripper]
    driver = "ideal-gripper"
    [parts.gripper.limits]
    of = "fr3"
"""
CAMERA = """
    import time
    import numpy as np
    import robot_runtime as rr

    class Still:
        '''What stops it. Nothing does.'''
        size = (8, 8)

        def read(self):
            time.sleep(0.01)
            return rr.Image(t_ns=time.monotonic_ns(), pixels=np.zeros((8, 8, 3), np.uint8))

        def close(self):
            pass
"""
SILENT = """
    from robot_runtime.errors import DriverError

    class Bus:
        def wait_until_ready(self):
            raise DriverError("nobody answers at bus:1")

    class Silent:
        def __init__(self, bus=None):
            pass

        def read(self):
            return 0.02

        def write(self, command):
            pass

        def stop(self):
            pass
"""
BROKEN = """
    [devices.bus]
    driver = "own.py:Bus"
    [parts.lift]
    driver = "own.py:Silent"
    bus = "@bus"
    [parts.left_gripper]
    driver = "own.py:Silent"
    [cameras.front]
    driver = "own.py:Still"
    [operator]
    hold_to_run = { driver = "input-device", device = "/dev/input/none", code = "KEY_B" }
"""


def doctor(folder: Path, *args: str) -> tuple[int, str, dict[str, list[dict]]]:
    """Exit code, what a person reads, and the findings by what they are of."""
    command = [sys.executable, "-m", "robot_runtime.cli", "doctor", *args, "--seconds", "0.3"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(
        [*command, "--json", "found.json"],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found: dict[str, list[dict]] = {}
    if (folder / "found.json").exists():
        for each in json.loads((folder / "found.json").read_text())["findings"]:
            found.setdefault(each["what"], []).append(each)
    return done.returncode, done.stdout + done.stderr, found


@pytest.fixture
def fine(tmp_path: Path) -> Path:
    (tmp_path / "robot.toml").write_text(textwrap.dedent(FINE))
    return tmp_path


@pytest.mark.long
def test_the_code_that_a_robot_file_runs_is_printed_before_it_runs(fine: Path) -> None:
    (fine / "mine.py").write_text("raise SystemExit('the file of mine runs')")
    code, said, _ = doctor(fine, "robot.toml", "--set", "parts.arm.driver=mine.py:Arm", "parts.arm.q=[1]")
    assert code != 0
    assert said.index(f"{fine}/mine.py:Arm") < said.index("the file of mine runs")
    assert "drivers.ideal:IdealGripper" in said


def test_a_robot_file_that_names_a_program_does_not_run_it(fine: Path) -> None:
    settings = ["parts.arm={driver = 'subprocess:Popen', args = 'touch RAN', shell = true}"]
    code, said, found = doctor(fine, "robot.toml", "--set", *settings)
    assert code == 1, said
    assert "standard library" in found["parts.arm"][0]["found"]
    assert not (fine / "RAN").exists()


@pytest.mark.long
def test_a_robot_that_is_fine_is_told_what_its_policy_wants_and_how_late_it_follows(fine: Path) -> None:
    with ServerProcess("sine") as server:
        code, said, found = doctor(
            fine, "robot.toml", "--policy", server.address, "--measure-latency", "arm", "--yes"
        )
    assert code == 0, said
    assert {"kernel", "timer", "disk", "robot", "server", "answers"} <= found.keys()
    assert "Hz, jitter" in found["arm"][0]["found"]
    assert "arm.joint_1" in found["policy moves"][0]["found"]
    assert "latency_s = 0.0" in found["arm"][-1]["found"]
    assert [each["found"] for each in found["arm, gripper"]] == [
        "what stops them: It holds its last command; there is nothing to stop."
    ]
    assert "0 wrong" in said


@pytest.mark.real_time
@pytest.mark.long
def test_what_is_wrong_is_named_and_ends_with_one(fine: Path) -> None:
    (fine / "still.py").write_text(textwrap.dedent(CAMERA))
    with (fine / "robot.toml").open("a") as file:
        file.write('\n[cameras.front]\ndriver = "still.py:Still"\n')
    code, _, found = doctor(
        fine, "robot.toml", "--policy", "tcp://127.0.0.1:9", "--set", "parts.arm.q=[9,0,0,-2,0,1.5,0]"
    )
    assert code == 1
    assert "joint 1 of arm is at 9.000 rad, outside its limits, -2.744 to 2.744" in found["arm"][1]["found"]
    assert found["camera front"][0]["verdict"] == "wrong"
    assert "same picture" in found["camera front"][0]["found"]
    assert "has_noise = false" in found["camera front"][0]["mend"]
    assert found["server"][0]["verdict"] == "wrong"
    assert "robot-runtime serve" in found["server"][0]["mend"]


def test_nothing_moves_unless_somebody_allows_it(fine: Path) -> None:
    code, said, _ = doctor(fine, "robot.toml", "--measure-latency", "arm")
    assert code == 1
    assert "--yes allows it where there is no terminal to ask" in said


@pytest.mark.long
def test_what_fails_keeps_nothing_else_from_being_looked_at(fine: Path) -> None:
    (fine / "own.py").write_text(textwrap.dedent(CAMERA + SILENT))
    with (fine / "robot.toml").open("a") as file:
        file.write(textwrap.dedent(BROKEN))
    code, said, found = doctor(fine, "robot.toml", "--measure-latency", "amr")
    assert code == 1
    assert found["devices.bus"][0]["found"] == "nobody answers at bus:1"
    assert found["parts.lift"][0]["found"] == "not checked: parts.lift.bus needs [devices.bus], which failed"
    assert "cannot be read" in found["operator.hold_to_run"][0]["found"]
    assert found["robot"][0]["found"] == "3 parts: arm, gripper, left_gripper"
    assert "Hz, jitter" in found["arm"][0]["found"]
    (silent,) = [each for each in found["left_gripper"] if "what stops it" in each["found"]]
    assert silent["verdict"] == "doubtful"
    assert silent["found"] == "what stops it: Silent does not document it"
    assert found["camera front"][0]["verdict"] == "wrong"
    assert found["amr"][0]["found"] == "no part and no camera amr; did you mean arm?"
    assert said.count("nobody answers") == 1


def test_a_file_with_a_typo_is_a_finding_too(fine: Path) -> None:
    code, said, _ = doctor(fine, "robot.toml", "--set", "parts.arm.driver=ideal-am")
    assert code == 1
    assert "did you mean ideal-arm" in said


@pytest.mark.long
def test_a_part_that_cannot_be_made_is_one_finding_and_not_a_robot_without_arms_besides(fine: Path) -> None:
    code, said, found = doctor(fine, "robot.toml", "--set", "parts.arm.q=[[1]]")
    assert code == 1
    assert len(found["parts.arm"]) == 1
    assert "neither arm nor mobile base" not in said


def test_joint_limits_of_many_turns_are_doubted_as_degrees() -> None:
    limits = JointLimits(
        q_min=np.array([-2.0, -45.0]),
        q_max=np.array([2.0, 45.0]),
        dq_max=np.ones(2),
        ddq_max=np.ones(2),
        dddq_max=np.ones(2),
    )
    state = RobotState(t_ns=0, parts={"arm": ArmState(q=np.zeros(2), dq=np.zeros(2))})
    (found,) = devices._where(state, Limits(parts={"arm": limits}))
    assert (found.verdict, found.found) == (
        Verdict.DOUBTFUL,
        "joint 2 may go from -45 to 45 rad: is that in degrees?",
    )
