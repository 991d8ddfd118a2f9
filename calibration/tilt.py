"""Tilt of a board against the image plane: `tilt_of`; and against the line of sight, before the lens is
known: `rough_tilt`.

A board that is parallel to the image looks the same for a longer focal length and from farther away,
wherever in the image it is; so it is the angle to the optical axis that counts, not to the line of sight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.board_pose import pose_of
from calibration.camera import CameraModel, KannalaBrandt, Pinhole
from calibration.detection import Corners
from robot_runtime.errors import InvalidValueError

Side = Literal["upper", "right", "lower", "left"]
"""An edge of the board, as it appears in the image."""
SIDES: tuple[Side, ...] = ("upper", "right", "lower", "left")
TILTED = float(np.deg2rad(20.0))
"""Least tilt of a view that determines the board's distance, and so the focal length [rad]."""
USUAL_FOCALS = {"pinhole": 0.87, "fisheye": 0.35}
"""Focal lengths of usual lenses, in widths of the image."""


@final
@dataclass(frozen=True, kw_only=True)
class Tilt:
    """Tilt of the board in one view."""

    angle: float
    """Angle between its normal and the line of sight; 0 is frontal [rad]."""
    nearer: Side
    """The edge that is nearer to the camera than the one across."""

    @property
    def is_enough(self) -> bool:
        """Whether the view counts as tilted."""
        return self.angle > TILTED


def num_tilted(tilts: Sequence[Tilt]) -> int:
    """Number of views that are tilted enough."""
    return sum(tilt.is_enough for tilt in tilts)


def by_side(tilts: Sequence[Tilt]) -> Mapping[Side, int]:
    """Number of views tilted enough to each side."""
    return {side: num_tilted([tilt for tilt in tilts if tilt.nearer == side]) for side in SIDES}


def tilt_of(X_CB: pin.SE3) -> float:
    """Angle between the board's normal, of either sign, and the optical axis, 0 to pi / 2 [rad]."""
    return float(np.arccos(np.clip(abs(X_CB.rotation[2, 2]), 0.0, 1.0)))


def rough_tilt(board: Board, corners: Corners, model: str = "pinhole") -> Tilt:
    """Tilt by a typical lens, accurate to some degrees.

    model: pinhole, for 60 degrees, or fisheye, for 160. What no such lens could see counts as frontal.
    """
    try:
        pose = pose_of(board, corners, _usual_lens(model, corners.size))
    except InvalidValueError:
        return Tilt(angle=0.0, nearer="upper")
    R, middle = pose.X_CB.rotation, pose.X_CB.act(board.corners_B[corners.ids].mean(axis=0))
    sight, normal = middle / np.linalg.norm(middle), R[:, 2]
    nearer = (sight @ normal) * normal - sight  # along the board, to where it is nearest
    x, y, _ = nearer - (nearer @ sight) * sight
    side: Side = ("right" if x > 0 else "left") if abs(x) > abs(y) else ("lower" if y > 0 else "upper")
    return Tilt(angle=pose.tilt, nearer=side)


def _usual_lens(model: str, size: tuple[int, int]) -> CameraModel:
    kind, (height, width) = KannalaBrandt if model == "fisheye" else Pinhole, size
    focal = USUAL_FOCALS[model] * width
    return kind(size=size, fx=focal, fy=focal, cx=(width - 1) / 2, cy=(height - 1) / 2)
