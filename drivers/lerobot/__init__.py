"""Whatever LeRobot drives: `LeRobotDevice`, `LeRobotCamera`, `LeRobotTeleoperator`, by type name.

    so101 = LeRobotDevice("so101_follower", config={"port": "/dev/ttyACM0"}, stroke_m=0.07)
    Robot(so101.parts, cameras=so101.cameras, actions=so101.actions, limits=limits)

What stops it. Each device has a process of its own, which alone imports LeRobot. `stop` has its joints hold
where they are measured, its base stand and its gripper hold on to what it holds; so do commands that are
older than `silence_s`. The end, SIGTERM and the death of the process that drives it do the same, then
LeRobot disconnects: many of its robots switch their motors off there and fall
(`disable_torque_on_disconnect`). If the device's own process dies, the motors keep the last goal they were
sent. A device that raises, or gives no state, is a fault, latched: make a new one. No safety function: that
is the switch of its power supply.
"""

from drivers.lerobot.camera import LeRobotCamera
from drivers.lerobot.device import LeRobotDevice
from drivers.lerobot.teleoperator import LeRobotTeleoperator, Target

__all__ = ["LeRobotCamera", "LeRobotDevice", "LeRobotTeleoperator", "Target"]
