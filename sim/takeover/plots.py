"""Plots of an episode with takeovers: authority, the policy's commands, and those sent."""

from collections.abc import Callable, Mapping
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.command import Command, GripperCommand, JointCommand
from robot_runtime.evaluation.result import Episode

COLOURS = {
    Authority.POLICY: "#2f6fbb",
    Authority.HUMAN: "#8d3fbf",
    Authority.HOLD: "#9a6700",
    Authority.SCRIPTED: "#0f766e",
    Authority.SAFETY: "#d92d2d",
}
"""Colours of the run page (`robot_runtime/page/static/page.css`)."""
_PART = "arm"


def plot_takeover(episodes: Mapping[str, Episode], path: Path) -> None:
    """Plot for each episode a band of authority, the gripper width, and the elbow angle."""
    fig, axes = plt.subplots(
        3 * len(episodes),
        1,
        figsize=(11, 4.2 * len(episodes)),
        height_ratios=[1, 3, 3] * len(episodes),
        sharex=True,
    )
    for i, (name, episode) in enumerate(episodes.items()):
        band, gripper, elbow = axes[3 * i : 3 * i + 3]
        ticks = list(episode.record.ticks)
        times = np.array([tick.now_ns for tick in ticks]) / NS_PER_S
        _draw_band(band, times, ticks)
        band.set_title(name, loc="left", fontweight="bold")
        _draw(gripper, times, ticks, _width, "gripper width [m]")
        _draw(elbow, times, ticks, _elbow, "arm.joint_4 [rad]")
    axes[-1].set_xlabel("time since the start of the episode [s]")
    handles: list[Artist] = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in COLOURS.values()]
    handles += [
        plt.Line2D([], [], color="#1d2b36"),
        plt.Line2D([], [], color=COLOURS[Authority.POLICY], ls=":"),
    ]
    labels = [*(who.value for who in COLOURS), "commanded", "by the policy"]
    fig.legend(handles, labels, loc="lower center", ncols=7, frameon=False)
    fig.tight_layout(rect=(0, 0.04, 1, 1))
    fig.savefig(path, dpi=110)
    plt.close(fig)


def _draw_band(ax: Axes, times: np.ndarray, ticks: list[Tick]) -> None:
    """Draw who moved the arm, and the phase of the handover."""
    rows = [(tick.authority[_PART], tick.phase_of[_PART]) for tick in ticks]
    starts = [i for i, row in enumerate(rows) if i == 0 or rows[i - 1] != row]
    for start, end in zip(starts, [*starts[1:], len(rows) - 1], strict=True):
        who, phase = rows[start]
        lasts = times[end] - times[start]
        ax.barh(0, lasts, left=times[start], height=1.0, color=COLOURS[who])
        if phase is not HandoverPhase.NONE and lasts > 1.0:
            middle = times[start] + 0.5 * lasts
            ax.text(middle, 0, phase.value, ha="center", va="center", fontsize=7, color="white")
    ax.set_yticks([])
    ax.set_ylim(-0.5, 0.5)
    for spine in ax.spines.values():
        spine.set_visible(False)


def _draw(
    ax: Axes, times: np.ndarray, ticks: list[Tick], number_of: Callable[[Command], float], label: str
) -> None:
    sent = np.array([number_of(tick.command) for tick in ticks])
    planned = np.array([np.nan if t.policy_command is None else number_of(t.policy_command) for t in ticks])
    ax.plot(times, sent, color="#1d2b36", lw=1.4)
    ax.plot(times, planned, color=COLOURS[Authority.POLICY], lw=1.2, ls=":")
    is_human = np.array([Authority.HUMAN in tick.authority.values() for tick in ticks])
    ax.fill_between(
        times,
        0,
        1,
        where=is_human,
        transform=ax.get_xaxis_transform(),
        color=COLOURS[Authority.HUMAN],
        alpha=0.15,
    )
    ax.set_ylabel(label)
    ax.grid(alpha=0.2)


def _width(command: Command) -> float:
    gripper = command.parts.get("gripper")
    return gripper.width if isinstance(gripper, GripperCommand) else float("nan")


def _elbow(command: Command) -> float:
    arm = command.arm
    return float(arm.q[3]) if isinstance(arm, JointCommand) else float("nan")
