"""Pictures of runs: how an evaluation went, and the life of every chunk."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from robot_runtime.core.safety import Mode
from robot_runtime.core.values.action import NS_PER_S, BasePoseCommand
from robot_runtime.robot.telemetry import RunRecord
from sim.episodes.evaluate import Episode, EpisodeResult
from sim.episodes.statistics import wilson_interval

WAIT, RUNS, UNUSED, HELD = "#f2b134", "#2a6f97", "#cfe1ec", "#d1495b"


def plot_evaluation(results: list[EpisodeResult], *, title: str, path: Path) -> None:
    """Success with its interval, then the spread of every figure that differs between episodes."""
    figures = {}
    for key in sorted({key for result in results for key in {**result.score.metrics, **result.summary}}):
        values = np.array([{**r.score.metrics, **r.summary}.get(key, np.nan) for r in results])
        if np.nanmax(values) > np.nanmin(values):
            figures[key] = values
    num_columns = 4
    num_rows = -(-(len(figures) + 1) // num_columns)
    fig, axes = plt.subplots(
        num_rows, num_columns, figsize=(3.4 * num_columns, 2.6 * num_rows), squeeze=False
    )
    fig.suptitle(title)
    won = sum(result.score.success for result in results)
    low, high = wilson_interval(won, len(results))
    rate = won / len(results)
    first = axes.flat[0]
    first.bar([0], [rate], color=RUNS, width=0.5)
    first.errorbar([0], [rate], yerr=[[rate - low], [high - rate]], color="black", capsize=6)
    first.set(ylim=(0, 1.05), xticks=[], title=f"success {won} of {len(results)}")
    succeeded = np.array([result.score.success for result in results])
    for ax, (key, values) in zip(axes.flat[1:], figures.items(), strict=False):
        bins = np.linspace(np.nanmin(values), np.nanmax(values), 16)
        ax.hist([values[succeeded], values[~succeeded]], bins=bins, stacked=True, color=[RUNS, HELD])
        ax.set_title(key, fontsize=9)
    for ax in axes.flat[1 + len(figures) :]:
        ax.axis("off")
    fig.text(0.99, 0.01, "blue: episodes that succeeded, red: that did not", ha="right", fontsize=8)
    fig.tight_layout()
    fig.savefig(path, dpi=110)
    plt.close(fig)


def plot_chunk_timelines(
    episodes: Mapping[str, Episode], *, dt_ns: int, horizon: int, path: Path, window_s: float = 6.0
) -> None:
    """Every chunk as a bar from the capture of its observation, above the commands it led to."""
    fig, axes = plt.subplots(
        2 * len(episodes),
        1,
        figsize=(11, 4.4 * len(episodes)),
        sharex=True,
        height_ratios=[3, 2] * len(episodes),
    )
    for i, (name, episode) in enumerate(episodes.items()):
        _draw_chunks(axes[2 * i], episode.record, dt_ns=dt_ns, horizon=horizon, window_s=window_s)
        axes[2 * i].set_title(name, loc="left", fontweight="bold")
        _draw_commands(axes[2 * i + 1], episode.record, window_s=window_s)
    axes[-1].set_xlabel("time since the start of the episode [s]")
    handles = [plt.Rectangle((0, 0), 1, 1, color=c) for c in (WAIT, RUNS, UNUSED, HELD)]
    labels = ["observed, answer under way", "rows that ran", "rows replaced or past", "robot held"]
    fig.legend(handles, labels, loc="lower center", ncols=4, frameon=False)
    fig.tight_layout(rect=(0, 0.04, 1, 1))
    fig.savefig(path, dpi=110)
    plt.close(fig)


def _draw_chunks(ax: Axes, record: RunRecord, *, dt_ns: int, horizon: int, window_s: float) -> None:
    start_ns = record.ticks[0].now_ns

    def seconds(t_ns: int) -> float:
        return (t_ns - start_ns) / NS_PER_S

    last_tick: dict[int, int] = {}
    for tick in record.ticks:
        if tick.source is not None and tick.mode is Mode.RUN:
            last_tick[tick.source.request_id] = tick.now_ns
    lane = 0
    for splice in record.splices:
        captured, arrived = seconds(splice.source.t_obs_ns), seconds(splice.t_ns)
        if captured > window_s:
            break
        planned_end = seconds(splice.t0_ns + horizon * dt_ns)
        ran_until = seconds(last_tick.get(splice.source.request_id, splice.t_ns))
        ax.barh(lane, planned_end - captured, left=captured, height=0.8, color=UNUSED)
        ax.barh(lane, arrived - captured, left=captured, height=0.8, color=WAIT)
        ax.barh(lane, max(0.0, ran_until - arrived), left=arrived, height=0.8, color=RUNS)
        lane += 1
    _shade_holds(ax, record, window_s)
    ax.set(xlim=(0, window_s), ylim=(lane - 0.4, -0.6), ylabel="chunk")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))


def _shade_holds(ax: Axes, record: RunRecord, window_s: float) -> None:
    ticks = list(record.ticks)
    start_ns, held_from = ticks[0].now_ns, None
    for tick in ticks:
        t = (tick.now_ns - start_ns) / NS_PER_S
        if tick.mode is not Mode.RUN and held_from is None:
            held_from = t
        if held_from is not None and (tick.mode is Mode.RUN or tick is ticks[-1]):
            ax.axvspan(held_from, t, color=HELD, alpha=0.25, lw=0)
            held_from = None
        if t > window_s:
            break


def _draw_commands(ax: Axes, record: RunRecord, *, window_s: float) -> None:
    """The joints that move most, or where a mobile base is led."""
    commands = record.commands()
    t = (commands[:, 0] - commands[0, 0]) / NS_PER_S
    shown = t <= window_s
    bases = [tick.command.base for tick in record.ticks]
    led = np.array([base.x_WB[:2] for base in bases if isinstance(base, BasePoseCommand)])
    if len(led) == len(commands):
        lines, unit = {"base x": led[shown, 0], "base y": led[shown, 1]}, "m"
    else:
        joints = commands[shown, 1:7]  # the last joint only turns the hand
        most = np.argsort(-np.ptp(joints, axis=0))[:3]
        lines, unit = {f"joint {j + 1}": joints[:, j] for j in most}, "rad"
    for name, values in lines.items():
        ax.plot(t[shown], values - values[0], lw=1.2, label=name)
    _shade_holds(ax, record, window_s)
    for splice in record.splices:
        ax.axvline((splice.t_ns - commands[0, 0]) / NS_PER_S, color="black", lw=0.4, alpha=0.4)
    ax.set(xlim=(0, window_s), ylabel=f"command [{unit}]\nfrom the start")
    ax.legend(loc="upper left", fontsize=8, frameon=False, ncols=3)
