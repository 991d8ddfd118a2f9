"""Values of a capture: its devices, marks, and the contents of its tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pinocchio as pin

from calibration.trajectory import LIMITED, LOST, OK
from robot_runtime.core.values.state import readonly
from robot_runtime.errors import InvalidValueError

ROLES = ("chest", "hand", "left_hand", "right_hand")
BEGIN, END, DISCARD = "begin", "end", "discard"
CLIPS = ("anchor", "sync", "lean")
"""Calibration spans; each is marked by NAME_begin and NAME_end."""
WHATS = (BEGIN, END, DISCARD, *(f"{clip}_{edge}" for clip in CLIPS for edge in (BEGIN, END)))
TRACKING = {"lost": LOST, "limited": LIMITED, "ok": OK}


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceInfo:
    """One device of a capture, as it is written into capture.json."""

    kind: str
    """Kind of device: iphone, d435, gopro, aria, simulated."""
    size: tuple[int, int] | None = None
    """(height, width) of its images; None: it has none."""
    fps: float | None = None
    """Nominal frame rate; true times are in frames.csv."""
    camera: Mapping[str, Any] | None = None
    """Intrinsics, a `CameraModel.to_dict()`; None: not calibrated yet."""
    X_device_camera: pin.SE3 | None = None
    """The camera's optical frame in the device's (IMU's) frame, if known."""
    X_HE: pin.SE3 | None = None
    """TCP in the camera's optical frame; hands only."""
    gripper: str | None = None
    """How its width is measured: sensor, tags; None: not at all."""
    source: str = ""
    """Origin: file and format of an import, address of a stream."""

    def __post_init__(self) -> None:
        for name in ("X_device_camera", "X_HE"):
            if not isinstance(getattr(self, name), pin.SE3 | None):
                raise InvalidValueError(f"expected {name} to be a pin.SE3 or None")
        if self.fps is not None and not 0.0 < self.fps < 10_000.0:
            raise InvalidValueError(f"expected an fps above 0 and below 10000, got {self.fps}")
        if self.gripper not in (None, "sensor", "tags"):
            raise InvalidValueError(
                f"expected a gripper measured by sensor or tags, or None; got {self.gripper!r}"
            )
        if self.size is not None and (
            len(self.size) != 2 or not all(n > 0 and n % 2 == 0 for n in self.size)
        ):
            raise InvalidValueError(f"expected images with even numbers of rows and columns, got {self.size}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """Describes a capture before its first row is written."""

    devices: Mapping[str, DeviceInfo]
    """Role (`ROLES`) -> device."""
    task: str = ""
    """The demonstrated task in words; a policy gets it as its task text."""
    person: str = ""
    """The person who demonstrates; a name or a number."""
    board: Mapping[str, Any] | None = None
    """A `Board.to_dict()`; None: captured without one."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Any other JSON, stored unchanged."""

    def __post_init__(self) -> None:
        if unknown := [role for role in self.devices if role not in ROLES]:
            raise InvalidValueError(f"expected devices named {', '.join(ROLES)}; got {', '.join(unknown)}")
        for name in ("more", "board"):
            if not isinstance(getattr(self, name), Mapping | None):
                raise InvalidValueError(
                    f"expected {name} to be a JSON object, got {getattr(self, name)!r:.60}"
                )
        if not self.devices:
            raise InvalidValueError("expected a capture with at least one device, got none")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A label on a moment, given by a person, a gesture or a file."""

    t_ns: int
    """Time on the chest's clock."""
    what: str
    """One of `WHATS`."""
    by: str
    """Origin of the mark: a key, a gesture, the import."""

    def __post_init__(self) -> None:
        if self.what not in WHATS:
            raise InvalidValueError(f"expected a mark of {', '.join(WHATS)}; got {self.what!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Frames:
    """Capture times of a device's images."""

    index: np.ndarray
    """(N,) int64: index of the image in the video."""
    t_ns: np.ndarray
    """(N,) int64, rising, this device's clock, at mid-exposure of the middle row."""
    exposure_ns: np.ndarray
    """(N,) int64; 0: unknown."""

    def __len__(self) -> int:
        return len(self.t_ns)

    def span(self, start_ns: int, stop_ns: int) -> range:
        """Indices of the rows in [start, stop)."""
        a, b = np.searchsorted(self.t_ns, (start_ns, stop_ns))
        return range(int(a), int(b))


@dataclass(frozen=True, kw_only=True, eq=False)
class Imu:
    """Measurements of a device's inertial sensors."""

    t_ns: np.ndarray
    """(N,) int64, rising, this device's clock."""
    w: np.ndarray
    """(N, 3) [rad/s]."""
    a: np.ndarray
    """(N, 3) [m/s^2] specific force; stationary, it points up and is 9.81 long."""

    def __post_init__(self) -> None:
        n = len(self.t_ns)
        if np.shape(self.w) != (n, 3) or np.shape(self.a) != (n, 3):
            raise InvalidValueError(
                f"expected w and a of ({n}, 3), got {np.shape(self.w)} and {np.shape(self.a)}"
            )
        _finite(np.hstack([self.w, self.a]), "an IMU")
        object.__setattr__(self, "t_ns", readonly(self.t_ns, dtype=np.int64))
        object.__setattr__(self, "w", readonly(self.w))
        object.__setattr__(self, "a", readonly(self.a))

    def __len__(self) -> int:
        return len(self.t_ns)

    def between(self, start_ns: int, stop_ns: int) -> "Imu":
        """The samples in [start, stop)."""
        rows = slice(*map(int, np.searchsorted(self.t_ns, (start_ns, stop_ns))))
        return Imu(t_ns=self.t_ns[rows], w=self.w[rows], a=self.a[rows])


@dataclass(frozen=True, kw_only=True, eq=False)
class Widths:
    """Gripper widths that a device measured."""

    t_ns: np.ndarray
    """(N,) int64, rising, this device's clock."""
    width_m: np.ndarray
    """(N,) [m]."""

    def __post_init__(self) -> None:
        _finite(np.asarray(self.width_m), "a gripper")

    def __len__(self) -> int:
        return len(self.t_ns)


@dataclass(frozen=True, kw_only=True, eq=False)
class Tags:
    """Fiducial tags detected in a device's images; one image may have several rows."""

    t_ns: np.ndarray
    """(N,) int64 capture time of the image, not falling."""
    tag: np.ndarray
    """(N,) int64: id of the tag."""
    corners: np.ndarray
    """(N, 4, 2) [pixels], pixel centres at whole numbers; in the order of OpenCV's detector."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BoardCorners:
    """Board corners detected in a device's images; one image may have several rows."""

    t_ns: np.ndarray
    """(N,) int64 capture time of the image, not falling."""
    index: np.ndarray
    """(N,) int64: index of the image in the video."""
    corner: np.ndarray
    """(N,) int64: id of the corner on the board."""
    uv: np.ndarray
    """(N, 2) [pixels], pixel centres at whole numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Glimpses:
    """Objects that a detector found in the videos."""

    t_ns: np.ndarray
    """(N,) int64, clock of the device that saw it."""
    role: np.ndarray
    """(N,) text: role of that device."""
    name: np.ndarray
    """(N,) text: name of the object."""
    p: np.ndarray
    """(N, 3) [m] position in that camera's optical frame."""
    sigma: np.ndarray
    """(N,) [m] standard deviation of each coordinate."""


def _finite(numbers: np.ndarray, what: str) -> None:
    """Check that numbers are finite; InvalidValueError otherwise."""
    if not np.isfinite(numbers).all():
        i = int(np.flatnonzero(~np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1))[0])
        raise InvalidValueError(f"row {i} of {what} is not finite: {numbers[i]}")
