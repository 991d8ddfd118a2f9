"""The module that LeRobot imports to find robots of this project: importing it registers
`--robot.type=robot_runtime`."""

from drivers.lerobot_plugin import RobotRuntime, RobotRuntimeConfig

__all__ = ["RobotRuntime", "RobotRuntimeConfig"]
