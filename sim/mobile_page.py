"""The mobile comparison as a table and a plot: success, how far the base is led back, how long it takes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sim.lab_scores import Row
from sim.mobile_lab import LABELS, NETWORKS
from sim.statistics import wilson_interval

BEGIN = "<!-- mobile: begin, written by robot-runtime mobile -->"
END = "<!-- mobile: end -->"
_COLOURS = {
    "naive": "#b0413e",
    "time-aligned": "#d98c3f",
    "state-matching": "#3b7ea1",
    "state-matching-faded": "#7fb8d6",
    "state-matching-untimed": "#8e7cc3",
    "pipelined-prefix": "#2d6a4f",
}


def averages(rows: Sequence[Row]) -> list[list[str]]:
    """A line for every way of running that all tasks have been run with, a column for every delay, over all
    tasks; head first."""
    traces = _by_delay(rows)
    tasks = sorted({row.task for row in rows})
    led = [f"led back at {trace} [m]" for trace in traces]
    done = [f"done at {trace} [s]" for trace in traces]
    out = [["policy", "labels", "splice", *traces, *led, *done]]
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
    return NETWORKS.index(network), LABELS.index(labels), list(_COLOURS).index(splice)


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


def markdown(rows: Sequence[Row]) -> str:
    """The tables, as `sim/README.md` has them."""
    commands = "\n".join(dict.fromkeys(row.command for row in rows))
    parts = [f"```bash\n{commands}\n```", "All tasks:", _table(averages(rows))]
    for task in sorted({row.task for row in rows}):
        parts += [f"`{task}`:", _table(by_task(rows, task))]
    return "\n\n".join(parts) + "\n"


def _table(lines: Sequence[Sequence[str]]) -> str:
    head, *body = lines
    out = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in out)


def points(line: Sequence[Row], tasks: Sequence[str]) -> dict[float, list[Row]]:
    """The rows at each delay [ms] at which all tasks have been run: a curve over some here and others there
    would show the tasks and not the delay."""
    delays = sorted({row.delay_ms for row in line if row.delay_ms is not None})
    at = {delay: [row for row in line if row.delay_ms == delay] for delay in delays}
    return {delay: rows for delay, rows in at.items() if {row.task for row in rows} == set(tasks)}


def draw(rows: Sequence[Row], path: Path) -> None:
    """A column for each policy and its labels: success over delay, and how far the base is led back."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    kinds = list(dict.fromkeys(method.rsplit(" ", 1)[0] for method in _methods(rows)))
    all_tasks = {row.task for row in rows}
    figure, axes = plt.subplots(
        2, len(kinds), figsize=(max(4.4, 2.9 * len(kinds)), 5.4), sharex=True, sharey="row", squeeze=False
    )
    for j, kind in enumerate(kinds):
        tasks = sorted({row.task for row in rows if row.method.startswith(f"{kind} ")})
        which = "" if len(tasks) == len(all_tasks) else f"\n({', '.join(tasks)} alone)"
        axes[0, j].set_title(kind.replace(" ", ", ") + " labels" + which, fontsize=10)
        axes[1, j].set_xlabel("capture to answer [ms]")
        for splice, colour in _COLOURS.items():
            at = points([row for row in rows if row.method == f"{kind} {splice}"], tasks)
            if not at:
                continue
            delays = list(at)
            success = [100 * sum(r.successes for r in rs) / sum(r.episodes for r in rs) for rs in at.values()]
            led = [float(np.mean([r.figures["led_backward_m"].mean for r in rs])) for rs in at.values()]
            axes[0, j].plot(delays, success, "o-", color=colour, label=splice, markersize=4)
            axes[1, j].plot(delays, led, "o-", color=colour, markersize=4)
        for axis in axes[:, j]:
            axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("success [%]")
    axes[0, 0].set_ylim(-4, 104)
    axes[1, 0].set_ylabel("base led back [m]")
    by_name = {name: h for axis in axes[0] for h, name in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.tight_layout(rect=(0.0, 0.1, 1.0, 1.0))
    figure.legend(by_name.values(), by_name, fontsize=8, loc="lower center", ncols=2, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
