"""Checks conventions of poses against gravity: up axis, quaternion order, and the rotation of the IMU.

An accelerometer's mean, rotated into the world, points up and is 9.81 m/s^2 long unless the device gains
speed. A chest camera without an accelerometer is as upright as its wearer. Where that fails, the usual
mistakes are tried one by one: the one whose correction restores gravity is reported.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from calibration.capture.values import Imu
from calibration.trajectory import LOST, Trajectory
from calibration.verdict import Reason
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.pose_rows import rotations_from_quaternions

GRAVITY = 9.81
MOST_TILT = np.deg2rad(10.0)
"""Largest angle between up by the accelerometer and by the poses; biases and steps cause 1 or 2 degrees."""
LEAST_UPRIGHT = 0.5
"""Least mean cosine between a chest camera's down (its y) and the world's down: pitched by 60 degrees."""
MOST_IMU_TURN = np.deg2rad(1.5)
LEAST_SAMPLES = 50
_LEAST_TURN_RMS = 0.2
_FLIP_CV = np.diag([1.0, -1.0, -1.0])
_Z_UP_OF_Y_UP = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
TILTED = ("y-up", "worlds-tilted")
"""Names of reasons for two devices whose worlds have different up axes."""
MISTAKES = ("quaternion-order", "y-up", "camera-axes", "y-up-and-camera-axes", "inverted", "gravity")
"""Names of the reasons that `attitude` gives."""
_ORDER = "its quaternions are in the order x y z w, under the names of w x y z"


def _mistakes(q: np.ndarray) -> Mapping[str, tuple[np.ndarray, str]]:
    """Name -> (rotations (N, 3, 3) if that mistake was made, what it is, what to do)."""
    R = rotations_from_quaternions(q)
    return {
        "quaternion-order": (rotations_from_quaternions(q[:, [3, 0, 1, 2]]), _ORDER),
        "y-up": (_Z_UP_OF_Y_UP @ R, "its world has y up, not z (ARKit, Unity and most phones)"),
        "camera-axes": (
            R @ _FLIP_CV,
            "its camera looks along -z with y up (ARKit, OpenGL), not along z with y down",
        ),
        "y-up-and-camera-axes": (
            _Z_UP_OF_Y_UP @ R @ _FLIP_CV,
            "its world has y up, and its camera looks along -z (ARKit as it comes)",
        ),
        "inverted": (np.swapaxes(R, 1, 2), "its poses are of the world in the camera, not of the camera"),
    }


def attitude(role: str, poses: Trajectory, imu: Imu | None) -> list[Reason]:
    """Reasons why the up axis of a device's poses is wrong; empty: no fault found."""
    known = poses.tracking != LOST
    q = poses.q[known]
    if len(q) < LEAST_SAMPLES:
        return []
    if imu is not None and (found := _specific_force(poses.t_ns[known], imu)) is not None:
        rows, force = found
        if (tilt := _tilt(rotations_from_quaternions(q[rows]), force)) <= MOST_TILT:
            return []
        fits = {name: what for name, (R, what) in _mistakes(q[rows]).items() if _tilt(R, force) <= MOST_TILT}
        angle = f"{np.degrees(tilt):.0f} degrees"
        finding = f"{role}: up by its accelerometer and up by its poses differ by {angle}"
        return [_reason(finding, fits, "check its axes and the pose of its camera, X_device_camera")]
    if role != "chest":
        return []
    upright = _upright(rotations_from_quaternions(q))
    if upright >= LEAST_UPRIGHT:
        return []
    fits = {name: what for name, (R, what) in _mistakes(q).items() if _upright(R) >= LEAST_UPRIGHT}
    finding = f"{role}: its camera is not upright (mean cosine to the world's down {upright:.2f})"
    swapped = "check its axes, and that chest and hand are not swapped"
    reason = _reason(finding, fits, swapped)
    return [replace(reason, do=f"{reason.do[:-1]}; or {swapped}.") if fits else reason]


def imu_turn(role: str, poses: Trajectory, imu: Imu) -> list[Reason]:
    """Check that the gyroscope, declared in the camera's frame, turns about the camera's axes."""
    found = _rates(poses, imu)
    if found is None:
        return []
    of_poses, of_gyro = found
    U, _, Vt = np.linalg.svd(of_gyro.T @ of_poses)
    R = U @ np.diag([1.0, 1.0, np.linalg.det(U @ Vt)]) @ Vt
    angle = float(np.arccos(np.clip((np.trace(R) - 1.0) / 2.0, -1.0, 1.0)))
    if angle <= MOST_IMU_TURN:
        return []
    return [
        Reason(
            name="imu-turned",
            what=f"{role}: its gyroscope and its poses turn about axes {np.degrees(angle):.1f} degrees "
            "apart.",
            do="Calibrate the camera against the IMU (calibrate camera-imu), and import again with the "
            "result.",
            is_fatal=angle > MOST_TILT,
        )
    ]


def _reason(finding: str, fits: Mapping[str, str], otherwise: str) -> Reason:
    if not fits:
        return Reason(name="gravity", what=f"{finding}.", do=f"{otherwise[0].upper()}{otherwise[1:]}.")
    name, what = next(iter(fits.items()))
    also = f" (or {' or '.join(list(fits.values())[1:])})" if len(fits) > 1 else ""
    return Reason(
        name=name,
        what=f"{finding}; they agree if {what}{also}.",
        do="Import it again with the convention that it was written in, or fix its adapter.",
    )


def _specific_force(t_ns: np.ndarray, imu: Imu) -> tuple[np.ndarray, np.ndarray] | None:
    """(rows of the poses, (M, 3) mean measurements around them)."""
    inside = (
        np.flatnonzero((t_ns > imu.t_ns[0]) & (t_ns < imu.t_ns[-1])) if len(imu) > 1 else np.zeros(0, int)
    )
    if len(inside) < LEAST_SAMPLES:
        return None
    since = (imu.t_ns - imu.t_ns[0]).astype(float)
    at = (t_ns[inside] - imu.t_ns[0]).astype(float)
    return inside, np.stack([np.interp(at, since, column) for column in imu.a.T], axis=1)


def _tilt(R: np.ndarray, force: np.ndarray) -> float:
    up = np.einsum("nij,nj->ni", R, force).mean(axis=0)
    size = float(np.linalg.norm(up))
    return float(np.arccos(np.clip(up[2] / size, -1.0, 1.0))) if size > 0.3 * GRAVITY else np.pi


def _upright(R: np.ndarray) -> float:
    return float(-R[:, 2, 1].mean())


def _rates(poses: Trajectory, imu: Imu) -> tuple[np.ndarray, np.ndarray] | None:
    """(M, 3) both [rad/s], of the poses in the camera's frame and of the gyroscope; None: hardly turned."""
    dt_s = np.diff(poses.t_ns) / NS_PER_S
    usable = (dt_s < 0.1) & (poses.tracking[1:] != LOST) & (poses.tracking[:-1] != LOST)
    middle = poses.t_ns[:-1] + np.diff(poses.t_ns) // 2
    if len(imu) < LEAST_SAMPLES:
        return None
    usable &= (middle > imu.t_ns[0]) & (middle < imu.t_ns[-1])
    if usable.sum() < LEAST_SAMPLES:
        return None
    R = poses.R
    turn = np.swapaxes(R[:-1], 1, 2) @ R[1:]
    vee = np.stack(
        [turn[:, 2, 1] - turn[:, 1, 2], turn[:, 0, 2] - turn[:, 2, 0], turn[:, 1, 0] - turn[:, 0, 1]], axis=1
    )
    rates = (vee / 2.0 / dt_s[:, None])[usable]  # of small angles: sine for angle
    since = (imu.t_ns - imu.t_ns[0]).astype(float)
    at = (middle[usable] - imu.t_ns[0]).astype(float)
    gyro = np.stack([np.interp(at, since, column) for column in imu.w.T], axis=1)
    centred = gyro - gyro.mean(axis=0)
    variances = np.linalg.eigvalsh(centred.T @ centred / len(centred))
    spread = np.sqrt(np.maximum(variances, 0.0))  # -1e-20 for a gyroscope with constant output
    if spread[1] < _LEAST_TURN_RMS:  # about one axis alone, rotation about that axis is unobservable
        return None
    return rates - rates.mean(axis=0), centred
