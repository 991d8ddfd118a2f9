"""What a detector configured for one board finds on another: `misread`."""

from functools import cache

import cv2
import numpy as np
from jaxtyping import Float, Int64

from calibration.board import Board

_PIXELS = 60


@cache
def misread(printed: Board, claimed: Board) -> tuple[Int64[np.ndarray, " K"], Float[np.ndarray, "K 3"]]:
    """Corner ids that are detected, and their true positions on the printed board (K, 3) [m].

    Found by the real detector on an image of the print; for the right board these are its own corners.
    """
    if (printed.columns, printed.rows, printed.legacy) == (claimed.columns, claimed.rows, claimed.legacy):
        return np.arange(printed.num_corners), printed.corners_B
    picture = printed.picture(_PIXELS)
    margin = 40
    paper = cv2.copyMakeBorder(picture, margin, margin, margin, margin, cv2.BORDER_CONSTANT, value=255)
    uv, ids, _, _ = cv2.aruco.CharucoDetector(claimed.charuco).detectBoard(paper)
    if ids is None:
        return np.zeros(0, dtype=np.int64), np.zeros((0, 3))
    p = (uv.reshape(-1, 2) - margin) / _PIXELS * printed.square_m
    return ids.ravel().astype(np.int64), np.column_stack([p, np.zeros(len(p))])
