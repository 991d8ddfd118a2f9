"""What commands refuse before anything begins, each in a sentence; and what an evaluation says at its end."""

import re

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
        (
            ["bench", "methods", "--tasks", "fetch"],
            "task of the comparison 'fetch'; valid: conveyor, pick_place, strike, ",
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
        (["bench", "gpu", "--starts", "--device", "cpu"], "--starts is for --serve"),
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
        (["run", "--method", "a2c2"], "needs a correction head, and no checkpoint has been named; to make"),
        (["run", "--method", "a2c2", "--correction", "track"], "policy 'track' has none; to make"),
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
        (["bench", "stream", "--task", "nope"], "unknown task 'nope'"),
        (["bench", "stream", "--policy", "nope"], "unknown policy or checkpoint folder 'nope'"),
        (["bench", "stream", "--policy", "hold"], "policy 'hold' has no network of ours"),
        (
            ["bench", "stream", "--policy", "fetch"],
            "policy 'fetch' cannot do 'track': base: the robot has no",
        ),
        (["bench", "stream", "--policy", "fetch", "--task", "fetch"], "the sampler HorizonAwareSchedule"),
        (["bench", "stream", "--inference-delay", "32"], "--inference-delay is below 32"),
        (["bench", "robots", "--policy", "nope"], "unknown policy or checkpoint folder 'nope'"),
        (["bench", "robots", "--policy", "fetch-seeing"], "needs cameras, which these robots have not"),
    ],
)
def test_what_does_not_fit_is_refused_before_there_is_a_progress_bar_or_a_server(args, words, capsys):
    assert main(args) == 1
    said = capsys.readouterr()
    assert words in said.err.replace("\n", " ")
    assert said.out == "" or said.out.startswith("method ")


def test_an_evaluation_says_what_was_held_back_and_what_did_not_go_as_the_method_says(capsys):
    command = ["eval", "--task", "pick_place", "--episodes", "2", "--control-hz", "100", "--workers", "1"]
    assert main([*command, "--delay-ms", "1200", "--method", "committed-prefix"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^arm: held back by its acceleration limit for \d+\.\d\d s, by up to ", out, re.M), out
    assert re.search(r"^\d+ times: answers come too late for a robot that moves", out, re.M), out


def test_a_checkpoint_without_weights_says_which_file_is_missing(tmp_path, capsys):
    assert main(["serve", "--policy", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
