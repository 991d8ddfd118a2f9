"""Devices of LeRobot by type name: `LeRobotDevice`, `LeRobotCamera`, `LeRobotTeleoperator`.

    so101 = LeRobotDevice("so101_follower", config={"port": "/dev/ttyACM0"}, stroke_m=0.07)
    Robot(so101.parts, cameras=so101.cameras, actions=so101.actions, limits=limits)

What stops it. Each device has its own process, which alone imports LeRobot. `stop` makes its joints hold
where they are measured, its base stop and its gripper keep its grip; so do commands that are
older than `silence_s`. Exit, SIGTERM and death of the process that drives it do the same, then
LeRobot disconnects: many of its robots then switch their motors off and fall
(`disable_torque_on_disconnect`). If the device's own process dies, the motors keep the last goal that they
were sent. A device that raises, or gives no state, is a latched fault: make a new one. No safety function:
that is the switch of its power supply.
"""

from drivers.lerobot.camera import LeRobotCamera
from drivers.lerobot.device import LeRobotDevice
from drivers.lerobot.teleoperator import LeRobotTeleoperator, Target

__all__ = ["LeRobotCamera", "LeRobotDevice", "LeRobotTeleoperator", "Target"]
