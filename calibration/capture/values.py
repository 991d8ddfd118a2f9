"""What a capture says of itself: its devices, marks, and what its tables hold."""

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
"""Spans for calibration; each is marked by NAME_begin and NAME_end."""
WHATS = (BEGIN, END, DISCARD, *(f"{clip}_{edge}" for clip in CLIPS for edge in (BEGIN, END)))
TRACKING = {"lost": LOST, "limited": LIMITED, "ok": OK}


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceInfo:
    """One device of a capture, as it is written into capture.json."""

    kind: str
    """What it is, in a word or two: iphone, d435, gopro, aria, simulated."""
    size: tuple[int, int] | None = None
    """(height, width) of its pictures; None: it has none."""
    fps: float | None = None
    """Of its pictures, nominally; their true times are in frames.csv."""
    camera: Mapping[str, Any] | None = None
    """Intrinsics, a `CameraModel.to_dict()`; None: not calibrated yet."""
    X_device_camera: pin.SE3 | None = None
    """The camera's optical frame in the device's (IMU's) frame, if known."""
    X_HE: pin.SE3 | None = None
    """TCP in the camera's optical frame; a hand's alone."""
    gripper: str | None = None
    """How its width is known: sensor, tags; None: not at all."""
    source: str = ""
    """Where it comes from: file and format of an import, address of a stream."""

    def __post_init__(self) -> None:
        for name in ("X_device_camera", "X_HE"):
            if not isinstance(getattr(self, name), pin.SE3 | None):
                raise InvalidValueError(f"{name} is a pose, pin.SE3, or None")
        if self.fps is not None and not 0.0 < self.fps < 10_000.0:
            raise InvalidValueError(
                f"a device takes above 0 and below 10000 pictures a second, got {self.fps}"
            )
        if self.gripper not in (None, "sensor", "tags"):
            raise InvalidValueError(
                f"a gripper is known by sensor or tags, or not at all; got {self.gripper!r}"
            )
        if self.size is not None and (
            len(self.size) != 2 or not all(n > 0 and n % 2 == 0 for n in self.size)
        ):
            raise InvalidValueError(f"pictures have even numbers of rows and columns, got {self.size}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """What is known before the first row is written."""

    devices: Mapping[str, DeviceInfo]
    """Role (`ROLES`) -> device."""
    task: str = ""
    """What is demonstrated, in words: what a policy will be told."""
    person: str = ""
    """Who demonstrates; a name or a number."""
    board: Mapping[str, Any] | None = None
    """A `Board.to_dict()`; None: captured without one."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Anything else of JSON, kept as it is."""

    def __post_init__(self) -> None:
        if unknown := [role for role in self.devices if role not in ROLES]:
            raise InvalidValueError(f"devices are called {', '.join(ROLES)}; got {', '.join(unknown)}")
        for name in ("more", "board"):
            if not isinstance(getattr(self, name), Mapping | None):
                raise InvalidValueError(f"{name} is an object of JSON, got {getattr(self, name)!r:.60}")
        if not self.devices:
            raise InvalidValueError("a capture has at least one device")


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Something that a person, a gesture or a file said about a time."""

    t_ns: int
    """On the chest's clock."""
    what: str
    """One of `WHATS`."""
    by: str
    """Who or what marked it: a key, a gesture, the import."""

    def __post_init__(self) -> None:
        if self.what not in WHATS:
            raise InvalidValueError(f"a mark is one of {', '.join(WHATS)}; got {self.what!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Frames:
    """When a device's pictures were taken."""

    index: np.ndarray
    """(N,) int64: which picture of the video."""
    t_ns: np.ndarray
    """(N,) int64, rising, this device's clock, at mid-exposure of the middle row."""
    exposure_ns: np.ndarray
    """(N,) int64; 0: unknown."""

    def __len__(self) -> int:
        return len(self.t_ns)

    def span(self, start_ns: int, stop_ns: int) -> range:
        """Which rows lie in [start, stop)."""
        a, b = np.searchsorted(self.t_ns, (start_ns, stop_ns))
        return range(int(a), int(b))


@dataclass(frozen=True, kw_only=True, eq=False)
class Imu:
    """What a device's inertial sensors measured."""

    t_ns: np.ndarray
    """(N,) int64, rising, this device's clock."""
    w: np.ndarray
    """(N, 3) [rad/s]."""
    a: np.ndarray
    """(N, 3) [m/s^2] specific force: at rest it points up, 9.81 long."""

    def __post_init__(self) -> None:
        n = len(self.t_ns)
        if np.shape(self.w) != (n, 3) or np.shape(self.a) != (n, 3):
            raise InvalidValueError(f"w and a are ({n}, 3), got {np.shape(self.w)} and {np.shape(self.a)}")
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
    """How far a gripper was open, where a device measures it."""

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
    """Fiducial tags that were found in a device's pictures; several rows may be of one picture."""

    t_ns: np.ndarray
    """(N,) int64, not falling, of the picture."""
    tag: np.ndarray
    """(N,) int64: which tag."""
    corners: np.ndarray
    """(N, 4, 2) [pixels], pixel centres at whole numbers; in the order of OpenCV's detector."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BoardCorners:
    """The board's corners that were found in a device's pictures; several rows may be of one picture."""

    t_ns: np.ndarray
    """(N,) int64, not falling, of the picture."""
    index: np.ndarray
    """(N,) int64: of the picture in the video."""
    corner: np.ndarray
    """(N,) int64: which corner of the board."""
    uv: np.ndarray
    """(N, 2) [pixels], pixel centres at whole numbers."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Glimpses:
    """Things that an object detector on the videos would have found."""

    t_ns: np.ndarray
    """(N,) int64, of the device that saw it."""
    role: np.ndarray
    """(N,) text: which device."""
    name: np.ndarray
    """(N,) text: what it saw."""
    p: np.ndarray
    """(N, 3) [m] where, in that camera's optical frame."""
    sigma: np.ndarray
    """(N,) [m] standard deviation of each coordinate."""


def _finite(numbers: np.ndarray, what: str) -> None:
    """InvalidValueError: numbers that are not finite."""
    if not np.isfinite(numbers).all():
        i = int(np.flatnonzero(~np.isfinite(numbers.reshape(len(numbers), -1)).all(axis=1))[0])
        raise InvalidValueError(f"row {i} of {what} is not finite: {numbers[i]}")
