"""The comparison as one page of plots; lines are named where they end."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from scripts.lab.methods import EXPERT
from scripts.lab.scores import Row, at_reference
from scripts.lab.style import HUES, Style, darker, family

_GREY, _INK = "#dddddd", "#1d2b36"
_LEADER = {"arrowstyle": "-", "lw": 0.4, "color": "#999999", "relpos": (0.0, 0.5)}


def draw_page(rows: Sequence[Row], path: Path, *, title: str) -> None:
    """Every part of the comparison that there are rows for, on one page."""
    style, tasks = Style([row.method for row in rows]), list(dict.fromkeys(row.task for row in rows))
    traces = [name for name in dict.fromkeys(row.trace for row in rows) if _is_named(rows, name)]
    reacting = [task for task in tasks if any(r.reaction and r.bound for r in at_reference(rows, task))]
    row_in, list_in = 2.3, 0.9 + 0.24 * len(style.methods)
    parts = [(_draw_success, 0.9 + row_in * len(tasks), True)]
    parts.append((_draw_reactions, list_in, bool(reacting)))
    parts.append((_draw_compute, (1.2 + 0.13 * len(style.methods)) * -(-len(tasks) // 2), True))
    parts.append((_draw_traces, 0.6 + list_in * len(tasks), bool(traces)))
    shown = [(draw, height) for draw, height, wanted in parts if wanted]
    fig = plt.figure(figsize=(13, sum(height for _, height in shown) + 0.5), layout="constrained")
    fig.suptitle(title, fontsize=13, color=_INK)
    subfigures = fig.subfigures(len(shown), 1, height_ratios=[height for _, height in shown], squeeze=False)
    for (draw, _), subfigure in zip(shown, subfigures.flat, strict=True):
        draw(subfigure, rows, style)
    fig.savefig(path, dpi=110)
    plt.close(fig)


def draw_success(rows: Sequence[Row], path: Path) -> None:
    """Success over delay alone."""
    style, tasks = Style([row.method for row in rows]), {row.task for row in rows}
    fig = plt.figure(figsize=(13, 0.9 + 2.3 * len(tasks)), layout="constrained")
    _draw_success(fig, rows, style)
    fig.savefig(path, dpi=110)
    plt.close(fig)


def _is_named(rows: Sequence[Row], trace: str) -> bool:
    return next(row for row in rows if row.trace == trace).delay_ms is None


def _draw_success(fig: Figure | SubFigure, rows: Sequence[Row], style: Style) -> None:
    """A row of panels per task, a panel per family; the other methods stay in the background."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    fig.suptitle("Success over delay, capture to answer (bars: 95 %, Wilson)", fontsize=11, x=0.01, ha="left")
    axes = fig.subplots(len(tasks), len(style.families), squeeze=False, sharex=True, sharey=True)
    last = max((row.delay_ms for row in rows if row.delay_ms is not None), default=0.0) or 1.0
    for task, line in zip(tasks, axes, strict=True):
        curves = {m: _over_delay(rows, task, m) for m in (*style.methods, EXPERT)}
        for name, ax in zip(style.families, line, strict=True):
            for method, curve in curves.items():
                if method != EXPERT and family(method) != name:
                    ax.plot(_delays(curve), [r.success for r in curve], color=_GREY, lw=0.8)
            members = [m for m in style.methods if family(m) == name]
            _draw_curves(ax, {m: curves[m] for m in members if curves[m]}, curves[EXPERT], style, last=last)
            if ax in axes[0]:
                ax.set_title(name, fontsize=10, color=HUES[name])
            if ax in axes[-1]:
                ax.set_xlabel("delay [ms]", fontsize=9)
        line[0].set_ylabel(f"{task}\nsuccess", fontsize=9)


def _over_delay(rows: Sequence[Row], task: str, method: str) -> list[Row]:
    found = [r for r in rows if (r.task, r.method) == (task, method) and r.delay_ms is not None]
    return sorted(found, key=lambda r: r.delay_ms or 0.0)


def _delays(curve: list[Row]) -> np.ndarray:
    return np.array([row.delay_ms for row in curve], dtype=float)


def _draw_curves(
    ax: Axes, curves: dict[str, list[Row]], expert: list[Row], style: Style, *, last: float
) -> None:
    """last: the longest delay of all panels [ms]; labels stand to its right."""
    if expert:
        ax.plot(_delays(expert), [r.success for r in expert], color="black", ls="--", lw=1.2)
    ends: list[tuple[str, float]] = []
    for i, (method, curve) in enumerate(curves.items()):
        x = _delays(curve) + 0.012 * last * (i - (len(curves) - 1) / 2)
        y = np.array([r.success for r in curve])
        low, high = np.array([r.success_interval for r in curve]).T
        colour = style.colour(method)
        ax.plot(x, y, color=colour, marker=style.marker(method), ms=4.5, lw=1.6)
        ax.vlines(x, low, high, color=colour, lw=0.9)
        ends.append((method, float(y[-1])))
    if expert and len(ends) < 7:
        ends.append((EXPERT, expert[-1].success))
    for method, y_text, y_point in _spread(ends, 0.105):
        ax.annotate(
            method,
            (last * 1.02, y_point),
            (last * 1.07, y_text),
            fontsize=7.5,
            va="center",
            color=darker(style.colour(method)),
            arrowprops=_LEADER,
            annotation_clip=False,
        )
    ax.set(ylim=(-0.04, 1.06), xlim=(-0.05 * last, last * 1.75), yticks=[0, 0.5, 1.0])
    ax.set_xticks([0.0, last / 2, last])
    _plain(ax)


def _spread(ends: list[tuple[str, float]], gap: float) -> list[tuple[str, float, float]]:
    """(name, height of its label, height of its point): labels in order of their points, `gap` apart."""
    ordered = sorted(ends, key=lambda end: end[1])
    heights = [y for _, y in ordered]
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + gap)
    over = max(0.0, heights[-1] - 1.03) if heights else 0.0
    for i in range(len(heights) - 1, -1, -1):
        top = heights[i] - over if i == len(heights) - 1 else min(heights[i], heights[i + 1] - gap)
        heights[i] = top
    return [(name, height, y) for (name, y), height in zip(ordered, heights, strict=True)]


def _draw_reactions(fig: Figure | SubFigure, rows: Sequence[Row], style: Style) -> None:
    tasks = [t for t in dict.fromkeys(r.task for r in rows) if any(r.reaction for r in at_reference(rows, t))]
    fig.suptitle(
        "Reaction to what could not be foreseen. Bar: U(TTFA, TTFA + interval), its mean the notch; "
        "dot: measured mean, tick: 95th percentile",
        fontsize=11, x=0.01, ha="left",
    )  # fmt: skip
    axes = fig.subplots(1, len(tasks), squeeze=False)[0]
    for ax, task in zip(axes, tasks, strict=True):
        found = {row.method: row for row in at_reference(rows, task)}
        for y, method in enumerate(style.methods):
            row = found.get(method)
            if row is None or row.reaction is None or row.bound is None:
                continue
            bound, measured, colour = row.bound, row.reaction, style.colour(method)
            ax.barh(y, bound.worst_s - bound.best_s, left=bound.best_s, height=0.55, color=_GREY)
            ax.plot([bound.mean_s] * 2, [y - 0.28, y + 0.28], color="#888888", lw=1.5)
            half = (row.reaction_mean.half_width if row.reaction_mean else None) or 0.0
            ax.errorbar(measured.mean_s, y, xerr=half, color=colour, marker=style.marker(method), ms=5, lw=1)
            ax.plot(measured.p95_s, y, marker="|", ms=9, color=colour)
        ax.set_title(f"{task}, {next(iter(found.values())).trace}", fontsize=10)
        _name_rows(ax, style, with_names=ax is axes[0])
        ax.set_xlabel("event to command [s]", fontsize=9)
        ax.set_xlim(left=0.0)


def _draw_compute(fig: Figure | SubFigure, rows: Sequence[Row], style: Style) -> None:
    tasks = list(dict.fromkeys(row.task for row in rows))
    fig.suptitle("Success for what it costs", fontsize=11, x=0.01, ha="left")
    axes = fig.subplots(-(-len(tasks) // 2), min(2, len(tasks)), squeeze=False)
    for ax in axes.flat[len(tasks) :]:
        ax.axis("off")
    for ax, task in zip(axes.flat, tasks, strict=False):
        found = [row for row in at_reference(rows, task) if row.method != EXPERT]
        counted = any(_mean(row, "evaluations_per_s") > 0.0 for row in found)
        name = "evaluations_per_s" if counted else "requests_per_s"
        costs = [x for x in (_mean(row, name) for row in found) if x > 0.0] or [1.0]
        left, right = min(costs), max(costs)
        points = {row.method: (max(_mean(row, name), left), row) for row in found}
        for method, (x, row) in points.items():
            low, high = row.success_interval
            colour = style.colour(method)
            ax.plot(x, row.success, color=colour, marker=style.marker(method), ms=6)
            ax.vlines(x, low, high, color=colour, lw=0.8)
        gap = min(0.055, 1.05 / max(len(points), 1))
        for method, y_text, y in _spread([(m, row.success) for m, (_, row) in points.items()], gap):
            ax.annotate(
                method,
                (points[method][0], y),
                (right * 1.4, y_text),
                fontsize=7.5,
                va="center",
                color=darker(style.colour(method)),
                arrowprops=_LEADER,
            )
        ax.set(xscale="log", xlim=(left / 1.5, right * (right / left) ** 0.6 * 4.0), ylim=(-0.04, 1.06))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter("")
        what = "network calls" if counted else "requests"
        ax.set_xlabel(f"{what} per second of robot time", fontsize=9)
        if found:
            ax.set_title(f"{task}, {found[0].trace}", fontsize=10)
        _plain(ax)
    fig.axes[0].set_ylabel("success", fontsize=9)


def _draw_traces(fig: Figure | SubFigure, rows: Sequence[Row], style: Style) -> None:
    tasks = list(dict.fromkeys(row.task for row in rows))
    traces = [name for name in dict.fromkeys(row.trace for row in rows) if _is_named(rows, name)]
    fig.suptitle("Success when the delay varies (bars: 95 %, Wilson)", fontsize=11, x=0.01, ha="left")
    axes = fig.subplots(len(tasks), len(traces), squeeze=False, sharex=True)
    for task, line in zip(tasks, axes, strict=True):
        for trace, ax in zip(traces, line, strict=True):
            found = {row.method: row for row in rows if (row.task, row.trace) == (task, trace)}
            if EXPERT in found:
                ax.axvline(found[EXPERT].success, color="black", ls="--", lw=1)
            for y, method in enumerate(style.methods):
                if (row := found.get(method)) is not None:
                    low, high = row.success_interval
                    ax.plot([low, high], [y, y], color=style.colour(method), lw=1.2)
                    ax.plot(row.success, y, color=style.colour(method), marker=style.marker(method), ms=5)
            _name_rows(ax, style, with_names=ax is line[0])
            ax.set(xlim=(-0.03, 1.03), xticks=[0, 0.5, 1])
            ax.set_title(f"{task}, {trace}", fontsize=10)
            if ax in axes[-1]:
                ax.set_xlabel("success", fontsize=9)


def _name_rows(ax: Axes, style: Style, *, with_names: bool) -> None:
    names = style.methods if with_names else [""] * len(style.methods)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    for label, method in zip(ax.get_yticklabels(), style.methods, strict=True):
        label.set_color(darker(style.colour(method)))
    ax.set_ylim(len(style.methods) - 0.4, -0.6)
    _plain(ax)


def _plain(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)
    ax.grid(axis="both", color="#eeeeee", lw=0.6)
    ax.set_axisbelow(True)


def _mean(row: Row, name: str) -> float:
    value = row.figures.get(name)
    return 0.0 if value is None else value.mean
