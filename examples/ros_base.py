"""A mobile base with ROS 1 or 2, through rosbridge, and its chest camera (docs/ros.md).

robot-runtime serve --policy mobile_base.py:circle
ROSBRIDGE=ws://robot:9090 robot-runtime run --robot ros_base.py:robot --duration-s 3
"""

import os

import numpy as np

import robot_runtime as rr
from drivers.ros import RosBase, RosCamera
from drivers.rosbridge import RosBridge


def robot():
    bridge = RosBridge(os.environ.get("ROSBRIDGE", "ws://127.0.0.1:9090"), ros=2)
    top = np.array([0.3, 0.3, 0.6])  # vx, vy [m/s], wz [rad/s]
    return rr.Robot(
        base=RosBase(bridge, command_topic="/cmd_vel", odometry_topic="/odom", silence_s=0.25),
        cameras={"chest": RosCamera(bridge, "/chest")},
        limits=rr.Limits(base=rr.MotionLimits(speed=top, acceleration=top, jerk=9 * top)),
    )
