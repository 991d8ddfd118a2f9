"""Converts axes and times to our conventions: worlds with z up, cameras with z forward and y down, whole ns.

ours       camera: x right, y down, z forward        world: z up
opengl     camera: x right, y up, z back             (ARKit, Unity's is left-handed and refused, Blender)
flu        body:   x forward, y left, z up           (ROS)
"""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pinocchio as pin

from calibration.trajectory import OK, Trajectory
from robot_runtime.errors import InvalidValueError

OPTICAL, OPENGL, FLU = "optical", "opengl", "flu"
_CAMERA_OF = {
    OPTICAL: np.eye(3),
    OPENGL: np.diag([1.0, -1.0, -1.0]),
    FLU: np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]),
}
"""Name of a body's axes -> our camera axes in them (columns)."""
_WORLD_OF = {
    "z": np.eye(3),
    "y": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]]),
    "-y": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]]),
}
"""Up axis of a world -> rotation of that world into one with z up."""
AXES, UPS = tuple(_CAMERA_OF), tuple(_WORLD_OF)
_OFF_UNIT = 0.02
_STRAIGHT = 1e-3
"""Tolerance of a rotation matrix's entries: no one holds a device to 0.06 degrees in all three axes."""
_UNITS = {1_000_000_000: "seconds", 1_000_000: "milliseconds", 1000: "microseconds", 1: "nanoseconds"}
LATEST_NS = 4 * 10**18
"""Largest valid distance of a time from its clock's zero: 126 years, so that sums of two fit 64 bits."""


def trajectory(
    where: object,
    t_ns: np.ndarray,
    p: np.ndarray,
    q_wxyz: np.ndarray,
    *,
    axes: str = OPTICAL,
    up: str = "z",
    tracking: np.ndarray | None = None,
) -> Trajectory:
    """Trajectory from poses of a camera with those axes in a world with that up axis.

    where: prefix of errors.
    InvalidValueError: unknown axes, quaternions that are not unit, times that do not rise.
    """
    if axes not in _CAMERA_OF or up not in _WORLD_OF:
        raise InvalidValueError(
            f"expected axes of {', '.join(AXES)} and up of {', '.join(UPS)}; got {axes!r} and {up!r}"
        )
    norms = np.linalg.norm(q_wxyz, axis=1)
    if (wrong := np.flatnonzero(np.abs(norms - 1.0) > _OFF_UNIT)).size:
        i = int(wrong[0])
        raise InvalidValueError(
            f"{where}, pose {i}: expected a unit quaternion, got {q_wxyz[i]} of length {norms[i]:.3g}: are "
            "the columns in another order?"
        )
    state = np.full(len(t_ns), OK, dtype=np.uint8) if tracking is None else tracking
    try:
        raw = Trajectory(t_ns=t_ns, p=p, q=q_wxyz / norms[:, None], tracking=state)
    except InvalidValueError as error:
        raise InvalidValueError(f"{where}: {error}") from error
    return in_our_axes(raw, axes=axes, up=up)


def in_our_axes(poses: Trajectory, *, axes: str, up: str) -> Trajectory:
    """Convert poses of a camera with those axes in a world with that up axis to our conventions."""
    zero = np.zeros(3)
    return poses.then(pin.SE3(_CAMERA_OF[axes], zero)).before(pin.SE3(_WORLD_OF[up], zero))


def begins_at_identity(poses: Trajectory) -> bool:
    """Whether the first pose is the identity, in any of these conventions: then the world is the first
    camera's, and tilted as the device was."""
    R = poses.R[0]
    return any(
        bool(np.abs(R - W @ C).max() < _STRAIGHT) for W in _WORLD_OF.values() for C in _CAMERA_OF.values()
    )


def text_of(path: Path) -> str:
    """A file's text; InvalidValueError: it is not UTF-8. OSError: it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"{path}: expected text in UTF-8, byte {error.start} is none") from None


def ns_of(text: str, *, unit_ns: int = 1_000_000_000) -> int:
    """Convert a decimal number in units of `unit_ns` to whole nanoseconds without losing digits.

    InvalidValueError: it is not a number, or too large for a time.
    """
    try:
        time = Decimal(str(text).strip()) * unit_ns
        if abs(time) <= LATEST_NS:
            return int(time.to_integral_value())
        years = float(time) / 3.156e16
    except (ArithmeticError, ValueError):
        raise InvalidValueError(f"expected a time, got {text!r:.40}") from None
    raise InvalidValueError(
        f"expected a time in {_UNITS[unit_ns]}, got {text!r:.40}, which is {years:.3g} years: are the "
        "times in nanoseconds or another smaller unit?"
    )
