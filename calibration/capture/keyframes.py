"""Keyframes of a video: its sharpest images, with their features and the board's corners.

    motion    .01 .02 .03 | .01 .04 .02 | .00 .00     a stretch ends when the image has moved far enough;
    blur      .50 .48 .51 | .55 .60 .52 | .40 .41     its sharpest image is a keyframe
    keyframe       ^                 ^

Blur is a share and not a contrast, so that one threshold fits rooms of much and of little texture.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np

from calibration.board import Board
from calibration.camera import CameraModel
from calibration.capture.raw import Device
from calibration.detection import detect
from robot_runtime.core.values.shapes import Float

Progress = Callable[[str, int, int], object]
"""(what is done, steps done, all steps)."""
_OFF_AXIS = np.deg2rad(80.0)
"""Angle to the optical axis beyond which features are not used."""
_LEAST_CONTRAST = 0.5
"""Mean difference of neighbouring pixels that an image needs for its blur to be judged [grey levels]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Motion:
    """What was measured in each of a video's N images."""

    step: Float[np.ndarray, " N"]
    """Motion since the image before, as a share of the width."""
    blur: Float[np.ndarray, " N"]
    """0 sharp to 1 blurred (Crete et al. 2007)."""


@dataclass(kw_only=True, eq=False)
class Keyframe:
    """An image that maps are made of."""

    role: str
    index: int
    """Of the image in the video."""
    corner_ids: np.ndarray
    """(C,) numbers of the board's corners: the first C rows of `uv`."""
    uv: np.ndarray
    """(C + F, 2) corners of the board, then features [pixels, centres at integers]."""
    descriptors: np.ndarray
    """(F, 128) float32 of unit length, those of the largest features first."""
    square_px: float
    """Side of the board's squares in the image [pixels]; 0: not seen."""
    most_inliers: int = 0
    """Verified matches with the keyframe that it shares most with."""

    @property
    def num_corners(self) -> int:
        return len(self.corner_ids)


def grey_of(rgb: np.ndarray) -> np.ndarray:
    return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY))


def motion_of(device: Device, progress: Progress) -> Motion:
    """Measure how far every image moved and how blurred it is, on images of some 320 pixels width."""
    steps, blurs, before = [], [], None
    for index, _, rgb in device.pictures():
        grey = grey_of(rgb)
        blurs.append(blur_of(grey))
        small = cv2.resize(
            grey, (320, round(320 * grey.shape[0] / grey.shape[1])), interpolation=cv2.INTER_AREA
        )
        steps.append(0.0 if before is None else _moved(before, small) / 320)
        before = small
        progress(f"motion of {device.role}", index + 1, len(device.frames))
    return Motion(step=np.array(steps), blur=np.array(blurs))


def _moved(before: np.ndarray, after: np.ndarray) -> float:
    """Median motion between two small images [pixels]; a tenth of the width where nothing can be tracked."""
    points = cv2.goodFeaturesToTrack(before, 80, 0.01, 8)
    if points is None:
        return 0.0
    start = points.reshape(-1, 2)
    there, ok = tracked(before, after, start, window=15)
    if ok.sum() < 0.3 * len(points):
        return 0.1 * before.shape[1]
    return float(np.median(np.linalg.norm((there - start)[ok], axis=1)))


def tracked(
    before: np.ndarray, after: np.ndarray, uv: np.ndarray, *, window: int
) -> tuple[np.ndarray, np.ndarray]:
    """Where points of an image are in the next one (Lucas-Kanade), and whether they were found."""
    start = np.ascontiguousarray(uv, dtype=np.float32)[:, None]
    flow: Any = cv2.calcOpticalFlowPyrLK
    there, ok, _ = flow(before, after, start, None, winSize=(window, window), maxLevel=4)
    return there[:, 0].astype(float), ok.ravel() == 1


def blur_of(grey: np.ndarray) -> float:
    """Blur of an image, 0 sharp to 1: how little of the contrast between neighbours another blur of 9 pixels
    takes away (Crete et al. 2007), in the worse direction and after a blur of 1 pixel against noise.
    0 where there is hardly any contrast: nothing is blurred there."""
    image = cv2.GaussianBlur(grey, (0, 0), 1.0).astype(np.float32)
    out = []
    for axis, size in ((0, (1, 9)), (1, (9, 1))):
        sharp = np.abs(np.diff(image, axis=axis))
        blurred = np.abs(np.diff(cv2.blur(image, size), axis=axis))
        total = float(sharp.sum())
        has_contrast = total > _LEAST_CONTRAST * sharp.size
        out.append(1.0 - float(np.maximum(sharp - blurred, 0.0).sum()) / total if has_contrast else 0.0)
    return max(out)


def keyframes_of(motion: Motion, *, step: float, every: int) -> list[int]:
    """Indices of the sharpest image of each stretch.

    step: motion at which a stretch ends, as a share of the width. every: most images in one.
    """
    out, first, moved = [], 0, 0.0
    for i, by in enumerate(motion.step.tolist()):
        moved += by
        if moved >= step or i - first + 1 >= every or i == len(motion.step) - 1:
            out.append(first + int(np.argmin(motion.blur[first : i + 1])))
            first, moved = i + 1, 0.0
    return out


def extracted(
    device: Device,
    camera: CameraModel,
    indices: Sequence[int],
    board: Board,
    progress: Progress,
    *,
    num_features: int,
) -> list[Keyframe]:
    """Find features and the board in keyframes."""
    sift = cv2.SIFT.create(num_features, contrastThreshold=0.02, enable_precise_upscale=True)
    wanted, out = set(indices), []
    for index, _, rgb in device.pictures():
        if index not in wanted:
            continue
        grey = grey_of(rgb)
        points, descriptors = sift.detectAndCompute(grey, None)
        uv = np.array([point.pt for point in points]).reshape(-1, 2)
        usable = np.flatnonzero(_is_usable(camera, uv))
        usable = usable[np.argsort([-points[i].size for i in usable], kind="stable")][:num_features]
        rows = np.zeros((0, 128)) if descriptors is None else descriptors[usable]
        rows = np.sqrt(rows / np.maximum(rows.sum(axis=1, keepdims=True), 1e-9))  # RootSIFT
        corners = detect(board, grey)
        kept = _is_usable(camera, corners.uv)
        corners = corners.only(kept)
        out.append(
            Keyframe(
                role=device.role,
                index=index,
                corner_ids=corners.ids,
                uv=np.concatenate([corners.uv, uv[usable]]),
                descriptors=rows.astype(np.float32),
                square_px=_square_px(board, corners.ids, corners.uv),
            )
        )
        progress(f"features of {device.role}", len(out), len(indices))
    return out


def _is_usable(camera: CameraModel, uv: np.ndarray) -> np.ndarray:
    if not len(uv):
        return np.zeros(0, dtype=bool)
    rays = camera.unproject(uv)
    return np.asarray(np.nan_to_num(rays[:, 2], nan=-1.0) > np.cos(_OFF_AXIS))


def _square_px(board: Board, ids: np.ndarray, uv: np.ndarray) -> float:
    """Median distance of neighbouring corners in a row; 0 without any."""
    at = {int(number): p for number, p in zip(ids, uv, strict=True)}
    row = board.columns - 1
    sides = [np.linalg.norm(at[n + 1] - at[n]) for n in at if n + 1 in at and (n + 1) % row]
    return float(np.median(sides)) if sides else 0.0
