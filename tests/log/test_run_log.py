"""A run's log has all that happened, is read as far as it goes, and leads an executor to the same bits."""

import numpy as np
import pytest

from policies.scripted import SinePolicy
from robot_runtime.core.journal import Ticked
from robot_runtime.core.method.table import method_named
from robot_runtime.errors import InvalidValueError
from robot_runtime.evaluation.loop import play, play_together
from robot_runtime.evaluation.result import Episode
from robot_runtime.evaluation.traces import constant
from robot_runtime.log.config import LogConfig
from robot_runtime.log.reader import RunLog
from robot_runtime.log.replay import replay
from sim.episodes.task_env import TaskEnv


@pytest.fixture(scope="module")
def episode_and_log(tmp_path_factory) -> tuple[Episode, RunLog]:
    """The `track` task with a policy that waves, 100 ms late."""
    folder = tmp_path_factory.mktemp("runs")
    env = TaskEnv("track", control_period_ns=10_000_000)
    episode = play(
        SinePolicy(), env, method=method_named("time-aligned"), seed=1, trace=constant(100),
        log=LogConfig(folder=folder),
    )  # fmt: skip
    played = play_together(SinePolicy(), [episode])[0]
    (path,) = folder.iterdir()
    return played, RunLog.open(path)


@pytest.mark.long
def test_every_tick_is_in_the_log_as_it_was(episode_and_log):
    episode, log = episode_and_log
    rows = list(log.ticks())
    assert [row.tick.now_ns for row in rows] == [tick.now_ns for tick in episode.record.ticks]
    for row, tick in zip(rows, episode.record.ticks, strict=True):
        assert np.array_equal(row.tick.command.arm.q, tick.command.arm.q)
        assert np.array_equal(row.tick.sent.arm.q, tick.sent.arm.q)
        assert (row.tick.mode, row.tick.cause, row.tick.source) == (tick.mode, tick.cause, tick.source)


def test_requests_and_splices_are_in_the_log(episode_and_log):
    episode, log = episode_and_log
    assert [splice.t_ns for splice in log.splices()] == [splice.t_ns for splice in episode.record.splices]
    assert len(list(log.requests())) >= len(episode.record.splices)


def test_an_executor_that_is_fed_the_log_gives_the_same_commands(episode_and_log):
    episode, log = episode_and_log
    done = replay(log.journal())
    assert done.difference is None
    assert done.ticks == len(episode.record.ticks)


def test_a_replay_names_the_first_tick_that_differs(episode_and_log):
    _, log = episode_and_log
    journal = list(log.journal())
    at = [i for i, entry in enumerate(journal) if isinstance(entry, Ticked)][300]
    tick = journal[at].tick
    object.__setattr__(tick, "row", 77)
    difference = replay(journal).difference
    assert difference.tick == 300
    assert difference.now_ns == tick.now_ns
    assert difference.what.startswith("Ticked.row: the log has 77, now it is")


def test_what_is_no_log_is_refused(tmp_path):
    path = tmp_path / "notes.mcap"
    path.write_text("milk, bread")
    with pytest.raises(InvalidValueError, match="does not begin as an MCAP file does"):
        RunLog.open(path)
