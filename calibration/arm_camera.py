"""Common base of cameras on an arm and beside it: their calibration and file format."""

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from calibration.camera import CameraModel
from calibration.chain import ArmView, Chain, ChainFit, Excitation
from calibration.chain_verdict import UNKNOWN_M, ClosedForm, judge, refuse_few
from calibration.store import pose_from_json, pose_to_json
from calibration.verdict import Verdict
from robot_runtime.core.values.shapes import Float


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
