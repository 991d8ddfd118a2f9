"""Images of the rooms through any lens, from any pose: `Painter`.

pinhole without distortion    rendered directly, with the lens's principal point
anything else                 sides of a cube are rendered, and every pixel is looked up on them
"""

from typing import final

import cv2
import mujoco
import numpy as np
import pinocchio as pin
from jaxtyping import Float, UInt8

from calibration.camera import CameraModel, Pinhole
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
            R = X_WC.rotation @ _SIDES[side]
            view = self._view(X_WC.translation, R, (-1.0, 1.0, -1.0, 1.0))
            seen = cv2.remap(view, at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
            inside = np.isfinite(at[..., 0])
            out[inside] = seen[inside]
        return out

    def _view(
        self, p: np.ndarray, R: np.ndarray, edges: tuple[float, float, float, float]
    ) -> UInt8[np.ndarray, "h w 3"]:
        """edges: left, right, top and bottom of the image on the plane z = 1, x right, y down."""
        left, right, top, bottom = (_NEAR * each for each in edges)
        for camera in self._scene.camera:
            camera.pos, camera.forward, camera.up = p, R[:, 2], -R[:, 1]
            camera.frustum_center = 0.5 * (left + right)
            camera.frustum_width = 0.5 * (right - left)
            camera.frustum_bottom, camera.frustum_top = -bottom, -top
            camera.frustum_near, camera.frustum_far = _NEAR, _FAR
        return self._pixels()


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
