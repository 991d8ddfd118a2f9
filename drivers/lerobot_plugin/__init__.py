"""Robots of this project for LeRobot's own commands: `--robot.type=robot_runtime --robot.robot=robot.toml`.

    lerobot-record --robot.discover_packages_path=drivers.lerobot_plugin --robot.type=robot_runtime ...

The folder `distribution` makes it a plug-in that LeRobot finds by itself. What stops it: targets that are
older than `silence_s`, exit and Ctrl-C brake the robot within its limits, then its drivers are
stopped. No safety function.
"""

from drivers.lerobot_plugin.config_robot_runtime import RobotRuntimeConfig
from drivers.lerobot_plugin.robot import RobotRuntime

__all__ = ["RobotRuntime", "RobotRuntimeConfig"]
