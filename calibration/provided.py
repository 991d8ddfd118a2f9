"""Calibrations that `robot_runtime` uses: delays of parts, and poses and matches of cameras in a robot file,
and the delays that `doctor` measures; see `robot_runtime.providers`.

[parts.arm]                            [cameras.wrist]
latency_s = "latency.json"             calibration = "hand_eye.json"
                                       match = "wrist.match.json"
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibration.flash import Change, delay_of
from calibration.latency import LONGEST_S, latency_of
from robot_runtime.core.robot import Camera
from robot_runtime.errors import InvalidValueError, RobotRuntimeError, nearest, placed

__all__ = [
    "LONGEST_S",
    "Change",
    "calibration_of",
    "delay_of",
    "latency_of",
    "match_of",
    "matched",
    "with_delays",
]


def with_delays(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The file's table with numbers in place of the files that parts name; paths are relative to `folder`.

    InvalidValueError: no such file, one that was refused when it was made, or one without that part.
    """
    out = dict(table)
    parts = table.get("parts")
    if not isinstance(parts, Mapping):
        return out
    changed = dict(parts)
    for name, part in parts.items():
        if isinstance(part, Mapping) and isinstance(text := part.get("latency_s"), str):
            delay_s = _delay(f"parts.{name}.latency_s", folder / text, name)
            changed[name] = {**part, "latency_s": delay_s}
    return out | {"parts": changed}


def _delay(where: str, path: Path, part: str) -> float:
    from calibration.latency import Latencies
    from calibration.store import load

    try:
        found = load(path, Latencies).parts
    except RobotRuntimeError as error:
        raise placed(error, where) from None
    if part not in found:
        raise InvalidValueError(
            f"{where}: {path} has delays of {', '.join(found)}, none of {part}{nearest(part, found)}"
        )
    return max(found[part].delay_s, 0.0)


def calibration_of(where: str, text: object, folder: Path) -> Any:
    """Content of a camera's calibration file: `Intrinsics`, `HandEye`, `RobotWorld` or `ChestCamera`.

    InvalidValueError: no such file, another kind, changed by hand, or refused when it was made.
    """
    from calibration.camera import Intrinsics
    from calibration.chest import ChestCamera
    from calibration.hand_eye import HandEye, RobotWorld
    from calibration.store import kind_of, load

    if not isinstance(text, str):
        raise InvalidValueError(f"{where} takes a file's name, got {text!r:.60}")
    kinds = {kind.KIND: kind for kind in (Intrinsics, HandEye, RobotWorld, ChestCamera)}
    path = folder / text
    try:
        if (kind := kind_of(path)) not in kinds:
            raise InvalidValueError(f"{path} is of kind {kind}; a camera takes {', '.join(kinds)}")
        return load(path, kinds[kind])
    except RobotRuntimeError as error:
        raise placed(error, where) from None


def match_of(where: str, text: object, folder: Path, *, camera: str, calibration: Any) -> Any:
    """Content of a camera's match file, a `CameraMatch`.

    camera: its name in the robot's file. calibration: by `calibration_of`.
    InvalidValueError: no such file, refused when it was made, of another camera or calibration.
    """
    from calibration.camera_match import CameraMatch, mounted
    from calibration.store import load

    if not isinstance(text, str):
        raise InvalidValueError(f"{where} takes a file's name, got {text!r:.60}")
    try:
        match = load(folder / text, CameraMatch)
        if match.name != camera:
            raise InvalidValueError(
                f"expected the match of camera {camera}, got that of {match.name} in {text}"
            )
        if not mounted(calibration, match.mount).is_same(match.robot):
            raise InvalidValueError(
                f"{text} was made for another lens, size or pose of this camera than its calibration has "
                "now: run capture match again"
            )
    except RobotRuntimeError as error:
        raise placed(error, where) from None
    return match


def matched(where: str, camera: Camera, match: Any) -> Camera:
    """The camera with its images warped to those of the captured camera.

    InvalidValueError: its images do not have the size of its calibration. ModuleNotFoundError: OpenCV is
    missing.
    """
    from calibration.matched_camera import MatchedCamera

    try:
        return MatchedCamera(camera, match)
    except InvalidValueError as error:
        raise placed(error, where) from None
