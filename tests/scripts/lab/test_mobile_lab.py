"""The mobile comparison: from no policy at all to tables and a plot."""

import json
from dataclasses import replace

import pytest

from policies.load import load_policy
from robot_runtime.cli import main
from robot_runtime.core.method.choose import Default, default_for
from robot_runtime.evaluation.traces import constant
from scripts.bench.commands import main as bench
from scripts.lab.household import (
    SPLICES,
    VARIANTS,
    MissingMobilePolicy,
    can_exist,
    find_mobile_policy,
    mobile_cells,
    splices_of,
)
from scripts.lab.household_page import COLOURS, averages, by_task, label_gains, points
from scripts.lab.policies import TrainedPolicy
from scripts.lab.scores import RESULTS_VERSION, CellScore, Moments, Row
from scripts.lab.training import train_missing
from sim.tasks import HOUSEHOLD_TASKS


def test_a_policy_that_is_missing_comes_with_the_command_that_makes_it(tmp_path):
    missing = find_mobile_policy(tmp_path, "wipe", "act", "world", 2)
    assert isinstance(missing, MissingMobilePolicy)
    assert str(missing) == (
        "robot-runtime train --task wipe --seed 2 --network act --labels world "
        f"--demonstrations {tmp_path}/wipe/demonstrations.npz --output {tmp_path}/wipe/act-world-2"
    )


def test_a_policy_that_sees_is_missing_with_its_recording_first(tmp_path):
    missing = find_mobile_policy(tmp_path, "wipe", "seeing", "base", 2)
    assert isinstance(missing, MissingMobilePolicy)
    dataset = tmp_path / "wipe" / "dataset"
    train = (
        f"robot-runtime train --task wipe --seed 2 --dataset {dataset} --init wipe "
        f"--output {tmp_path}/wipe/seeing-base-2"
    )
    assert str(missing) == (f"robot-runtime record --task wipe --episodes 250 --output {dataset} && {train}")
    assert train_missing([missing], workers=1) == [missing]  # nobody records on the quiet
    dataset.mkdir(parents=True)
    assert str(missing) == train


def test_the_shipped_policy_is_one_of_its_own_kind(tmp_path):
    shipped = find_mobile_policy(tmp_path, "fetch", "shipped", "base", 0)
    assert isinstance(shipped, TrainedPolicy)
    assert shipped.name_or_path == "fetch"
    ours = find_mobile_policy(tmp_path, "fetch", "flow", "base", 0)
    assert isinstance(ours, MissingMobilePolicy)  # it learns what LeRobot's do


def test_nobody_is_asked_to_train_what_is_only_shipped():
    assert can_exist("shipped", "base", 0)
    assert not can_exist("shipped", "world", 0)
    assert not can_exist("shipped", "base", 1)
    assert can_exist("seeing", "base", 1)
    assert not can_exist("seeing", "world", 0)
    assert can_exist("flow", "world", 2)


def test_all_of_a_plan_can_be_trained_or_is_shipped(capsys):
    options = ("--tasks", "fetch", "--seeds", "0", "1", "--checkpoints", "nowhere", "--plan")
    assert bench(["household", *options]) == 0
    said = capsys.readouterr().out
    assert "--network shipped" not in said
    assert said.count("--network flow --labels world") == 2


def test_only_a_policy_that_knows_committed_rows_is_shown_them():
    assert "pipelined-prefix" in splices_of("flow")
    assert splices_of("shipped") == splices_of("seeing") == splices_of("flow")
    assert splices_of("act") == splices_of("diffusion") == ("naive", "time-aligned", "state-matching")


def test_cells_differ_in_everything_that_matters(tmp_path):
    policy = TrainedPolicy(recipe="flow-base", training_seed=0, name_or_path="x", fingerprint="0")
    cells = mobile_cells(policy, "fetch", ("naive", "state-matching"), (constant(0.0), constant(300.0)), 10)
    assert [cell.method_name for cell in cells] == ["flow base naive"] * 2 + ["flow base state-matching"] * 2
    assert len({json.dumps(cell.key, sort_keys=True) for cell in cells}) == 4


def test_variants_differ_from_each_other_and_from_what_they_vary():
    policy = TrainedPolicy(recipe="flow-base", training_seed=0, name_or_path="x", fingerprint="0")
    cells = mobile_cells(policy, "fetch", (*SPLICES, *VARIANTS), (constant(0.0),), 10)
    assert len({json.dumps(cell.key["method"], sort_keys=True) for cell in cells}) == len(cells)


def row(task: str, splice: str, delay_ms: int, successes: int, led: float) -> Row:
    figures = {"led_backward_m": Moments.of([led] * 10)}
    times = Moments.of([12.0] * successes)
    cell = CellScore(
        episodes=10, successes=successes, digest="", completion=times, figures=figures, reactions_s=(),
        bound=None,
    )  # fmt: skip
    return Row.of(
        [cell],
        task=task,
        method=f"flow base {splice}",
        trace=f"{delay_ms}ms",
        recipes=("flow-base-0",),
        command="python -m scripts.bench household",
    )


def test_tables_pool_the_tasks_and_leave_out_what_is_not_of_all_of_them():
    rows = [
        row("fetch", "naive", 300, 2, 1.0), row("wipe", "naive", 300, 4, 0.5),
        row("fetch", "naive", 0, 10, 0.0), row("wipe", "naive", 0, 8, 0.0),
        row("fetch", "time-aligned", 0, 9, 0.0), row("wipe", "time-aligned", 0, 9, 0.0),
        row("fetch", "time-aligned", 300, 9, 0.0), row("fetch", "state-matching", 300, 9, 0.0),
    ]  # fmt: skip
    head, naive, aligned = averages(rows)
    assert head == [
        "policy", "labels", "splice", "0ms", "300ms",
        "backtracking at 0ms [m]", "backtracking at 300ms [m]", "done at 0ms [s]", "done at 300ms [s]",
    ]  # fmt: skip
    assert naive == [
        "flow", "base", "naive", "90% (70%–97%)", "30% (15%–52%)", "0.00", "0.75", "12.0", "12.0"
    ]  # fmt: skip
    assert aligned == [
        "flow", "base", "time-aligned", "90% (70%–97%)", "–", "0.00", "–", "12.0", "–"
    ]  # fmt: skip
    assert by_task(rows, "fetch")[1] == ["flow", "base", "naive", "100% (72%–100%)", "20% (6%–51%)"]


def test_what_labels_are_worth_is_bold_where_chance_would_hardly_show_it():
    def of(labels: str, task: str, delay_ms: int, successes: int) -> Row:
        return replace(row(task, "naive", delay_ms, successes, 0.0), method=f"act {labels} naive")

    rows = [
        of("base", "fetch", 0, 10), of("world", "fetch", 0, 2), of("base", "fetch", 300, 5),
        of("base", "wipe", 0, 6), of("world", "wipe", 0, 8),
        of("base", "wipe", 300, 7), of("world", "wipe", 300, 7),
        row("fetch", "naive", 0, 9, 0.0),
    ]  # fmt: skip
    assert label_gains(rows) == [
        ["policy", "splice", "`fetch`", "`wipe`"],
        ["act", "naive", "**+80** / –", "-20 / 0"],
    ]
    assert len(label_gains([row("fetch", "naive", 0, 9, 0.0)])) == 1


def test_a_table_is_in_order_of_policy_labels_and_splice_whatever_ran_first():
    methods = ["flow base naive", "flow base state-matching", "flow world naive", "act base naive"]
    rows = [replace(row("fetch", "naive", 300, 5, 1.0), method=method) for method in methods]
    assert [" ".join(line[:3]) for line in by_task(rows[::-1], "fetch")[1:]] == methods


def test_every_splice_of_the_comparison_has_a_curve_of_its_own_colour():
    assert set(COLOURS) == {*SPLICES, *VARIANTS}
    assert len(set(COLOURS.values())) == len(COLOURS)


@pytest.mark.parametrize("task", sorted(HOUSEHOLD_TASKS))
def test_the_shipped_policies_default_is_one_of_the_compared(task):
    choice = default_for(Default(), load_policy(task).info.capabilities)
    assert choice.method == VARIANTS["pipelined-prefix-4"]


def test_a_curve_has_points_only_where_all_its_tasks_were_run():
    here = row("fetch", "naive", 300, 8, 0.1)
    there = row("wipe", "naive", 300, 4, 0.1)
    alone = row("fetch", "naive", 0, 9, 0.1)
    assert points([there, alone, here], ["fetch", "wipe"]) == {300: [there, here]}
    assert list(points([alone, here], ["fetch"])) == [0, 300]


@pytest.mark.long
def test_it_runs_from_demonstrations_to_a_plot_and_goes_on_where_it_was(tmp_path, capsys):
    common = ("--tasks", "fetch", "--networks", "flow", "--labels", "world", "--splices", "time-aligned")
    command = [
        "household", *common, "--delays", "300", "--episodes", "1", "--workers", "1",
        "--checkpoints", str(tmp_path / "checkpoints"), "--output", str(tmp_path / "out"),
    ]  # fmt: skip
    assert bench([*command, "--plan"]) == 0
    assert "1 policy is missing" in capsys.readouterr().out
    folder = tmp_path / "checkpoints" / "fetch" / "flow-world-0"
    train = ["train", "--task", "fetch", "--recipe", "prefix", "--labels", "world", "--episodes", "3"]
    train += ["--execution-horizon", "3"]
    assert main([*train, "--steps", "2", "--width", "32", "--output", str(folder)]) == 0
    assert load_policy(folder).info.capabilities.execution_horizon == 3
    assert bench(command) == 0
    assert (tmp_path / "out" / "mobile.png").stat().st_size > 10_000
    (figures,) = json.loads((tmp_path / "out" / "mobile.json").read_text())["rows"]
    assert figures["method"] == "flow world time-aligned"
    assert figures["success"] == 0.0  # after two steps of training
    kept = tmp_path / "kept.json"
    older = {**figures, "trace": "600ms"}
    kept.write_text(json.dumps({"version": RESULTS_VERSION, "rows": [older]}))
    capsys.readouterr()
    assert bench([*command, "--keep", str(kept)]) == 0
    said = capsys.readouterr().out
    assert "1 cells, 1 of them done before; 0 episodes" in said
    assert "300ms" in said
    assert "600ms" in said  # what is kept is shown beside it
    beside = json.loads((tmp_path / "out" / "mobile.json").read_text())["rows"]
    assert [row["trace"] for row in beside] == ["300ms", "600ms"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--tasks", "track"), "unknown household task 'track'"),
        (("--splices", "rtc"), "unknown splice of the comparison 'rtc'"),
        (("--episodes", "0"), "--episodes takes a number from 1 to 1000000, got 0"),
    ],
)
def test_what_cannot_be_compared_is_refused(option, message, capsys):
    assert bench(["household", *option]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--network", "act", "--init", "fetch"), "--init goes with --network flow, act starts anew"),
        (("--episodes", "0"), "--episodes takes a number from 1 to 1000000, got 0"),
        (("--execution-horizon", "33"), "expected an execution horizon of 1 to 32 rows, or none, got 33"),
        (("--network", "act", "--execution-horizon", "4"), "--execution-horizon goes with --network flow"),
        (("--workers", "0"), "--workers takes a number from 1 to 256, got 0"),
        (("--estimator-steps", "5"), "--estimator-steps and --random-views go with --dataset"),
        (("--dataset", ".", "--labels", "world"), "is no LeRobot dataset"),
    ],
)
def test_options_of_train_that_do_not_go_together_are_refused(options, message, tmp_path, capsys):
    assert main(["train", "--task", "fetch", "--output", str(tmp_path / "x"), *options]) == 1
    assert message in capsys.readouterr().err
