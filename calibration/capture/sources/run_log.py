"""Our own run log (MCAP): a camera of a teleoperated robot, read as a chest's or a hand's.

    chest   a camera on the mobile base     X_WC = X_WB X_BC
    hand    a camera on an end effector     X_WC = X_WB X_BE X_EC

So teleoperated demonstrations become labels in the same way as those of a person.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pinocchio as pin
from simplejpeg import decode_jpeg, decode_jpeg_header

from calibration.capture.sources.recording import Recording, fps_of
from calibration.capture.values import DeviceInfo, Widths
from calibration.trajectory import Trajectory
from robot_runtime.core.values.state import ArmState, BaseState, GripperState, RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.reader import RunLog

BASE = "base"


def read_run_log(path: Path, *, view: str, part: str, X_part_camera: pin.SE3) -> Recording:
    """Read one camera of a log.

    view: the camera's name in the log. part: the base or the arm (its end effector) that carries it.
    X_part_camera: its optical frame in that part's.
    InvalidValueError: no such log, camera or part.
    """
    log = RunLog.open(path)
    if view not in log.cameras:
        raise InvalidValueError(f"{path} has no camera {view!r}; it has {', '.join(log.cameras) or 'none'}")
    t_ns: list[int] = []
    poses: list[pin.SE3] = []
    widths: list[tuple[int, float]] = []
    for row in log.ticks():
        state = row.state
        if t_ns and state.t_ns <= t_ns[-1]:
            continue
        t_ns.append(state.t_ns)
        poses.append(_pose(path, state, part) * X_part_camera)
        widths += [(state.t_ns, g.width) for g in state.parts.values() if isinstance(g, GripperState)][:1]
    if not t_ns:
        raise InvalidValueError(f"{path} has no control steps in it")
    images = [(image.t_ns, image.jpeg) for image in log.images(view)]
    if not images:
        raise InvalidValueError(f"{path} has no images of camera {view!r}")
    height, width, *_ = decode_jpeg_header(images[0][1])
    frames_ns = np.array([t for t, _ in images], dtype=np.int64)
    size = (height - height % 2, width - width % 2)

    def pictures() -> Iterator[np.ndarray]:
        for _, jpeg in images:
            yield decode_jpeg(jpeg)[: size[0], : size[1]]

    of_hand = part != BASE and bool(widths)
    return Recording(
        info=DeviceInfo(
            kind="robot",
            size=size,
            fps=fps_of(frames_ns),
            gripper="sensor" if of_hand else None,
            source=f"{path.name}, camera {view}",
        ),
        poses=Trajectory.of(np.array(t_ns, dtype=np.int64), poses),
        frames_ns=frames_ns,
        pictures=pictures,
        damage=log.damage,
        widths=Widths(
            t_ns=np.array([t for t, _ in widths], dtype=np.int64), width_m=np.array([w for _, w in widths])
        )
        if of_hand
        else None,
    )


def _pose(path: Path, state: RobotState, part: str) -> pin.SE3:
    base = next((each for each in state.parts.values() if isinstance(each, BaseState)), None)
    X_WB = pin.SE3.Identity()
    if base is not None and base.x_WB is not None:
        x, y, yaw = base.x_WB
        X_WB = pin.SE3(pin.rpy.rpyToMatrix(0.0, 0.0, float(yaw)), np.array([x, y, 0.0]))
    if part == BASE:
        return X_WB
    arm = state.parts.get(part)
    if not isinstance(arm, ArmState) or arm.X_BE is None:
        has = ", ".join(state.parts)
        raise InvalidValueError(f"{path}: part {part!r} has no measured end-effector pose; it has {has}")
    return X_WB * arm.X_BE
