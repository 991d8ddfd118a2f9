"""How one of our robots is named on LeRobot's command lines."""

from dataclasses import dataclass, field

from lerobot.robots import RobotConfig


@RobotConfig.register_subclass("robot_runtime")
@dataclass
class RobotRuntimeConfig(RobotConfig):
    # As `robot-runtime run --robot` names it: robot.toml, file.py:object, package.module:object.
    robot: str = ""
    # Over what the .toml file says: ["parts.arm.host=172.16.0.3"]
    settings: list[str] = field(default_factory=list)
    # "motors": joint_1.pos, gripper.pos, x.vel, as LeRobot's own robots and teleoperators have it, in
    # `joint_unit` and per cent of a gripper's range. "columns": arm.joint_1, gripper.width, base.vx, SI.
    names: str = "motors"
    # "deg" or "rad", of joints and of a base's turning, where names are motors'.
    joint_unit: str = "deg"
    # Of the loop that keeps the robot's limits between LeRobot's targets.
    control_hz: float = 200.0
    # After so long without a target the robot is braked.
    silence_s: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.robot:
            raise ValueError("say which robot: --robot.robot=robot.toml, or file.py:object")
        if self.names not in ("motors", "columns") or self.joint_unit not in ("deg", "rad"):
            raise ValueError(
                "names are motors or columns and joint_unit is deg or rad, "
                f"got {self.names!r}, {self.joint_unit!r}"
            )
