"""Franka arms and grippers over FCI, by `franky`: `FrankaArm`, `FrankaGripper`.

    arm, gripper = FrankaArm("172.16.0.2"), FrankaGripper("172.16.0.2")
    Robot(arm=arm, gripper=gripper, limits=FR3_LIMITS)

What stops it. `stop` brings the arm to rest by damping alone (`TorqueStopMotion`), and ends its control.
The same happens on exit, SIGTERM and death of the process that drives it: each arm has its own process, which
notices. With commands older than `silence_s` that process brakes the arm within its limits and holds it.
If it dies itself, the robot's controller stops after 20 ms without packets. A reflex, the enabling switch or
a silent robot is a fault, latched until `recover`. The gripper keeps its grip. No safety
function: that is the emergency stop and the robot's own safety configuration.
"""

from drivers.franka.arm import HOME, FrankaArm, Payload
from drivers.franka.gripper import FrankaGripper

__all__ = ["HOME", "FrankaArm", "FrankaGripper", "Payload"]
