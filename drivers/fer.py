"""Franka Emika Robot (FER), the Panda: the limits of its data sheet."""

import numpy as np

from robot_runtime.core.plan.limits import Limits, MotionLimits

FER_LIMITS = Limits(
    q_min=np.array([-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973]),
    q_max=np.array([2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973]),
    dq_max=np.array([2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61]),
    ddq_max=np.array([15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0]),
    dddq_max=np.array([7500.0, 3750.0, 5000.0, 6250.0, 7500.0, 10000.0, 10000.0]),
    gripper_min=0.0,
    gripper_max=0.08,
    gripper=MotionLimits(speed=np.array([2.0]), acceleration=np.array([200.0]), jerk=np.array([2e4])),
    hand_translation=MotionLimits.of_norm(speed=1.7, acceleration=13.0, jerk=6500.0),
    hand_rotation=MotionLimits.of_norm(speed=2.5, acceleration=25.0, jerk=12500.0),
)
"""Joints in rad and s, the end effector in m, rad and s; finger distance in m, as in `drivers.fr3`.

Source: Franka Robotics, Robot and interface specifications, "Limits for Panda"; libfranka 0.9,
rate_limiting.h. No speeds by position: the FER has none.
"""
