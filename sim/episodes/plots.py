"""Plots of runs: the lifetime of every chunk."""

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
from robot_runtime.evaluation.plots import HELD, RUNS
from robot_runtime.evaluation.result import Episode
from robot_runtime.robot.telemetry import RunRecord

WAIT, UNUSED = "#f2b134", "#cfe1ec"


def plot_chunk_timelines(
    episodes: Mapping[str, Episode], *, dt_ns: int, horizon: int, path: Path, window_s: float = 6.0
) -> None:
    """Plot every chunk as a bar from the capture of its observation, above the commands sent."""
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
    labels = ["waiting for the answer", "rows that ran", "rows replaced or past", "robot held"]
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
    """Draw the joints that move most, or the commanded position of a mobile base."""
    commands = record.commands()
    t = (commands[:, 0] - commands[0, 0]) / NS_PER_S
    shown = t <= window_s
    bases = [tick.command.base for tick in record.ticks]
    base_xy = np.array([base.x_WB[:2] for base in bases if isinstance(base, BasePoseCommand)])
    if len(base_xy) == len(commands):
        lines, unit = {"base x": base_xy[shown, 0], "base y": base_xy[shown, 1]}, "m"
    else:
        joints = commands[shown, 1:7]  # the last joint only rotates the end effector
        most = np.argsort(-np.ptp(joints, axis=0))[:3]
        lines, unit = {f"joint {j + 1}": joints[:, j] for j in most}, "rad"
    for name, values in lines.items():
        ax.plot(t[shown], values - values[0], lw=1.2, label=name)
    _shade_holds(ax, record, window_s)
    for splice in record.splices:
        ax.axvline((splice.t_ns - commands[0, 0]) / NS_PER_S, color="black", lw=0.4, alpha=0.4)
    ax.set(xlim=(0, window_s), ylabel=f"command [{unit}]\nfrom the start")
    ax.legend(loc="upper left", fontsize=8, frameon=False, ncols=3)
