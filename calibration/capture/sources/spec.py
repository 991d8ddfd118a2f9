"""One device's files as typed on the command line, `KIND:FILE,option=value,...`: `parse`, `read`.

record3d:chest.r3d,camera=chest.json        gopro:GX010042.MP4,trajectory=hand.txt,camera=hand.json
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pinocchio as pin

from calibration.camera import Intrinsics
from calibration.capture.sources.aria import TURNS, is_vrs, read_aria, read_aria_vrs
from calibration.capture.sources.aria_lens import RGB
from calibration.capture.sources.arkit import read_arkit
from calibration.capture.sources.axes import AXES, OPTICAL, UPS, begins_at_identity, text_of
from calibration.capture.sources.euroc import read_euroc
from calibration.capture.sources.gopro import read_gopro
from calibration.capture.sources.pose_csv import names_in, time_column, time_of
from calibration.capture.sources.realsense import read_realsense
from calibration.capture.sources.record3d import read_record3d
from calibration.capture.sources.recording import Recording, read_video
from calibration.capture.sources.run_log import read_run_log
from calibration.capture.sources.tum import read_trajectory
from calibration.capture.sources.umi import FPS, read_umi
from calibration.capture.values import Widths
from calibration.store import load, pose_from_json
from calibration.tcp import UMI_GRIPPER
from robot_runtime.errors import InvalidValueError, RobotRuntimeError, UnknownNameError

COMMON = ("camera", "extrinsic", "tcp", "gripper", "trajectory", "axes", "up")
_FILES = ("camera", "extrinsic", "tcp", "trajectory", "video", "stamps", "mps")
_NOT_OF_THAT_FORM = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip
OWN: Mapping[str, tuple[str, ...]] = {
    "record3d": (),
    "arkit": ("video",),
    "realsense": (),
    "gopro": (),
    "aria": ("video", "stamps", "view", "turn", "mps"),
    "euroc": ("view",),
    "umi": ("episode", "robot", "fps"),
    "video": ("stamps",),
    "log": ("view", "part"),
}
"""Kind -> the options that only it has."""
HELP = (
    "KIND:FILE,option=value,... of kind record3d, arkit, realsense, gopro, aria, euroc, umi, video or log; "
    "options: "
    "camera (intrinsics), trajectory (poses from elsewhere, with axes and up), extrinsic (camera in the "
    "device), tcp "
    "(TCP in the camera), gripper (widths, or tags)"
)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Files and options of one device's recording."""

    kind: str
    path: Path
    options: Mapping[str, str]


def parse(text: str) -> Source:
    """Parse a source. InvalidValueError: unknown kind, no file, an option that this kind does not have."""
    kind, colon, rest = text.partition(":")
    if not colon or not rest:
        raise InvalidValueError(f"takes {HELP}; got {text!r}")
    if kind not in OWN:
        raise UnknownNameError("kind of source", kind, OWN)
    first, *others = rest.split(",")
    options = {}
    for each in others:
        name, equals, value = each.partition("=")
        if name not in (*COMMON, *OWN[kind]) or not equals or not value:
            known = ", ".join((*COMMON, *OWN[kind]))
            raise InvalidValueError(f"takes option=value with an option of {known}; got {each!r} for {kind}")
        options[name] = value
    path = Path(first)
    for file in (path, *(Path(options[name]) for name in _FILES if name in options)):
        if not file.exists():
            raise InvalidValueError(f"names {file}, and there is no such file")
    if kind == "aria":
        _check_aria(path, options)
    for name, valid in (("axes", AXES), ("up", UPS)):
        if options.get(name, valid[0]) not in valid:
            raise UnknownNameError(name, options[name], valid)
    return Source(kind=kind, path=path, options=options)


def read(source: Source) -> Recording:
    """Read a source. InvalidValueError names file, line, expected and actual value."""
    try:
        return _converted(source)
    except RobotRuntimeError:
        raise
    except (UnicodeDecodeError, *_NOT_OF_THAT_FORM) as error:
        # Foreign files: a list in place of a number, bytes in place of text, a number of 400 digits.
        raise InvalidValueError(
            f"{source.path}: it, or a file given with it, does not have the form of {source.kind} "
            f"({type(error).__name__}: {str(error)[:120]}): export it again, or give it as another kind"
        ) from error


def _converted(source: Source) -> Recording:
    recording = _read(source)
    options = source.options
    if "trajectory" in options:
        axes, up = options.get("axes", OPTICAL), options.get("up", "z")
        file = Path(options["trajectory"])
        poses = read_trajectory(file, axes=axes, up=up)
        recording = replace(recording, poses=poses, sources=(*recording.sources, file))
    info = recording.info
    if "camera" in options:
        camera = load(Path(options["camera"]), Intrinsics).camera
        if info.size is not None and tuple(camera.size) != tuple(info.size):
            camera = camera.resized(info.size)
        info = replace(info, camera=camera.to_dict())
    if "extrinsic" in options:
        info = replace(info, X_device_camera=pose_file(Path(options["extrinsic"])))
    if "tcp" in options:
        info = replace(info, X_HE=pose_file(Path(options["tcp"])))
    if options.get("gripper") == "tags":
        info = replace(info, gripper="tags")
    elif "gripper" in options:
        info = replace(info, gripper="sensor")
        recording = replace(recording, widths=_widths(Path(options["gripper"])))
    if recording.poses is not None and recording.imu is None and begins_at_identity(recording.poses):
        recording = replace(recording, lacks=(*recording.lacks, _no_gravity(source)))
    return replace(recording, info=info)


def _no_gravity(source: Source) -> str:
    file = source.options.get("trajectory", source.path)
    return (
        f"{file}: the first pose is the identity, so its world is that of the first camera and not level: "
        "gravity is wrong by the tilt of the device at the start. Export poses that are aligned with gravity"
    )


def pose_file(path: Path) -> pin.SE3:
    """Read a pose: {"p": [x, y, z], "q_wxyz": [w, x, y, z]}, alone or in a calibration's content."""
    try:
        data = json.loads(text_of(path))
    except (OSError, ValueError) as error:
        raise InvalidValueError(f"{path} cannot be read as JSON: {error}") from error
    inside = data.get("content", data) if isinstance(data, dict) else {}
    each = [inside, *inside.values()]
    found = [one for one in each if isinstance(one, dict) and "q_wxyz" in one][:2]
    if len(found) != 1:
        raise InvalidValueError(f'{path}: expected one pose, {{"p": [x, y, z], "q_wxyz": [w, x, y, z]}}')
    try:
        return pose_from_json(found[0])
    except (InvalidValueError, KeyError, TypeError) as error:
        raise InvalidValueError(f"{path}: {error}") from error


def _read(source: Source) -> Recording:
    options, path = source.options, source.path
    video = Path(options["video"]) if "video" in options else None
    stamps = Path(options["stamps"]) if "stamps" in options else None
    extrinsic = pose_file(Path(options["extrinsic"])) if "extrinsic" in options else None
    match source.kind:
        case "record3d":
            return read_record3d(path)
        case "arkit":
            return read_arkit(path, video)
        case "realsense":
            return read_realsense(path)
        case "gopro":
            return read_gopro(path)
        case "aria":
            return _aria(source, extrinsic, video, stamps)
        case "euroc":
            return read_euroc(path, camera=options.get("view", "cam0"))
        case "umi":
            return read_umi(
                path,
                episode=int(options.get("episode", "0")),
                robot=int(options.get("robot", "0")),
                fps=float(options.get("fps", FPS)),
                up=options.get("up", "z"),
                X_HE=pose_file(Path(options["tcp"])) if "tcp" in options else UMI_GRIPPER.X_HE,
            )
        case "video":
            return read_video(path, stamps_file=stamps)
        case _:
            if extrinsic is None or "view" not in options:
                raise InvalidValueError(f"{path}: a run log needs view=CAMERA and extrinsic=FILE")
            part = options.get("part", "base")
            return read_run_log(path, view=options["view"], part=part, X_part_camera=extrinsic)


def _check_aria(path: Path, options: Mapping[str, str]) -> None:
    """Refuse options of a trajectory with a video for a recording, and vice versa: InvalidValueError."""
    others = ("extrinsic", "video", "stamps") if is_vrs(path) else ("view", "turn", "mps")
    if wrong := [name for name in others if name in options]:
        has = "has its own calibration and images" if is_vrs(path) else "is no VRS file"
        raise InvalidValueError(f"{path} {has}: it takes no {', '.join(wrong)}")


def _aria(source: Source, extrinsic: pin.SE3 | None, video: Path | None, stamps: Path | None) -> Recording:
    """Read a recording, or a trajectory with a video."""
    options = source.options
    if not is_vrs(source.path):
        return read_aria(source.path, extrinsic, video, stamps)
    return read_aria_vrs(
        source.path,
        view=options.get("view", RGB),
        turn=options.get("turn", TURNS[0]),
        mps=Path(options["mps"]) if "mps" in options else None,
        has_poses="trajectory" in options,
    )


def _widths(path: Path) -> Widths:
    """Read lines of a time, ns or s (with a point), and a width [m], separated by a comma or blanks; or a
    table whose header names its columns: a time with its unit, and width_m or width_mm."""
    t_ns, widths = [], []
    at, width_at, unit_ns, scale, num_columns = 0, 1, None, 1.0, 2
    for i, line in enumerate(text_of(path).splitlines(), start=1):
        cells = line.replace(",", " ").split()
        if i == 1 and (names := names_in(line)):
            (at, unit_ns), num_columns = time_column(path, names), len(names)
            known = [name for name in names if name in ("width", "width_m", "width_mm")]
            width_at, scale = (
                (names.index(known[0]), 1e-3 if known[0] == "width_mm" else 1.0) if known else (1, 1.0)
            )
            continue
        if not cells or cells[0].startswith("#") or (i == 1 and not cells[0][0].isdigit()):
            continue
        try:
            if len(cells) != num_columns:
                raise ValueError(f"{len(cells)} values")
            time, width = cells[at], cells[width_at]
            t_ns.append(time_of(f"{path}, line {i}", time, unit_ns))
            widths.append(scale * float(width))
        except InvalidValueError:
            raise
        except (IndexError, ValueError) as error:
            raise InvalidValueError(
                f"{path}, line {i}: expected a time, in s with a point or in whole ns, and a width [m], as "
                f"`1.250, 0.08`; got {line[:60]!r}"
            ) from error
    found = np.array(widths)
    if not len(found) or not (found.min() >= -0.005 and found.max() <= 0.5):
        raise InvalidValueError(f"{path}: expected widths of a gripper from 0 to 0.5 m, got {found[:5]}")
    return Widths(t_ns=np.array(t_ns, dtype=np.int64), width_m=found)
