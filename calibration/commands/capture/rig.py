"""`load_rig`: reads the file with the devices of `capture record`.

task = "fetch the cup"

[chest]
poses = "tcp://0.0.0.0:5560"             # where its pose stream is listened for
camera = {driver = "opencv", device = "/dev/video0", capture_size = [720, 1280], size = [720, 1280]}
intrinsics = "chest.json"

[hand]
poses = "tcp://0.0.0.0:5561"
camera = {driver = "realsense", size = [480, 640]}
tcp = "hand_tcp.json"
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robot_runtime.core.robot import Camera
from robot_runtime.errors import InvalidValueError, UnknownNameError
from robot_runtime.robot_file.names import shipped_driver
from robot_runtime.transport.address import address_to_listen

KEYS = ("poses", "camera", "intrinsics", "extrinsic", "tcp", "axes", "up", "fps", "gripper")
MORE = ("task", "person", "board", "board_height_m", "chest_height_m")
DRIVERS = ("opencv", "realsense")


@dataclass(frozen=True, kw_only=True)
class RigDevice:
    """Device of a rig's file."""

    poses: str
    """Address on which its pose stream arrives."""
    camera: Mapping[str, Any]
    """Settings of its camera driver."""
    axes: str = "optical"
    up: str = "z"
    fps: float | None = None
    """Images per second; None: as they come."""
    intrinsics: Path | None = None
    extrinsic: Path | None = None
    tcp: Path | None = None
    gripper: str | None = None
    """sensor, if the stream has widths; or tags."""


@dataclass(frozen=True, kw_only=True)
class Rig:
    """Content of a rig's file."""

    devices: Mapping[str, RigDevice]
    more: Mapping[str, Any]
    """task, person, board, heights."""


def load_rig(path: Path) -> Rig:
    """Read a rig's file. InvalidValueError names an invalid key."""
    from calibration.capture.values import ROLES

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidValueError(f"{path} is no TOML: {error}") from error
    tables = {name: value for name, value in content.items() if isinstance(value, dict)}
    if unknown := sorted(set(tables) - set(ROLES)):
        raise UnknownNameError(f"table in {path}", unknown[0], ROLES)
    if not tables:
        raise InvalidValueError(
            f"{path}: expected a table for each device, [chest] and [hand]; there is none"
        )
    devices = {role: _device(path, role, table) for role, table in tables.items()}
    addresses = [each.poses for each in devices.values()]
    if len(set(addresses)) < len(addresses):
        raise InvalidValueError(f"{path}: two devices have the same address for poses")
    return Rig(devices=devices, more=_more(path, {k: v for k, v in content.items() if k not in tables}))


def _more(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Check the keys outside tables. InvalidValueError: a height is no number; UnknownNameError: a key."""
    if unknown := sorted(set(values) - set(MORE)):
        raise UnknownNameError(f"key in {path}", unknown[0], MORE)
    for name, value in values.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if name.endswith("_m") and not (is_number and 0.0 <= value <= 3.0):
            raise InvalidValueError(f"{path}: {name} is a height of 0 to 3 m, got {value!r:.40}")
        if not name.endswith("_m") and not isinstance(value, str):
            raise InvalidValueError(f"{path}: {name} is text, got {value!r:.40}")
    board = values.get("board")
    return values if board is None else {**values, "board": str(path.parent / board)}


def _device(path: Path, role: str, table: dict[str, Any]) -> RigDevice:
    if unknown := sorted(set(table) - set(KEYS)):
        raise UnknownNameError(f"key in [{role}] of {path}", unknown[0], KEYS)
    for name in ("poses", "camera"):
        if name not in table:
            raise InvalidValueError(f"{path}: [{role}] needs {name}")
    camera = table["camera"]
    if not isinstance(camera, dict) or camera.get("driver") not in DRIVERS:
        raise InvalidValueError(
            f"{path}: [{role}] camera is a table with a driver of {', '.join(DRIVERS)} and its settings, "
            f"got {camera}"
        )
    files = {
        name: path.parent / str(table[name]) for name in ("intrinsics", "extrinsic", "tcp") if name in table
    }
    for name, file in files.items():
        if not file.is_file():
            raise InvalidValueError(f"{path}: [{role}] {name} names {file}, and there is no such file")
    from calibration.capture.sources.axes import AXES, UPS

    for name, valid in (("axes", AXES), ("up", UPS), ("gripper", ("sensor", "tags"))):
        if name in table and table[name] not in valid:
            raise UnknownNameError(f"{name} in [{role}] of {path}", str(table[name]), valid)
    fps = table.get("fps")
    is_number = isinstance(fps, int | float) and not isinstance(fps, bool)
    if fps is not None and not (is_number and 0.0 < fps < 1000.0):
        raise InvalidValueError(f"{path}: [{role}] fps is above 0 and below 1000, got {fps!r:.40}")
    return RigDevice(
        poses=address_to_listen(str(table["poses"])),
        camera=_from_folder(camera, path.parent),
        axes=str(table.get("axes", "optical")),
        up=str(table.get("up", "z")),
        fps=None if fps is None else float(fps),
        gripper=table.get("gripper"),
        **files,
    )


def _from_folder(camera: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve a file in place of a camera relative to the rig's file, as all others."""
    device = camera.get("device")
    if isinstance(device, str) and (folder / device).is_file():
        return {**camera, "device": str(folder / device)}
    return camera


def camera_model(device: RigDevice, size: tuple[int, int]) -> Any:
    """Return a device's `CameraModel` at the size of its images; None: the file names no intrinsics.

    InvalidValueError: they are for images of another aspect ratio.
    """
    from calibration.camera import Intrinsics
    from calibration.store import load

    if device.intrinsics is None:
        return None
    camera = load(device.intrinsics, Intrinsics).camera
    return camera if tuple(camera.size) == tuple(size) else camera.resized(size)


def pose_streams(rig: Rig) -> dict[str, tuple[str, str, str]]:
    """Return the pose streams in the form that `Streams` takes."""
    return {role: (each.poses, each.axes, each.up) for role, each in rig.devices.items()}


def open_camera(settings: Mapping[str, Any]) -> Camera:
    """Open a camera. DriverError, InvalidValueError: from its driver."""
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in settings.items()
        if name != "driver"
    }
    if settings["driver"] == "opencv":
        return shipped_driver("opencv")(options.pop("device", 0), **options)
    return shipped_driver("realsense")(**options)
