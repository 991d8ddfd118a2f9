"""A recording of Project Aria's glasses (first generation), `NAME.vrs`, with the poses that MPS computed.

    214-1             camera-rgb: JPEG; capture_timestamp_ns is the middle of exposure of the middle row
    1201-1, 1201-2    camera-slam-left, -right: grey
    1202-1, 1202-2    imu-right (1 kHz), imu-left (800 Hz): raw, corrected by the calibration
    tag calib_json    lenses, poses of the sensors in the device, errors of the IMUs

All times are the device's own, MPS's too. The cameras are mounted sideways: images are rotated upright and
resampled into a supported lens model (`aria_lens.py`). `aria_mps single -i NAME.vrs --features SLAM` writes
mps_NAME_vrs/slam/closed_loop_trajectory.csv beside it, which is read by default.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pinocchio as pin

from calibration.capture.sources.aria import read_mps
from calibration.capture.sources.aria_calibration import RGB, AriaCalibration
from calibration.capture.sources.aria_lens import Rectified
from calibration.capture.sources.recording import Recording, fps_of
from calibration.capture.sources.vrs import CONFIGURATION, VrsFile
from calibration.capture.values import DeviceInfo, Imu
from calibration.trajectory import Trajectory
from robot_runtime.errors import InvalidValueError, UnknownNameError

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
