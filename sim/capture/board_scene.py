"""Images of a board through any lens: every pixel's rays are traced to the board's plane.

The geometry is exact for pinholes and fisheyes alike (MuJoCo renders pinholes only), so that results of
detection and calibration can be compared with the true pose and camera.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.camera import CameraModel
from robot_runtime.core.values.shapes import UInt8

_TEXELS = 60
"""Texels along a square's side."""
_WALL, _PAPER, _INK = 90.0, 235.0, 15.0


@dataclass(frozen=True, kw_only=True)
class Look:
    """Imperfections of a real camera."""

    blur_px: float = 0.0
    """Standard deviation of lens blur [pixels]."""
    noise: float = 0.0
    """Standard deviation of pixel noise, of 255."""
    shade: float = 0.0
    """Share by which the light falls off from left to right."""
    supersample: int = 3
    """Rays per pixel along each side."""


CLEAN = Look()
NOISY = Look(blur_px=0.8, noise=4.0, shade=0.3)


def draw_board(
    board: Board,
    camera: CameraModel,
    X_CB: pin.SE3 | Sequence[pin.SE3],
    *,
    look: Look = CLEAN,
    rng: np.random.Generator | None = None,
) -> UInt8[np.ndarray, "h w"]:
    """Draw a grey image.

    X_CB: poses of the board while the shutter is open; several make motion blur.
    rng: for noise.
    """
    poses = [X_CB] if isinstance(X_CB, pin.SE3) else list(X_CB)
    light = np.mean([_seen(board, camera, look.supersample, pose) for pose in poses], axis=0)
    if look.shade:
        light *= 1.0 - look.shade * np.linspace(0.0, 1.0, camera.size[1])[None]
    if look.blur_px:
        light = cv2.GaussianBlur(light, (0, 0), look.blur_px)
    if look.noise:
        assert rng is not None, "noise needs a random generator"
        light = light + rng.normal(0.0, look.noise, light.shape)
    return np.asarray(np.clip(np.round(light), 0, 255), dtype=np.uint8)


def _paper(board: Board) -> tuple[np.ndarray, float]:
    """The sheet with a margin of one square, and the offset of the board's origin on it [texels]."""
    inner = board.picture(_TEXELS).astype(np.float32) * (_PAPER - _INK) / 255.0 + _INK
    sheet = cv2.copyMakeBorder(inner, *(_TEXELS,) * 4, cv2.BORDER_CONSTANT, value=_PAPER)
    return sheet, float(_TEXELS)


def _outline(board: Board, camera: CameraModel, X_CB: pin.SE3) -> tuple[int, int, int, int]:
    """Pixel bounds of the sheet: (left, right, top, bottom), half-open."""
    (w, h), m = board.size_m, board.square_m
    x, y = np.meshgrid(np.linspace(-m, w + m, 24), np.linspace(-m, h + m, 24))
    points = np.stack([x, y, np.zeros_like(x)], axis=-1).reshape(-1, 3)
    uv = camera.project(points @ X_CB.rotation.T + X_CB.translation)
    if not np.isfinite(uv).all():
        return 0, camera.size[1], 0, camera.size[0]
    low, high = np.floor(uv.min(axis=0)).astype(int) - 3, np.ceil(uv.max(axis=0)).astype(int) + 4
    (left, top), (right, bottom) = np.maximum(low, 0), np.minimum(high, camera.size[::-1])
    return int(left), int(max(left, right)), int(top), int(max(top, bottom))


def _seen(board: Board, camera: CameraModel, n: int, X_CB: pin.SE3) -> np.ndarray:
    """The light of each pixel, (h, w), of a perfect camera; n by n rays each."""
    light = np.full(camera.size, _WALL)
    left, right, top, bottom = _outline(board, camera, X_CB)
    if right <= left or bottom <= top:
        return light
    uv = np.stack(np.meshgrid(np.arange(left - 1, right + 1), np.arange(top - 1, bottom + 1)), axis=-1)
    coarse = camera.unproject(uv.reshape(-1, 2).astype(float)).reshape(uv.shape[0], uv.shape[1], 3)
    rays = cv2.resize(coarse, None, fx=n, fy=n, interpolation=cv2.INTER_LINEAR)[n:-n, n:-n]
    normal, p = X_CB.rotation[:, 2], X_CB.translation
    with np.errstate(divide="ignore", invalid="ignore"):
        far = (normal @ p) / (rays @ normal)
        hit = (rays * far[..., None] - p) @ X_CB.rotation[:, :2]
    paper, origin = _paper(board)
    texel = hit * (_TEXELS / board.square_m) + origin - 0.5
    texel[~((far > 0) & np.isfinite(texel).all(axis=-1))] = -1e4
    at = np.clip(texel, -1e4, 1e4).astype(np.float32)
    seen = cv2.remap(
        paper, at[..., 0], at[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_CONSTANT, borderValue=_WALL
    )
    size = (right - left, bottom - top)
    light[top:bottom, left:right] = cv2.resize(seen, size, interpolation=cv2.INTER_AREA)
    return light
