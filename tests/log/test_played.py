"""A recorded episode moves a robot again: true to time, and with the same end."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from policies.scripted import SinePolicy
from robot_runtime.cli import main
from robot_runtime.core.method.table import method_named
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.fields import BasePose
from robot_runtime.core.values.schema import BaseSchema, Schema
from robot_runtime.core.values.state import BaseState, Observation, RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.evaluation.loop import play, play_together
from robot_runtime.evaluation.result import Episode
from robot_runtime.evaluation.traces import constant
from robot_runtime.log.config import LogConfig
from robot_runtime.log.played import PlayedPolicy, RecordedWay
from robot_runtime.log.reader import RunLog
from sim.episodes.task_env import TaskEnv
from sim.experts.policy import ExpertPolicy

MS = 1_000_000


def played(policy: object, task: str, *, log: LogConfig | None = None) -> Episode:
    env = TaskEnv(task, control_period_ns=10 * MS)
    method = method_named("time-aligned")
    (out,) = play_together(policy, [play(policy, env, method=method, seed=3, trace=constant(0), log=log)])
    return out


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> tuple[Episode, RunLog]:
    """An expert's episode."""
    folder: Path = tmp_path_factory.mktemp("runs")
    episode = played(ExpertPolicy("pick_place"), "pick_place", log=LogConfig(folder=folder))
    assert episode.result.score.success
    return episode, RunLog.open(next(folder.iterdir()))


@pytest.mark.long
def test_what_succeeded_succeeds_again_on_the_same_way_at_the_same_times(recorded):
    before, log = recorded
    after = played(PlayedPolicy(RecordedWay.of(log)), "pick_place")
    assert after.result.score == before.result.score
    told = [np.array([tick.command.arm.q for tick in e.record.ticks]) for e in (before, after)]
    np.testing.assert_allclose(told[1], told[0], atol=1e-6)


def test_until_it_may_begin_it_waits_at_the_begin(recorded):
    _, log = recorded
    way, is_armed = RecordedWay.of(log), False
    policy = PlayedPolicy(way, may_begin=lambda: is_armed)
    state = way.measured[0]

    def asked(t_ns: int) -> np.ndarray:
        shown = RobotState(t_ns=t_ns, parts=state.parts, measured=state.measured)
        return next(policy.infer(ChunkRequest(observation=Observation(state=shown))))

    first = asked(0)
    assert (first == first[0]).all()
    np.testing.assert_array_equal(asked(5000 * MS), first)
    is_armed = True
    rows, later = asked(7000 * MS), asked(7050 * MS)
    np.testing.assert_array_equal(rows[0], first[0])
    assert not (rows == rows[0]).all()
    np.testing.assert_allclose(later[:45], rows[5:], atol=1e-9)


def test_an_episode_that_is_not_there_is_named(recorded):
    _, log = recorded
    with pytest.raises(InvalidValueError, match="has episodes 0 to 0, got 3"):
        RecordedWay.of(log, 3)


def test_a_base_that_was_led_by_poses_goes_the_same_way_from_where_it_stands_now(recorded):
    _, log = recorded
    there = RecordedWay.of(log)
    poses = np.stack([0.1 * there.times_s, 0.0 * there.times_s, 0.0 * there.times_s], axis=1)
    way = replace(
        there,
        columns={BasePose(): poses},
        schema=Schema(parts={"base": BaseSchema()}, action_fields=(BasePose(),)),
    )
    faces_left = np.array([2.0, 3.0, np.pi / 2.0])
    base = BaseState(t_ns=0, x_WB=faces_left, V_WB_B=np.zeros(3))
    request = ChunkRequest(observation=Observation(state=RobotState(t_ns=0, parts={"base": base})))
    rows = next(PlayedPolicy(way).infer(request))
    np.testing.assert_allclose(rows[10] - faces_left, [0.0, 0.1 * there.times_s[10], 0.0], atol=1e-12)
    lost = structs.replace(base, x_WB=None)
    unknown = ChunkRequest(observation=Observation(state=RobotState(t_ns=0, parts={"base": lost})))
    with pytest.raises(ValueError, match="is relative to its pose"):
        next(PlayedPolicy(way).infer(unknown))


ROBOT = """
name = "ideal"
[parts.arm]
driver = "ideal-arm"
[parts.arm.limits]
of = "fr3"
share = {share}
[parts.gripper]
driver = "ideal-gripper"
[parts.gripper.limits]
of = "fr3"
"""


@pytest.mark.long
def test_a_robot_is_moved_along_a_log_and_one_that_may_not_go_so_fast_is_refused(
    tmp_path_factory, tmp_path, capsys
):
    """A second of a wave, in real time, after a slow approach."""
    folder = tmp_path_factory.mktemp("waves")
    env = TaskEnv("track", control_period_ns=10 * MS)
    env.info = replace(env.info, episode_ns=1000 * MS)
    policy, log = SinePolicy(amplitude=0.02), LogConfig(folder=folder)
    method = method_named("time-aligned")
    play_together(policy, [play(policy, env, method=method, seed=1, trace=constant(20), log=log)])
    (path,) = folder.iterdir()
    robot = tmp_path / "robot.toml"
    robot.write_text(ROBOT.format(share=0.9))
    assert main(["replay", str(path), "--on", str(robot), "--yes"]) == 0
    said = capsys.readouterr()
    assert "going where the episode begins: arm" in said.out + said.err
    assert float(re.search(r"up to (\S+) rad from the recording", said.out).group(1)) < 0.01
    assert main(["replay", str(path), "--on", "sim"]) == 0  # which ends with the recording, not with the task
    assert re.search(r"success after 1\.[45]\d? s", capsys.readouterr().out)
    robot.write_text(ROBOT.format(share=0.001))
    assert main(["replay", str(path), "--on", str(robot), "--yes"]) == 1
    assert "it would fall behind" in capsys.readouterr().err


def test_a_simulated_episode_is_played_in_its_own_scene(recorded, capsys):
    _, log = recorded
    assert main(["replay", str(log.path), "--on", "sim"]) == 0
    assert "pick_place, seed 3: success" in capsys.readouterr().out
    assert main(["replay", str(log.path), "--episode", "1"]) == 1
    assert "are for --on" in capsys.readouterr().err
