"""The comparison: what is kept, what is run again, and what its figures mean."""

import json
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.method.table import METHODS, method_named
from robot_runtime.evaluation.result import EpisodeResult
from robot_runtime.evaluation.traces import constant, find_trace, spikes
from scripts.bench.commands import main
from scripts.lab import cells as lab
from scripts.lab.cells import Cell, ResultsFile, rows_of, run_cells
from scripts.lab.page import gain_table, read_json, success_table, to_json
from scripts.lab.plots import draw_success
from scripts.lab.policies import TrainedPolicy
from scripts.lab.scores import CellScore, Estimate, Moments, beside, with_other_seeds
from scripts.lab.style import Style, family
from sim.episodes.evaluation import EvaluationConfig
from sim.scene.task import EpisodeScore


def cell(**changes) -> Cell:
    config = EvaluationConfig(
        policy="track", task="track", method=METHODS["naive"], trace=constant(100.0), episodes=4
    )
    policy = TrainedPolicy(recipe="prefix", training_seed=0, name_or_path="track", fingerprint="f")
    return Cell(method_name="naive", policy=policy, config=replace(config, **changes))


def episode(seed: int, *, success: bool = True) -> EpisodeResult:
    score = EpisodeScore(
        success=success, completion_s=2.0 + seed if success else None, metrics={"x_m": float(seed)},
        reactions_s=(0.2, 0.4),
    )  # fmt: skip
    return EpisodeResult(
        seed=seed, score=score, summary={"seam_jump_p50": 0.1}, digest=str(seed), arrivals=((0.2, 0.1),)
    )


def score(successes: int = 3, n: int = 4) -> CellScore:
    return CellScore.of([episode(seed, success=seed < successes) for seed in range(n)])


CHANGES = {
    "task": "pick_place",
    "method": method_named("naive", execution_horizon=9),
    "trace": constant(101.0),
    "episodes": 5,
    "first_seed": 1,
    "control_period_ns": 4_000_000,
    "sampling_share": 0.25,
    "group_size": 7,
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_cells_key_changes_with_everything_that_changes_its_results(name):
    assert cell().key != cell(**{name: CHANGES[name]}).key


def test_no_field_of_a_configuration_is_forgotten_by_the_test_above():
    assert set(CHANGES) | {"policy", "log"} == set(EvaluationConfig.__dataclass_fields__)  # log changes none


@pytest.mark.parametrize("name", ["recipe", "training_seed", "fingerprint"])
def test_a_cells_key_changes_with_the_policy_but_not_with_where_it_lies(name):
    other = replace(cell().policy, **{name: 5})
    assert replace(cell(), policy=other).key != cell().key
    moved = replace(cell().policy, name_or_path="/elsewhere")
    assert replace(cell(policy="/elsewhere"), policy=moved).key == cell().key


def test_traces_of_one_name_and_other_delays_are_told_apart():
    assert cell(trace=spikes(seed=0)).key != cell(trace=spikes(seed=1)).key


def test_what_was_kept_comes_back_as_it_was(tmp_path):
    ResultsFile(tmp_path / "cells.jsonl").append(cell(), score())
    again = ResultsFile(tmp_path / "cells.jsonl")
    assert again.score(cell()) == score()
    assert again.score(cell(episodes=5)) is None


def test_a_half_written_last_line_is_run_again_and_spoils_nothing(tmp_path):
    path = tmp_path / "cells.jsonl"
    results, second = ResultsFile(path), cell(episodes=5)
    results.append(cell(), score())
    results.append(second, score(2))
    path.write_text(path.read_text()[:-30])
    broken = ResultsFile(path)
    assert broken.score(cell()) == score()
    assert broken.score(second) is None
    broken.append(second, score(2))
    mended = ResultsFile(path)
    assert (mended.score(cell()), mended.score(second)) == (score(), score(2))


def test_nothing_is_run_twice(tmp_path, monkeypatch):
    ran: list[tuple[float, int]] = []

    def here(cells, workers):
        for i, todo in enumerate(cells):
            for seeds in todo.config.groups():
                ran.append((todo.config.trace.delays_ns[0] / 1e6, seeds.start))
                yield i, [episode(seed) for seed in seeds], len(seeds)

    monkeypatch.setattr(lab, "_outcomes", here)
    first, second = cell(group_size=3, episodes=4), cell(trace=constant(200.0))
    run_cells([first], ResultsFile(tmp_path / "cells.jsonl"), workers=1)
    run_cells([first, second], ResultsFile(tmp_path / "cells.jsonl"), workers=1)
    assert ran == [(100.0, 10_000), (100.0, 10_003), (200.0, 10_000)]


@pytest.mark.long
def test_a_refused_cell_is_reported_and_not_kept(tmp_path):
    wrong = cell(task="pick_place", episodes=1)
    results = ResultsFile(tmp_path / "cells.jsonl")
    (failed,) = run_cells([wrong], results, workers=1)
    assert "policy 'track' does not know the task" in failed.reason
    assert results.score(wrong) is None


@given(values=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=30), cut=st.integers(0, 30))
def test_pooled_moments_are_those_of_all_values(values, cut):
    pooled = Moments.of(values[:cut]) + Moments.of(values[cut:])
    assert pooled.n == len(values)
    assert pooled.mean == pytest.approx(np.mean(values), abs=1e-9)
    expected = 1.96 * np.std(values, ddof=1) / np.sqrt(len(values))
    assert pooled.estimate is not None
    assert pooled.estimate.half_width == pytest.approx(expected, abs=1e-6)


def rows(
    methods=("naive", "committed-prefix"),
    traces=("0ms", "400ms", "spikes"),
    command="python -m scripts.bench methods",
):
    results, cells = {}, []
    for i, method in enumerate(methods):
        for trace in traces:
            one = replace(cell(trace=find_trace(trace)), method_name=method)
            cells.append(one)
            results[id(one)] = score(successes=1 + i % 4)

    class Results:
        def score(self, one):
            return results[id(one)]

    return rows_of(cells, Results(), command=command)


def test_training_seeds_are_pooled_and_their_spread_is_shown(tmp_path):
    results = ResultsFile(tmp_path / "cells.jsonl")
    second = replace(cell(), policy=replace(cell().policy, training_seed=1))
    results.append(cell(), score(1))
    results.append(second, score(4))
    (row,) = rows_of([cell(), second], results)
    assert (row.episodes, row.success, row.success_by_seed) == (8, 5 / 8, (0.25, 1.0))
    assert row.completion is not None
    assert row.completion.mean == pytest.approx((2 + 2 + 3 + 4 + 5) / 5)
    assert json.loads(json.dumps(row.as_dict()))["policies"] == ["prefix-0", "prefix-1"]


def test_figures_that_were_written_come_back_to_their_digits(tmp_path):
    path = tmp_path / "lab.json"
    path.write_text(to_json(rows()))
    again = read_json(path)
    assert [row.as_dict() for row in again] == [row.as_dict() for row in rows()]
    assert (again[0].successes, again[0].success_interval) == (1, rows()[0].success_interval)
    first = EvaluationConfig.first_seed
    seeds = json.loads(path.read_text())["made_by"]["seeds"]
    assert seeds == [*range(first, first + rows()[0].episodes)]


def test_rows_of_an_earlier_run_stand_beside_new_ones_but_never_in_their_place():
    older = rows(traces=("spikes", "400ms"), command="older")
    newer = rows(methods=("naive",), traces=("500ms", "400ms"), command="newer")
    both = [(row.method, row.trace, row.command) for row in beside(newer, older)]
    assert both == [
        ("committed-prefix", "400ms", "older"),
        ("naive", "400ms", "newer"),
        ("naive", "500ms", "newer"),
        ("naive", "spikes", "older"),
        ("committed-prefix", "spikes", "older"),
    ]


@pytest.mark.parametrize("recipes", [("plain-0", "plain-1"), ("plain-2",)])
def test_kept_places_whose_training_seeds_a_run_lacks_are_named(recipes):
    first, *others = [replace(row, recipes=("plain-0",)) for row in rows()]
    older = [replace(first, recipes=recipes), *others]
    assert with_other_seeds(older, [first, *others]) == older[:1]
    assert with_other_seeds(older, others) == with_other_seeds(older, older) == []
    more = replace(first, recipes=("mixed-schedule-0", "mixed-schedule-1", "mixed-schedule-2"))
    assert with_other_seeds(older, [more, *others]) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "holds no figures of the lab"),
        ("no json", "holds no figures of the lab"),
        ('{"version": 2, "rows": []}', "version 2, and this code makes version 3"),
    ],
)
def test_figures_that_cannot_stand_beside_new_ones_are_refused_before_anything_runs(
    tmp_path, capsys, text, words
):
    (tmp_path / "lab.json").write_text(text)
    assert main(["methods", "--plan", "--keep", str(tmp_path / "lab.json")]) == 1
    assert words in capsys.readouterr().err


def test_the_table_has_a_place_for_every_trace():
    head, *body = success_table(rows(), "track")
    assert head == ["method", "policies", "0ms", "400ms", "spikes"]
    assert [line[0] for line in body] == ["naive", "committed-prefix"]
    assert body[0][2] == "25% (5%–70%)"
    assert {len(line) for line in (head, *body)} == {len(head)}


def test_calls_are_worth_the_points_that_they_gain_over_naive():
    few, many = rows(methods=("naive", "faster"), traces=("400ms",))
    figures = {"evaluations_per_s": Estimate(mean=40.0, half_width=None)}
    many = replace(many, successes=3 * few.successes, figures={**many.figures, **figures})
    few = replace(few, figures={"evaluations_per_s": Estimate(mean=20.0, half_width=None)})
    head, line = gain_table([few, many])
    cells = dict(zip(head, line, strict=True))
    assert cells["task"] == "track, 400ms"
    assert cells["naive"] == "25%, 20 NFE/s"
    assert cells["faster"] == "75%, 40 NFE/s: +25"
    assert cells["committed-prefix"] == "–"


@pytest.mark.long
def test_every_method_has_a_look_of_its_own(tmp_path):
    style = Style(list(METHODS))
    looks = {(style.colour(name), style.marker(name)) for name in METHODS}
    assert len(looks) == len(METHODS)
    assert family("committed-prefix") != family("time-aligned")
    draw_success(rows(tuple(METHODS)), tmp_path / "success.png")
    assert (tmp_path / "success.png").stat().st_size > 50_000


def test_a_family_without_figures_for_a_task_leaves_the_others_their_axis(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(plt, "close", kept.append)
    both = rows(("naive", "synchronous"))
    other = [replace(row, task="strike") for row in both if row.method == "synchronous"]
    draw_success([*both, *other], tmp_path / "success.png")
    (figure,) = kept
    assert len(figure.axes) == 4
    assert all(axes.get_xlim()[1] > 400.0 for axes in figure.axes)


def test_the_plan_says_what_would_run_and_what_is_missing(tmp_path, capsys):
    command = ["methods", "--quick", "--plan", "--tasks", "track", "--methods", "naive", "vlash"]
    command += ["--output", str(tmp_path), "--checkpoints", str(tmp_path / "none")]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "4 cells, 0 of them done before; 24 episodes to run" in out
    assert "--recipe offset --init" in out
    assert "--recipe plain" not in out  # the shipped policy stands in
    assert not list(tmp_path.iterdir())
    assert main([*command, "--train"]) == 0
    assert "0 cells with the policies that are there, 0 of them done before" in capsys.readouterr().out


def test_names_that_are_unknown_are_refused_with_the_valid_ones(capsys):
    assert main(["methods", "--plan", "--methods", "magic"]) == 1
    assert "unknown method 'magic'; valid:" in capsys.readouterr().err
    assert main(["methods", "--plan", "--traces", "jitter"]) == 1
    assert "unknown trace or trace file 'jitter'; valid:" in capsys.readouterr().err
