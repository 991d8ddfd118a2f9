"""The robot's process: real commands, real signals, a server that dies."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from policies.load import load_policy
from policies.scripted import FRANKA, SinePolicy
from robot_runtime.cli import main
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.method.choose import DEFAULTS
from robot_runtime.core.method.table import method_named
from robot_runtime.core.orders import Outcome
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Observation
from robot_runtime.evaluation.result import Episode
from robot_runtime.log.config import LogConfig
from robot_runtime.log.reader import RunLog
from robot_runtime.page.recorded import Recording
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.probe import latency_for
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.run import Session
from robot_runtime.robot.runner import Runner
from robot_runtime.server.process import ServerProcess
from robot_runtime.server.service import Delay
from scripts.bench.loop import random_head
from sim.episodes.run_episode import run_real_time
from tests.process.toy import serving

START_TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def track() -> Iterator[str]:
    """Address of a server that no test stops."""
    with ServerProcess("track") as server:
        yield server.address


@pytest.fixture(scope="module")
def sine() -> Iterator[str]:
    """Likewise, of a policy that is a formula."""
    with ServerProcess("sine") as server:
        yield server.address


def command(*args: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "robot_runtime.cli", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"},
    )


@pytest.mark.real_time
@pytest.mark.parametrize(
    ("number", "signal_number"),
    [(1, signal.SIGINT), (2, signal.SIGINT), (2, signal.SIGTERM)],
    ids=["at once", "in mid-episode", "terminated in mid-episode"],
)
def test_ctrl_c_and_sigterm_bring_the_robot_to_rest_and_exit_as_a_shell_says(number, signal_number, track):
    robot = command("run", "--task", "track", "--server", track, "--duration-s", "60")
    assert robot.stdout is not None
    assert "connected" in robot.stdout.readline()
    if number == 2:
        assert any("answers take" in line for line in robot.stdout)  # it has measured, and begins
        time.sleep(1.0)
    robot.send_signal(signal_number)
    out, err = robot.communicate(timeout=20)
    assert robot.returncode == 128 + signal_number, err
    assert ("interrupted" if signal_number == signal.SIGINT else "terminated") in err
    if number == 2:
        assert "a stop was asked for" in err
        assert "stalled_s" in out  # what was measured until then is not lost


@pytest.mark.usefixtures("patient_time")
def test_the_control_loop_shows_a_correction_head_every_row_a_fresh_observation(sine):
    with PolicyClient(sine, robot="test", schema=FRANKA) as client:
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


def test_a_policy_for_another_robot_is_refused_before_anything_moves(sine, capsys):
    assert main(["run", "--task", "fetch", "--server", sine]) == 1
    error = capsys.readouterr().err
    assert "arm: the robot takes hand poses, the policy gives 7 joint positions" in error


def test_a_policy_that_wants_pictures_of_another_size_is_told_how_to_get_them(start_server, capsys):
    assert main(["run", "--task", "track", "--server", start_server().address]) == 1
    error = capsys.readouterr().err
    assert "camera 'wrist': the robot has (224, 224), the policy needs (48, 64)" in error
    assert "--picture-size HEIGHT WIDTH" in error


@pytest.mark.usefixtures("patient_time")
def test_a_policy_that_does_without_the_scene_runs_on_a_robot_that_knows_it(sine, capsys):
    assert main(["run", "--task", "track", "--server", sine, "--duration-s", "1"]) == 0
    assert "connected: policy 'sine'" in capsys.readouterr().out


def test_a_method_that_the_policy_was_not_trained_for_is_refused_before_anything_moves(track, capsys):
    for method, why, help_ in (
        ("vlash", "not trained on states rolled forward", "robot-runtime train --recipe offset"),
        ("remac", "PrefixPreservedStart", "robot-runtime train --recipe masked"),
    ):
        assert main(["run", "--task", "track", "--server", track, "--method", method]) == 1
        captured = capsys.readouterr()
        error = captured.err.replace("\n", " ")
        assert why in error
        assert help_ in error
        assert "supports the methods synchronous, naive" in error
        assert "stalled_s" not in captured.out


class ManySidedSinePolicy(SinePolicy):
    """As if it had been trained as the shipped ones are."""

    def __init__(self) -> None:
        super().__init__()
        self.info = replace(self.info, capabilities=load_policy("track").info.capabilities)


def said_before_a_run(method: str, *, delay_ms: float) -> list[str]:
    """What a robot says that is connected, and measures, and goes no further."""
    clock, lines = MonotonicClock(), []
    robot = Robot(arm=IdealArm(clock=clock), gripper=IdealGripper(), limits=FR3_LIMITS)
    with (
        serving(ManySidedSinePolicy(), delay=Delay(median_ms=delay_ms)) as server,
        Session(robot, policy=server.address, method=method, clock=clock, say=lines.append),
    ):
        return lines


def d_fits(latency_ms: int, d: int) -> bool:
    """Rows of 50 ms."""
    return 50 * (d - 1) - 1 <= latency_ms <= 50 * d + 1


def test_auto_measures_the_server_and_says_what_it_picked_and_why():
    *_, last = said_before_a_run("auto", delay_ms=200)
    said = re.match(r"method pipelined-(faster|rtc): answers take (\d+) ms, d = (\d+) rows of 0.05 s", last)
    assert said, last  # which one: by how long the answers of a busy machine really take
    picked, latency_ms, d = said[1], int(said[2]), int(said[3])
    assert latency_ms >= 200
    assert d_fits(latency_ms, d)
    assert picked == "faster" or d > ManySidedSinePolicy().info.capabilities.max_inference_delay


def test_a_robot_knows_the_latency_before_it_starts_and_says_so():
    lines = said_before_a_run("default", delay_ms=150)
    measuring, result = lines[-2:]
    assert measuring.startswith("measuring the latency: 8 requests")
    said = re.match(r"answers take (\d+) ms, \d+ at the 0\.9 quantile, d = (\d+) rows", result)
    assert said, result
    assert int(said[1]) >= 150
    assert d_fits(int(said[1]), int(said[2]))


def test_a_robot_whose_task_the_policy_does_not_know_is_told_so_before_it_moves(track, capsys):
    assert main(["run", "--task", "strike", "--method", "synchronous", "--server", track]) == 1
    assert "error: policy 'track' does not know the task 'hit the ball" in capsys.readouterr().err


def test_a_robot_that_stops_to_ask_measures_nothing_before_the_start(sine):
    with PolicyClient(sine, robot="test", schema=FRANKA) as client:
        welcome, clock = client.wait_until_ready(10.0), MonotonicClock()
        robot = Robot(arm=IdealArm(clock=clock), gripper=IdealGripper())
        observation = Observation(state=robot.read())
        assert latency_for(method_named("synchronous"), client, welcome, observation, clock) is None
        latency = latency_for(method_named("time-aligned"), client, welcome, observation, clock)
    assert latency is not None
    assert latency.num_rows(welcome.info.action_spec.dt_ns) >= 1


@pytest.fixture(scope="module")
def strike_run(tmp_path_factory) -> Episode:
    """One run at 150 ms, in real time."""
    with ServerProcess("strike", delay_ms=150) as server:
        log = LogConfig(folder=tmp_path_factory.mktemp("runs"))
        return run_real_time("strike", method=DEFAULTS[0][0], policy=server.address, log=log)


@pytest.mark.real_time
def test_the_slider_of_a_recorded_run_ends_with_its_last_control_step(strike_run):
    (path,) = strike_run.record.log_files
    log = RunLog.open(path)
    recording, last_ns = Recording(log), list(log.ticks())[-1].tick.now_ns
    end_ns = round(recording.end_s * NS_PER_S) + log.info.started_ns
    assert last_ns - NS_PER_S // 10 < end_ns <= last_ns
    assert recording.messages[-1].topic == "/log"  # how it ended
    assert end_ns < recording.messages[-1].log_ns - log.info.offset_ns


@pytest.mark.real_time
def test_how_a_simulated_task_went_is_in_the_log(strike_run):
    (path,) = strike_run.record.log_files
    (trial,) = RunLog.open(path).episodes()
    assert trial.outcome is (Outcome.SUCCESS if strike_run.result.score.success else Outcome.FAILURE)


@pytest.mark.real_time
def test_the_episode_starts_when_the_robot_does_and_not_when_its_latency_is_measured(strike_run):
    result = strike_run.result
    assert result.score.reactions_s
    assert max(result.score.reactions_s) < result.summary["duration_s"]
