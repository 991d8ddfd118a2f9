"""Boards and cameras of the tests, and poses from which the one sees the other."""

import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.camera import CameraModel, KannalaBrandt, Pinhole
from calibration.detection import Corners

BOARD = Board(columns=9, rows=7, square_m=0.03, marker_m=0.021)
PINHOLE = Pinhole(size=(360, 480), fx=460.0, fy=461.0, cx=241.0, cy=178.0, k1=-0.1, k2=0.03)
FISHEYE = KannalaBrandt(size=(480, 480), fx=190.0, fy=190.0, cx=239.0, cy=240.5, k1=0.03, k2=-0.008)


def seen_from(
    camera: CameraModel,
    board: Board,
    rng: np.random.Generator,
    *,
    distance_m: float,
    tilt: float,
    places: tuple[float, float] = (0.35, 0.65),
) -> pin.SE3:
    """X_CB with the board's middle somewhere in the picture, tilted by an angle [rad] to any side.

    places: shares of the picture.
    """
    share = rng.uniform(*places, 2)
    ray = camera.unproject((share * camera.size[::-1])[None])[0]
    side = rng.uniform(-np.pi, np.pi)
    R_CV = pin.Quaternion.FromTwoVectors(np.array([0.0, 0.0, 1.0]), ray).matrix()
    turned = pin.exp3(np.array([0.0, 0.0, rng.uniform(-0.6, 0.6)]))
    R = R_CV @ turned @ pin.exp3(tilt * np.array([np.cos(side), np.sin(side), 0.0]))
    return pin.SE3(R, ray * distance_m - R @ board.centre_B)


def corners_from(
    camera: CameraModel, board: Board, X_CB: pin.SE3, rng: np.random.Generator, *, noise_px: float
) -> Corners:
    """What detection would find, without a picture."""
    uv = camera.project(board.corners_B @ X_CB.rotation.T + X_CB.translation)
    uv = uv + rng.normal(0.0, noise_px, uv.shape)
    keep = camera.sees(uv, margin=3)
    ids = np.arange(board.num_corners, dtype=np.int64)[keep]
    return Corners(ids=ids, uv=uv[keep], size=camera.size, num_markers=board.num_markers, blur_px=0.6)
