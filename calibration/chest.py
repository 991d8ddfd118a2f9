"""The chest camera in the robot's base, and how to mount it to match the wearer's view.

    from_base_motion   the base drives and turns before a stationary board: X_WG (odometry), AX = XB
    from_hand          the robot's end effector holds the board: as a camera beside an arm
    from_places        the board lies at positions measured in the base

G: the base on the floor (x forward, z up). C: the camera. B: the board. W: the odometry's frame, on the
floor.

A base on the floor turns about the vertical alone: if camera and board are both higher or lower by the same,
no image changes. So the board's height above the floor must be measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, final

import numpy as np
import pinocchio as pin

from calibration.camera import CameraModel
from calibration.chain import ArmView, Chain, ChainFit, mean_pose
from calibration.chain_verdict import GOOD_PX, MOST_PX, WORST_PX, board_scale, intrinsics_off, refuse_few
from calibration.hand_eye import RobotWorld, relative
from calibration.store import pose_from_json, pose_to_json
from calibration.verdict import Reason, Verdict
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

HEIGHT_SIGMA_M = 0.002
"""Standard deviation of a person's measurement of a board's height above the floor [m]."""
TURNED_DEG, DRIVEN_M = 10.0, 0.1
"""Least standard deviations of the base's heading and position over the views."""
FLAT_DEG = 2.0
"""Largest tilt of a board that is declared flat on the floor."""
MOST_SIGMA_M, MOST_SIGMA_DEG = 0.01, 0.7
ENOUGH_VIEWS = 8
MATCH_M, MATCH_DEG = 0.02, 2.0
"""Tolerances between the robot's camera and the wearer's."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ChestCamera:
    """Mounting pose of a camera on a mobile base."""

    KIND: ClassVar[str] = "chest_camera"
    VERSION: ClassVar[int] = 1
    UNITS: ClassVar[Mapping[str, str]] = {
        "covariance": "of position [m] and a rotation vector [rad] in G, about the camera's own place"
    }
    FRAMES: ClassVar[Mapping[str, str]] = {
        "X_GC": "camera C (optical: x right, y down, z forward) in the base G on the floor (x forward, z up)"
    }

    X_GC: pin.SE3
    covariance: Float[np.ndarray, "6 6"]
    source: str
    """Method of calibration, for people."""
    num_views: int
    residuals: Mapping[str, float] = field(default_factory=dict)
    camera: Mapping[str, Any] | None = None
    """The intrinsics that were used, as `CameraModel.to_dict`; None: the file is older than this field."""
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def mount(self) -> "Mount":
        return Mount.of(self.X_GC)

    def to_dict(self) -> dict[str, Any]:
        return {
            "X_GC": pose_to_json(self.X_GC),
            "covariance": self.covariance.tolist(),
            "source": self.source,
            "num_views": self.num_views,
            "residuals": dict(self.residuals),
            "camera": None if self.camera is None else dict(self.camera),
            "verdict": self.verdict.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            X_GC=pose_from_json(data["X_GC"]),
            covariance=np.array(data["covariance"], dtype=float),
            source=str(data["source"]),
            num_views=int(data["num_views"]),
            residuals=data["residuals"],
            camera=data.get("camera"),
            verdict=Verdict.from_dict(data["verdict"]),
        )


@dataclass(frozen=True, kw_only=True)
class Mount:
    """Height and orientation of a camera above the floor, independent of heading."""

    height_m: float
    pitch: float
    """Pitch of its optical axis, downwards [rad]."""
    roll: float
    """Roll, positive with its right side lower than its left [rad]."""

    @classmethod
    def of(cls, X_WC: pin.SE3, *, floor_z: float = 0.0) -> "Mount":
        """Mount of a camera pose in a world with z up."""
        right, _, forward = X_WC.rotation.T
        return cls(
            height_m=float(X_WC.translation[2] - floor_z),
            pitch=float(np.arcsin(np.clip(-forward[2], -1.0, 1.0))),
            roll=float(np.arcsin(np.clip(-right[2], -1.0, 1.0))),
        )

    @classmethod
    def of_wearer(cls, poses: Sequence[pin.SE3], *, floor_z: float) -> "Mount":
        """Median mount of an upright person's camera; poses: X_WC."""
        if not poses:
            raise InvalidValueError("the wearer's camera has no poses: nothing to match")
        each = [cls.of(X, floor_z=floor_z) for X in poses]
        return cls(
            height_m=float(np.median([mount.height_m for mount in each])),
            pitch=float(np.median([mount.pitch for mount in each])),
            roll=float(np.median([mount.roll for mount in each])),
        )


def advice(robot: Mount, wearer: Mount) -> list[str]:
    """Sentences on how to move the robot's camera to match the wearer's; empty if it does."""
    out = []
    up = wearer.height_m - robot.height_m
    if abs(up) > MATCH_M:
        out.append(
            f"move it {'up' if up > 0 else 'down'} by {100 * abs(up):.1f} cm, to {wearer.height_m:.3f} m "
            "over "
            "the floor (no image can be turned to another height)"
        )
    down = np.rad2deg(wearer.pitch - robot.pitch)
    if abs(down) > MATCH_DEG:
        out.append(
            f"tilt it {'down' if down > 0 else 'up'} by {abs(down):.1f} degrees, to "
            f"{np.rad2deg(wearer.pitch):.1f} "
            f"degrees below the horizon; or turn its images by a virtual pitch of {down:+.1f} degrees"
        )
    roll = np.rad2deg(wearer.roll - robot.roll)
    if abs(roll) > MATCH_DEG:
        out.append(f"roll it by {abs(roll):.1f} degrees, its {'right' if roll > 0 else 'left'} side lower")
    return out


def from_base_motion(
    X_WG: Sequence[pin.SE3],
    views: Sequence[ArmView],
    camera: CameraModel,
    *,
    board_height_m: float,
    lies_flat: bool = False,
) -> ChestCamera:
    """Solve from images of a stationary board while the base drives and turns.

    X_WG: pose of the base at each view, by odometry; `ArmView.X_AE` is ignored.
    board_height_m: of the middle of the corners above the floor [m]. lies_flat: the board is on the floor.
    InvalidValueError: fewer than 3 views, ambiguous boards, or the base did not turn, or did not drive.
    """
    placed = [replace(view, X_AE=X) for view, X in zip(views, X_WG, strict=True)]
    refuse_few(placed)
    held = np.zeros((12, 1))
    held[[2, 8], 0] = np.sqrt(0.5)  # camera and board higher by the same
    chain = Chain(placed, camera, is_on_arm=True, held=held)
    sure = [i for i, view in enumerate(placed) if not view.is_ambiguous]
    X, Z = _planar([chain.Y[i] for i in sure], [placed[i].X_CB for i in sure])
    X, Z = _planar(chain.Y, chain.with_boards(X, Z))
    fit = chain.fit(X, Z)
    middle = np.mean([view.p_B.mean(axis=0) for view in placed], axis=0)
    dz = board_height_m - float(fit.Z.act(middle)[2])
    X_GC = pin.SE3(fit.X.rotation, fit.X.translation + np.array([0.0, 0.0, dz]))
    covariance = fit.covariance[:6, :6].copy()
    covariance[2, 2] += HEIGHT_SIGMA_M**2
    tilt = float(np.rad2deg(np.arccos(np.clip(abs(fit.Z.rotation[2, 2]), 0.0, 1.0))))
    turned, driven = _motion([placed[i].X_AE for i in fit.used])
    reasons = _judge(fit, covariance)
    if turned < TURNED_DEG or driven < DRIVEN_M:
        reasons.append(
            Reason(
                name="little-motion",
                what=f"the base turned by {turned:.0f} degrees and drove {driven:.2f} m only (standard "
                "deviation; "
                f"{TURNED_DEG:g} degrees and {DRIVEN_M:g} m are needed).",
                do="Turn to both sides by 20 degrees and more, and stand nearer, farther and to the sides.",
            )
        )
    if lies_flat and tilt > FLAT_DEG:
        reasons.append(
            Reason(
                name="board-not-flat",
                what=f"the board is tilted by {tilt:.1f} degrees against the floor that the base drives on.",
                do="Lay it flat; check that the floor is level and the base does not tilt when braking.",
            )
        )
    return ChestCamera(
        X_GC=X_GC,
        covariance=covariance,
        source="motion of the base before a board; height by the board's, which was measured",
        num_views=len(fit.used),
        residuals=_residuals(fit) | {"turned_deg": turned, "driven_m": driven, "board_tilt_deg": tilt},
        camera=camera.to_dict(),
        verdict=Verdict.of(reasons),
    )


def from_hand(found: RobotWorld) -> ChestCamera:
    """Solve from the robot's end effector that held the board (`solve_robot_world`, the arm's poses in G)."""
    return ChestCamera(
        X_GC=found.X_AC,
        covariance=found.covariance,
        source="board on the robot's hand",
        num_views=found.num_views,
        residuals=found.residuals,
        camera=found.camera,
        verdict=found.verdict,
    )


def from_places(X_GB: Sequence[pin.SE3], views: Sequence[ArmView], camera: CameraModel) -> ChestCamera:
    """Solve from boards at poses measured in the base; one pose seen often is enough.

    X_GB: of the board at each view; `ArmView.X_AE` is ignored.
    InvalidValueError: no views, or only ambiguous ones.
    """
    placed = [replace(view, X_AE=X.inverse()) for view, X in zip(views, X_GB, strict=True)]
    sure = [i for i, view in enumerate(placed) if not view.is_ambiguous]
    if not sure:
        raise InvalidValueError(
            f"none of {len(placed)} images determines the board's tilt: lay it so that it is seen from "
            "the side, by 25 to 50 degrees, and from near"
        )
    chain = Chain(placed, camera, is_on_arm=True, held=np.eye(12)[:, 6:])
    X_GC = mean_pose([X_GB[i] * placed[i].X_CB.inverse() for i in sure])
    fit = chain.fit(X_GC, pin.SE3.Identity())
    return ChestCamera(
        X_GC=fit.X,
        covariance=fit.covariance[:6, :6],
        source="boards at measured places",
        num_views=len(fit.used),
        residuals=_residuals(fit),
        camera=camera.to_dict(),
        verdict=Verdict.of(_judge(fit, fit.covariance[:6, :6], enough=3)),
    )


def _planar(Y: Sequence[pin.SE3], X_CB: Sequence[pin.SE3]) -> tuple[pin.SE3, pin.SE3]:
    """Closed form of AX = XB whose A turn about the vertical alone; heights are arbitrary.

    The axis of all B is the vertical in C, which gives roll and pitch; heading and position on the floor are
    linear.
    """
    pairs = [(A, B) for A, B in relative(Y, X_CB) if abs(_yaw(A)) > np.deg2rad(2.0)]
    if not pairs:
        raise InvalidValueError(
            "the base did not turn between the views: the camera's roll and pitch are undetermined"
        )
    axis = np.sum([np.sign(_yaw(A)) * pin.log3(B.rotation) for A, B in pairs], axis=0)
    vertical_C = axis / np.linalg.norm(axis)
    R_0 = pin.Quaternion.FromTwoVectors(vertical_C, np.array([0.0, 0.0, 1.0])).matrix()
    M, v = [], []
    for A, B in relative(Y, X_CB):
        x, y, _ = R_0 @ B.translation
        M.append(np.hstack([(A.rotation - np.eye(3))[:2, :2], -np.array([[x, -y], [y, x]])]))
        v.append(-A.translation[:2])
    stacked = np.concatenate(M)
    size = np.linalg.svd(stacked, compute_uv=False)
    if size[-1] < 1e-3 * size[0] or np.abs(np.concatenate(v)).max() < 0.02:
        raise InvalidValueError(
            "the base did not drive between the views, it only turned: the camera's heading is "
            "undetermined; move it nearer, farther and to the sides"
        )
    px, py, c, s = np.linalg.lstsq(stacked, np.concatenate(v), rcond=None)[0]
    R = pin.utils.rotate("z", float(np.arctan2(s, c))) @ R_0
    X = pin.SE3(R, np.array([px, py, 0.0]))
    return X, mean_pose([Y_i * X * C_i for Y_i, C_i in zip(Y, X_CB, strict=True)])


def _yaw(A: pin.SE3) -> float:
    return float(np.arctan2(A.rotation[1, 0], A.rotation[0, 0]))


def _motion(X_WG: Sequence[pin.SE3]) -> tuple[float, float]:
    """Standard deviations of heading [degrees] and position [m]."""
    first = X_WG[0]
    turned = np.std([_yaw(first.inverse() * X) for X in X_WG])
    driven = np.sqrt(np.var([X.translation for X in X_WG], axis=0).sum())
    return float(np.rad2deg(turned)), float(driven)


def _residuals(fit: ChainFit) -> dict[str, float]:
    found = {
        "rms_px": fit.rms_px,
        "held_out_px": fit.held_out_px,
        "repeat_mm": 1e3 * fit.repeat_m,
        "repeat_deg": float(np.rad2deg(fit.repeat_rad)),
        "corner_px": fit.corner_px,
        "base_mm": 1e3 * fit.hand_m,
        "base_deg": float(np.rad2deg(fit.hand_rad)),
    }
    return {name: value for name, value in found.items() if np.isfinite(value)}


def _judge(fit: ChainFit, covariance: np.ndarray, *, enough: int = ENOUGH_VIEWS) -> list[Reason]:
    reasons = []
    if fit.rms_px > 4 * MOST_PX or fit.corner_px > MOST_PX:
        reasons.append(
            Reason(
                name="does-not-fit",
                what=f"corners are off by {fit.rms_px:.1f} px: poses and images do not belong together.",
                do="Check that they are in the same order, in metres and radians, that the board was "
                "stationary, and that it is the right file.",
            )
        )
    elif fit.corner_px > GOOD_PX:
        reasons.append(
            Reason(
                name="corners-imprecise",
                what=f"corners err by {fit.corner_px:.2f} px.",
                do="Use sharper images, a flat board, and intrinsics of this camera at this size.",
                is_fatal=fit.corner_px > WORST_PX,
            )
        )
    reasons += [*intrinsics_off(fit), *board_scale(fit)]
    if len(fit.used) < enough:
        reasons.append(
            Reason(name="few-views", what=f"{len(fit.used)} views are too few.", do=f"Take {enough} or more.")
        )
    sigma_m = float(np.sqrt(np.diag(covariance)[:3].sum()))
    sigma_deg = float(np.rad2deg(np.sqrt(np.diag(covariance)[3:].sum())))
    if not reasons and (sigma_m > MOST_SIGMA_M or sigma_deg > MOST_SIGMA_DEG):
        reasons.append(
            Reason(
                name="uncertain",
                what=f"the camera's pose is known to {1e3 * sigma_m:.0f} mm and {sigma_deg:.2f} degrees.",
                do="Take more views, nearer to the board, with larger turns of the base.",
            )
        )
    return reasons
