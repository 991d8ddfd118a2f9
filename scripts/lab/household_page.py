"""The mobile comparison as a table and a plot: success, backtracking, how long it takes."""

from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from robot_runtime.evaluation.statistics import difference_interval, wilson_interval
from scripts.lab.household import LABELS, NETWORKS, SPLICES, VARIANTS
from scripts.lab.scores import Row

COLOURS = {
    "naive": "#b0413e",
    "time-aligned": "#d98c3f",
    "state-matching": "#3b7ea1",
    "state-matching-faded": "#7fb8d6",
    "state-matching-untimed": "#8e7cc3",
    "pipelined-prefix": "#2d6a4f",
    "pipelined-prefix-4": "#74b23c",
}
"""Of every splice, and variant of one, in the plot."""
_MAX_ACROSS = 4


def averages(rows: Sequence[Row]) -> list[list[str]]:
    """A line for every way of running that all tasks have been run with, a column for every delay, over all
    tasks; head first."""
    traces = _by_delay(rows)
    tasks = sorted({row.task for row in rows})
    backtracking = [f"backtracking at {trace} [m]" for trace in traces]
    done = [f"done at {trace} [s]" for trace in traces]
    out = [["policy", "labels", "splice", *traces, *backtracking, *done]]
    for method in _methods(rows):
        found = {(row.task, row.trace): row for row in rows if row.method == method}
        lines = [[found[task, trace] for task in tasks if (task, trace) in found] for trace in traces]
        if max(map(len, lines)) < len(tasks):
            continue
        out.append(
            [
                *method.split(" "),
                *(_success(line, len(tasks)) for line in lines),
                *(_mean(line, len(tasks), "led_backward_m", 2) for line in lines),
                *(_completion(line, len(tasks)) for line in lines),
            ]
        )
    return out


def _methods(rows: Sequence[Row]) -> list[str]:
    """The ways of running: by policy, then its labels, then splice."""
    return sorted({row.method for row in rows}, key=_place)


def _place(method: str) -> tuple[int, int, int]:
    network, labels, splice = method.split(" ")
    return NETWORKS.index(network), LABELS.index(labels), (*SPLICES, *VARIANTS).index(splice)


def _by_delay(rows: Sequence[Row]) -> list[str]:
    """The rows' traces, "<n>ms" each, the shortest delay first."""
    return sorted({row.trace for row in rows}, key=lambda trace: (len(trace), trace))


def by_task(rows: Sequence[Row], task: str) -> list[list[str]]:
    """The same for one task, success alone."""
    here = [row for row in rows if row.task == task]
    traces = _by_delay(here)
    out = [["policy", "labels", "splice", *traces]]
    for method in _methods(here):
        found = {row.trace: row for row in here if row.method == method}
        cells = [_success([found[trace]], 1) if trace in found else "–" for trace in traces]
        out.append([*method.split(" "), *cells])
    return out


def label_gains(rows: Sequence[Row]) -> list[list[str]]:
    """Success with the base's labels less that with the world's [points], by policy, splice and task, at each
    delay; head first. Bold where the 95 % interval of the difference leaves out zero."""
    traces, tasks = _by_delay(rows), sorted({row.task for row in rows})
    found = {(row.method, row.task, row.trace): row for row in rows}
    out = [["policy", "splice", *(f"`{task}`" for task in tasks)]]
    for method in _methods(rows):
        policy, labels, splice = method.split(" ")
        world = f"{policy} world {splice}"
        if labels != "base" or all(row.method != world for row in rows):
            continue
        pairs = [
            [(found.get((method, task, trace)), found.get((world, task, trace))) for trace in traces]
            for task in tasks
        ]
        out.append([policy, splice, *(" / ".join(_gain(*pair) for pair in of_task) for of_task in pairs)])
    return out


def _gain(base: Row | None, world: Row | None) -> str:
    if base is None or world is None:
        return "–"
    gain = 100 * (base.successes / base.episodes - world.successes / world.episodes)
    low, high = difference_interval(base.successes, base.episodes, world.successes, world.episodes)
    shown = f"{gain:+.0f}" if round(gain) else "0"
    return shown if low <= 0.0 <= high else f"**{shown}**"


def _success(rows: Sequence[Row], num_tasks: int) -> str:
    """Share over all episodes with its 95 % interval; a dash while a task is missing."""
    if len(rows) < num_tasks:
        return "–"
    episodes = sum(row.episodes for row in rows)
    successes = sum(row.successes for row in rows)
    low, high = wilson_interval(successes, episodes)
    return f"{successes / episodes:.0%} ({low:.0%}–{high:.0%})"


def _mean(rows: Sequence[Row], num_tasks: int, name: str, digits: int) -> str:
    figures = [row.figures.get(name) for row in rows]
    values = [figure.mean for figure in figures if figure is not None]
    return "–" if len(values) < num_tasks else f"{np.mean(values):.{digits}f}"


def _completion(rows: Sequence[Row], num_tasks: int) -> str:
    """Mean over tasks of the mean over episodes that succeeded."""
    values = [row.completion.mean for row in rows if row.completion]
    return "–" if len(values) < num_tasks else f"{np.mean(values):.1f}"


def points(line: Sequence[Row], tasks: Sequence[str]) -> dict[float, list[Row]]:
    """The rows at each delay [ms] at which all tasks have been run: a curve over some here and others there
    would show the tasks and not the delay."""
    delays = sorted({row.delay_ms for row in line if row.delay_ms is not None})
    at = {delay: [row for row in line if row.delay_ms == delay] for delay in delays}
    return {delay: rows for delay, rows in at.items() if {row.task for row in rows} == set(tasks)}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Two plots for each policy and its labels: success over delay, and how far the base is driven back."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    kinds: dict[str, list[Row]] = {}  # by policy and labels
    for row in sorted(rows, key=lambda row: _place(row.method)):
        kinds.setdefault(row.method.rsplit(" ", 1)[0], []).append(row)
    across = min(len(kinds), _MAX_ACROSS)
    down = -(-len(kinds) // across)
    figure, axes = plt.subplots(
        2 * down,
        across,
        figsize=(max(4.4, 2.9 * across), 4.8 * down + 0.6),
        sharex=True,
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    all_tasks = {row.task for row in rows}
    pairs = [(axes[2 * i, j], axes[2 * i + 1, j]) for i in range(down) for j in range(across)]
    for (kind, of_kind), pair in zip(kinds.items(), pairs, strict=False):
        _draw_kind(kind, of_kind, all_tasks, *pair)
    for axis in chain(*pairs[len(kinds) :]):
        axis.set_visible(False)
    for success, backtracking in zip(axes[::2, 0], axes[1::2, 0], strict=True):
        success.set_ylabel("success [%]")
        success.set_ylim(-4, 104)
        backtracking.set_ylabel("backtracking [m]")
    by_name = {name: h for a in axes.flat for h, name in zip(*a.get_legend_handles_labels(), strict=True)}
    ncols = min(across + 1, 3)
    figure.legend(
        by_name.values(), by_name, fontsize=8, loc="outside lower center", ncols=ncols, frameon=False
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _draw_kind(
    kind: str, rows: Sequence[Row], all_tasks: Collection[str], success_axis: Any, led_axis: Any
) -> None:
    """The splices of one policy with one sort of labels."""
    tasks = sorted({row.task for row in rows})
    which = "" if len(tasks) == len(all_tasks) else f"\n({', '.join(tasks)} alone)"
    success_axis.set_title(kind.replace(" ", ", ") + " labels" + which, fontsize=10)
    led_axis.set_xlabel("capture to answer [ms]")
    led_axis.tick_params(labelbottom=True)
    for splice, colour in COLOURS.items():
        at = points([row for row in rows if row.method == f"{kind} {splice}"], tasks)
        if not at:
            continue
        delays = list(at)
        success = [100 * sum(r.successes for r in rs) / sum(r.episodes for r in rs) for rs in at.values()]
        led = [float(np.mean([r.figures["led_backward_m"].mean for r in rs])) for rs in at.values()]
        success_axis.plot(delays, success, "o-", color=colour, label=splice, markersize=4)
        led_axis.plot(delays, led, "o-", color=colour, markersize=4)
    for axis in (success_axis, led_axis):
        axis.grid(alpha=0.3)
