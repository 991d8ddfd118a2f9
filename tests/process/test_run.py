"""The robot's process: real commands, real signals, a server that dies."""

import os
import signal
import subprocess
import sys
import time

import pytest

from robot_runtime.cli import main
from robot_runtime.cli.bench_faults import kill_and_restart
from robot_runtime.server.process import ServerProcess

START_TIMEOUT_S = 60.0


def command(*args: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "robot_runtime.cli", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"},
    )


def test_a_killed_server_is_noticed_and_the_robot_holds_until_a_fresh_chunk():
    figures = kill_and_restart()
    assert figures["noticed (ms)"] < 1000  # measured: 130; a loaded machine may be slower
    assert figures["plan ended -> standing (policy periods)"] <= 2.5
    assert figures["server ready -> reconnected (ms)"] < 5000
    assert not figures["resumed on an old chunk"]


@pytest.mark.parametrize("number", [1, 2], ids=["at once", "in mid-episode"])
def test_ctrl_c_brings_the_robot_to_rest_and_exits_with_130(number):
    with ServerProcess("track") as server:
        robot = command("run", "--task", "track", "--server", server.address, "--duration-s", "60")
        assert robot.stdout is not None
        assert "connected" in robot.stdout.readline()
        time.sleep(0.0 if number == 1 else 1.5)
        robot.send_signal(signal.SIGINT)
        out, err = robot.communicate(timeout=20)
    assert robot.returncode == 130, err
    assert "interrupted" in err
    if number == 2:
        assert "a stop was asked for" in err
        assert "stalled_s" in out  # what was measured until then is not lost


def test_a_robot_without_a_server_says_what_to_do(capsys):
    address = "tcp://127.0.0.1:1"
    code = main(["run", "--task", "track", "--server", address, "--connect-timeout-s", "0.3"])
    assert code == 1
    error = capsys.readouterr().err
    assert address in error
    assert "robot-runtime serve" in error


def test_a_policy_for_another_robot_is_refused_before_anything_moves(capsys):
    with ServerProcess("sine") as server:
        code = main(["run", "--task", "track", "--server", server.address])
    assert code == 1
    assert "environment state size: the robot has 6, the policy needs 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["eval", "--task", "juggle"], "unknown task 'juggle'; valid: conveyor, pick_place, strike, track"),
        (["eval", "--method", "magic"], "unknown method 'magic'; valid: averaged-samples"),
        (["serve", "--policy", "nowhere"], "'nowhere'; valid: hold, "),
        (["eval", "--episodes", "0"], "episodes >= 1"),
        (["eval", "--policy", "nothing", "--episodes", "1", "--workers", "1"], "'nothing'; valid: hold, "),
        (["run", "--method", "naive", "--execution-horizon", "0"], "execution horizon"),
    ],
)
def test_a_wrong_name_or_number_is_answered_with_the_valid_ones(args, words, capsys):
    assert main(args) == 1
    assert words in capsys.readouterr().err.replace("\n", " ")


def test_a_checkpoint_without_weights_says_which_file_is_missing(tmp_path, capsys):
    assert main(["serve", "--policy", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
