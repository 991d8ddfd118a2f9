"""What LeRobot imports to find our robots: importing it registers `--robot.type=robot_runtime`."""

from drivers.lerobot_plugin import RobotRuntime, RobotRuntimeConfig

__all__ = ["RobotRuntime", "RobotRuntimeConfig"]
