"""A camera on the arm's hand that looks at a board that stands still: `solve_hand_eye`, AX = XB."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, final

import numpy as np
import pinocchio as pin

from calibration.camera import CameraModel
from calibration.chain import ArmView, Chain, ChainFit, Excitation, mean_pose
from calibration.chain_verdict import judge, refuse_few
from calibration.motion_pairs import relative, solve_pairs
from calibration.store import pose_from_json, pose_to_json
from calibration.verdict import Verdict
from robot_runtime.core.values.shapes import Float


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HandEye:
    """Where a camera sits on an arm's hand."""

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
    covariance: Float[np.ndarray, "6 6"]
    """Of X_EC: position [m], rotation vector [rad], both in E, about the camera's own place."""
    num_views: int
    residuals: Mapping[str, float] = field(default_factory=dict)
    """`rms_px`, `held_out_px`, `repeat_mm`, `repeat_deg`, `sigma_mm`, `sigma_deg`, `excitation_1_deg`..."""
    camera: Mapping[str, Any] | None = None
    """The intrinsics that were used, as `CameraModel.to_dict` says them."""
    verdict: Verdict = field(default_factory=Verdict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "X_EC": pose_to_json(self.X_EC),
            "X_AB": pose_to_json(self.X_AB),
            "covariance": self.covariance.tolist(),
            "num_views": self.num_views,
            "residuals": dict(self.residuals),
            "camera": None if self.camera is None else dict(self.camera),
            "verdict": self.verdict.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            X_EC=pose_from_json(data["X_EC"]),
            X_AB=pose_from_json(data["X_AB"]),
            covariance=np.array(data["covariance"], dtype=float),
            num_views=int(data["num_views"]),
            residuals=data["residuals"],
            camera=data["camera"],
            verdict=Verdict.from_dict(data["verdict"]),
        )


def solve_hand_eye(views: Sequence[ArmView], camera: CameraModel) -> HandEye:
    """
    views: 3 at least; ten or more, turned about two directions by 20 degrees and more, give a good verdict.
    InvalidValueError: too few, all axes parallel, or no picture in which the board's tilt is unambiguous.
    """
    refuse_few(views)
    fit = fitted(Chain(views, camera, is_on_arm=True), closed_form)
    excitation = Excitation.of([views[i].X_AE for i in fit.used])
    verdict = judge(fit, views, camera, excitation, closed_form=closed_form, is_on_arm=True)
    return HandEye(
        X_EC=fit.X,
        X_AB=fit.Z,
        covariance=fit.covariance[:6, :6],
        num_views=len(fit.used),
        residuals=residuals_of(fit, excitation),
        camera=camera.to_dict(),
        verdict=verdict,
    )


ClosedForm = Callable[[Sequence[pin.SE3], Sequence[pin.SE3]], tuple[pin.SE3, pin.SE3]]
"""Y of every view, X_CB of every view -> X, Z."""


def closed_form(Y: Sequence[pin.SE3], X_CB: Sequence[pin.SE3]) -> tuple[pin.SE3, pin.SE3]:
    """X from the motions between views, Z as the mean of what the views say then."""
    X = solve_pairs(relative(Y, X_CB)).X
    return X, mean_pose([Y_i * X * C_i for Y_i, C_i in zip(Y, X_CB, strict=True)])


def fitted(chain: Chain, closed_form: ClosedForm) -> ChainFit:
    """The closed form from the views whose boards are certain, then of all with the nearer of the two ways
    to see each, then all corners."""
    sure = [i for i, view in enumerate(chain.views) if not view.is_ambiguous]
    X, Z = closed_form([chain.Y[i] for i in sure], [chain.views[i].X_CB for i in sure])
    X, Z = closed_form(chain.Y, chain.with_boards(X, Z))
    return chain.fit(X, Z)


def residuals_of(fit: ChainFit, excitation: Excitation) -> dict[str, float]:
    """As a file has them; what is not known is left out."""
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
        **{f"excitation_{i + 1}_deg": float(value) for i, value in enumerate(excitation.degrees)},
    }
    return {name: value for name, value in found.items() if np.isfinite(value)}
