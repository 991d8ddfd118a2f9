"""Replays labels on the simulated robot, for review before training: `film_labels`.

The robot is posed by the labels, row by row: no physics, nothing is grasped. Balls mark the glimpses of the
capture, a line of dots the end effector's path; labels that are out of reach are red.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image as PilImage
from PIL import ImageDraw, ImageFont

from robot_runtime.errors import InvalidValueError
from sim.capture.things import in_words
from sim.scene.model import MAX_WIDTH
from sim.scene.render import Offscreen, write_video
from sim.tasks.fetch import Fetch

SIZE = (480, 640)
RATE_HZ = 20
_COLOURS = ((0.90, 0.30, 0.20), (0.20, 0.50, 0.90), (0.25, 0.70, 0.35), (0.85, 0.65, 0.15), (0.6, 0.35, 0.75))
_DOT_M, _THING_M = 0.008, 0.03


@dataclass(frozen=True, kw_only=True, eq=False)
class Shown:
    """Labels on the simulated robot, N rows."""

    x_WB: Float[np.ndarray, "N 3"]
    q: Float[np.ndarray, "N 7"]
    width: Float[np.ndarray, " N"]
    p_WE: Float[np.ndarray, "N 3"]
    """End-effector position of the labels."""
    reached: np.ndarray
    """(N,) bool: whether the arm reaches it."""
    things: Mapping[str, Float[np.ndarray, "N 3"]]
    """Positions in W by name."""
    caption: str = ""

    def __post_init__(self) -> None:
        n = len(self.x_WB)
        if self.q.shape != (n, 7) or len(self.width) != n or len(self.p_WE) != n or len(self.reached) != n:
            raise InvalidValueError(f"expected {n} rows of q, width, p_WE and reached, as of x_WB")


class _Bare(Fetch):
    """The robot alone, without the objects of `fetch`."""

    def add_objects(self, spec: mujoco.MjSpec) -> None:
        return


def film_labels(shown: Shown, path: Path, *, rate_hz: int = RATE_HZ) -> None:
    """Write a video in real time. RenderingUnavailableError: this machine cannot render."""
    write_video(path, frames(shown), rate_hz=rate_hz)


def frames(shown: Shown) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
    """Draw the frames of `film_labels`."""
    from sim.scene.model import build_model

    model = build_model(_Bare())
    is_wall = (model.geom_bodyid == 0) & (model.geom_type == mujoco.mjtGeom.mjGEOM_BOX)
    model.geom_rgba[is_wall, 3] = 0.0  # the capture's rooms are others
    snapshots = _snapshots(model, shown)
    with _Onlooker(model) as onlooker:
        for k, snapshot in enumerate(snapshots):
            pixels = onlooker.draw(snapshot, shown, k)
            yield _captioned(pixels, shown, k)


def _snapshots(model: mujoco.MjModel, shown: Shown) -> Float[np.ndarray, "N P"]:
    """Snapshots of base, arm and fingers."""
    data = mujoco.MjData(model)
    base = [model.joint(name).qposadr[0] for name in ("base_x", "base_y", "base_yaw")]
    arm = [model.joint(f"fr3_joint{i}").qposadr[0] for i in range(1, 8)]
    fingers = [model.joint(f"finger_joint{i}").qposadr[0] for i in (1, 2)]
    out = []
    for k in range(len(shown.x_WB)):
        data.qpos[base], data.qpos[arm] = shown.x_WB[k], shown.q[k]
        data.qpos[fingers] = 0.5 * min(float(shown.width[k]), MAX_WIDTH)
        mocap = np.hstack([data.mocap_pos, data.mocap_quat])
        out.append(np.concatenate([data.qpos, mocap.ravel()]))
    return np.array(out)


class _Onlooker(Offscreen):
    """A camera that follows the robot slowly from the side."""

    def __init__(self, model: mujoco.MjModel) -> None:
        super().__init__(model, SIZE, samples=model.vis.quality.offsamples, most_geoms=4000)
        self._camera.distance, self._camera.elevation = 3.0, -28.0
        self._aim: np.ndarray | None = None
        self._heading = 0.0

    def draw(self, snapshot: np.ndarray, shown: Shown, k: int) -> np.ndarray:
        aim = 0.5 * np.array([*shown.x_WB[k, :2], 0.7]) + 0.5 * shown.p_WE[k]
        if self._aim is None:
            self._aim, self._heading = aim, float(shown.x_WB[k, 2])
        self._aim = self._aim + 0.05 * (aim - self._aim)
        self._heading += 0.02 * (float(shown.x_WB[k, 2]) - self._heading)
        self._camera.lookat[:] = self._aim
        self._camera.azimuth = np.rad2deg(self._heading) + 130.0
        self._show(snapshot)
        self._mark(shown, k)
        return self._pixels()

    def _mark(self, shown: Shown, k: int) -> None:
        """Draw dots along the end effector's path, balls for things, and the current label larger."""
        for i in range(0, len(shown.p_WE), 4):
            past = i <= k
            colour = (0.15, 0.45, 0.85) if shown.reached[i] else (0.85, 0.15, 0.15)
            self._ball(shown.p_WE[i], _DOT_M, (*colour, 0.9 if past else 0.35))
        now = (0.1, 0.7, 0.2) if shown.reached[k] else (0.95, 0.1, 0.1)
        self._ball(shown.p_WE[k], 0.02, (*now, 0.9))
        for number, p in enumerate(shown.things.values()):
            if np.isfinite(p[k]).all():
                self._ball(p[k], _THING_M, (*_COLOURS[number % len(_COLOURS)], 0.85))

    def _ball(self, p: np.ndarray, radius: float, rgba: tuple[float, ...]) -> None:
        if self._scene.ngeom >= self._scene.maxgeom:
            return
        mujoco.mjv_initGeom(
            self._scene.geoms[self._scene.ngeom],
            mujoco.mjtGeom.mjGEOM_SPHERE,
            np.full(3, radius),
            np.asarray(p, dtype=float),
            np.eye(3).ravel(),
            np.array(rgba, dtype=np.float32),
        )
        self._scene.ngeom += 1


def _captioned(pixels: np.ndarray, shown: Shown, k: int) -> np.ndarray:
    image = PilImage.fromarray(pixels)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(14)
    word = "" if shown.reached[k] else "   OUT OF REACH"
    seconds = k / RATE_HZ
    draw.text(
        (10, 8), f"{shown.caption}   {seconds:4.1f} s{word}", fill="black" if not word else "red", font=font
    )
    for number, name in enumerate(shown.things):
        colour = tuple(round(255 * c) for c in _COLOURS[number % len(_COLOURS)])
        draw.text((10, 28 + 16 * number), in_words(name), fill=colour, font=ImageFont.load_default(12))
    return np.asarray(image)
