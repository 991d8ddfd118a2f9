"""Messages between the robot's process and the process of a LeRobot device."""

from typing import Any

from msgspec import Struct

from drivers.lerobot.tables import Numbers, Table, Unit

LIBRARY_START_S = 120.0
"""How long a process may take to import torch and LeRobot, on a busy machine, and to connect [s]."""


class DeviceConfig(Struct, frozen=True, kw_only=True):
    """The settings of a robot or teleoperator of LeRobot; see `LeRobotDevice`."""

    type: str
    config: dict[str, Any]
    plugins: list[str]
    parts: dict[str, Table]
    """Empty: by the usual names."""
    joint_unit: Unit | None
    joint_ranges: dict[str, tuple[float, float]]
    stroke_m: float | None
    others: dict[str, float]
    rate_hz: float
    silence_s: float
    state_timeout_s: float


class Facts(Struct, frozen=True, kw_only=True):
    """The properties of a device that its process has found."""

    parts: dict[str, Table]
    cameras: dict[str, tuple[int, int]] = {}
    """Name -> (height, width), of the cameras in its observations."""


class DeviceOrder(Struct, frozen=True, kw_only=True):
    """The newest command to every part that was ever commanded; None: hold where it is."""

    number: int = 0
    parts: dict[str, Numbers | None] = {}


class DeviceReport(Struct, frozen=True, kw_only=True):
    """The newest state of a device."""

    t_ns: int
    """This machine's monotonic clock, in the middle of the reading."""
    parts: dict[str, Numbers] = {}
    """Joints [rad], a gripper's width [m], a base's x_WB [m, m, rad]."""
    speeds: dict[str, Numbers] = {}
    """Speeds of joints [rad/s], V_WB_B of a base [m/s, m/s, rad/s]."""
    fault: str = ""


class CameraConfig(Struct, frozen=True, kw_only=True):
    """The settings of a camera of LeRobot; see `LeRobotCamera`."""

    type: str
    config: dict[str, Any]
    plugins: list[str]
    latency_s: float


class CameraOrder(Struct, frozen=True, kw_only=True):
    """An empty order: a camera takes no commands."""


class CameraReport(Struct, frozen=True, kw_only=True):
    """The newest report of a camera."""

    num_frames: int
    fault: str = ""
