"""Two groups of logged runs: the figures of a log are those of the run, and an interval says what is sure."""

import json
from dataclasses import replace

import numpy as np
import pytest

from policies.scripted import SinePolicy
from robot_runtime.cli import main
from robot_runtime.core.method.table import method_named
from robot_runtime.core.orders import Outcome
from robot_runtime.core.values.state import ArmState, RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.evaluation.compare import Trial, compare, oscillation, trials_of
from robot_runtime.evaluation.loop import play, play_together
from robot_runtime.evaluation.traces import constant
from robot_runtime.log.config import LogConfig
from robot_runtime.log.reader import RunLog
from sim.episodes.task_env import TaskEnv

MS = 1_000_000


def trial(seed: int, outcome: Outcome = Outcome.SUCCESS, **figures: float) -> Trial:
    return Trial(seed=seed, outcome=outcome, figures=figures)


def states(q: np.ndarray, period_ns: int = 10 * MS) -> list[RobotState]:
    return [
        RobotState(t_ns=i * period_ns, parts={"arm": ArmState(t_ns=i * period_ns, q=row, dq=0.0 * row)})
        for i, row in enumerate(q)
    ]


@pytest.mark.long
def test_the_figures_of_a_log_are_those_of_the_run(tmp_path):
    env, policy = TaskEnv("track", control_period_ns=10 * MS), SinePolicy()
    log = LogConfig(folder=tmp_path)
    method = method_named("time-aligned")
    episode = play(policy, env, method=method, seed=4, trace=constant(100), log=log)
    (played,) = play_together(policy, [episode])
    (found,) = trials_of(RunLog.open(next(tmp_path.iterdir())))
    summary = played.record.summary()
    assert found.seed == 4
    assert found.outcome is (Outcome.SUCCESS if played.result.score.success else Outcome.FAILURE)
    for name in ("duration_s", "stalled_s", "jerk_mean", "jerk_max", "seam_jump_p50", "latency_p50_s"):
        assert found.figures[name] == pytest.approx(summary[name])


def test_a_robot_that_goes_one_way_does_not_oscillate_and_one_that_shakes_does():
    t = np.linspace(0.0, 2.0, 201)[:, None]
    assert oscillation(states(t * np.ones(7))) == pytest.approx(0.0, abs=1e-12)
    before = np.where(t < 0.99, np.sin(40.0 * t), 0.5)  # it has come to rest since
    assert oscillation(states(before * np.ones(7))) == 0.0
    shakes = 0.01 * np.sin(2.0 * np.pi * 5.0 * t) * np.ones(7)
    assert oscillation(states(shakes)) == pytest.approx(5 * 4 * 0.01, rel=0.05)


def test_the_same_seeds_are_compared_one_by_one_and_so_a_small_difference_is_sure():
    rng = np.random.default_rng(0)
    hard = rng.uniform(1.0, 20.0, 20)
    a = [trial(i, duration_s=s) for i, s in enumerate(hard)]
    b = [trial(i, duration_s=s - 0.5) for i, s in enumerate(hard)]
    found = compare(a, b[::-1])
    row = next(row for row in found.rows if row.name == "duration_s")
    assert found.is_paired
    assert row.difference_95 == pytest.approx((-0.5, -0.5))
    others = compare(a, [trial(100 + i, duration_s=s - 0.5) for i, s in enumerate(hard)])
    assert not others.is_paired
    low, high = next(row for row in others.rows if row.name == "duration_s").difference_95
    assert low < -0.5 < high
    assert high - low > 1.0


def test_trials_of_different_tasks_are_not_compared():
    a, b = replace(trial(0), task="fetch"), replace(trial(0), task="wipe")
    with pytest.raises(InvalidValueError, match="same tasks, got 'fetch' in a and 'wipe' in b"):
        compare([a], [b])
    both = [replace(each, task=task) for task in ("fetch", "wipe") for each in (trial(0), trial(1))]
    assert compare(both, both[::-1]).is_paired


def test_trials_that_nobody_has_judged_do_not_count_as_failures():
    a = [trial(0), trial(1, Outcome.FAILURE), trial(2, Outcome.UNKNOWN)]
    found = compare(a, [trial(3, Outcome.UNKNOWN)])
    assert found.rows[0].a == 0.5
    assert found.rows[0].b is None
    assert found.rows[0].difference_95 is None
    assert found.outcomes == ({"success": 1, "failure": 1, "unknown": 1}, {"unknown": 1})


def test_the_command_says_what_is_no_group_of_logs(tmp_path, capsys):
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 1
    assert "there is no log, *.mcap, in the folder" in capsys.readouterr().err
    (tmp_path / "x.mcap").write_text(json.dumps({}))
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 1
    assert "x.mcap" in capsys.readouterr().err
