"""Pose of a gripper's tip (TCP) in the camera it carries, or on the flange: `solve_pivot`, `from_tags`,
`UMI_GRIPPER`.

Pivot: the tip stays at one point of the world while its carrier is rotated to all sides. All poses agree on
the tip, which gives its position and the point; a pivot does not determine the tip's orientation.

        \\ | /       X_WH of each pose
         \\|/        R_WH p_HE + p_WH = p_W for all of them
          v  p_W
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, final

import numpy as np
import pinocchio as pin

from calibration.chain import Excitation, angle_between, mean_pose, nearest_rotation
from calibration.store import pose_from_json, pose_to_json
from calibration.verdict import Reason, Verdict
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

LEAST_POSES = 8
EXCITED_DEG = 12.0
"""Least standard deviation of the orientation about its second direction, to trust a pivot."""
MOST_RMS_M = 0.003
"""Largest rms slip of the tip [m]."""
MOST_SIGMA_M = 0.002
OUTLIER = 3.0
"""Medians of error beyond which a pose is left out: the tip slipped, or tracking jumped."""
TAGS_AGREE_M, TAGS_AGREE_DEG = 0.003, 1.5
"""Largest rms deviation of single sightings of a tag from their mean."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Tcp:
    """The tip E in its carrier: H, the hand's camera, or F, an arm's flange."""

    KIND: ClassVar[str] = "tcp"
    VERSION: ClassVar[int] = 1
    UNITS: ClassVar[Mapping[str, str]] = {"sigma_m": "m, standard deviation along x, y, z of H"}
    FRAMES: ClassVar[Mapping[str, str]] = {
        "X_HE": "tip E in H: the hand camera's optical frame (x right, y down, z forward), or an arm's flange"
    }

    X_HE: pin.SE3
    sigma_m: tuple[float, float, float]
    source: str
    """Method of calibration, for people."""
    num_poses: int = 0
    residuals: Mapping[str, float] = field(default_factory=dict)
    verdict: Verdict = field(default_factory=Verdict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "X_HE": pose_to_json(self.X_HE),
            "sigma_m": list(self.sigma_m),
            "source": self.source,
            "num_poses": self.num_poses,
            "residuals": dict(self.residuals),
            "verdict": self.verdict.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        x, y, z = (float(value) for value in data["sigma_m"])
        return cls(
            X_HE=pose_from_json(data["X_HE"]),
            sigma_m=(x, y, z),
            source=str(data["source"]),
            num_poses=int(data["num_poses"]),
            residuals=data["residuals"],
            verdict=Verdict.from_dict(data["verdict"]),
        )


UMI_GRIPPER = Tcp(
    X_HE=pin.SE3(np.eye(3), np.array([0.0, 0.086, 0.01465 + 0.205])),
    sigma_m=(0.002, 0.002, 0.002),
    source="preset: UMI's printed gripper with a GoPro (camera over the fingers, lens 14.65 mm before its "
    "mount)",
)
"""From its drawings; the tip's axes are the camera's. sigma_m is a guess at the accuracy of prints."""


def solve_pivot(poses: Sequence[pin.SE3], *, R_HE: Float[np.ndarray, "3 3"] | None = None) -> Tcp:
    """Solve the tip from poses X_WH during which it stayed at one point.

    R_HE: orientation of the tip, known from elsewhere; None: as H.
    InvalidValueError: fewer than 4 poses, or turned about one direction only.
    """
    if len(poses) < 4:
        raise InvalidValueError(f"a pivot needs 4 poses ({LEAST_POSES} to be trusted), got {len(poses)}")
    used: np.ndarray = np.full(len(poses), True)
    for _ in range(3):
        p, sigma, off, spread = _pivot([X for X, is_used in zip(poses, used, strict=True) if is_used])
        all_off = _off(poses, p)
        kept = np.asarray(all_off <= max(OUTLIER * float(np.median(all_off)), 1e-4))
        if (kept == used).all() or kept.mean() < 0.7:
            break
        used = kept
    rms_m = float(np.sqrt((off**2).mean()))
    reasons = _judge_pivot(int(used.sum()), len(poses), rms_m, float(np.linalg.norm(sigma)), spread)
    return Tcp(
        X_HE=pin.SE3(np.eye(3) if R_HE is None else nearest_rotation(R_HE), p),
        sigma_m=(float(sigma[0]), float(sigma[1]), float(sigma[2])),
        source="pivot: the tip stood in one point",
        num_poses=int(used.sum()),
        residuals={"rms_mm": 1e3 * rms_m, "excitation_2_deg": spread},
        verdict=Verdict.of(reasons),
    )


def from_tags(
    sightings: Sequence[pin.SE3], X_TE: pin.SE3, *, source: str = "tags fastened to the tip"
) -> Tcp:
    """The tip from poses X_HT of a tag (or a board) whose pose at the tip is known.

    X_TE: the tip in the tag's frame, from the drawing of what holds the tag.
    InvalidValueError: nothing was seen.
    """
    if not sightings:
        raise InvalidValueError("the tag was not seen in any image: light, sharpness, dictionary, size?")
    tips = [X_HT * X_TE for X_HT in sightings]
    off = _off_mean(tips, mean_pose(tips))
    kept = off[:, 0] <= max(OUTLIER * float(np.median(off[:, 0])), 1e-4)
    tips = [tip for tip, is_kept in zip(tips, kept, strict=True) if is_kept]
    X_HE = mean_pose(tips)
    off = _off_mean(tips, X_HE)
    rms_m, rms_deg = float(np.sqrt((off[:, 0] ** 2).mean())), float(np.sqrt((off[:, 1] ** 2).mean()))
    spread = np.std([tip.translation for tip in tips], axis=0) / np.sqrt(max(len(tips), 1))
    reasons = []
    if rms_m > TAGS_AGREE_M or rms_deg > TAGS_AGREE_DEG:
        reasons.append(
            Reason(
                name="sightings-disagree",
                what=f"single images differ by {1e3 * rms_m:.1f} mm and {rms_deg:.1f} degrees.",
                do="Fasten the tag, hold the gripper still at one width, use a larger tag or more light.",
            )
        )
    if len(tips) < LEAST_POSES:
        reasons.append(
            Reason(
                name="few-sightings",
                what=f"{len(tips)} images are few.",
                do=f"Take {LEAST_POSES} or more.",
                is_fatal=False,
            )
        )
    return Tcp(
        X_HE=X_HE,
        sigma_m=(float(spread[0]), float(spread[1]), float(spread[2])),
        source=source,
        num_poses=len(tips),
        residuals={"rms_mm": 1e3 * rms_m, "rms_deg": rms_deg},
        verdict=Verdict.of(reasons),
    )


def _pivot(poses: Sequence[pin.SE3]) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """The tip in H, its standard deviation, how far off each pose is, and the second excitation [degrees]."""
    M = np.concatenate([np.hstack([X.rotation, -np.eye(3)]) for X in poses])
    v = -np.concatenate([X.translation for X in poses])
    if np.linalg.svd(M, compute_uv=False)[-1] < 1e-3 * np.sqrt(len(poses)):
        raise InvalidValueError(
            "the poses hardly turn, or about one direction only, so that the tip could be anywhere along "
            "it: lean the "
            "gripper to all sides and turn it, with the tip in its point"
        )
    x = np.linalg.lstsq(M, v, rcond=None)[0]
    rest = M @ x - v
    variance = float(rest @ rest) / max(len(rest) - 6, 1) * np.linalg.inv(M.T @ M)
    off = np.linalg.norm(rest.reshape(-1, 3), axis=1)
    return x[:3], np.sqrt(np.diag(variance)[:3]), off, float(Excitation.of(poses).degrees[1])


def _off(poses: Sequence[pin.SE3], p_HE: np.ndarray) -> np.ndarray:
    """Distance of each pose's tip from the median point [m]."""
    tips = np.array([X.act(p_HE) for X in poses])
    return np.asarray(np.linalg.norm(tips - np.median(tips, axis=0), axis=1))


def _off_mean(poses: Sequence[pin.SE3], mean: pin.SE3) -> np.ndarray:
    """Differences [m, degrees] of each pose from the mean."""
    return np.array(
        [
            (
                np.linalg.norm(X.translation - mean.translation),
                np.rad2deg(angle_between(X.rotation, mean.rotation)),
            )
            for X in poses
        ]
    )


def _judge_pivot(used: int, all_: int, rms_m: float, sigma_m: float, spread_deg: float) -> list[Reason]:
    reasons = []
    if used < LEAST_POSES:
        reasons.append(
            Reason(name="few-poses", what=f"{used} poses are too few.", do=f"Take {LEAST_POSES} or more.")
        )
    if spread_deg < EXCITED_DEG:
        reasons.append(
            Reason(
                name="little-rotation",
                what=f"about its second direction the gripper was leant by {spread_deg:.1f} degrees only "
                "(standard "
                f"deviation, {EXCITED_DEG:g} is the least).",
                do="Lean it by 30 degrees to the front, the back, the left and the right, and turn it.",
            )
        )
    if rms_m > MOST_RMS_M:
        reasons.append(
            Reason(
                name="tip-slipped",
                what=f"the tip was off its point by {1e3 * rms_m:.1f} mm, rms.",
                do="Put it into a small hole, close the fingers, move slowly, and check the tracking there.",
            )
        )
    elif sigma_m > MOST_SIGMA_M:
        reasons.append(
            Reason(
                name="uncertain",
                what=f"the tip is known to {1e3 * sigma_m:.1f} mm only.",
                do="Take more poses, leant farther.",
            )
        )
    if used < all_:
        reasons.append(
            Reason(
                name="poses-left-out",
                what=f"{all_ - used} of {all_} poses do not fit the others and were left out.",
                do="Check whether the tip left its point, or tracking jumped.",
                is_fatal=False,
            )
        )
    return reasons
