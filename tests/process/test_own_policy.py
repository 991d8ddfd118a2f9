"""A visitor's own policy, from a folder of her own: the example, and what is said when something is wrong."""

import ast
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

import robot_runtime as rr
from policies.commands.serve import _load
from robot_runtime.cli import main
from robot_runtime.errors import InvalidValueError, PolicyError, RobotRuntimeError
from robot_runtime.server.server import PolicyServer
from robot_runtime.server.warming import zero_observation
from robot_runtime.user_code import UserCodeError
from tests.process.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_policy.py"
SPEC = rr.ActionSpec(fields=(rr.JointPosition(2),), horizon=4, dt_ns=50_000_000)
INFO = rr.PolicyInfo(name="mine", action_spec=SPEC)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """The example, served by the command line from a folder with nothing else in it: address and process."""
    (tmp_path / "own.py").write_text(EXAMPLE.read_text())
    command = ("serve", "--policy", "own.py:policy", "--address", "tcp://127.0.0.1:*", "--json", "ready.json")
    env = {**os.environ, "PYTHONPATH": str(EXAMPLE.parents[1])}
    server = subprocess.Popen([sys.executable, "-m", "robot_runtime.cli", *command], cwd=tmp_path, env=env)
    ready, end_s = tmp_path / "ready.json", time.monotonic() + 60.0
    while not ready.exists():
        assert server.poll() is None
        assert time.monotonic() < end_s
        time.sleep(0.02)
    yield json.loads(ready.read_text())["address"], server
    server.send_signal(signal.SIGTERM)
    assert server.wait(10.0) == 0


def test_the_example_is_at_most_fifteen_lines_of_code():
    text = EXAMPLE.read_text()
    code = [line for line in text.splitlines()[ast.parse(text).body[0].end_lineno :] if line.strip()]
    assert len(code) <= 15


def test_the_example_is_served_from_an_empty_folder_and_asked_in_two_lines(server, tmp_path: Path):
    address, process = server
    spec = rr.ActionSpec(fields=(rr.JointPosition(7), rr.GripperWidth()), horizon=32, dt_ns=50_000_000)
    nothing = zero_observation(rr.Schema.of(spec), "")
    with rr.PolicyClient(f"{address}/mine", schema=rr.Schema.of(spec)) as client:
        chunk = client.infer(nothing)
        assert chunk.spec == spec
        assert chunk.rows.shape == (32, 8)
        assert np.ptp(chunk.rows[:, 0]) > 0.05
        assert client.welcome is not None
        assert client.welcome.info == rr.PolicyInfo(name="mine", action_spec=spec)
        (tmp_path / "own.py").write_text(EXAMPLE.read_text().replace("+= 0.1 *", "= 7.0 + 0.0 *"))
        process.send_signal(signal.SIGHUP)  # load the file anew
        wait_until(lambda: client.infer(nothing).rows[0, 0] == 7.0)


def test_a_function_that_fails_is_shown_with_its_own_traceback_alone(tmp_path: Path, capsys):
    (tmp_path / "own.py").write_text(EXAMPLE.read_text().replace("state.gripper_width", "state.width"))
    assert main(["serve", "--policy", f"{tmp_path / 'own.py'}:policy", "--address", "tcp://127.0.0.1:*"]) == 1
    said = capsys.readouterr().err
    assert 'own.py", line' in said
    assert "has no attribute 'width'" in said
    assert "engine.py" not in said


def served(policy: object) -> None:
    PolicyServer(policy, "tcp://127.0.0.1:*").close()  # type: ignore[arg-type]


class Nothing:
    pass


class Half:
    info = INFO

    def infer(self):
        return iter([])


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Nothing(), "Nothing is no policy: it has no `info`: a PolicyInfo .*; it has no `infer"),
        (Half(), r"Half is no policy: its `infer` has to be called as infer\(request\), it is infer\(\)"),
        (Half, r"Half is no policy: it is the class Half, expected an object: Half\(\.\.\.\)"),
        (lambda observation: 0, r"it is a plain function: put @policy\(PolicyInfo"),
        (
            rr.policy(INFO)(lambda o: np.zeros((4, 3))),
            r"returned \(4, 3\); expected an array of shape \(4, 2\)",
        ),
        (rr.policy(INFO)(lambda o: None), "returned NoneType; expected an array of shape"),
        (
            rr.policy(INFO)(lambda o: np.full((4, 2), "x")),
            "it gave an array of <U1 at row 0; expected an array of numbers",
        ),
        (rr.policy(INFO)(lambda o: np.full((4, 2), np.nan)), "it gave nan at row 0, arm.joint_1"),
    ],
)
def test_what_is_no_policy_or_gives_no_rows_is_refused_before_the_address_opens(policy: object, words: str):
    with pytest.raises(PolicyError, match=words):
        served(policy)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": ""}, "a line of 1 to 256 characters, got ''"),
        ({"n_obs_steps": 0}, "n_obs_steps 0; expected 1 to 64"),
        ({"schema": rr.Schema(action_fields=(rr.GripperWidth(),))}, "its chunks have"),
    ],
)
def test_an_info_that_cannot_be_is_refused_where_it_is_made(values: dict, words: str):
    with pytest.raises(InvalidValueError, match=words):
        rr.PolicyInfo(**({"name": "mine", "action_spec": SPEC} | values))


@pytest.mark.parametrize(
    ("text", "name", "error", "words"),
    [
        ("policy = 1 / 0", "policy", UserCodeError, 'own.py", line 1(.|\n)*ZeroDivisionError'),
        ("policy = 7", "policy", PolicyError, "int is no policy: it has no `info`"),
        (
            "def policy(observation): ...",
            "policy",
            PolicyError,
            "policy is no policy: it is a plain function",
        ),
        (
            "policy = 7",
            "polcy",
            RobotRuntimeError,
            r"unknown object of .*'polcy'; did you mean policy\? valid: policy",
        ),
    ],
)
def test_a_file_without_a_policy_says_so(tmp_path: Path, text: str, name: str, error: type, words: str):
    (tmp_path / "own.py").write_text(text)
    with pytest.raises(error, match=words):
        _load(f"{tmp_path / 'own.py'}:{name}", {})


def test_a_function_or_a_class_may_make_the_policy(tmp_path: Path):
    made = EXAMPLE.read_text() + "\n\ndef make():\n    return policy\n"
    (tmp_path / "made_by.py").write_text(made)
    assert _load(f"{tmp_path / 'made_by.py'}:make", {}).info.name == "mine"


def test_a_policy_that_gives_another_shape_in_mid_run_is_named_to_the_robot():
    count = iter(range(10))

    @rr.policy(INFO)
    def tires(observation):
        return np.zeros((4, 2) if next(count) < 4 else (3, 2))

    with PolicyServer(tires, "tcp://127.0.0.1:*") as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        with rr.PolicyClient(server.address, schema=INFO.schema) as client:
            client.infer(zero_observation(INFO.schema, ""))
            with pytest.raises(
                InvalidValueError, match=r"returned \(3, 2\); expected an array of shape \(4, 2\)"
            ):
                client.infer(zero_observation(INFO.schema, ""))
        server.stop()
        thread.join()
