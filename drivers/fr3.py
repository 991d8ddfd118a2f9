"""Franka Research 3: the limits of its datasheet, shared by the simulated and the real arm."""

import numpy as np

from robot_runtime.core.plan.limits import Limits, MotionLimits, SpeedCurve

FR3_LIMITS = Limits(
    q_min=np.array([-2.7437, -1.7837, -2.9007, -3.0421, -2.8065, 0.5445, -3.0159]),
    q_max=np.array([2.7437, 1.7837, 2.9007, -0.1518, 2.8065, 4.5169, 3.0159]),
    dq_max=np.array([2.62, 2.62, 2.62, 2.62, 5.26, 4.18, 5.26]),
    ddq_max=np.full(7, 10.0),
    dddq_max=np.full(7, 5000.0),
    dq_curve=SpeedCurve(
        low=np.array([-2.7501, -1.7918, -2.9065, -3.0481, -2.8101, 0.54092, -3.0196]),
        high=np.array([2.7501, 1.7918, 2.9065, -0.1458, 2.8101, 4.5205, 3.0196]),
        gain=np.array([12.0, 5.17, 7.0, 8.0, 34.0, 11.0, 34.0]),
        offset=np.array([0.30, 0.20, 0.20, 0.30, 0.35, 0.35, 0.35]),
    ),
    gripper_min=0.0,
    gripper_max=0.08,
    gripper=MotionLimits(speed=np.array([2.0]), acceleration=np.array([200.0]), jerk=np.array([2e4])),
    hand_translation=MotionLimits.of_norm(speed=3.0, acceleration=9.0, jerk=4500.0),
    hand_rotation=MotionLimits.of_norm(speed=2.5, acceleration=17.0, jerk=8500.0),
)
"""Joints in rad and s, the end effector in m, rad and s; finger distance in m.

Source: Franka Robotics, Robot and interface specifications, "Limits for Franka Research 3"; libfranka,
rate_limiting.h. The gripper's limits bound its target width, not the fingers: a Franka gripper carries out
each target by itself, at the speed of its driver (`FrankaGripper`, 0.1 m/s, the data sheet's 50 mm/s a
finger). A target that moved at 0.2 m/s itself made the fingers late twice: of 40 episodes at 200 ms `drawer`
went from 39 to 26, and at 0.1 m/s `pick_place` at 400 ms from 40 to 10.
"""
