"""Project Aria's glasses (first generation): recordings, and trajectories of MPS.

`NAME.vrs`, a recording (`read_aria_vrs`):

    214-1             camera-rgb: JPEG; capture_timestamp_ns is the middle of exposure of the middle row
    1201-1, 1201-2    camera-slam-left, -right: grey
    1202-1, 1202-2    imu-right (1 kHz), imu-left (800 Hz): raw, corrected by the calibration
    tag calib_json    lenses, poses of the sensors in the device, errors of the IMUs

All times are the device's own, MPS's too. The cameras are mounted sideways: images are rotated upright and
resampled into a supported lens model (`aria_lens.py`). `aria_mps single -i NAME.vrs --features SLAM` writes
mps_NAME_vrs/slam/closed_loop_trajectory.csv beside it, which is read by default.

MPS is Machine Perception Services. Its `closed_loop_trajectory.csv` has a row a millisecond:
tracking_timestamp_us, gravity_{x,y,z}_world,
{tx,ty,tz,qx,qy,qz,qw}_world_device, quality_score in [0, 1]; `open_loop_trajectory.csv` has the same in a
world called odometry. Both may be compressed (`.gz`). Their world has z up. The device is not the RGB camera.
With a trajectory alone (`read_aria`), images are a video that Aria's own tools extracted (`vrs_to_mp4`), with
times in ns, a line each (`stamps=FILE`), and the camera's pose in the device is given (`extrinsic=FILE`).
"""

import csv
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import pinocchio as pin

from calibration.capture.sources.aria_lens import RGB, AriaCalibration, Rectified
from calibration.capture.sources.axes import ns_of, text_of, trajectory
from calibration.capture.sources.recording import Recording, fps_of, read_video
from calibration.capture.sources.vrs import CONFIGURATION, VrsFile
from calibration.capture.values import DeviceInfo, Imu
from calibration.trajectory import LIMITED, LOST, OK, Trajectory
from robot_runtime.errors import InvalidValueError, UnknownNameError

CLOSED, OPEN = "world", "odometry"
"""Names of a trajectory's world in its columns: after and before loop closure."""
LEAST_QUALITY = 0.5
"""quality_score below which tracking counts as limited; at 0 it is lost."""


def read_mps(path: Path) -> Trajectory:
    """Read X_WD of the device from either trajectory. InvalidValueError names file and line."""
    reader = csv.DictReader(StringIO(_text(path), newline=""))
    rows, columns = list(reader), reader.fieldnames or ()
    world = OPEN if f"tx_{OPEN}_device" in columns else CLOSED
    names = tuple(f"{name}_{world}_device" for name in ("tx", "ty", "tz", "qw", "qx", "qy", "qz"))
    missing = [name for name in ("tracking_timestamp_us", *names) if name not in columns]
    if not rows or missing:
        lacks = ", ".join(missing) if missing else "every row"
        raise InvalidValueError(
            f"{path} is no closed_loop_trajectory.csv or open_loop_trajectory.csv of Aria's: it lacks {lacks}"
        )
    t_ns, poses, tracking = [], [], []
    for number, row in enumerate(rows, start=2):
        try:
            t_ns.append(ns_of(row["tracking_timestamp_us"], unit_ns=1000))
            poses.append([float(row[name]) for name in names])
            tracking.append(_tracking(float(row.get("quality_score") or 1.0)))
        except (TypeError, ValueError) as error:
            raise InvalidValueError(f"{path}, line {number}: {error}") from error
    _check_gravity(path, rows[0], [f"gravity_{axis}_{world}" for axis in "xyz"])
    which = "graph_uid" if world == CLOSED else "session_uid"
    if len({row.get(which) for row in rows}) > 1:
        raise InvalidValueError(
            f"{path} has poses of several worlds ({which}): keep one of them; each is a separate capture"
        )
    numbers = np.array(poses)
    return trajectory(
        path, np.array(t_ns, dtype=np.int64), numbers[:, :3], numbers[:, 3:], tracking=np.array(tracking)
    )


def _text(path: Path) -> str:
    if path.suffix != ".gz":
        return text_of(path)
    try:
        return gzip.decompress(path.read_bytes()).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InvalidValueError(f"{path} cannot be unpacked: {error}") from error


def _tracking(quality: float) -> int:
    if quality <= 0.0:
        return LOST
    return OK if quality >= LEAST_QUALITY else LIMITED


def read_aria(
    path: Path, X_device_camera: pin.SE3 | None, video: Path | None = None, stamps_file: Path | None = None
) -> Recording:
    """Read a trajectory and, if given, its video.

    path: the trajectory. X_device_camera: of the RGB camera; None is refused where there is a video.
    InvalidValueError names file and line.
    """
    of_device = read_mps(path)
    info = DeviceInfo(kind="aria", source=f"{path.name}, Aria MPS", X_device_camera=X_device_camera)
    if video is None:
        return Recording(
            info=info, poses=of_device.then(X_device_camera or pin.SE3.Identity()), sources=(path,)
        )
    if X_device_camera is None:
        raise InvalidValueError(
            f"{path} has poses of the device, and {video} is of its RGB camera: give that camera's pose in "
            "the device with extrinsic=FILE, or give the VRS file itself, whose calibration has it"
        )
    seen = read_video(video, stamps_file=stamps_file, kind="aria")
    info = DeviceInfo(
        kind="aria",
        size=seen.info.size,
        fps=seen.info.fps,
        source=f"{path.name}, Aria MPS",
        X_device_camera=X_device_camera,
    )
    return Recording(
        info=info,
        poses=of_device.then(X_device_camera),
        frames_ns=seen.frames_ns,
        video=video,
        sources=(path,),
    )


def _check_gravity(path: Path, row: dict[str, str], names: list[str]) -> None:
    if any(not row.get(name) for name in names):
        return
    down = np.array([float(row[name]) for name in names])
    if down[2] > -0.9 * float(np.linalg.norm(down)):
        raise InvalidValueError(f"{path}, line 2: gravity is {down}, expected a world with z up")


STREAMS = {RGB: "214-1", "camera-slam-left": "1201-1", "camera-slam-right": "1201-2"}
"""View -> the stream of its images."""
IMUS = {"imu-right": "1202-1", "imu-left": "1202-2"}
"""IMUs, the better one first."""
TURNS = ("90", "0", "180", "270")
"""Image rotations, degrees clockwise; the first is for glasses worn normally."""
_OTHERS = {
    "211": "camera-et", "231": "microphones", "247": "barometer", "281": "GPS", "282": "Wi-Fi",
    "283": "Bluetooth", "285": "time", "1203": "magnetometer",
}  # fmt: skip
_TRAJECTORIES = (
    "closed_loop_trajectory.csv", "closed_loop_trajectory.csv.gz",
    "open_loop_trajectory.csv", "open_loop_trajectory.csv.gz",
)  # fmt: skip
"""File names of MPS, the better ones first."""


def is_vrs(path: Path) -> bool:
    """Whether a path names a VRS file."""
    return path.suffix.lower() == ".vrs"


def read_aria_vrs(
    path: Path, *, view: str = RGB, turn: str = TURNS[0], mps: Path | None = None, has_poses: bool = False
) -> Recording:
    """Read one camera of a recording with its IMU and poses.

    view: the camera, one of `STREAMS`; turn: rotation of images, one of `TURNS`; mps: a trajectory or a
    folder with one, None: searched beside the file; has_poses: poses are supplied otherwise.
    InvalidValueError: no VRS file, or one without images, calibration or poses; says what to do.
    """
    for what, name, valid in (("view", view, STREAMS), ("turn", turn, TURNS)):
        if name not in valid:
            raise UnknownNameError(what, name, valid)
    trajectory = None if has_poses and mps is None else _mps_file(path, mps)
    with VrsFile(path) as file:
        calibration = AriaCalibration.from_json(path, file.tags.get("calib_json", ""))
        seen = _Seen.of(file, view)
        rectified = calibration.rectified(view, seen.size, int(turn) // 90)
        X_DC = calibration.pose("Camera", view) * rectified.X_camera_turned
        imu, imu_label = _imu(file, calibration, X_DC)
        left = _left_out(file, view, imu_label)
    of_device = None if trajectory is None else read_mps(trajectory)
    if of_device is not None:
        _check_same_recording(path, trajectory, of_device, seen.t_ns)
    info = DeviceInfo(
        kind="aria",
        size=rectified.camera.size,
        fps=fps_of(seen.t_ns),
        camera=rectified.camera.to_dict(),
        X_device_camera=X_DC,
        source=(
            f"{path.name}, Aria {view}, turned by {turn} degrees, resampled as Kannala-Brandt: pixels moved "
            f"by up to {rectified.moved_px:.1f} px, off by up to {rectified.residual_px:.2f} px; "
            f"{'no MPS' if trajectory is None else trajectory.name}; {imu_label}; left in the file: {left}"
        ),
    )
    return Recording(
        info=info,
        poses=None if of_device is None else of_device.then(X_DC),
        frames_ns=seen.t_ns,
        exposure_ns=seen.exposure_ns,
        pictures=lambda: _pictures(path, view, seen, rectified),
        imu=imu,
        sources=() if trajectory is None else (trajectory,),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Seen:
    """Metadata of a camera's images."""

    t_ns: np.ndarray
    exposure_ns: np.ndarray
    size: tuple[int, int]
    content: str

    @classmethod
    def of(cls, file: VrsFile, view: str) -> "_Seen":
        stream = STREAMS[view]
        if not file.count(stream) or not file.count(stream, CONFIGURATION):
            there = [name for name, each in STREAMS.items() if file.count(each)]
            raise InvalidValueError(
                f"{file.path} has no images of {view} (stream {stream}); it has "
                f"{', '.join(there) or 'none at all'}"
            )
        rows, shape = file.rows(stream), file.rows(stream, CONFIGURATION)[0]
        t_ns = _times(file, stream, rows)
        size = (int(shape["image_height"]), int(shape["image_width"]))
        content = file.layout(stream).content
        is_raw = content.startswith("image/raw")
        if not is_raw and content != "image/jpg":
            raise InvalidValueError(
                f"{file.path}: images of {view} are {content or 'missing'}, expected JPEG or raw grey. "
                "Aria's second generation records video: extract it with Aria's own vrs_to_mp4, and "
                "give closed_loop_trajectory.csv with video=, stamps= and extrinsic="
            )
        if is_raw and int(shape["image_pixel_format"]) != 1:
            raise InvalidValueError(
                f"{file.path}: raw images of {view} are of VRS's pixel format "
                f"{shape['image_pixel_format']}, expected grey of 8 bits (1)"
            )
        exposure_s = np.clip(np.nan_to_num(rows["exposure_duration_s"]), 0.0, 1.0)  # NaN where unknown
        exposure_ns = np.rint(1e9 * exposure_s).astype(np.int64)
        return cls(t_ns=t_ns, exposure_ns=exposure_ns, size=size, content=content)


def _times(file: VrsFile, stream: str, rows: np.ndarray) -> np.ndarray:
    t_ns = rows["capture_timestamp_ns"].astype(np.int64)
    if (falls := np.flatnonzero(np.diff(t_ns) <= 0)).size:
        i = int(falls[0]) + 1
        raise InvalidValueError(
            f"{file.path}, stream {stream}: times have to rise, but record {i} is of {t_ns[i]} ns, after "
            f"{t_ns[i - 1]}"
        )
    return np.asarray(t_ns)


def _imu(file: VrsFile, calibration: AriaCalibration, X_DC: pin.SE3) -> tuple[Imu | None, str]:
    """IMU samples in the camera's frame, and a label of the IMU."""
    for label, stream in IMUS.items():
        if file.count(stream) > 1 and label in calibration.labels("Imu"):
            break
    else:
        return None, "no IMU with a calibration"
    rows = file.rows(stream)
    good = rows["accelerometer_valid"] & rows["gyroscope_valid"]
    num_bad, rows = int((~good).sum()), rows[good]
    if len(rows) < 2:
        return None, f"{label} without a valid sample"
    t_ns = _times(file, stream, rows)
    imu = calibration.imu(label, t_ns, rows["gyroscope"], rows["accelerometer"], X_DC)
    return imu, label + (f" without {num_bad} samples that it marks invalid" if num_bad else "")


def _pictures(path: Path, view: str, seen: _Seen, rectified: Rectified) -> Iterator[np.ndarray]:
    from simplejpeg import decode_jpeg

    with VrsFile(path) as file:
        for i, raw in enumerate(file.contents(STREAMS[view])):
            try:
                if seen.content == "image/jpg":
                    picture = np.asarray(decode_jpeg(raw))
                else:
                    grey = np.frombuffer(raw, dtype=np.uint8).reshape(seen.size)
                    picture = np.repeat(grey[:, :, None], 3, axis=2)
                yield rectified(picture)
            except ValueError as error:
                raise InvalidValueError(f"{path}, image {i} of {view} cannot be read: {error}") from error


def _left_out(file: VrsFile, view: str, imu_label: str) -> str:
    names = {stream: name for name, stream in (STREAMS | IMUS).items()}
    used = (view, imu_label.split(" ")[0])
    of = [names.get(each, _OTHERS.get(each.partition("-")[0], each)) for each in file.streams]
    return ", ".join(dict.fromkeys(name for name in of if name not in used)) or "nothing"


def _mps_file(path: Path, given: Path | None) -> Path:
    """Path of the trajectory; InvalidValueError: none exists; says how to make it."""
    if given is not None and given.is_file():
        return given
    beside = (path.parent / f"mps_{path.stem}_vrs" / "slam", path.parent / "slam", path.parent)
    folders = beside if given is None else (given, given / "slam")
    for folder in folders:
        for name in _TRAJECTORIES:
            if (folder / name).is_file():
                return folder / name
    raise InvalidValueError(
        f"{path} has no poses in it, and there is no {_TRAJECTORIES[0]} in {' or '.join(map(str, folders))}: "
        f"`aria_mps single -i {path.name} --features SLAM` makes one; give it with mps=FILE or mps=FOLDER, "
        "or poses from elsewhere with trajectory=FILE"
    )


def _check_same_recording(
    path: Path, trajectory: Path | None, of_device: Trajectory, t_ns: np.ndarray
) -> None:
    covered = ((t_ns >= of_device.t_ns[0]) & (t_ns <= of_device.t_ns[-1])).mean()
    if covered < 0.5:
        raise InvalidValueError(
            f"{trajectory} has poses for {100 * covered:.0f} % of the images of {path}: is it of another "
            "recording?"
        )
