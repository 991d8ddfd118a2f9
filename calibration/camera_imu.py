"""Rotation between an IMU and its camera, and the lag between their clocks: `join_camera_imu`.

    w_C(t) = R_CI (w_I(t - lag) - bias)      w: angular velocity [rad/s], in the camera's and the IMU's axes

The lag comes from the magnitudes, which needs no R_CI; R_CI from the directions (Wahba's problem, by SVD);
then both with the bias by Gauss-Newton, and the lag again from all three axes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Self, final

import numpy as np
import pinocchio as pin

from calibration.chain import nearest_rotation
from calibration.correlation import lag_between
from calibration.verdict import Reason, Verdict
from robot_runtime.core.values.shapes import Float, Int
from robot_runtime.core.values.transforms import pose_from_quaternion, quaternion_from_rotation
from robot_runtime.errors import InvalidValueError

LONGEST_S = 0.3
LEAST_CORRELATION, LEAST_PEAK_RATIO = 0.9, 1.05
LEAST_RATE = 0.15
"""Least rate about the second direction, rms [rad/s]."""
MOST_RESIDUAL_SHARE = 0.25
"""Largest share of the rate that R_CI may leave unexplained, rms."""
_ROUNDS = 6


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CameraImu:
    """Calibration of an IMU that is fixed to a camera."""

    KIND: ClassVar[str] = "camera_imu"
    VERSION: ClassVar[int] = 1
    UNITS: ClassVar[Mapping[str, str]] = {"bias": "rad/s", "sigma": "rad (rotation), s (lag)"}
    FRAMES: ClassVar[Mapping[str, str]] = {
        "R_CI": "axes of the IMU I in those of the camera C (optical: x right, y down, z forward)"
    }

    R_CI: Float[np.ndarray, "3 3"]
    lag_s: float
    """Delay of the camera's stamps against the IMU's for the same motion [s]."""
    bias: Float[np.ndarray, "3"]
    """Bias of the gyro, in I [rad/s]."""
    sigma_rad: float
    """Standard deviation of R_CI, all three directions together."""
    sigma_s: float
    residuals: Mapping[str, float] = field(default_factory=dict)
    verdict: Verdict = field(default_factory=Verdict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "R_CI": {"q_wxyz": quaternion_from_rotation(self.R_CI).tolist()},
            "lag_s": self.lag_s,
            "bias": self.bias.tolist(),
            "sigma_rad": self.sigma_rad,
            "sigma_s": self.sigma_s,
            "residuals": dict(self.residuals),
            "verdict": self.verdict.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            R_CI=pose_from_quaternion(np.zeros(3), np.array(data["R_CI"]["q_wxyz"])).rotation,
            lag_s=float(data["lag_s"]),
            bias=np.array(data["bias"], dtype=float),
            sigma_rad=float(data["sigma_rad"]),
            sigma_s=float(data["sigma_s"]),
            residuals=data["residuals"],
            verdict=Verdict.from_dict(data["verdict"]),
        )


def angular_velocity(
    t_ns: Int[np.ndarray, " N"], rotations: Float[np.ndarray, "N 3 3"]
) -> tuple[Int[np.ndarray, " M"], Float[np.ndarray, "M 3"]]:
    """Times [ns] and angular velocities of a frame between its poses, in its own axes [rad/s].

    rotations: R_WC. Poses farther apart than three of their usual periods are skipped.
    """
    if len(t_ns) < 3 or (np.diff(t_ns) <= 0).any():
        raise InvalidValueError("expected at least three poses with rising times")
    dt = np.diff(t_ns) / 1e9
    turns = np.array([pin.log3(a.T @ b) for a, b in pairwise(rotations)])
    kept = dt < 3.0 * np.median(dt)
    return (t_ns[:-1] + np.diff(t_ns) // 2)[kept], (turns / dt[:, None])[kept]


def join_camera_imu(
    camera_ns: Int[np.ndarray, " N"],
    w_C: Float[np.ndarray, "N 3"],
    imu_ns: Int[np.ndarray, " M"],
    w_I: Float[np.ndarray, "M 3"],
    *,
    longest_s: float = LONGEST_S,
) -> CameraImu:
    """Calibrate an IMU against its camera.

    w_C: angular velocity of the camera by its images or poses, in its own axes: `angular_velocity`.
    w_I: of the gyro. Both on one clock, or on clocks that differ by less than longest_s.
    InvalidValueError: too few samples, no common time, or no rotation.
    """
    start = int(min(camera_ns[0], imu_ns[0]))
    t_C, t_I = (camera_ns - start) / 1e9, (imu_ns - start) / 1e9
    found = lag_between(
        t_I,
        np.linalg.norm(w_I, axis=1),
        t_C,
        np.linalg.norm(w_C, axis=1),
        earliest_s=-longest_s,
        latest_s=longest_s,
        step_s=0.002,
    )
    fit = _fitted(t_C, w_C, t_I, _smoothed_as(t_I, w_I, t_C), found.lag_s)
    sizes = np.linalg.svd(fit.seen - fit.seen.mean(axis=0), compute_uv=False) / np.sqrt(len(fit.seen))
    rms = float(np.sqrt((fit.off**2).sum(axis=1).mean()))
    rate = float(np.sqrt((fit.seen**2).sum(axis=1).mean()))
    reasons = _judge(found.correlation, found.peak_ratio, sizes, rms / max(rate, 1e-12), found.is_at_end)
    return CameraImu(
        R_CI=fit.R_CI,
        lag_s=fit.lag_s,
        bias=fit.bias,
        sigma_rad=float(np.sqrt(fit.variance[:3].sum())),
        sigma_s=float(np.sqrt(fit.variance[6])),
        residuals={
            "rms_rad_s": rms,
            "rate_rad_s": rate,
            "correlation": found.correlation,
            "peak_ratio": min(found.peak_ratio, 1e6),
            "second_rate_rad_s": float(sizes[1]),
        },
        verdict=Verdict.of(reasons),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Fit:
    """The best fit of the camera's rates."""

    R_CI: np.ndarray
    lag_s: float
    bias: np.ndarray
    seen: np.ndarray
    """(N, 3) the camera's rates within the gyro's recording [rad/s]."""
    off: np.ndarray
    """(N, 3): their residuals."""
    variance: np.ndarray
    """(7,) variances of a rotation of R_CI, the bias and the lag."""


def _fitted(t_C: np.ndarray, w_C: np.ndarray, t_I: np.ndarray, w_I: np.ndarray, lag: float) -> _Fit:
    """Rotation, bias and lag by Gauss-Newton, from a nearly right lag; outliers are downweighted."""
    bias, R = np.zeros(3), np.eye(3)
    for k in range(_ROUNDS):
        inside = (t_C - lag > t_I[0]) & (t_C - lag < t_I[-1])
        seen, gyro, slope = w_C[inside], *_at(t_C[inside] - lag, t_I, w_I)
        if k == 0:
            R = nearest_rotation((seen - seen.mean(0)).T @ (gyro - gyro.mean(0)))
        off = seen - (gyro - bias) @ R.T
        J = _jacobian(R, gyro - bias, slope)
        weight = np.repeat(1.0 / np.maximum(np.linalg.norm(off, axis=1) / _scale(off), 1.0), 3)
        H = J.T @ (weight[:, None] * J)
        step = np.linalg.lstsq(H, J.T @ (weight * off.ravel()), rcond=None)[0]
        R, bias, lag = pin.exp3(step[:3]) @ R, bias + step[3:6], lag + float(np.clip(step[6], -0.02, 0.02))
    variance = np.diag(np.linalg.pinv(H)) * float(weight @ off.ravel() ** 2) / max(len(off) * 3 - 7, 1)
    return _Fit(R_CI=R, lag_s=float(lag), bias=bias, seen=seen, off=off, variance=variance)


def _jacobian(R_CI: np.ndarray, w_I: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Jacobian (3 N, 7) of rates in C by a rotation of R_CI (left), the bias, and the lag."""
    by_turn = -np.array([pin.skew(v) for v in w_I @ R_CI.T])
    by_bias = np.broadcast_to(-R_CI, by_turn.shape)
    return np.concatenate([by_turn, by_bias, -(slope @ R_CI.T)[:, :, None]], axis=2).reshape(-1, 7)


def _scale(off: np.ndarray) -> float:
    """Residual beyond which a sample is downweighted [rad/s]."""
    return 3.0 * max(float(np.median(np.linalg.norm(off, axis=1))), 1e-9)


def _smoothed_as(t_I: np.ndarray, w_I: np.ndarray, t_C: np.ndarray) -> np.ndarray:
    """The gyro averaged over the camera's period, comparable to the rotation between two images."""
    width = max(round(float(np.median(np.diff(t_C)) / np.median(np.diff(t_I)))), 1)
    width += 1 - width % 2
    if width < 3 or len(w_I) < 3 * width:
        return w_I
    padded = np.pad(w_I, ((width // 2, width // 2), (0, 0)), mode="edge")
    return np.column_stack([np.convolve(c, np.ones(width) / width, mode="valid") for c in padded.T])


def _at(t: np.ndarray, t_I: np.ndarray, w_I: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gyro at given times, and its derivative."""
    e = float(np.median(np.diff(t_I)))
    at, before, after = (
        np.column_stack([np.interp(t + d, t_I, column) for column in w_I.T]) for d in (0.0, -e, e)
    )
    return at, (after - before) / (2 * e)


def _judge(
    correlation: float, peak_ratio: float, sizes: np.ndarray, share: float, is_at_end: bool
) -> list[Reason]:
    reasons = []
    if correlation < LEAST_CORRELATION or is_at_end:
        reasons.append(
            Reason(
                name="does-not-follow",
                what=f"the rates of camera and IMU correlate to {correlation:.2f} only "
                f"(expected {LEAST_CORRELATION:g})"
                f"{', and best at the end of the searched lags' if is_at_end else ''}.",
                do="Check that both are of one device and one clock; join the clocks first, turn faster, "
                "and keep images sharp.",
            )
        )
    elif peak_ratio < LEAST_PEAK_RATIO:
        reasons.append(
            Reason(
                name="repeats-itself",
                what="several lags fit equally well.",
                do="Turn irregularly, not to and fro at one rate.",
            )
        )
    if sizes[1] < LEAST_RATE:
        reasons.append(
            Reason(
                name="little-rotation",
                what=f"about its second direction it turned at {np.rad2deg(sizes[1]):.0f} degrees/s only "
                f"(expected {np.rad2deg(LEAST_RATE):.0f}).",
                do="Turn it about all three axes: nod, shake, tilt, each for five seconds.",
            )
        )
    if not reasons and share > MOST_RESIDUAL_SHARE:
        reasons.append(
            Reason(
                name="does-not-fit",
                what=f"no rotation between the two explains {100 * share:.0f} % of the rate.",
                do="Check for mirrored axes (left-handed), degrees per second, and bad tracking.",
            )
        )
    return reasons
