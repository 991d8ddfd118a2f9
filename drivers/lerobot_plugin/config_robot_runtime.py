"""The options of a robot of this project on LeRobot's command lines."""

from dataclasses import dataclass, field

from lerobot.robots import RobotConfig


@RobotConfig.register_subclass("robot_runtime")
@dataclass
class RobotRuntimeConfig(RobotConfig):
    # The robot, as for `robot-runtime run --robot`: robot.toml, file.py:object, package.module:object.
    robot: str = ""
    # Settings that replace values of the .toml file: ["parts.arm.host=172.16.0.3"]
    settings: list[str] = field(default_factory=list)
    # "motors": joint_1.pos, gripper.pos, x.vel, as LeRobot's own robots and teleoperators have it, in
    # `joint_unit` and per cent of a gripper's range. "columns": arm.joint_1, gripper.width, base.vx, SI.
    names: str = "motors"
    # "deg" or "rad", for joints and the base's yaw, where names are "motors".
    joint_unit: str = "deg"
    # Rate of the loop that keeps the robot's limits between LeRobot's targets [Hz].
    control_hz: float = 200.0
    # The robot is braked after this long without a target [s].
    silence_s: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.robot:
            raise ValueError("expected a robot: --robot.robot=robot.toml, or file.py:object")
        if self.names not in ("motors", "columns") or self.joint_unit not in ("deg", "rad"):
            raise ValueError(
                "names are motors or columns and joint_unit is deg or rad, "
                f"got {self.names!r}, {self.joint_unit!r}"
            )
