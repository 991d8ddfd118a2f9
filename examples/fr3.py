"""A Franka Research 3 with its hand; slow, for a first run (docs/franka.md).

robot-runtime serve --policy sine
FRANKA_HOST=172.16.0.2 robot-runtime run --robot fr3.py:robot --duration-s 3
"""

import os

import robot_runtime as rr
from drivers.fr3 import FR3_LIMITS
from drivers.franka import FrankaArm, FrankaGripper, Payload


def robot():
    host = os.environ.get("FRANKA_HOST", "172.16.0.2")
    is_simulated = host.startswith("127.")  # franky-sim on this machine
    limits = FR3_LIMITS.replace(dq_max=0.2 * FR3_LIMITS.dq_max, ddq_max=0.2 * FR3_LIMITS.ddq_max)
    arm = FrankaArm(
        host,
        payload=Payload(mass=0.1, center=(0.0, 0.0, 0.05)),  # a camera on the wrist
        needs_real_time=not is_simulated,
        state_timeout_s=2.0 if is_simulated else 0.08,
    )
    return rr.Robot(arm=arm, gripper=FrankaGripper(host), limits=limits)
