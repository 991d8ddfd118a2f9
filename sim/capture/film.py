"""For people to look at: a third-person video of performances, and a plot of labels against the truth."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pinocchio as pin
from jaxtyping import UInt8

from calibration.camera import Pinhole
from calibration.labels.values import Labels
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError
from sim.capture.camera_images import Painter
from sim.capture.performance import PERIOD_NS, Performance
from sim.capture.scene import build_scene, optical
from sim.scene.render import write_video
from sim.tasks import make_task

LENS = Pinhole(size=(480, 640), fx=470.0, fy=470.0, cx=319.5, cy=239.5)
_BEHIND_M, _ABOVE_M, _SLOW_S = 2.3, 2.35, 1.2


def film(
    performances: Sequence[Performance],
    path: Path,
    *,
    rate_hz: int = 25,
    speed: float = 1.0,
    inset: bool = True,
) -> None:
    """Write a video of performances, one after the other, seen from beside and above the person.

    inset: show the chest camera's view in a corner. speed: 2 plays twice as fast.
    InvalidValueError: they were not filmed, or are of several tasks.
    """
    write_video(path, frames(performances, rate_hz=rate_hz, speed=speed, inset=inset), rate_hz=rate_hz)


def frames(
    performances: Sequence[Performance], *, rate_hz: int = 25, speed: float = 1.0, inset: bool = True
) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
    """Draw the frames of `film`."""
    tasks = {each.task for each in performances}
    if len(tasks) != 1 or any(each.snapshots is None for each in performances):
        raise InvalidValueError(
            f"expected performances of one task, made with film=True; got tasks {sorted(tasks)}"
        )
    has_board = any(each.board is not None for each in performances)
    model = build_scene(make_task(tasks.pop()), has_board=has_board, prints=True)
    small = replace(LENS.resized((150, 200)), fx=105.0, fy=105.0)
    step = _step(rate_hz, speed)
    with Painter(model, LENS) as painter, Painter(model, small) as chest:
        for each in performances:
            assert each.snapshots is not None
            views = _views(each)
            for i in range(0, len(each.t_ns), step):
                snapshot = each.snapshots[i].astype(float)
                image = painter.draw(snapshot, views[i])
                if inset:
                    corner = chest.draw(snapshot, each.X_WC[i])
                    image[8:158, 432:632] = corner
                    image[6:8, 430:634] = image[158:160, 430:634] = 255
                    image[6:160, 430:432] = image[6:160, 632:634] = 255
                yield image


def num_frames(performances: Sequence[Performance], *, rate_hz: int = 25, speed: float = 1.0) -> int:
    """The number of images that `frames` yields."""
    return sum(-(-len(each.t_ns) // _step(rate_hz, speed)) for each in performances)


def _step(rate_hz: int, speed: float) -> int:
    """Rows of a performance per video frame."""
    return max(1, round(speed * 1e9 / rate_hz / PERIOD_NS))


def _views(performance: Performance) -> list[pin.SE3]:
    """Camera poses that follow slowly, to the left and behind, and look at the hand."""
    share = PERIOD_NS / 1e9 / _SLOW_S
    body, hand = performance.x_WG, performance.X_WE.p
    yaw = np.unwrap(body[:, 2])
    aim, heading, out = np.array([*body[0, :2], 0.9]), yaw[0], []
    for i in range(len(body)):
        wanted = 0.5 * np.array([*body[i, :2], 0.9]) + 0.5 * hand[i]
        aim = aim + share * (wanted - aim)
        heading += 0.5 * share * (yaw[i] - heading)
        side = heading + 2.4
        p = np.array([aim[0] + _BEHIND_M * np.cos(side), aim[1] + _BEHIND_M * np.sin(side), _ABOVE_M])
        out.append(optical(p, aim, up=(0.0, 0.0, 1.0)))
    return out


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
