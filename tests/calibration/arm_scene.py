"""Views of a board by a camera on an arm's hand, or beside it, with errors that are known."""

from dataclasses import replace

import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.camera import Pinhole
from calibration.chain import ArmView, arm_view, moved
from calibration.detection import Corners

CAMERA = Pinhole(size=(480, 640), fx=600.0, fy=602.0, cx=318.0, cy=241.0, k1=-0.05, k2=0.02)
BOARD = Board(columns=7, rows=5, square_m=0.03, marker_m=0.022)
X_EC = pin.SE3(pin.exp3(np.array([0.1, 0.2, 1.5])), np.array([0.06, -0.03, 0.05]))
X_AB = pin.SE3(pin.exp3(np.array([np.pi, 0.1, 0.0])), np.array([0.5, 0.1, 0.0]))


def views(
    seed: int,
    num: int,
    *,
    corner_px: float = 0.0,
    hand_m: float = 0.0,
    hand_rad: float = 0.0,
    axis: int | None = None,
    most_tilt: float = 0.7,
) -> list[ArmView]:
    """Of a camera on the hand that looks at a board which stands still.

    hand_m, hand_rad: by how much each coordinate of where the arm says its hand is errs.
    axis: of the hand, the only one about which it turns; None: it turns about all.
    """
    rng = np.random.default_rng(seed)
    out: list[ArmView] = []
    centre = X_AB.act(BOARD.centre_B)
    while len(out) < num:
        around, tilt, far = rng.uniform(0, 2 * np.pi), rng.uniform(0.2, most_tilt), rng.uniform(0.3, 0.5)
        p = centre + far * np.array(
            [np.sin(tilt) * np.cos(around), np.sin(tilt) * np.sin(around), np.cos(tilt)]
        )
        X_AC = _looking_at(p, centre + rng.normal(0.0, 0.02, 3), rng.uniform(-0.6, 0.6))
        if axis is not None:
            first = _looking_at(centre + np.array([0.1, 0.15, 0.4]), centre, 0.2) * X_EC.inverse()
            turn = rng.uniform(-0.3, 0.3) * np.eye(3)[axis]
            X_AC = pin.SE3(first.rotation @ pin.exp3(turn), first.translation + rng.normal(0, 0.02, 3)) * X_EC
        X_CB = X_AC.inverse() * X_AB
        uv = CAMERA.project(BOARD.corners_B @ X_CB.rotation.T + X_CB.translation)
        if not CAMERA.sees(uv, margin=5.0).all():
            continue
        corners = Corners(
            ids=np.arange(len(uv)), uv=uv + rng.normal(0.0, corner_px, uv.shape), size=CAMERA.size
        )
        error = np.concatenate([rng.normal(0.0, hand_m, 3), rng.normal(0.0, hand_rad, 3)])
        X_AE = moved(X_AC * X_EC.inverse(), error)
        out.append(arm_view(BOARD, corners, CAMERA, X_AE, name=f"{len(out):03d}.png"))
    return out


def beside(on_arm: list[ArmView]) -> list[ArmView]:
    """The same pictures of a camera that stands at X_EC in A, and of a board on the hand at X_AB in E."""
    return [replace(view, X_AE=view.X_AE.inverse()) for view in on_arm]


def _looking_at(p: np.ndarray, target: np.ndarray, roll: float) -> pin.SE3:
    z = (target - p) / np.linalg.norm(target - p)
    x = np.cross(z, [1.0, 0.0, 0.0])
    x /= np.linalg.norm(x)
    return pin.SE3(np.column_stack([x, np.cross(z, x), z]) @ pin.exp3(np.array([0.0, 0.0, roll])), p)
