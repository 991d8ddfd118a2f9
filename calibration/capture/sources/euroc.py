"""EuRoC folders (ASL format): mav0/cam0 with images, imu0, a trajectory in the format of its ground truth.

mav0/cam0/data.csv     #timestamp [ns],filename         cam0/data/*.png
mav0/cam0/sensor.yaml  T_BS, intrinsics, distortion_coefficients
mav0/imu0/data.csv     #timestamp [ns],w_RS_S_x [rad s^-1],...,a_RS_S_x [m s^-2],...
mav0/state_groundtruth_estimate0/data.csv    #timestamp,p_RS_R_x [m],...,q_RS_w [],...: of the body
"""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pinocchio as pin

from calibration.camera import CameraModel, KannalaBrandt, Pinhole
from calibration.capture.sources.axes import text_of, trajectory
from calibration.capture.sources.recording import Recording, fps_of
from calibration.capture.values import DeviceInfo, Imu
from calibration.trajectory import Trajectory
from robot_runtime.errors import InvalidValueError

STATE = "state_groundtruth_estimate0"


def read_euroc(folder: Path, *, camera: str = "cam0") -> Recording:
    """Read one camera of such a folder.

    folder: mav0 or its parent.
    InvalidValueError names file and line.
    """
    root = folder / "mav0" if (folder / "mav0").is_dir() else folder
    cam = root / camera
    if not (cam / "data.csv").is_file():
        raise InvalidValueError(f"{folder} is no EuRoC folder: there is no {camera}/data.csv in it")
    t_ns, names = _pictures_of(cam / "data.csv")
    yaml = text_of(cam / "sensor.yaml") if (cam / "sensor.yaml").is_file() else ""
    X_BC = _pose(cam / "sensor.yaml", yaml)
    files = [cam / "data" / name for name in names]
    size = _size(files[0])
    info = DeviceInfo(
        kind="euroc",
        size=(size[0] - size[0] % 2, size[1] - size[1] % 2),
        fps=fps_of(t_ns),
        camera=_intrinsics(yaml, size),
        X_device_camera=X_BC,
        source=f"{folder.name}, EuRoC",
    )
    state = root / STATE / "data.csv"
    poses = read_state(state).then(X_BC or pin.SE3.Identity()) if state.is_file() else None
    imu = _imu(root / "imu0" / "data.csv", X_BC)
    return Recording(
        info=info, poses=poses, frames_ns=t_ns, pictures=lambda: _shown(files, info.size), imu=imu
    )


def read_state(path: Path) -> Trajectory:
    """Read poses of the body in the format of EuRoC's ground truth."""
    rows = _table(path, 8)
    if rows.numbers.shape[1] < 7:
        raise InvalidValueError(f"{path}: expected timestamp, position and quaternion w x y z in each line")
    return trajectory(path, rows.t_ns, rows.numbers[:, :3], rows.numbers[:, 3:7])


def _imu(path: Path, X_BC: pin.SE3 | None) -> Imu | None:
    if not path.is_file():
        return None
    rows = _table(path, 7)
    w, a = rows.numbers[:, :3], rows.numbers[:, 3:6]
    if X_BC is not None:  # into the camera's frame; the lever arm's acceleration is small
        w, a = w @ X_BC.rotation, a @ X_BC.rotation
    return Imu(t_ns=rows.t_ns, w=w, a=a)


class _Rows:
    def __init__(self, t_ns: np.ndarray, numbers: np.ndarray) -> None:
        self.t_ns, self.numbers = t_ns, numbers


def _table(path: Path, least: int) -> _Rows:
    t_ns, numbers = [], []
    for i, line in enumerate(text_of(path).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        cells = line.split(",")
        if len(cells) < least:
            raise InvalidValueError(f"{path}, line {i}: expected {least} numbers or more, got {len(cells)}")
        try:
            t_ns.append(int(cells[0]))
            numbers.append([float(cell) for cell in cells[1:]])
        except ValueError as error:
            raise InvalidValueError(f"{path}, line {i}: {error}") from error
    if not t_ns:
        raise InvalidValueError(f"{path} has no rows")
    return _Rows(np.array(t_ns, dtype=np.int64), np.array(numbers))


def _pictures_of(path: Path) -> tuple[np.ndarray, list[str]]:
    t_ns, names = [], []
    for i, line in enumerate(text_of(path).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        stamp, comma, name = line.partition(",")
        if not comma or not stamp.strip().isdigit() or "/" in name:
            raise InvalidValueError(
                f"{path}, line {i}: expected a time in ns and a file's name, got {line[:80]!r}"
            )
        t_ns.append(int(stamp))
        names.append(name.strip())
    if not t_ns:
        raise InvalidValueError(f"{path} names no images")
    return np.array(t_ns, dtype=np.int64), names


def _shown(files: list[Path], size: tuple[int, int] | None) -> Iterator[np.ndarray]:
    assert size is not None
    for file in files:
        yield _picture(file)[: size[0], : size[1]]


def _size(file: Path) -> tuple[int, int]:
    picture = _picture(file)
    return picture.shape[0], picture.shape[1]


def _picture(file: Path) -> np.ndarray:
    import cv2

    picture = cv2.imread(str(file), cv2.IMREAD_COLOR)
    if picture is None:
        raise InvalidValueError(f"{file} is not a readable image")
    return cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)


def _numbers_of(yaml: str, name: str) -> list[float] | None:
    """The list after a name in sensor.yaml, which has lists in this form only."""
    found = re.search(rf"{name}:\s*\[([^\]]*)\]", yaml)
    return None if found is None else [float(each) for each in found[1].replace("\n", " ").split(",")]


def _pose(path: Path, yaml: str) -> pin.SE3 | None:
    found = re.search(r"T_BS:.*?data:\s*\[([^\]]*)\]", yaml, re.DOTALL)
    if found is None:
        return None
    numbers = [float(each) for each in found[1].replace("\n", " ").split(",")]
    if len(numbers) != 16:
        raise InvalidValueError(f"{path}: expected T_BS of 16 numbers, got {len(numbers)}")
    X = np.array(numbers).reshape(4, 4)
    return pin.SE3(pin.Quaternion(X[:3, :3]).normalized().matrix(), X[:3, 3])


def _intrinsics(yaml: str, size: tuple[int, int]) -> dict[str, object] | None:
    pinhole, bent = _numbers_of(yaml, "intrinsics"), _numbers_of(yaml, "distortion_coefficients")
    if pinhole is None or len(pinhole) != 4:
        return None
    fx, fy, cx, cy = pinhole
    bent = bent or [0.0] * 4
    if "equidistant" in yaml:
        model: CameraModel = KannalaBrandt(
            size=size, fx=fx, fy=fy, cx=cx, cy=cy, k1=bent[0], k2=bent[1], k3=bent[2], k4=bent[3]
        )
    else:
        model = Pinhole(size=size, fx=fx, fy=fy, cx=cx, cy=cy, k1=bent[0], k2=bent[1], p1=bent[2], p2=bent[3])
    return model.to_dict()
