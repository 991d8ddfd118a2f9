"""Success over delay as plots; lines are named where they end."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from scripts.lab.methods import EXPERT
from scripts.lab.scores import Row
from scripts.lab.style import HUES, Style, darker, family

_GREY, _INK = "#dddddd", "#1d2b36"
_LEADER = {"arrowstyle": "-", "lw": 0.4, "color": "#999999", "relpos": (0.0, 0.5)}


def draw_success(rows: Sequence[Row], path: Path) -> None:
    """Success over delay alone."""
    style, tasks = Style([row.method for row in rows]), {row.task for row in rows}
    fig = plt.figure(figsize=(13, 0.9 + 2.3 * len(tasks)), layout="constrained")
    _draw_success(fig, rows, style)
    fig.savefig(path, dpi=110)
    plt.close(fig)


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


def _plain(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)
    ax.grid(axis="both", color="#eeeeee", lw=0.6)
    ax.set_axisbelow(True)
