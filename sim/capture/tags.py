"""Fiducial tags of the hand-held gripper: a cube behind it for the chest camera, two on the fingers.

Frame T of a tag is the board's: x to its right, y down as it is read, z into it. Corners in the order of
OpenCV's detector: top left, top right, bottom right, bottom left.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pinocchio as pin
from jaxtyping import Float

DICTIONARY = "4X4_50"
CUBE_EDGE_M, CUBE_TAG_M = 0.06, 0.048
CUBE_P_E = (0.0, 0.0, -0.19)
"""The cube's centre in E: behind the gripper, on its axis [m]."""
FINGER_TAG_M = 0.016
FINGER_P_E = (0.0, 0.012, -0.035)
"""Position in E, at width 0, of the tag on the finger towards +y [m]."""
_FACES = {10: (1, 0, 0), 11: (-1, 0, 0), 12: (0, 1, 0), 13: (0, -1, 0), 14: (0, 0, -1)}
"""Number -> outward normal in E."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tag:
    """A tag that is fixed in E."""

    number: int
    size_m: float
    X_ET: pin.SE3

    @property
    def corners_E(self) -> Float[np.ndarray, "4 3"]:
        return self.corners_T @ self.X_ET.rotation.T + self.X_ET.translation

    @property
    def corners_T(self) -> Float[np.ndarray, "4 3"]:
        return 0.5 * self.size_m * np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], dtype=float)

    def to_dict(self) -> dict[str, Any]:
        """Number, side [m], and pose in E (x y z qw qx qy qz)."""
        q = pin.Quaternion(self.X_ET.rotation).coeffs()[[3, 0, 1, 2]]
        X_ET = [float(number) for number in (*self.X_ET.translation, *q)]
        return {"tag": self.number, "size_m": self.size_m, "X_ET": X_ET}


def cube() -> tuple[Tag, ...]:
    """Tags of the five visible faces."""
    tags = []
    for number, normal in _FACES.items():
        z = -np.array(normal, dtype=float)
        x = np.cross([0.0, 0.0, 1.0], z) if abs(z[2]) < 0.5 else np.array([1.0, 0.0, 0.0])
        R = np.column_stack([x, np.cross(z, x), z])
        p = np.array(CUBE_P_E) - 0.5 * CUBE_EDGE_M * z
        tags.append(Tag(number=number, size_m=CUBE_TAG_M, X_ET=pin.SE3(R, p)))
    return tuple(tags)


def finger_corners_E(width: Float[np.ndarray, " N"], *, side: int) -> Float[np.ndarray, "N 4 3"]:
    """Corners of one finger's tag at N widths; side: 0 for the finger towards +y, 1 for the other.

    The tags look back along -z of E, towards the wrist camera.
    """
    sign = 1.0 if side == 0 else -1.0
    flat = Tag(number=side, size_m=FINGER_TAG_M, X_ET=pin.SE3.Identity()).corners_T
    middle = np.zeros((len(width), 3))
    middle[:, 0], middle[:, 2] = FINGER_P_E[0], FINGER_P_E[2]
    middle[:, 1] = sign * (FINGER_P_E[1] + 0.5 * width)
    return middle[:, None, :] + flat


def described() -> Mapping[str, Any]:
    """The data sheet of the gripper's tags, as captures store it under `tags`."""
    return {
        "dictionary": DICTIONARY,
        "cube": [tag.to_dict() for tag in cube()],
        "fingers": {"tags": [0, 1], "size_m": FINGER_TAG_M, "apart_closed_m": 2.0 * FINGER_P_E[1]},
    }
