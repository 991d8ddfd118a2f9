"""A GoPro video with telemetry: images and IMU. Its poses come from SLAM on the video (`trajectory=FILE`).

    DEVC | STRM | SCAL 418   ACCL (n, 3) int16      GPMF, a track beside the video (gopro/gpmf-parser):
         |      |                                    key, type, bytes of a sample, count; big-endian,
         | STRM | SCAL 939   GYRO (n, 3) int16      padded to 4 bytes; type 0 is nested

Times are those of the video. ORIN names the columns of ACCL and GYRO, or they are Z X Y as on a HERO5; they
become X Y Z of the camera's body, which is not the optical frame: `calibrate camera-imu` finds the rotation
between them.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calibration.capture.sources.recording import Recording, fps_of
from calibration.capture.values import DeviceInfo, Imu
from calibration.capture.video import opened, size_and_fps, stamps
from robot_runtime.errors import InvalidValueError

_DEFAULT = "ZXY"
_HEAD = struct.Struct(">4scBH")
_TYPES = {
    b"b": ">i1", b"B": ">u1", b"s": ">i2", b"S": ">u2", b"l": ">i4", b"L": ">u4",
    b"j": ">i8", b"J": ">u8", b"f": ">f4", b"d": ">f8",
}  # fmt: skip


def read_gopro(path: Path) -> Recording:
    """Read a video. InvalidValueError: no video, or unreadable telemetry."""
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
        f"{path.name}: {what}, so there is no IMU. Clocks are joined by the rotation of its poses, and "
        "gravity in its poses is not checked. Give the file as the camera wrote it: cutting or re-encoding "
        "may drop telemetry"
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
    """Samples (times (N,) [ns], (N, 3)): those of a packet are spread evenly to the next packet."""
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
    """Reorder and sign columns to X Y Z of the camera's body."""
    if sorted(orientation.upper()) != ["X", "Y", "Z"]:
        raise InvalidValueError(f"{path}: expected ORIN of the letters x, y and z, got {orientation!r}")
    out = np.empty_like(values)
    for column, letter in enumerate(orientation):
        out[:, "XYZ".index(letter.upper())] = values[:, column] * (1.0 if letter.isupper() else -1.0)
    return out


@dataclass(frozen=True, kw_only=True, eq=False)
class Item:
    """One key of a stream."""

    key: str
    kind: bytes
    """Letter of its type; a zero byte: nested items."""
    sample: int
    """Bytes."""
    payload: bytes

    def numbers(self) -> np.ndarray:
        """Samples (n, k); InvalidValueError: it holds no numbers."""
        if self.kind not in _TYPES:
            raise InvalidValueError(f"GPMF's {self.key} has type {self.kind!r}, which holds no numbers")
        dtype = np.dtype(_TYPES[self.kind])
        wide = max(1, self.sample // dtype.itemsize)
        return np.frombuffer(self.payload, dtype=dtype).reshape(-1, wide).astype(float)

    def items(self) -> Iterator["Item"]:
        """Nested items."""
        return items_of(self.payload)


def items_of(data: bytes) -> Iterator[Item]:
    """Items of one level; InvalidValueError: not GPMF."""
    at = 0
    while at + _HEAD.size <= len(data):
        key, kind, sample, count = _HEAD.unpack_from(data, at)
        if key == b"\0\0\0\0":
            return
        at += _HEAD.size
        size = sample * count
        if not key.isascii() or at + size > len(data):
            raise InvalidValueError(
                f"no GPMF: key {key!r} at byte {at - _HEAD.size} needs {size} bytes, {len(data) - at} are "
                "left"
            )
        yield Item(key=key.decode("ascii"), kind=kind, sample=sample, payload=data[at : at + size])
        at += (size + 3) // 4 * 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Samples:
    """One sensor's samples of one packet, in its unit."""

    values: np.ndarray
    """(n, k)."""
    orientation: str
    """ORIN: camera axis of each column, lower case if negated; empty: undeclared."""


def samples_of(packet: bytes, key: str) -> Samples | None:
    """Scaled samples of a sensor (`ACCL`, `GYRO`); None: the packet has none."""
    for device in items_of(packet):
        if device.key != "DEVC":
            continue
        for stream in device.items():
            inside = {item.key: item for item in stream.items()} if stream.key == "STRM" else {}
            if key not in inside:
                continue
            scale = inside["SCAL"].numbers().ravel() if "SCAL" in inside else np.ones(1)
            orientation = (
                inside["ORIN"].payload.decode("ascii", "replace").strip("\0") if "ORIN" in inside else ""
            )
            return Samples(values=inside[key].numbers() / scale, orientation=orientation)
    return None


def packets_of(path: Path) -> list[tuple[int, bytes]]:
    """Telemetry packets of a video: (time [ns] in the video, bytes); empty: it has none."""
    import av

    with opened(path) as file:
        for stream in file.streams.data:
            try:
                found = [
                    (int(packet.pts * packet.time_base * 1_000_000_000), bytes(packet))
                    for packet in file.demux(stream)
                    if packet.size and packet.pts is not None
                ]
            except av.FFmpegError:
                found = []
            if found and found[0][1][:4] == b"DEVC":
                return found
            file.seek(0)
    return []
