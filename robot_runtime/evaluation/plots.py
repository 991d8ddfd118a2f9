"""Plots the results of an evaluation."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from robot_runtime.evaluation.result import EpisodeResult
from robot_runtime.evaluation.statistics import wilson_interval

RUNS, HELD = "#2a6f97", "#d1495b"


def plot_evaluation(results: list[EpisodeResult], *, title: str, path: Path) -> None:
    """Plot success with its interval, then the spread of every figure that differs between episodes."""
    figures = {}
    for key in sorted({key for result in results for key in {**result.score.metrics, **result.summary}}):
        values = np.array([{**r.score.metrics, **r.summary}.get(key, np.nan) for r in results])
        if np.nanmax(values) > np.nanmin(values):
            figures[key] = values
    num_columns = _num_columns(len(figures) + 1)
    num_rows = -(-(len(figures) + 1) // num_columns)
    fig, axes = plt.subplots(
        num_rows, num_columns, figsize=(3.4 * num_columns, 2.6 * num_rows), squeeze=False
    )
    fig.suptitle(title)
    _draw_success(axes.flat[0], results)
    has_success = any(result.score.has_success for result in results)
    succeeded = np.array([result.score.success or not has_success for result in results])
    for ax, (key, values) in zip(axes.flat[1:], figures.items(), strict=False):
        bins = np.linspace(np.nanmin(values), np.nanmax(values), 16)
        ax.hist([values[succeeded], values[~succeeded]], bins=bins, stacked=True, color=[RUNS, HELD])
        ax.set_title(key, fontsize=9)
    for ax in axes.flat[1 + len(figures) :]:
        ax.axis("off")
    if has_success:
        fig.text(0.99, 0.01, "blue: episodes that succeeded, red: that did not", ha="right", fontsize=8)
    fig.tight_layout()
    fig.savefig(path, dpi=110)
    plt.close(fig)


def _num_columns(num_axes: int) -> int:
    """The number of columns, at most five, that leaves the fewest cells empty; of several, the largest."""
    if num_axes <= 5:
        return num_axes
    return min((5, 4, 3), key=lambda columns: -num_axes % columns)


def _draw_success(ax: Axes, results: list[EpisodeResult]) -> None:
    if not any(result.score.has_success for result in results):
        ax.set_title("success: not reported", fontsize=9)
        ax.axis("off")
        return
    won = sum(result.score.success for result in results)
    low, high = wilson_interval(won, len(results))
    rate = won / len(results)
    ax.bar([0], [rate], color=RUNS, width=0.5)
    ax.errorbar([0], [rate], yerr=[[rate - low], [high - rate]], color="black", capsize=6)
    ax.set(ylim=(0, 1.05), xticks=[], title=f"success {won} of {len(results)}")
