"""Images of a recording through any lens, with motion blur, rolling shutter and noise.

pinhole without distortion    `Painter` renders directly, with the lens's principal point
anything else                 it renders sides of a cube, and looks up every pixel on them

drawn at     ┆   ┆   ┆   ┆   ┆        instants from the first row's opening to the last row's closing
row v        └── mean of those within its own exposure ──┘
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import final

import cv2
import mujoco
import numpy as np
import pinocchio as pin
from jaxtyping import Float, UInt8

from calibration.camera import CameraModel, Pinhole
from robot_runtime.errors import InvalidValueError
from sim.capture.cameras import STREAMS, Camera, Device
from sim.capture.performance import PERIOD_NS
from sim.capture.takes import Recording
from sim.scene.render import Offscreen

_NEAR, _FAR = 0.02, 30.0
_SIDES = tuple(
    np.array(R, dtype=float).T
    for R in (
        [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
        [[0, 0, -1], [0, 1, 0], [1, 0, 0]],
        [[0, 0, 1], [0, 1, 0], [-1, 0, 0]],
        [[1, 0, 0], [0, 0, -1], [0, 1, 0]],
        [[1, 0, 0], [0, 0, 1], [0, -1, 0]],
    )
)
"""R_CS of the views ahead, right, left, down and up; there is none backwards."""


@final
class Painter(Offscreen):
    """Draws snapshots of one model through one lens."""

    def __init__(self, model: mujoco.MjModel, lens: CameraModel, *, samples: int = 4) -> None:
        """samples: per pixel, for antialiasing."""
        self.lens, self._is_plain = lens, isinstance(lens, Pinhole) and not np.any(lens.distortion)
        if not self._is_plain:
            self._sides, self._maps = _look_up(lens)
        size = lens.size if self._is_plain else (_side_of(lens), _side_of(lens))
        super().__init__(model, size, samples=samples, most_geoms=1000)

    def draw(self, snapshot: Float[np.ndarray, " P"], X_WC: pin.SE3) -> UInt8[np.ndarray, "h w 3"]:
        """Draw a snapshot from an optical frame."""
        self._show(snapshot)
        if self._is_plain:
            lens = self.lens
            edges = (
                (-0.5 - lens.cx) / lens.fx,
                (lens.size[1] - 0.5 - lens.cx) / lens.fx,
                (-0.5 - lens.cy) / lens.fy,
                (lens.size[0] - 0.5 - lens.cy) / lens.fy,
            )
            return self._view(X_WC.translation, X_WC.rotation, edges)
        out = np.zeros((*self.lens.size, 3), dtype=np.uint8)
        for side, at in zip(self._sides, self._maps, strict=True):
            view = self._side(X_WC.translation, X_WC.rotation @ _SIDES[side], at)
            seen = cv2.remap(view, at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
            inside = np.isfinite(at[..., 0])
            out[inside] = seen[inside]
        return out

    def _side(self, p: np.ndarray, R: np.ndarray, at: np.ndarray) -> UInt8[np.ndarray, "n n 3"]:
        """Draw the part of a side that is looked up; the rest is black."""
        n = self.width
        low = np.maximum(np.floor(np.nanmin(at, axis=(0, 1))).astype(int) - 1, 0)
        high = np.minimum(np.ceil(np.nanmax(at, axis=(0, 1))).astype(int) + 2, n)
        (left, top), (right, bottom) = (2.0 * low / n - 1.0).tolist(), (2.0 * high / n - 1.0).tolist()
        view = np.zeros((n, n, 3), dtype=np.uint8)
        size = (int(high[1] - low[1]), int(high[0] - low[0]))
        view[low[1] : high[1], low[0] : high[0]] = self._view(p, R, (left, right, top, bottom), size)
        return view

    def _view(
        self,
        p: np.ndarray,
        R: np.ndarray,
        edges: tuple[float, float, float, float],
        size: tuple[int, int] | None = None,
    ) -> UInt8[np.ndarray, "h w 3"]:
        """edges: left, right, top and bottom of the image on the plane z = 1, x right, y down."""
        left, right, top, bottom = (_NEAR * each for each in edges)
        for camera in self._scene.camera:
            camera.pos, camera.forward, camera.up = p, R[:, 2], -R[:, 1]
            camera.frustum_center = 0.5 * (left + right)
            camera.frustum_width = 0.5 * (right - left)
            camera.frustum_bottom, camera.frustum_top = -bottom, -top
            camera.frustum_near, camera.frustum_far = _NEAR, _FAR
        return self._pixels(size)


def _side_of(lens: CameraModel) -> int:
    """Pixels along a side of the cube: as fine as the lens at the middle, where a side is coarsest."""
    return 2 * round(1.2 * max(lens.fx, lens.fy))


def _look_up(lens: CameraModel) -> tuple[list[int], list[np.ndarray]]:
    """The sides that are needed, and for each the position of every pixel in it; NaN: on another side."""
    height, width = lens.size
    uv = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1).reshape(-1, 2).astype(float)
    rays = lens.unproject(uv)
    along = np.stack([rays @ R[:, 2] for R in _SIDES], axis=1)
    side = np.where(np.isfinite(along).all(axis=1), np.nan_to_num(along, nan=-2.0).argmax(axis=1), -1)
    n, used, maps = _side_of(lens), [], []
    for k, R in enumerate(_SIDES):
        mine = side == k
        if mine.any():
            seen = rays[mine] @ R
            at = np.full((len(uv), 2), np.nan, dtype=np.float32)
            at[mine] = (seen[:, :2] / seen[:, 2:] + 1.0) * 0.5 * n - 0.5
            used.append(k)
            maps.append(at.reshape(height, width, 2))
    return used, maps


_EVERY_NS = 3_000_000
"""Approximate spacing of the instants of one image [ns]."""


def drawn(
    *models: mujoco.MjModel,
    seed: int,
    samples: int = 4,
    on_picture: Callable[[], None] = lambda: None,
) -> Callable[[Device, Recording], Iterator[UInt8[np.ndarray, "h w 3"]]]:
    """A renderer for `simulate_session(pictures=...)`, for takes made from filmed performances.

    models: `build_scene` of their task, with the board, without or both, as the takes have it. samples: as of
    `Painter`. on_picture: called after each image.
    """

    def pictures(device: Device, recording: Recording) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
        rng = np.random.default_rng([seed, STREAMS[device.role], 10])
        with ExitStack() as stack:
            painters = {
                model.nq + 7 * model.nmocap: stack.enter_context(
                    Painter(model, device.camera.lens, samples=samples)
                )
                for model in models
            }
            for t_ns in device.frames[device.kept].tolist():
                painter = painters[len(snapshot_at(recording, t_ns))]
                yield draw(painter, device, recording, t_ns, rng)
                on_picture()

    return pictures


def draw(
    painter: Painter, device: Device, recording: Recording, t_ns: int, rng: np.random.Generator
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw one image whose middle row is in mid-exposure at a true time."""
    camera = device.camera
    offsets, weights = shutter(camera)
    light = np.zeros((*camera.lens.size, 3), dtype=np.float32)
    for k, offset in enumerate(offsets.tolist()):
        at = int(np.clip(t_ns + offset, device.X_W.t_ns[0], device.X_W.t_ns[-1]))
        shown = snapshot_at(recording, at)
        if len(shown) != len(snapshot_at(recording, t_ns)):  # across the end of a take
            at, shown = t_ns, snapshot_at(recording, t_ns)
        view = painter.draw(shown, device.X_W.at(at))
        light += weights[:, k, None, None] * view
    if camera.pixel_noise:
        light += rng.normal(0.0, camera.pixel_noise, light.shape).astype(np.float32)
    return np.clip(np.rint(light), 0, 255).astype(np.uint8)


def shutter(camera: Camera) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, "h K"]]:
    """Instants to draw at, from mid-exposure of the middle row [ns], and their weights in every row."""
    height = camera.lens.size[0]
    span = camera.exposure_ns + camera.readout_ns
    count = max(1, round(span / _EVERY_NS))
    offsets = ((np.arange(count) + 0.5) / count - 0.5) * span
    rows = (np.arange(height) - 0.5 * (height - 1)) / height * camera.readout_ns
    width = span / count
    opens, closes = rows - 0.5 * camera.exposure_ns, rows + 0.5 * camera.exposure_ns
    inside = np.minimum(closes[:, None], offsets + 0.5 * width) - np.maximum(
        opens[:, None], offsets - 0.5 * width
    )
    weights = np.clip(inside, 0.0, None)
    return np.rint(offsets), (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def snapshot_at(recording: Recording, t_ns: int) -> Float[np.ndarray, " P"]:
    """The snapshot at a true time; InvalidValueError: it was not filmed."""
    span = min(recording.spans, key=lambda each: max(each.start_ns - t_ns, t_ns - each.stop_ns + 1))
    performance = recording.takes[span.take].performance
    if performance is None or performance.snapshots is None:
        raise InvalidValueError(
            f"take {span.take} ({span.kind}) was not filmed: images need performances made with film=True"
        )
    at = np.clip((t_ns - span.start_ns) / PERIOD_NS, 0.0, len(performance.snapshots) - 1)
    i = min(int(at), len(performance.snapshots) - 2)
    a, b = performance.snapshots[i].astype(float), performance.snapshots[i + 1].astype(float)
    return a + (at - i) * (b - a)
