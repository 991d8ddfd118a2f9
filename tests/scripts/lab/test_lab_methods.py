"""Who takes part: our methods, the physical limit, the peer."""

import shutil
from pathlib import Path

import pytest

import sim
from robot_runtime.core.method.sampler_parts import BestOfSamples
from robot_runtime.core.method.table import METHODS, Method
from robot_runtime.errors import UnknownNameError
from robot_runtime.evaluation.traces import constant
from scripts.lab import policies as lab_policies
from scripts.lab.baselines.lerobot_contestant import LeRobotEngine
from scripts.lab.baselines.lerobot_import import lerobot_problem
from scripts.lab.methods import CONTESTANTS, EXPERT, contestant_named
from scripts.lab.policies import expert, recipe_needed
from sim.episodes.evaluation import EvaluationConfig, run_group
from sim.tasks import TABLE_TASKS


def config(name: str, *, delay_ms: float) -> EvaluationConfig:
    return EvaluationConfig(
        policy="track",
        task="track",
        method=contestant_named(name),
        trace=constant(delay_ms),
        control_period_ns=10_000_000,
    )


def test_a_method_that_draws_several_chunks_says_how_many():
    fewer = contestant_named("bid-4")
    assert isinstance(fewer, Method)
    assert isinstance(fewer.sampler, BestOfSamples)
    assert fewer.sampler.num_samples == 4
    assert contestant_named("bid") is METHODS["bid"]
    assert "bid" not in CONTESTANTS


def test_an_unknown_one_is_refused_with_all_names():
    with pytest.raises(UnknownNameError, match=r"delayed-expert.*lerobot-best-narrow"):
        contestant_named("magic")


def test_the_peer_needs_a_plain_policy_and_the_expert_none():
    assert recipe_needed(contestant_named("lerobot-defaults")) == "plain"
    assert recipe_needed(contestant_named(EXPERT)) is None


@pytest.mark.parametrize(
    ("changed", "tasks"),
    [
        ("motion", set(TABLE_TASKS)),
        ("a_new_part", set(TABLE_TASKS)),
        ("track", {"track"}),
        ("handling", set()),
    ],
)
def test_an_expert_is_known_by_all_code_but_that_of_others(tmp_path, monkeypatch, changed, tasks):
    folder = Path(sim.__file__).parent
    shutil.copytree(folder / "experts", tmp_path / "experts")
    (tmp_path / "episodes").mkdir()
    shutil.copy(folder / "episodes" / "delayed_expert.py", tmp_path / "episodes")
    monkeypatch.setattr(lab_policies, "_FOLDER", tmp_path)
    before = {task: expert(task).fingerprint for task in TABLE_TASKS}
    with (tmp_path / "experts" / f"{changed}.py").open("a") as file:
        file.write("# changed\n")
    assert {task for task in TABLE_TASKS if expert(task).fingerprint != before[task]} == tasks


@pytest.mark.long
def test_the_expert_reacts_as_late_as_its_observations_are():
    (episode,) = run_group(config(EXPERT, delay_ms=200.0), range(10_000, 10_001))
    assert episode.score.success
    assert 0.2 <= min(episode.score.reactions_s) <= max(episode.score.reactions_s) < 0.26


@pytest.mark.skipif(lerobot_problem() is not None, reason=str(lerobot_problem()))
def test_the_peer_is_counted_as_we_are():
    one = config("lerobot-best-narrow", delay_ms=400.0)
    assert isinstance(one.method, LeRobotEngine)
    (episode,) = run_group(one, range(10_000, 10_001))
    assert episode.summary["requests_per_s"] == pytest.approx(2.5, abs=0.2)
    assert episode.summary["evaluations_per_s"] == pytest.approx(12.5, abs=1.0)


def test_synchronous_also_takes_part_with_as_few_rows_of_a_chunk_as_the_others():
    often, asked_often = contestant_named("synchronous-4"), contestant_named("time-aligned")
    assert isinstance(often, Method)
    assert isinstance(asked_often, Method)
    assert often.request.execution_horizon == asked_often.request.when.rows == 4
