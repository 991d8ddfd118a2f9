"""GoPro's telemetry, GPMF: keys, lengths, values in a track beside the pictures (gopro/gpmf-parser).

DEVC | STRM | SCAL 418   ACCL (n, 3) int16      each: key, type, bytes of a sample, how many; big-endian,
     |      |                                    filled up to 4 bytes; type 0 holds others
     | STRM | SCAL 939   GYRO (n, 3) int16
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robot_runtime.errors import InvalidValueError

_HEAD = struct.Struct(">4scBH")
_TYPES = {
    b"b": ">i1", b"B": ">u1", b"s": ">i2", b"S": ">u2", b"l": ">i4", b"L": ">u4",
    b"j": ">i8", b"J": ">u8", b"f": ">f4", b"d": ">f8",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Item:
    """One key of a stream."""

    key: str
    kind: bytes
    """Its type's letter; a zero byte: it holds others."""
    sample: int
    """Bytes."""
    payload: bytes

    def numbers(self) -> np.ndarray:
        """(n, k) of its samples; InvalidValueError: it has none."""
        if self.kind not in _TYPES:
            raise InvalidValueError(f"GPMF's {self.key} has type {self.kind!r}, which holds no numbers")
        dtype = np.dtype(_TYPES[self.kind])
        wide = max(1, self.sample // dtype.itemsize)
        return np.frombuffer(self.payload, dtype=dtype).reshape(-1, wide).astype(float)

    def items(self) -> Iterator["Item"]:
        """What it holds."""
        return items_of(self.payload)


def items_of(data: bytes) -> Iterator[Item]:
    """The keys of one level; InvalidValueError: it is no GPMF."""
    at = 0
    while at + _HEAD.size <= len(data):
        key, kind, sample, count = _HEAD.unpack_from(data, at)
        if key == b"\0\0\0\0":
            return
        at += _HEAD.size
        size = sample * count
        if not key.isascii() or at + size > len(data):
            raise InvalidValueError(
                f"no GPMF: key {key!r} at byte {at - _HEAD.size} wants {size} bytes, {len(data) - at} are "
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
    """ORIN: which axis of the camera each column is, lower case against it; empty: not said."""


def samples_of(packet: bytes, key: str) -> Samples | None:
    """Those of a sensor (`ACCL`, `GYRO`), scaled; None: it is not in there."""
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
    """(time [ns] in the video, bytes) of a video's telemetry packets; empty: it has none."""
    import av

    from calibration.capture.video import opened

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
