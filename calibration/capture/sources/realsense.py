"""RealSense recordings, `NAME.bag` of ROS 1: colour images, gyroscope, accelerometer, and a T265's poses.

    /device_0/sensor_1/Color_0/image/data              sensor_msgs/Image, rgb8 or bgr8
    /device_0/sensor_1/Color_0/info/camera_info        sensor_msgs/CameraInfo
    /device_0/sensor_2/Gyro_0/imu/data, Accel_0        sensor_msgs/Imu
    /device_0/sensor_0/Pose_0/pose/transform/data      geometry_msgs/Transform (T265: x right, y up, z back)

A D4xx has no poses: SLAM on its images gives them (`trajectory=FILE`, times of the bag). Needs `rosbags`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration.camera import KannalaBrandt, Pinhole
from calibration.capture.sources.axes import OPENGL, trajectory
from calibration.capture.sources.recording import Recording, fps_of
from calibration.capture.values import DeviceInfo, Imu
from robot_runtime.errors import InvalidValueError

IMAGE, INFO, GYRO, ACCEL, POSE = (
    "Color_0/image/data", "Color_0/info/camera_info", "Gyro_0/imu/data", "Accel_0/imu/data",
    "Pose_0/pose/transform/data",
)  # fmt: skip
_ENCODINGS = ("rgb8", "bgr8")


def read_realsense(path: Path) -> Recording:
    """Read a bag. InvalidValueError: no such bag, or neither colour images nor poses in it."""
    frames_ns, gyro, accel, poses = [], [], [], []
    camera_info: Any = None
    size: tuple[int, int] | None = None
    for topic, t_ns, message in _messages(path, (IMAGE, INFO, GYRO, ACCEL, POSE)):
        match topic:
            case _ if topic == IMAGE:
                frames_ns.append(t_ns)
                size = (int(message.height), int(message.width))
            case _ if topic == INFO:
                camera_info = message
            case _ if topic == GYRO:
                v = message.angular_velocity
                gyro.append((t_ns, v.x, v.y, v.z))
            case _ if topic == ACCEL:
                v = message.linear_acceleration
                accel.append((t_ns, v.x, v.y, v.z))
            case _:
                p, q = message.translation, message.rotation
                poses.append((t_ns, p.x, p.y, p.z, q.w, q.x, q.y, q.z))
    if not frames_ns and not poses:
        raise InvalidValueError(f"{path} has neither colour images ({IMAGE}) nor poses ({POSE})")
    times = np.array(frames_ns, dtype=np.int64)
    info = DeviceInfo(
        kind="realsense",
        size=None if size is None else (size[0] - size[0] % 2, size[1] - size[1] % 2),
        fps=fps_of(times) if len(times) else None,
        camera=None if camera_info is None else _camera(path, camera_info),
        source=f"{path.name}, RealSense",
    )
    found = None
    if poses:
        rows = np.array([row[1:] for row in poses])
        found = trajectory(
            path,
            np.array([row[0] for row in poses], dtype=np.int64),
            rows[:, :3],
            rows[:, 3:],
            axes=OPENGL,
            up="y",
        )
    return Recording(
        info=info,
        poses=found,
        frames_ns=times if len(times) else None,
        pictures=None if size is None else lambda: _pictures(path, info.size),
        imu=_imu(gyro, accel),
    )


def _messages(path: Path, endings: tuple[str, ...]) -> Iterator[tuple[str, int, Any]]:
    """Messages in order: (ending of the topic, the message's own time [ns], message)."""
    from rosbags.rosbag1 import Reader
    from rosbags.rosbag1.reader import ReaderError
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC)
    try:
        with Reader(path) as bag:
            wanted = {c.topic: e for c in bag.connections for e in endings if c.topic.endswith(e)}
            connections = [c for c in bag.connections if c.topic in wanted]
            for connection, t_ns, raw in bag.messages(connections) if connections else ():
                message = store.deserialize_ros1(raw, connection.msgtype)
                stamp = getattr(getattr(message, "header", None), "stamp", None)
                own_ns = stamp.sec * 1_000_000_000 + stamp.nanosec if stamp is not None else t_ns
                yield wanted[connection.topic], int(own_ns), message
    except (ReaderError, OSError) as error:
        raise InvalidValueError(f"{path} is not a readable ROS 1 bag: {error}") from error


def _pictures(path: Path, size: tuple[int, int] | None) -> Iterator[np.ndarray]:
    assert size is not None
    for _, _, message in _messages(path, (IMAGE,)):
        if message.encoding not in _ENCODINGS:
            raise InvalidValueError(
                f"{path}: images are {message.encoding}, expected {' or '.join(_ENCODINGS)}: record in RGB8"
            )
        rows = np.asarray(message.data, dtype=np.uint8).reshape(message.height, message.step)
        picture = rows[:, : 3 * message.width].reshape(message.height, message.width, 3)
        yield (picture if message.encoding == "rgb8" else picture[:, :, ::-1])[: size[0], : size[1]]


def _camera(path: Path, info: Any) -> dict[str, Any]:
    K, D = np.asarray(info.K, dtype=float).ravel(), np.asarray(info.D, dtype=float).ravel()
    size, values = (int(info.height), int(info.width)), {"fx": K[0], "fy": K[4], "cx": K[2], "cy": K[5]}
    if "Inverse" in info.distortion_model and np.abs(D).max(initial=0.0) > 1e-6:
        raise InvalidValueError(
            f"{path}: its lens is given as {info.distortion_model}, undistorting in place of distorting: "
            "calibrate it with calibrate intrinsics, and give camera=FILE"
        )
    if "Kannala" in info.distortion_model:
        return KannalaBrandt(size=size, **values, k1=D[0], k2=D[1], k3=D[2], k4=D[3]).to_dict()
    D = np.concatenate([D, np.zeros(5)])[:5]
    return Pinhole(size=size, **values, k1=D[0], k2=D[1], p1=D[2], p2=D[3], k3=D[4]).to_dict()


def _imu(gyro: Sequence[tuple[float, ...]], accel: Sequence[tuple[float, ...]]) -> Imu | None:
    if len(gyro) < 2 or len(accel) < 2:
        return None
    t_ns = np.array([int(row[0]) for row in gyro], dtype=np.int64)
    at_ns = np.array([int(row[0]) for row in accel], dtype=np.int64)
    a = np.array([row[1:] for row in accel])
    since, at = (t_ns - t_ns[0]).astype(float), (at_ns - t_ns[0]).astype(float)
    return Imu(
        t_ns=t_ns,
        w=np.array([row[1:] for row in gyro]),
        a=np.stack([np.interp(since, at, column) for column in a.T], axis=1),
    )
