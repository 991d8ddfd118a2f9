"""`robot-runtime calibrate camera-imu`: calibrates rotation and time offset of a camera and its IMU."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pinocchio as pin
from tyro.conf import Positional

from calibration.commands.calibrate.result import keep
from calibration.commands.calibrate.sources import device_of
from robot_runtime.cli.options import InputFolder, OutputFile, need
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class CalibrateCameraImu:
    """Measure the rotation and time offset between a camera and its IMU.

    Uses a clip in which the device nods, shakes and tilts, five seconds each, and compares the rates of its
    poses with its gyro. Exit code 1: the result is not usable, and the reason is printed.

    Example: robot-runtime calibrate camera-imu captures/nod --role hand --output camera_imu.json
    """

    capture: Annotated[InputFolder, Positional]
    output: OutputFile
    """File to write."""
    role: str = "hand"
    """Device of the capture."""

    def main(self) -> int:
        need("scipy", "cv2", "av", extras=("calibration",))
        from calibration.camera_imu import angular_velocity, join_camera_imu

        device = device_of(self.capture, self.role)
        if device.imu is None:
            raise InvalidValueError(f"{self.capture}: device {self.role} has no imu.csv")
        tracked = device.poses.tracking > 0
        t_ns, w_C = angular_velocity(device.poses.t_ns[tracked], device.poses.R[tracked])
        found = join_camera_imu(t_ns, w_C, device.imu.t_ns, device.imu.w)
        turn = ", ".join(f"{each:.2f}" for each in np.rad2deg(pin.rpy.matrixToRpy(found.R_CI)))
        rows = {
            "IMU in the camera": f"rolled, pitched, yawed by ({turn}) degrees, +- "
            f"{np.rad2deg(found.sigma_rad):.2f}",
            "camera after IMU": f"{1e3 * found.lag_s:.2f} ms, +- {1e3 * found.sigma_s:.2f}",
            "bias of the gyro": ", ".join(f"{each:.3f}" for each in np.rad2deg(found.bias)) + " degrees/s",
        }
        return keep(self.output, found, rows)
