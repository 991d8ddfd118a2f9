"""A visitor's own robot, from a folder of her own: the example, and what is said when something is wrong."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from robot_runtime.robot.driver_contract import broken_promises
from robot_runtime.server.process import ServerProcess

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_robot.py"
SIX_JOINTS = (
    ("num_joints = 7", "num_joints = 6"),
    ("1.6, 0.8]", "1.6]"),
    ("dq=np.zeros(7)", "dq=np.zeros(6)"),
    ("np.ones(7)", "np.ones(6)"),
)


@pytest.fixture(scope="module")
def address():
    with ServerProcess("sine") as server:
        yield server.address


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """As a user types it there; the folder has nothing of this repository."""
    env = {**os.environ, "PYTHONPATH": str(EXAMPLE.parents[1])}
    return subprocess.run(
        [sys.executable, *args], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )


def run_robot(folder: Path, address: str, *args: str, robot: str = "own.py:robot") -> tuple[int, str]:
    """Exit code, and what a person reads in her terminal."""
    command = ("-m", "robot_runtime.cli", "run", "--robot", robot, "--policy", address, "--yes")
    done = run(folder, *command, "--duration-s", "1", *args)
    return done.returncode, done.stdout + done.stderr


def changed(folder: Path, *changes: tuple[str, str]) -> Path:
    """The example as a file of the user's."""
    text = EXAMPLE.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (folder / "own.py").write_text(text)
    return folder


def test_the_example_is_at_most_thirty_lines_of_code():
    text = EXAMPLE.read_text()
    docstring = ast.parse(text).body[0]
    code = [line for line in text.splitlines()[docstring.end_lineno :] if line.strip()]
    assert len(code) <= 30


def test_the_drivers_of_the_example_keep_what_drivers_promise(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    from own_robot import MyArm, MyGripper

    assert broken_promises(MyArm()) == []
    assert broken_promises(MyGripper()) == []


def test_the_example_is_run_by_the_command_line_from_an_empty_folder(tmp_path, address):
    code, said = run_robot(changed(tmp_path), address, "--task", "swing", "--json", "out.json")
    assert code == 0, said
    assert "connected: policy 'sine'" in said
    assert "num_chunks" in said
    assert '"chunks_per_s"' in (tmp_path / "out.json").read_text()


def test_the_example_is_run_as_a_script_too(tmp_path, address):
    done = run(changed(tmp_path), "own.py", f"{address}/sine")
    assert done.returncode == 0, done.stderr
    chunks, ticks = (int(word.split()[0]) for word in done.stdout.split(","))
    assert chunks >= 5
    assert ticks >= 100


WITHOUT_EXTRAS = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"mujoco", "torch", "sim", "lerobot", "franky_sim", "matplotlib"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from robot_runtime.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_robot_needs_neither_simulator_nor_torch(tmp_path, address):
    command = ("run", "--robot", "own.py:robot", "--policy", address, "--duration-s", "1", "--yes")
    done = run(changed(tmp_path), "-c", WITHOUT_EXTRAS, *command)
    assert done.returncode == 0, done.stderr


def test_parts_that_do_not_match_the_policy_are_named_before_anything_moves(tmp_path, address):
    code, said = run_robot(changed(tmp_path, *SIX_JOINTS), address)
    assert code == 1
    assert "arm joints: the robot has 6, the policy needs 7" in said
    assert "Traceback" not in said


def test_all_that_is_wrong_with_the_drivers_is_said_at_once(tmp_path, address):
    changes = (
        ("    def stop(self):\n        pass  # hold still\n", ""),
        ("    def write(self, command):\n        self.width", "    def write(self):\n        self.width"),
        ("np.ones(7)", "np.ones(6)"),
    )
    code, said = run_robot(changed(tmp_path, *changes), address)
    assert code == 1
    assert "arm (MyArm) has no stop(): makes the device safe" in said
    assert "gripper.write has to be called as write(command), it is write()" in said
    assert "limits are for 6 joints, its arm has 7" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("time.monotonic_ns()", "time.time_ns()", "stamps are times of this machine's time.monotonic_ns()"),
        ("dq=np.zeros(7)", "dq=np.zeros(6)", "arm.read() gave dq of shape (6,), expected (7,)"),
        ("dq=np.zeros(7)", "dq=np.full(7, np.nan)", "arm.read() gave dq = array([nan"),
        ("return self.width", "return 'wide'", "gripper.read() returned 'wide', expected the distance"),
        ("limits=limits", "", "it has no limits: Robot(limits=Limits("),
        ("arm=MyArm(),", "rigth_arm=MyArm(),", "its rigth_arm has no limits; they name arm"),
        ("arm=MyArm(),", "arm=MyArm,", "arm is the class MyArm, expected an object: MyArm(...)"),
        ("return rr.Robot(", "return dict(", "own.py:robot() made no robot but a dict"),
    ],
)
@pytest.mark.long
def test_a_robot_that_is_none_is_refused_in_a_sentence(tmp_path, address, old, new, words):
    code, said = run_robot(changed(tmp_path, (old, new)), address)
    assert code == 1
    assert words in said
    assert "Traceback" not in said


def test_a_driver_that_reads_another_shape_in_mid_run_stops_the_robot_and_is_named(tmp_path, address):
    changes = (
        ("    num_joints = 7\n", "    num_joints, count, is_stopped = 7, 0, False\n"),
        (
            "    def read(self):\n        return rr.ArmState(t_ns=time.monotonic_ns(), q=self.q,",
            "    def read(self):\n        self.count += 1\n"
            "        q = self.q[:6] if self.count > 200 else self.q\n"
            "        return rr.ArmState(t_ns=time.monotonic_ns(), q=q,",
        ),
        ("pass  # hold still", "print('the arm was stopped')"),
    )
    code, said = run_robot(changed(tmp_path, *changes), address)
    assert code == 1
    assert "arm.read() gave q of shape (6,), expected (7,)" in said
    assert "the arm was stopped" in said
    assert "Traceback" not in said


def test_a_file_that_does_not_import_is_shown_with_its_own_traceback(tmp_path, address):
    (tmp_path / "own.py").write_text("import robot_runtime as rr\n\nrobot = rr.Robot(arm=1 / 0)\n")
    code, said = run_robot(tmp_path, address)
    assert code == 1
    assert "own.py failed:" in said
    assert 'own.py", line 3' in said
    assert "ZeroDivisionError: division by zero" in said
    assert "load_object" not in said
