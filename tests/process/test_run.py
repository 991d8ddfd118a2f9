"""The robot's process: real commands, real signals, a server that dies."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from policies.load import policy_names
from policies.scripted import FRANKA
from robot_runtime.cli import main
from robot_runtime.cli.bench.faults import kill_and_restart
from robot_runtime.cli.bench.loop import random_head
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.method.choose import DEFAULTS
from robot_runtime.core.method.table import method_named
from robot_runtime.core.values.state import Observation
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.probe import latency_for
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.runner import Runner
from robot_runtime.server.process import ServerProcess
from sim.episodes.run_episode import run_real_time

pytestmark = pytest.mark.real_time

START_TIMEOUT_S = 60.0
KNOWN_POLICIES = ", ".join(sorted(policy_names()))


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


@pytest.mark.parametrize(
    ("number", "signal_number"),
    [(1, signal.SIGINT), (2, signal.SIGINT), (2, signal.SIGTERM)],
    ids=["at once", "in mid-episode", "terminated in mid-episode"],
)
def test_ctrl_c_and_sigterm_bring_the_robot_to_rest_and_exit_as_a_shell_says(number, signal_number):
    with ServerProcess("track") as server:
        robot = command("run", "--task", "track", "--server", server.address, "--duration-s", "60")
        assert robot.stdout is not None
        assert "connected" in robot.stdout.readline()
        time.sleep(0.0 if number == 1 else 1.5)
        robot.send_signal(signal_number)
        out, err = robot.communicate(timeout=20)
    assert robot.returncode == 128 + signal_number, err
    assert ("interrupted" if signal_number == signal.SIGINT else "terminated") in err
    if number == 2:
        assert "a stop was asked for" in err
        assert "stalled_s" in out  # what was measured until then is not lost


def test_the_control_loop_shows_a_correction_head_every_row_a_fresh_observation():
    with ServerProcess("sine") as server, PolicyClient(server.address, robot="test", schema=FRANKA) as client:
        welcome, clock = client.wait_until_ready(10.0), MonotonicClock()
        setting = RunConfig(
            Robot(arm=IdealArm(clock=clock), gripper=IdealGripper(), limits=FR3_LIMITS),
            duration_s=2.0,
            clock=clock,
            correction_head=random_head(welcome.info.action_spec, num_scene=0),
        )
        record = Runner(setting, client, welcome, method=method_named("a2c2")).run()
    assert 20 <= record.counts.corrected_rows <= 60  # 40 rows, and once more at each splice between rows
    assert record.counts.corrections_skipped == 0
    assert record.num_resent_rows() == 0


def test_a_robot_without_a_server_says_what_to_do(capsys):
    address = "tcp://127.0.0.1:1"
    code = main(["run", "--task", "track", "--server", address, "--connect-timeout-s", "0.3"])
    assert code == 1
    error = capsys.readouterr().err
    assert address in error
    assert "robot-runtime serve" in error


def test_a_policy_for_another_robot_is_refused_before_anything_moves(capsys):
    with ServerProcess("sine") as server:
        code = main(["run", "--task", "fetch", "--server", server.address])
    assert code == 1
    error = capsys.readouterr().err
    assert "actions: the robot has base pose, gripper width, hand pose, the policy needs 7 joint" in error
    assert "mobile base: the robot has True, the policy needs False" in error


def test_a_policy_that_wants_pictures_of_another_size_is_told_how_to_get_them(start_server, capsys):
    assert main(["run", "--task", "track", "--server", start_server().address]) == 1
    error = capsys.readouterr().err
    assert "camera 'wrist': the robot has (224, 224), the policy needs (48, 64)" in error
    assert "--picture-size HEIGHT WIDTH" in error


def test_a_policy_that_does_without_the_scene_runs_on_a_robot_that_knows_it(capsys):
    with ServerProcess("sine") as server:
        code = main(["run", "--task", "track", "--server", server.address, "--duration-s", "1"])
    assert code == 0
    assert "connected: policy 'sine'" in capsys.readouterr().out


def test_a_method_that_the_policy_was_not_trained_for_is_refused_before_anything_moves(capsys):
    with ServerProcess("track") as server:
        for method, why in (
            ("vlash", "not trained on states rolled forward"),
            ("remac", "PrefixPreservedStart"),
        ):
            assert main(["run", "--task", "track", "--server", server.address, "--method", method]) == 1
            captured = capsys.readouterr()
            error = captured.err.replace("\n", " ")
            assert why in error
            assert "it supports the methods synchronous, naive" in error
            assert "stalled_s" not in captured.out


def test_auto_measures_the_server_and_says_what_it_picked_and_why(capsys):
    with ServerProcess("track", delay_ms=200) as server:
        args = ["run", "--task", "track", "--server", server.address, "--method", "auto", "--duration-s", "1"]
        assert main(args) == 0
    out = capsys.readouterr().out.replace("\n", " ")
    assert re.search(r"method pipelined-faster: answers take 2\d\d ms, d = [56] rows", out), out


def test_a_robot_knows_the_latency_before_it_starts_and_says_so(capsys):
    with ServerProcess("track", delay_ms=150) as server:
        assert main(["run", "--task", "track", "--server", server.address, "--duration-s", "1"]) == 0
    out = capsys.readouterr().out.replace("\n", " ")
    assert out.index("measuring the latency: 8 requests") < out.index("answers take")
    said = re.search(r"answers take (\d+) ms, \d+ at the 0\.9 quantile, d = (\d+) rows", out)
    assert said, out
    latency_ms, d = int(said[1]), int(said[2])
    assert latency_ms >= 150
    assert 50 * (d - 1) - 1 <= latency_ms <= 50 * d + 1


def test_a_robot_whose_task_the_policy_does_not_know_is_told_so_before_it_moves(capsys):
    with ServerProcess("track") as server:
        assert main(["run", "--task", "strike", "--method", "synchronous", "--server", server.address]) == 1
    assert "error: policy 'track' does not know the task 'hit the ball" in capsys.readouterr().err


def test_a_robot_that_stops_to_ask_measures_nothing_before_the_start():
    with ServerProcess("sine") as server, PolicyClient(server.address, robot="test", schema=FRANKA) as client:
        welcome, clock = client.wait_until_ready(10.0), MonotonicClock()
        robot = Robot(arm=IdealArm(clock=clock), gripper=IdealGripper())
        observation = Observation(state=robot.read())
        assert latency_for(method_named("synchronous"), client, welcome, observation, clock) is None
        latency = latency_for(method_named("time-aligned"), client, welcome, observation, clock)
    assert latency is not None
    assert latency.num_rows(welcome.info.action_spec.dt_ns) >= 1


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (
            ["eval", "--task", "juggle"],
            "unknown task 'juggle'; valid: clear, conveyor, drawer, fetch, pick_place, strike, track, wipe",
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
        (["eval", "--method", "vlash", "--episodes", "1", "--workers", "1"], "recipe offset"),
    ],
)
def test_a_wrong_name_or_number_is_answered_with_the_valid_ones(args, words, capsys):
    assert main(args) == 1
    assert words in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["eval", "--method", "vlash"], "not trained on states rolled forward"),
        (["eval", "--task", "strike", "--policy", "track"], "does not know the task 'hit the ball"),
        (["eval", "--task", "fetch", "--policy", "track"], "policy 'track' cannot do 'fetch': actions: the"),
        (["eval", "--method", "naive", "--execution-horizon", "200"], "must lie in 1..32"),
        (["eval", "--method", "a2c2"], "needs a correction head"),
        (["bench", "stream", "--task", "nope"], "unknown task 'nope'"),
        (["bench", "stream", "--policy", "nope"], "unknown policy or checkpoint folder 'nope'"),
        (["bench", "stream", "--policy", "hold"], "policy 'hold' has no network of ours"),
        (["bench", "stream", "--policy", "fetch"], "policy 'fetch' cannot do 'track': actions: the robot"),
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


def test_the_episode_starts_when_the_robot_does_and_not_when_its_latency_is_measured():
    with ServerProcess("strike", delay_ms=150) as server:
        result = run_real_time("strike", method=DEFAULTS[0][0], policy=server.address).result
    assert result.score.reactions_s
    assert max(result.score.reactions_s) < result.summary["duration_s"]


def test_an_answer_whose_parts_come_after_the_stop_is_mentioned_once():
    with ServerProcess("strike", delay_ms=150) as server:
        log = run_real_time("strike", method=DEFAULTS[0][0], policy=server.address).record.log
    unused = [text for _, text in log if "not used: the robot is stopped" in text]
    assert unused
    assert len(unused) == len(set(unused))
