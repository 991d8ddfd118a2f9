"""A camera on an arm's end effector, or beside the arm: `solve_hand_eye`, `solve_robot_world`.

    hand-eye       Y X = Z B^-1, camera on the end effector; X from motions between views, AX = XB
    robot-world    the same chain, camera beside the arm, board on the end effector; X and Z at once

Both start from a closed form of views whose board's tilt is unambiguous, are refined over all corners, and
give the verdict and the file format of `ArmCamera`.
"""

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, ClassVar, Self, final

import numpy as np
import pinocchio as pin

from calibration.camera import CameraModel
from calibration.chain import ArmView, Chain, ChainFit, Excitation, mean_pose, nearest_rotation
from calibration.chain_verdict import UNKNOWN_M, ClosedForm, judge, refuse_few
from calibration.store import pose_from_json, pose_to_json
from calibration.verdict import Verdict
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

SMALLEST_DEG, LARGEST_DEG = 1.0, 150.0
"""Smallest and largest rotations: smaller ones do not determine the axis, larger ones not its sign."""
PARALLEL = 0.05
"""Axes whose second direction has less than this share of the first one's size are parallel."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PairsFit:
    """X of A_i X = X B_i."""

    X: pin.SE3
    rotation_rad: float
    """RMS difference of the two axes of a motion given X."""
    translation_m: float
    """RMS difference of its translations."""
    angle_rad: float
    """RMS difference of the two angles of a motion, which is independent of X."""


def relative(poses: Sequence[pin.SE3], others: Sequence[pin.SE3]) -> list[tuple[pin.SE3, pin.SE3]]:
    """The motions between all pairs of views: A = Y_j^-1 Y_i and B = C_j C_i^-1, where Y_i X C_i is the same
    for all views."""
    return [
        (poses[j].inverse() * poses[i], others[j] * others[i].inverse())
        for i, j in combinations(range(len(poses)), 2)
    ]


def solve_pairs(pairs: Sequence[tuple[pin.SE3, pin.SE3]]) -> PairsFit:
    """The rotation that turns the axes of all B onto those of A (Park and Martin 1994; by SVD), then the
    position by linear least squares.

    InvalidValueError: no rotation, or all axes are parallel.
    """
    turns = [(pin.log3(A.rotation), pin.log3(B.rotation), A, B) for A, B in pairs]
    sizes = np.array([max(np.linalg.norm(a), np.linalg.norm(b)) for a, b, _, _ in turns])
    kept = (sizes > np.deg2rad(SMALLEST_DEG)) & (sizes < np.deg2rad(LARGEST_DEG))
    turns = [turn for turn, is_kept in zip(turns, kept, strict=True) if is_kept]
    if len(turns) < 2:
        raise InvalidValueError(
            f"at least two motions that turn by {SMALLEST_DEG:g} to {LARGEST_DEG:g} degrees are needed, got "
            f"{len(turns)}: turn the hand between the views, about two directions"
        )
    a, b = np.array([turn[0] for turn in turns]), np.array([turn[1] for turn in turns])
    for axes in (a, b):
        size = np.linalg.svd(axes, compute_uv=False)
        if size[1] < PARALLEL * size[0]:
            raise InvalidValueError(
                "all motions turn about the same direction, so the camera's position along it, and its "
                "rotation about it, are undetermined: turn the hand about a second direction as well"
            )
    R = nearest_rotation(a.T @ b)
    M = np.concatenate([A.rotation - np.eye(3) for _, _, A, _ in turns])
    v = np.concatenate([R @ B.translation - A.translation for _, _, A, B in turns])
    p = np.linalg.lstsq(M, v, rcond=None)[0]
    return PairsFit(
        X=pin.SE3(R, p),
        rotation_rad=_rms(a - b @ R.T),
        translation_m=_rms((M @ p - v).reshape(-1, 3)),
        angle_rad=float(np.sqrt(np.mean((np.linalg.norm(a, axis=1) - np.linalg.norm(b, axis=1)) ** 2))),
    )


def _rms(rows: np.ndarray) -> float:
    return float(np.sqrt((rows**2).sum(axis=1).mean()))


@dataclass(frozen=True, kw_only=True, eq=False)
class ArmCamera(ABC):
    """Mounting poses of a camera and a board, from views for which an arm moved one of the two.

    A subclass adds two fields: the poses that its `FRAMES` name, the camera's first.
    """

    FRAMES: ClassVar[Mapping[str, str]]

    covariance: Float[np.ndarray, "6 6"]
    """Covariance of the camera's pose: position [m], rotation vector [rad], both in its parent frame, about
    the camera's position."""
    num_views: int
    residuals: Mapping[str, float] = field(default_factory=dict)
    """`rms_px`, `held_out_px`, `repeat_mm`, `repeat_deg`, `sigma_mm`, `sigma_deg`, `excitation_1_deg`..."""
    camera: Mapping[str, Any] | None = None
    """The intrinsics that were used, as `CameraModel.to_dict`."""
    verdict: Verdict = field(default_factory=Verdict)

    @classmethod
    def of_views(
        cls, views: Sequence[ArmView], camera: CameraModel, closed_form: ClosedForm, *, is_on_arm: bool
    ) -> Self:
        """Solve from views. InvalidValueError: too few or too similar views, or all boards are ambiguous."""
        refuse_few(views)
        chain = Chain(views, camera, is_on_arm=is_on_arm)
        fit = fitted(chain, closed_form)
        excitation = Excitation.of([views[i].X_AE for i in fit.used])
        poses: dict[str, Any] = dict(zip(cls.FRAMES, (fit.X, fit.Z), strict=True))
        return cls(
            **poses,
            covariance=fit.covariance[:6, :6],
            num_views=len(fit.used),
            residuals=_residuals(fit, excitation),
            camera=camera.to_dict(),
            verdict=judge(fit, chain, excitation, closed_form),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            **{name: pose_to_json(getattr(self, name)) for name in self.FRAMES},
            "covariance": self.covariance.tolist(),
            "num_views": self.num_views,
            "residuals": dict(self.residuals),
            "camera": None if self.camera is None else dict(self.camera),
            "verdict": self.verdict.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        poses: dict[str, Any] = {name: pose_from_json(data[name]) for name in cls.FRAMES}
        return cls(
            **poses,
            covariance=np.array(data["covariance"], dtype=float),
            num_views=int(data["num_views"]),
            residuals=data["residuals"],
            camera=data["camera"],
            verdict=Verdict.from_dict(data["verdict"]),
        )


def fitted(chain: Chain, closed_form: ClosedForm) -> ChainFit:
    """Fit the closed form to views with unambiguous boards, then to all with the nearer of each board's two
    poses, then all corners."""
    sure = [i for i, view in enumerate(chain.views) if not view.is_ambiguous]
    X, Z = closed_form([chain.Y[i] for i in sure], [chain.views[i].X_CB for i in sure])
    X, Z = closed_form(chain.Y, chain.with_boards(X, Z))
    return chain.fit(X, Z)


def _residuals(fit: ChainFit, excitation: Excitation) -> dict[str, float]:
    """Residuals for a file; unknown ones are left out."""
    variance = np.diag(fit.covariance)
    found = {
        "rms_px": fit.rms_px,
        "held_out_px": fit.held_out_px,
        "repeat_mm": 1e3 * fit.repeat_m,
        "repeat_deg": float(np.rad2deg(fit.repeat_rad)),
        "sigma_mm": 1e3 * float(np.sqrt(variance[:3].sum())),
        "sigma_deg": float(np.rad2deg(np.sqrt(variance[3:6].sum()))),
        "corner_px": fit.corner_px,
        "hand_mm": 1e3 * fit.hand_m,
        "hand_deg": float(np.rad2deg(fit.hand_rad)),
        "focal_percent": 100 * fit.focal_share,
        "board_percent": 100 * fit.scale_share,
        **{f"excitation_{i + 1}_deg": float(value) for i, value in enumerate(excitation.degrees)},
    }
    if found["sigma_mm"] >= 1e3 * UNKNOWN_M:
        del found["sigma_mm"], found["sigma_deg"]
    return {name: value for name, value in found.items() if np.isfinite(value)}


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HandEye(ArmCamera):
    """Mounting pose of a camera on an arm's end effector."""

    KIND: ClassVar[str] = "hand_eye"
    VERSION: ClassVar[int] = 1
    UNITS: ClassVar[Mapping[str, str]] = {
        "covariance": "of position [m] and a rotation vector [rad] in E, about the camera's own place"
    }
    FRAMES: ClassVar[Mapping[str, str]] = {
        "X_EC": "camera C (optical: x right, y down, z forward) in the hand E, as the arm's driver has it",
        "X_AB": "board B in the frame A from which the arm's driver counts",
    }

    X_EC: pin.SE3
    X_AB: pin.SE3


def solve_hand_eye(views: Sequence[ArmView], camera: CameraModel) -> HandEye:
    """Solve the camera's pose on the end effector.

    views: 3 at least; ten or more, turned about two directions by 20 degrees and more, give a good verdict.
    InvalidValueError: too few, all axes parallel, or no image in which the board's tilt is unambiguous.
    """
    return HandEye.of_views(views, camera, _closed_form_of_hand_eye, is_on_arm=True)


def _closed_form_of_hand_eye(Y: Sequence[pin.SE3], X_CB: Sequence[pin.SE3]) -> tuple[pin.SE3, pin.SE3]:
    """X from the motions between views, Z as the mean over the views given X."""
    X = solve_pairs(relative(Y, X_CB)).X
    return X, mean_pose([Y_i * X * C_i for Y_i, C_i in zip(Y, X_CB, strict=True)])


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class RobotWorld(ArmCamera):
    """Pose of a camera beside an arm, and of the board on its end effector."""

    KIND: ClassVar[str] = "robot_world"
    VERSION: ClassVar[int] = 1
    UNITS: ClassVar[Mapping[str, str]] = {
        "covariance": "of position [m] and a rotation vector [rad] in A, about the camera's own place"
    }
    FRAMES: ClassVar[Mapping[str, str]] = {
        "X_AC": "camera C (optical: x right, y down, z forward) in the frame A from which the arm's driver "
        "counts",
        "X_EB": "board B in the hand E, as the arm's driver has it",
    }

    X_AC: pin.SE3
    X_EB: pin.SE3


def solve_robot_world(views: Sequence[ArmView], camera: CameraModel) -> RobotWorld:
    """Solve for a camera beside the arm, with the board on the end effector.

    InvalidValueError: as `solve_hand_eye`.
    """
    return RobotWorld.of_views(views, camera, _closed_form_of_robot_world, is_on_arm=False)


def _closed_form_of_robot_world(Y: Sequence[pin.SE3], X_CB: Sequence[pin.SE3]) -> tuple[pin.SE3, pin.SE3]:
    """X and Z of Y X = Z X_CB^-1 at once: the rotations are the first pair of singular vectors of the sum of
    Kronecker products (Shah 2013), the translations follow by linear least squares.

    InvalidValueError: the motions between the views do not determine them.
    """
    solve_pairs(relative(Y, X_CB))  # refuses rotations about one direction only
    B = [C.inverse() for C in X_CB]
    K = sum(np.kron(b.rotation, a.rotation) for a, b in zip(Y, B, strict=True))
    U, _, Vt = np.linalg.svd(K)
    R_X, R_Z = _rotation(Vt[0]), _rotation(U[:, 0])
    M = np.concatenate([np.hstack([a.rotation, -np.eye(3)]) for a in Y])
    v = np.concatenate([R_Z @ b.translation - a.translation for a, b in zip(Y, B, strict=True)])
    translations, _, rank, _ = np.linalg.lstsq(M, v, rcond=None)
    if rank < 6:
        raise InvalidValueError(
            "the views do not determine the poses of camera and board: turn the hand more"
        )
    return pin.SE3(R_X, translations[:3]), pin.SE3(R_Z, translations[3:])


def _rotation(columns: np.ndarray) -> np.ndarray:
    """Rotation from nine numbers of any scale and sign, column by column."""
    M = columns.reshape(3, 3).T
    return nearest_rotation(M if np.linalg.det(M) > 0.0 else -M)
