"""A third-person video of performances."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pinocchio as pin
from jaxtyping import UInt8

from calibration.camera import Pinhole
from robot_runtime.errors import InvalidValueError
from sim.capture.painter import Painter
from sim.capture.performance import PERIOD_NS, Performance
from sim.capture.prints import add_prints
from sim.capture.rig import BOARD
from sim.capture.scene import build_scene
from sim.capture.walks import looking
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
    edges = BOARD.size_m
    model = build_scene(
        make_task(tasks.pop()),
        board_half=(edges[0] / 2, edges[1] / 2) if has_board else None,
        decorate=lambda spec: add_prints(spec, BOARD if has_board else None),
    )
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
        out.append(pin.SE3(looking(aim - p), p))
    return out
