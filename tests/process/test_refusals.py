"""What commands refuse before anything begins, each in a sentence; and what an evaluation says at its end."""

import json
import re
import subprocess
import sys

import pytest

from policies.load import policy_names
from robot_runtime.cli import main

KNOWN_POLICIES = ", ".join(sorted(policy_names()))


def test_a_robot_without_a_server_says_what_to_do(capsys):
    address = "tcp://127.0.0.1:1"
    code = main(["run", "--task", "track", "--server", address, "--connect-timeout-s", "0.3"])
    assert code == 1
    error = capsys.readouterr().err
    assert address in error
    assert "robot-runtime serve" in error


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["eval", "--task", "juggle"],
            "unknown task 'juggle'; valid: clear, conveyor, drawer, fetch, handover, pick_place, strike, ",
        ),
        (["eval", "--sampling-share", "1.5"], "--sampling-share takes a number from 0 to 1, got 1.5"),
        (["eval", "--method", "magic"], "unknown method 'magic'; valid: a2c2, averaged-samples"),
        (
            ["serve", "--policy", "nowhere"],
            f"'nowhere'; valid: {KNOWN_POLICIES}",
        ),
        (
            ["serve", "--policy", "hold", "--max-batch", "0"],
            "--max-batch takes a number from 1 to 4096",
        ),
        (
            ["serve", "--policy", "hold", "--keys", "nowhere"],
            "--keys names a folder to read",
        ),
        (["serve", "--policy", "hold", "--keys", "."], "server.key_secret is not a key"),
        (["serve", "--policy", "hold", "--compile-cache", "kept"], "--compile-cache is for --compile"),
        (["serve", "--policy", "hold", "--one-graph"], "--one-graph is for --compile"),
        (
            ["serve", "--policy", "hold", "--token", "nowhere"],
            "--token names a file to read",
        ),
        (["serve", "--policy", "hold", "--keys", ".", "--openpi", "127.0.0.1:0"], "--gateway-keys too"),
        (["eval", "--episodes", "0"], "--episodes takes a number from 1 to 1000000, got 0"),
        (
            ["eval", "--policy", "nothing", "--episodes", "1", "--workers", "1"],
            f"'nothing'; valid: {KNOWN_POLICIES}",
        ),
        (
            ["eval", "--policy", "track", "--task", "strike", "--episodes", "1", "--workers", "1"],
            "'track' does not know the task 'hit the ball back over the net'; valid: 'follow the",
        ),
        (["run", "--method", "naive", "--execution-horizon", "0"], "--execution-horizon takes a number"),
        (["run", "--method", "a2c2"], "needs a correction head, and no checkpoint has been named; to train"),
        (["run", "--method", "a2c2", "--correction", "track"], "policy 'track' has none; to train"),
        (["eval", "--method", "a2c2", "--episodes", "1", "--workers", "1"], "--recipe residual --init"),
        (["eval", "--policy", "expert", "--method", "a2c2", "--episodes", "1"], "no checkpoint has been"),
        (
            ["eval", "--task", "strike", "--method", "vlash", "--episodes", "1", "--workers", "1"],
            "recipe offset",
        ),
    ],
)
def test_a_wrong_name_or_number_is_answered_with_the_valid_ones(args, words, capsys):
    assert main(args) == 1
    assert words in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["eval", "--task", "strike", "--method", "vlash"], "not trained on states rolled forward"),
        (["eval", "--task", "strike", "--policy", "track"], "does not know the task 'hit the ball"),
        (["eval", "--task", "fetch", "--policy", "track"], "policy 'track' cannot do 'fetch': "),
        (["eval", "--method", "naive", "--execution-horizon", "200"], "must lie in 1..32"),
        (["eval", "--method", "a2c2"], "needs a correction head"),
    ],
)
def test_what_does_not_fit_is_refused_before_there_is_a_progress_bar_or_a_server(args, words, capsys):
    assert main(args) == 1
    said = capsys.readouterr()
    assert words in said.err.replace("\n", " ")
    assert said.out == "" or said.out.startswith("method ")


@pytest.mark.long
def test_an_evaluation_says_what_was_held_back_and_what_did_not_go_as_the_method_says(capsys):
    command = ["eval", "--task", "pick_place", "--episodes", "2", "--control-hz", "100", "--workers", "1"]
    assert main([*command, "--delay-ms", "1200", "--method", "committed-prefix"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^arm: held back by its acceleration limit for \d+\.\d\d s, by up to ", out, re.M), out
    assert re.search(r"^\d+ times: answers come too late for a robot that moves", out, re.M), out


def test_a_checkpoint_without_weights_says_which_file_is_missing(tmp_path, capsys):
    assert main(["serve", "--policy", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err


def test_values_of_another_shape_or_type_are_refused_by_name_without_a_type_checker():
    """As a user runs it: the tests' own type checker would refuse them first."""
    spec = "rr.ActionSpec(fields=(rr.JointPosition(3),)"
    joints = "q_min=-n, q_max=n, dq_max=n, ddq_max=n, dddq_max=n"
    cases = {
        f"rr.Limits({joints.replace(f'{name}=n', f'{name}=np.ones(2)')})": f"{name} needs one number a joint"
        for name in ("q_max", "dq_max", "ddq_max", "dddq_max")
    }
    cases |= {
        f"rr.Limits({joints.replace('dq_max=n', 'dq_max=1.0', 1)})": "dq_max needs one number a joint",
        "rr.MotionLimits(speed=1.0, acceleration=n, jerk=n)": "speed needs one number an axis",
        f"{spec}, horizon=8, dt_ns=0.05)": "50 ms are 50_000_000; got 0.05",
        f"{spec}, horizon=8, dt_ns=5e7)": "dt_ns is a whole number",
        f"{spec}, horizon='8', dt_ns=1)": "horizon is a whole number; got '8'",
        "rr.ArmState(t_ns=0, q=['a', 'b'], dq=n)": "q is an array of numbers, got ['a', 'b']",
        "rr.BaseState(t_ns=0, x_WB=n, V_WB_B='fast')": "V_WB_B is an array of numbers, got 'fast'",
    }
    code = (
        "import sys, json, numpy as np, robot_runtime as rr, robot_runtime.errors\n"
        "n, said = np.ones(3), []\n"
        "for text in json.loads(sys.argv[1]):\n"
        "    try: eval(text); said.append('')\n"
        "    except rr.errors.InvalidValueError as error: said.append(str(error))\n"
        "print(json.dumps(said))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps([*cases])], capture_output=True, text=True, check=True
    )
    for (text, sentence), said in zip(cases.items(), json.loads(done.stdout), strict=True):
        assert sentence in said, text
