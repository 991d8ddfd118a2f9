"""Franka arms and hands over FCI, by `franky`: `FrankaArm`, `FrankaGripper`.

    arm, gripper = FrankaArm("172.16.0.2"), FrankaGripper("172.16.0.2")
    Robot(arm=arm, gripper=gripper, limits=FR3_LIMITS)

What stops it. `stop` has the arm brought to rest by damping alone (`TorqueStopMotion`), and its control
ended. So do the end, SIGTERM and the death of the process that drives it: each arm has a process of its own
that notices. With commands older than `silence_s` that process brakes the arm within its limits and holds it.
If it dies itself, the robot's controller stops after 20 ms without packets. A reflex, the enabling switch or
a robot that is silent is a fault, latched until `recover`. The hand holds on to what it holds. No safety
function: that is the emergency stop and the robot's own safety configuration.
"""

from drivers.franka.arm import HOME, FrankaArm, Payload
from drivers.franka.gripper import FrankaGripper

__all__ = ["HOME", "FrankaArm", "FrankaGripper", "Payload"]
