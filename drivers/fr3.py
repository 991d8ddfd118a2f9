"""Franka Research 3: the limits of its datasheet, shared by the simulated and the real arm."""

import numpy as np

from robot_runtime.core.limits import Limits

FR3_LIMITS = Limits(
    q_min=np.array([-2.7437, -1.7837, -2.9007, -3.0421, -2.8065, 0.5445, -3.0159]),
    q_max=np.array([2.7437, 1.7837, 2.9007, -0.1518, 2.8065, 4.5169, 3.0159]),
    dq_max=np.array([2.62, 2.62, 2.62, 2.62, 5.26, 4.18, 5.26]),
    ddq_max=np.full(7, 10.0),
    gripper_min=0.0,
    gripper_max=0.08,
)
"""Joint positions [rad], speeds [rad/s] and accelerations [rad/s²]; finger distance [m].

Source: Franka Robotics, Robot and interface specifications, "Limits for Franka Research 3". The datasheet's
speed limits shrink near the joint stops; these are the values away from them.
"""
