"""A GoPro's video with its telemetry: pictures and IMU. Its poses come from a SLAM on it (`trajectory=FILE`).

Times are those of the video. Columns of ACCL and GYRO are told by ORIN, or are Z X Y as on a HERO5; they
become X Y Z of the camera's body, which is not the optical frame: `calibrate camera-imu` finds the rotation
between them.
"""

from pathlib import Path

import numpy as np

from calibration.capture.sources.gpmf import packets_of, samples_of
from calibration.capture.sources.recording import Recording, fps_of
from calibration.capture.values import DeviceInfo, Imu
from calibration.capture.video import size_and_fps, stamps
from robot_runtime.errors import InvalidValueError

_DEFAULT = "ZXY"


def read_gopro(path: Path) -> Recording:
    """InvalidValueError: no video, or telemetry that cannot be read."""
    frames_ns = stamps(path)
    size, _ = size_and_fps(path)
    packets = packets_of(path)
    imu = _imu(path, packets, int(frames_ns[-1]) if len(frames_ns) else 0) if packets else None
    info = DeviceInfo(
        kind="gopro",
        size=size,
        fps=fps_of(frames_ns),
        source=f"{path.name}, GoPro" + ("" if packets else " without telemetry"),
    )
    lacks = () if imu is not None else (_no_imu(path, has_telemetry=bool(packets)),)
    return Recording(info=info, frames_ns=frames_ns, video=path, imu=imu, lacks=lacks)


def _no_imu(path: Path, *, has_telemetry: bool) -> str:
    what = "its telemetry has no GYRO with ACCL" if has_telemetry else "it has no telemetry (GPMF)"
    return (
        f"{path.name}: {what}, so there is no IMU. Clocks are joined by how its poses turn, and gravity in "
        "its poses is not checked. Give the file as the camera wrote it: what cuts or encodes it anew may "
        "drop telemetry"
    )


def _imu(path: Path, packets: list[tuple[int, bytes]], end_ns: int) -> Imu | None:
    gyro = _sensor(path, packets, "GYRO", end_ns)
    accelerometer = _sensor(path, packets, "ACCL", end_ns)
    if gyro is None or accelerometer is None:
        return None
    (t_ns, w), (at_ns, a) = gyro, accelerometer
    since, at = (t_ns - t_ns[0]).astype(float), (at_ns - t_ns[0]).astype(float)
    return Imu(t_ns=t_ns, w=w, a=np.stack([np.interp(since, at, column) for column in a.T], axis=1))


def _sensor(
    path: Path, packets: list[tuple[int, bytes]], key: str, end_ns: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """(times (N,) [ns], (N, 3)): each packet's samples spread evenly to the next one."""
    starts = [t_ns for t_ns, _ in packets]
    usual = int(np.median(np.diff(starts))) if len(starts) > 1 else end_ns - starts[0]
    times, rows = [], []
    for (start_ns, packet), next_ns in zip(packets, [*starts[1:], starts[-1] + usual], strict=True):
        found = samples_of(packet, key)
        if found is None or not len(found.values):
            continue
        if found.values.shape[1] != 3:
            raise InvalidValueError(f"{path}: expected {key} of 3 numbers, got {found.values.shape[1]}")
        n = len(found.values)
        times.append(start_ns + np.rint((np.arange(n) + 0.5) / n * (next_ns - start_ns)).astype(np.int64))
        rows.append(_xyz(path, found.values, found.orientation or _DEFAULT))
    if not times:
        return None
    return np.concatenate(times), np.concatenate(rows)


def _xyz(path: Path, values: np.ndarray, orientation: str) -> np.ndarray:
    """Columns in the order X Y Z, each along its axis."""
    if sorted(orientation.upper()) != ["X", "Y", "Z"]:
        raise InvalidValueError(f"{path}: expected ORIN of the letters x, y and z, got {orientation!r}")
    out = np.empty_like(values)
    for column, letter in enumerate(orientation):
        out[:, "XYZ".index(letter.upper())] = values[:, column] * (1.0 if letter.isupper() else -1.0)
    return out
