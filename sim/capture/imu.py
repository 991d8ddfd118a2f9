"""Simulates a gyroscope and an accelerometer in a camera's optical frame from its true path."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from scipy.spatial.transform import Rotation

from calibration.trajectory import Trajectory

GRAVITY = np.array([0.0, 0.0, 9.80665])
"""Specific force on a stationary accelerometer in a world with z up [m/s²]."""


@dataclass(frozen=True, kw_only=True)
class ImuErrors:
    """Per-axis errors: noise of each sample, and a constant bias [rad/s, m/s²]."""

    gyro_noise: float = 0.0
    gyro_bias: float = 0.0
    accelerometer_noise: float = 0.0
    accelerometer_bias: float = 0.0


def run_imu(
    truth: Trajectory, t_ns: Int64[np.ndarray, " N"], errors: ImuErrors, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "N 3"], Float[np.ndarray, "N 3"]]:
    """Angular rates and specific forces (N, 3) in the camera's frame at true times within the path.

    truth: X_WC at 200 Hz or finer. Derivatives are central differences over its own samples.
    """
    t = (truth.t_ns - truth.t_ns[0]) / 1e9
    R = Rotation.from_quat(truth.q, scalar_first=True)
    w = (R[:-1].inv() * R[1:]).as_rotvec() / np.diff(t)[:, None]
    a = np.gradient(np.gradient(truth.p, t, axis=0), t, axis=0)
    a_C = R.inv().apply(a + GRAVITY)
    at, mid = (t_ns - truth.t_ns[0]) / 1e9, 0.5 * (t[1:] + t[:-1])
    measured_w = _interpolate(at, mid, w) + rng.normal(0.0, 1.0, 3) * errors.gyro_bias
    measured_a = _interpolate(at, t, a_C) + rng.normal(0.0, 1.0, 3) * errors.accelerometer_bias
    measured_w += rng.normal(0.0, 1.0, measured_w.shape) * errors.gyro_noise
    measured_a += rng.normal(0.0, 1.0, measured_a.shape) * errors.accelerometer_noise
    return measured_w, measured_a


def _interpolate(at: np.ndarray, t: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.column_stack([np.interp(at, t, values[:, i]) for i in range(values.shape[1])])
