"""Pictures of the rooms through any lens, from anywhere: `Painter`.

pinhole without distortion    drawn at once, its middle where the lens has it
anything else                 the six sides of a cube are drawn, and every pixel is looked up on them
"""

from types import TracebackType
from typing import Self

import cv2
import mujoco
import numpy as np
import pinocchio as pin
from jaxtyping import Float, UInt8

from calibration.camera import CameraModel, Pinhole
from sim.scene.render import make_context
from sim.scene.world import show_snapshot

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
"""R_CS of views ahead, right, left, down and up; nothing is seen behind."""


class Painter:
    """Draws snapshots of one model through one lens; belongs to the thread that made it."""

    def __init__(self, model: mujoco.MjModel, lens: CameraModel, *, samples: int = 4) -> None:
        """samples: of a pixel, against stairs at edges."""
        self.lens, self._model, self._data = lens, model, mujoco.MjData(model)
        self._is_plain = isinstance(lens, Pinhole) and not np.any(lens.distortion)
        height, width = lens.size
        if self._is_plain:
            self._height, self._width = height, width
        else:
            self._sides, self._maps = _look_up(lens)
            self._height = self._width = _side_of(lens)
        self._gl = make_context(self._width, self._height)
        kept = model.vis.quality.offsamples, model.vis.global_.offwidth, model.vis.global_.offheight
        model.vis.quality.offsamples = samples
        model.vis.global_.offwidth, model.vis.global_.offheight = self._width, self._height
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        model.vis.quality.offsamples, model.vis.global_.offwidth, model.vis.global_.offheight = kept
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(model, maxgeom=1000)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
        self._options, self._free = mujoco.MjvOption(), mujoco.MjvCamera()
        self._is_closed = False

    def draw(self, snapshot: Float[np.ndarray, " P"], X_WC: pin.SE3) -> UInt8[np.ndarray, "h w 3"]:
        """What is seen from an optical frame."""
        show_snapshot(self._model, self._data, snapshot)
        mujoco.mjv_updateScene(
            self._model,
            self._data,
            self._options,
            None,
            self._free,
            mujoco.mjtCatBit.mjCAT_ALL,
            self._scene,
        )
        self._gl.make_current()
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
            R = X_WC.rotation @ _SIDES[side]
            view = self._view(X_WC.translation, R, (-1.0, 1.0, -1.0, 1.0))
            seen = cv2.remap(view, at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
            inside = np.isfinite(at[..., 0])
            out[inside] = seen[inside]
        return out

    def _view(
        self, p: np.ndarray, R: np.ndarray, edges: tuple[float, float, float, float]
    ) -> UInt8[np.ndarray, "h w 3"]:
        """edges: left, right, top and bottom of the picture on the plane z = 1, x right, y down."""
        left, right, top, bottom = (_NEAR * each for each in edges)
        for camera in self._scene.camera:
            camera.pos, camera.forward, camera.up = p, R[:, 2], -R[:, 1]
            camera.frustum_center = 0.5 * (left + right)
            camera.frustum_width = 0.5 * (right - left)
            camera.frustum_bottom, camera.frustum_top = -bottom, -top
            camera.frustum_near, camera.frustum_far = _NEAR, _FAR
        viewport = mujoco.MjrRect(0, 0, self._width, self._height)
        mujoco.mjr_render(viewport, self._scene, self._context)
        pixels = np.empty((self._height, self._width, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(pixels, None, viewport, self._context)
        return np.ascontiguousarray(pixels[::-1])

    def close(self) -> None:
        """Free the OpenGL context; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._gl.make_current()
        self._context.free()
        self._gl.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _side_of(lens: CameraModel) -> int:
    """Pixels along a side of the cube: as fine as the lens in its middle, where sides are coarsest."""
    return 2 * round(1.2 * max(lens.fx, lens.fy))


def _look_up(lens: CameraModel) -> tuple[list[int], list[np.ndarray]]:
    """Sides that are needed, and for each where in it every pixel lies; NaN: on another side."""
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
