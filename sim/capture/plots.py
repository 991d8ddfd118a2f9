"""Plots of labels against ground truth."""

from pathlib import Path

import numpy as np

from calibration.labels.values import Labels
from robot_runtime.core.values.action import NS_PER_S
from sim.capture.performance import Performance

_LABEL, _TRUE = "#3b7ea1", "#b0413e"


def plot_labels(labels: Labels, truth: Performance, path: Path) -> None:
    """Plot base and hand on the floor, in the labels' world, and hand height and gripper width over time.

    The truth is aligned with the labels at the first row, as their worlds differ.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    n = min(len(labels), int(truth.duration_s / labels.period_s))
    at = np.searchsorted(truth.t_ns, np.round(np.arange(n) * labels.period_s * NS_PER_S).astype(np.int64))
    t = np.arange(n) * labels.period_s
    base, hand = _aligned(truth.x_WG[at], labels.x_WG[0], truth.x_WG[0], truth.X_WE.p[at])
    figure, (floor, height, width) = plt.subplots(1, 3, figsize=(13, 4.2), constrained_layout=True)
    for p, colour, style, name in (
        (labels.x_WG[:n], _LABEL, "-", "base, labels"),
        (base, _TRUE, "--", "body, true"),
        (labels.X_WE.p[:n], _LABEL, ":", "hand, labels"),
        (hand, _TRUE, "-.", "hand, true"),
    ):
        floor.plot(p[:, 0], p[:, 1], style, color=colour, label=name, linewidth=1.4)
    floor.set(aspect="equal", xlabel="x [m]", ylabel="y [m]", title="on the floor")
    floor.legend(fontsize=8)
    height.plot(t, labels.X_WE.p[:n, 2], color=_LABEL, label="labels")
    height.plot(t, truth.X_WE.p[at][:, 2], "--", color=_TRUE, label="true")
    height.set(xlabel="time [s]", ylabel="height of the hand [m]", title="hand")
    height.legend(fontsize=8)
    width.plot(t, 1e3 * np.asarray(labels.width[:n]), color=_LABEL, label="measured")
    width.plot(t, 1e3 * truth.width[at], "--", color=_TRUE, label="true")
    width.set(xlabel="time [s]", ylabel="gripper width [mm]", title="gripper", ylim=(0, 90))
    width.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _aligned(
    x: np.ndarray, to: np.ndarray, of: np.ndarray, hand: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Positions on the floor, moved so that the pose `of` coincides with the pose `to`."""
    a = float(to[2] - of[2])
    turn = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
    return (x[:, :2] - of[:2]) @ turn.T + to[:2], (hand[:, :2] - of[:2]) @ turn.T + to[:2]
