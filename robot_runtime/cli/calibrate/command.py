"""`robot-runtime calibrate`: what is measured once of cameras, arms and grippers."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import OmitSubcommandPrefixes, configure, subcommand

from robot_runtime.cli.calibrate.anchor import CalibrateAnchor
from robot_runtime.cli.calibrate.board import CalibrateBoard
from robot_runtime.cli.calibrate.camera_imu import CalibrateCameraImu
from robot_runtime.cli.calibrate.chest import CalibrateChest
from robot_runtime.cli.calibrate.gripper import CalibrateGripper
from robot_runtime.cli.calibrate.hand_eye import CalibrateHandEye, CalibrateRobotWorld
from robot_runtime.cli.calibrate.intrinsics import CalibrateIntrinsics
from robot_runtime.cli.calibrate.latency import CalibrateLatency
from robot_runtime.cli.calibrate.tcp import CalibrateTcp


@configure(OmitSubcommandPrefixes)
@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Measure once what cameras, arms and grippers are: where they sit, how they see, how late they are.

    Each writes a small JSON file that says its units, frames and how far it can be trusted;
    docs/calibration.md and docs/calibration_robot.md lead through them.
    """

    what: (
        Annotated[CalibrateBoard, subcommand("board")]
        | Annotated[CalibrateIntrinsics, subcommand("intrinsics")]
        | Annotated[CalibrateAnchor, subcommand("anchor")]
        | Annotated[CalibrateHandEye, subcommand("hand-eye")]
        | Annotated[CalibrateRobotWorld, subcommand("robot-world")]
        | Annotated[CalibrateChest, subcommand("chest")]
        | Annotated[CalibrateTcp, subcommand("tcp")]
        | Annotated[CalibrateGripper, subcommand("gripper")]
        | Annotated[CalibrateCameraImu, subcommand("camera-imu")]
        | Annotated[CalibrateLatency, subcommand("latency")]
    )

    def main(self) -> int:
        return self.what.main()
