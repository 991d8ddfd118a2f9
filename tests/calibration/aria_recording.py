"""A recording of Aria's glasses, as VRS's and Aria's published formats say: header, tags, records, index.

Calibration and layouts have the names and numbers of a first-generation device's.
"""

import csv
import gzip
import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pinocchio as pin
import simplejpeg

MS = 1_000_000
RGB, SLAM_LEFT, IMU_RIGHT, IMU_LEFT, AUDIO = (214, 1), (1201, 1), (1202, 1), (1202, 2), (231, 1)
CONFIGURATION, DATA = 2, 3
_NAMES = {CONFIGURATION: "Configuration", DATA: "Data"}
NONE, LZ4, ZSTD = 0, 1, 2
_HEAD, _RECORD = struct.Struct("<8sQIIqqq24s4s4s"), struct.Struct("<IIiIdHBBI")
_C = {"uint32_t": "I", "uint64_t": "Q", "int64_t": "q", "double": "d", "float": "f", "Bool": "?"}

IMAGE = (
    ("group_id", "uint64_t", 1), ("group_mask", "uint64_t", 1), ("frame_number", "uint64_t", 1),
    ("exposure_duration_s", "double", 1), ("gain", "double", 1), ("capture_timestamp_ns", "int64_t", 1),
    ("arrival_timestamp_ns", "int64_t", 1), ("temperature_deg_c", "double", 1),
)  # fmt: skip
SHAPE = (
    ("device_type", "String", 1), ("camera_id", "uint32_t", 1), ("nominal_rate", "double", 1),
    ("image_width", "uint32_t", 1), ("image_height", "uint32_t", 1), ("image_stride", "uint32_t", 1),
    ("image_pixel_format", "uint32_t", 1), ("description", "String", 1),
)  # fmt: skip
MOTION = (
    ("accelerometer_valid", "Bool", 1), ("gyroscope_valid", "Bool", 1), ("magnetometer_valid", "Bool", 1),
    ("temperature_deg_c", "double", 1), ("capture_timestamp_ns", "int64_t", 1),
    ("arrival_timestamp_ns", "int64_t", 1), ("accelerometer", "float", 3), ("gyroscope", "float", 3),
    ("magnetometer", "float", 3),
)  # fmt: skip

RGB_PARAMS = (
    1221.882, 1462.73, 1465.932, 0.406036, -0.489948, 0.174565, 1.13298, -1.70164, 0.651156, 0.000621147,
    1.9322e-05, -1.48553e-05, 0.000260123, -0.000658211, 3.7614e-05,
)  # fmt: skip
SLAM_PARAMS = (
    241.092, 316.638, 237.025, -0.0255612, 0.0984733, -0.0675009, 0.00948425, 0.00233176, -0.000574631,
    0.00114624, -0.00149885, -0.00123338, -0.000119675, 0.0022857, -5.6488e-05,
)  # fmt: skip
X_D_RGB = pin.SE3(
    pin.Quaternion(np.array([0.32414, 0.0402123, 0.0410768, 0.944261])).normalized().toRotationMatrix(),
    np.array([-0.00428072, -0.0118417, -0.00511398]),
)
X_D_IMU = pin.SE3(pin.rpy.rpyToMatrix(0.3, -0.7, 1.9), np.array([0.006, -0.1, 0.06]))
ACCEL, GYRO = np.array([[1.01, 0.01, 0.0], [0.0, 1.02, 0.02], [0.0, 0.0, 0.99]]), 1.003 * np.eye(3)
ACCEL_OFF, GYRO_OFF = np.array([0.1, -0.2, 0.3]), np.array([0.01, 0.02, -0.03])
ACCEL_LATE_S, GYRO_LATE_S = 0.002, 0.003


def _pose(X: pin.SE3) -> dict:
    x, y, z, w = pin.Quaternion(X.rotation).coeffs().tolist()
    return {"Translation": X.translation.tolist(), "UnitQuaternion": [w, [x, y, z]]}


def calibration(**changed: object) -> dict:
    def camera(label: str, X: pin.SE3, params: Sequence[float]) -> dict:
        lens = {"Name": "FisheyeRadTanThinPrism", "Params": list(params), "Description": ""}
        return {
            "Label": label, "SerialNumber": "0", "Calibrated": True, "T_Device_Camera": _pose(X),
            "Projection": lens,
        }  # fmt: skip

    def errs(matrix: np.ndarray, off: np.ndarray) -> dict:
        return {
            "Bias": {"Name": "Constant", "Offset": off.tolist()},
            "Model": {"Name": "Linear", "RectificationMatrix": matrix.tolist()},
        }

    imu = {
        "Label": "imu-right", "SerialNumber": "0", "Calibrated": True, "T_Device_Imu": _pose(X_D_IMU),
        "Accelerometer": errs(ACCEL, ACCEL_OFF) | {"TimeOffsetSec_Device_Accel": ACCEL_LATE_S},
        "Gyroscope": errs(GYRO, GYRO_OFF) | {"TimeOffsetSec_Device_Gyro": GYRO_LATE_S},
    }  # fmt: skip
    return {
        "DeviceClassInfo": {"BuildVersion": "DVT-S", "DeviceClass": "Aria"}, "Serial": "0",
        "OriginSpecification": {"Type": "Custom", "ChildLabel": "camera-slam-left"},
        "CameraCalibrations": [
            camera("camera-rgb", X_D_RGB, RGB_PARAMS),
            camera("camera-slam-left", pin.SE3.Identity(), SLAM_PARAMS),
        ],
        "ImuCalibrations": [imu], **changed,
    }  # fmt: skip


def layout(pieces: Sequence[tuple[str, str, int]]) -> str:
    """The tag DL: fields of fixed length have an offset, texts an index."""
    said: list[dict] = []
    at = index = 0
    for name, kind, count in pieces:
        if kind == "String":
            said.append({"name": name, "type": "DataPieceString", "index": index})
            index += 1
            continue
        one = {"name": name, "type": f"DataPiece{'Value' if count == 1 else 'Array'}<{kind}>", "offset": at}
        said.append(one | ({} if count == 1 else {"size": count}))
        at += struct.calcsize(f"<{count}{_C[kind]}")
    return json.dumps({"data_layout": said})


def packed(pieces: Sequence[tuple[str, str, int]], values: dict) -> bytes:
    fixed, texts = b"", []
    for name, kind, count in pieces:
        value = values.get(name, "" if kind == "String" else 0)
        if kind == "String":
            texts.append(str(value).encode())
        else:
            fixed += struct.pack(f"<{count}{_C[kind]}", *np.broadcast_to(value, (count,)).tolist())
    places, at = b"", 0
    for text in texts:
        places += struct.pack("<II", at, len(text))
        at += len(text)
    return fixed + places + b"".join(texts)


class VrsWriter:
    """Records that are added in their order; `bytes` makes the file."""

    def __init__(self, tags: dict[str, str]) -> None:
        self.tags, self.streams, self.records = tags, {}, []
        self.compression, self.index_first = NONE, False

    def stream(self, key: tuple[int, int], content: str, configuration: Sequence, data: Sequence) -> None:
        head = "data_layout" + (
            "" if any(p[1] == "String" for p in data) else f"/size={len(packed(data, {}))}"
        )
        self.streams[key] = {
            "DL:Configuration:2:0": layout(configuration), "RF:Configuration:2": "data_layout",
            "DL:Data:2:0": layout(data), "RF:Data:2": head + (f"+{content}" if content else ""),
            "VRS_Original_Recordable_Name": "device", "VRS_Serial_Number": str(key),
        }  # fmt: skip

    def add(self, key: tuple[int, int], kind: int, t_ns: int, payload: bytes) -> None:
        plain, how = payload, self.compression if kind == DATA else NONE
        if how == LZ4:
            import lz4.frame

            payload = lz4.frame.compress(plain, store_size=True)
        elif how == ZSTD:
            import zstandard

            payload = zstandard.ZstdCompressor().compress(plain)
        self.records.append((key, kind, t_ns / 1e9, payload, how, len(plain) if how else 0))

    def bytes(self) -> bytes:
        def text(each: str) -> bytes:
            return struct.pack("<I", len(each.encode())) + each.encode()

        def pairs(tags: dict[str, str]) -> bytes:
            return struct.pack("<I", len(tags)) + b"".join(text(k) + text(v) for k, v in sorted(tags.items()))

        streams = sorted(self.streams.items())
        body = struct.pack("<I", len(streams)) + b"".join(
            struct.pack("<iH", *key) + pairs({}) + pairs(tags) for key, tags in streams
        )
        described = self._own(2, 2, body + pairs(self.tags), 0)
        out, last, index = [], 0, b""
        for key, kind, t_s, payload, how, plain in self.records:
            size = _RECORD.size + len(payload)
            out.append(_RECORD.pack(size, last, key[0], 2, t_s, key[1], kind, how, plain) + payload)
            index += struct.pack("<dIBiH", t_s, size, kind, *key)
            last = size
        listed = struct.pack("<I", len(streams)) + b"".join(struct.pack("<iH", *key) for key, _ in streams)
        listing = self._own(1, 2, listed + struct.pack("<I", len(self.records)) + index, last)
        after = _HEAD.size + len(described)
        order = [described, listing, *out] if self.index_first else [described, *out, listing]
        at = after if self.index_first else after + sum(map(len, out))
        first, form = (after + len(listing), b"VRS2") if self.index_first else (0, b"VRS1")
        head = (b"VisionRe", 1, _HEAD.size, _RECORD.size, at, _HEAD.size, first, bytes(24), b"cord", form)
        return _HEAD.pack(*head) + b"".join(order)

    @staticmethod
    def _own(kind: int, version: int, body: bytes, last: int) -> bytes:
        return _RECORD.pack(_RECORD.size + len(body), last, kind, version, 1.7e308, 0, DATA, NONE, 0) + body


def aria_vrs(
    path: Path,
    t_ns: np.ndarray,
    picture: Callable[[int], np.ndarray],
    *,
    camera: tuple[int, int] = RGB,
    said: dict | None = None,
    motion: Sequence[tuple[int, np.ndarray, np.ndarray]] = (),
    content: str | None = None,
    compression: int = NONE,
    texts: bool = False,
    index_first: bool = False,
) -> Path:
    """
    picture: of an index, (h, w, 3), JPEG in the file; (h, w): raw and grey. motion: (t_ns, gyroscope,
    accelerometer) as the sensor says. texts: pictures' records have a field of varying length too.
    index_first: as in files that can be read while they come.
    """
    writer = VrsWriter({"calib_json": json.dumps(calibration() if said is None else said), "device_id": "0"})
    writer.compression, writer.index_first = compression, index_first
    first, fields = picture(0), IMAGE + ((("note", "String", 1),) if texts else ())
    is_raw = first.ndim == 2
    writer.stream(camera, content or ("image/raw" if is_raw else "image/jpg"), SHAPE, fields)
    writer.stream(IMU_RIGHT, "", SHAPE[:2], MOTION)
    height, width = first.shape[:2]
    shape = {
        "device_type": "Aria", "image_width": width, "image_height": height, "image_stride": 0,
        "image_pixel_format": 1 if is_raw else 0, "description": "made by a test",
    }  # fmt: skip
    start = int(t_ns[0]) - MS
    writer.add(camera, CONFIGURATION, start, packed(SHAPE, shape))
    writer.add(IMU_RIGHT, CONFIGURATION, start, packed(SHAPE[:2], {"device_type": "Aria"}))
    waiting: list[tuple[int, tuple[int, int], bytes]] = []
    for at, w, a in motion:
        valid = {"accelerometer_valid": True, "gyroscope_valid": True, "capture_timestamp_ns": at}
        waiting.append((at, IMU_RIGHT, packed(MOTION, valid | {"accelerometer": a, "gyroscope": w})))
    for i, at in enumerate(t_ns.tolist()):
        one = {"frame_number": i, "exposure_duration_s": 0.004, "capture_timestamp_ns": at, "note": "x" * i}
        image = picture(i)
        raw = image.tobytes() if is_raw else simplejpeg.encode_jpeg(image, quality=95)
        waiting.append((at, camera, packed(fields, one) + raw))
    for at, key, payload in sorted(waiting, key=lambda each: each[0]):
        writer.add(key, DATA, at, payload)
    path.write_bytes(writer.bytes())
    return path


def mps(
    path: Path,
    t_ns: np.ndarray,
    X_WD: Sequence[pin.SE3],
    *,
    world: str = "world",
    quality: dict[int, float] | None = None,
) -> Path:
    """A trajectory of the device as MPS writes it; world: odometry for an open loop; `.gz` is packed."""
    rows = []
    for i, (at, X) in enumerate(zip(t_ns.tolist(), X_WD, strict=True)):
        numbers = (*X.translation.tolist(), *pin.Quaternion(X.rotation).coeffs().tolist())
        names = ("tx", "ty", "tz", "qx", "qy", "qz", "qw")
        rows.append(
            {"tracking_timestamp_us": at // 1000, "utc_timestamp_ns": -1}
            | {"graph_uid" if world == "world" else "session_uid": "a"}
            | {f"{name}_{world}_device": value for name, value in zip(names, numbers, strict=True)}
            | {f"gravity_{axis}_{world}": g for axis, g in zip("xyz", (0.0, 0.0, -9.81), strict=True)}
            | {"quality_score": (quality or {}).get(i, 1.0)}
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    packer = gzip.open if path.suffix == ".gz" else open
    with packer(path, "wt", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
