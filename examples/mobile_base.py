"""Your own mobile base, and a policy that drives it in a circle.

robot-runtime serve --policy mobile_base.py:circle
robot-runtime run --robot mobile_base.py:robot --duration-s 3
"""

import time

import numpy as np

import robot_runtime as rr

TWISTS = rr.ActionSpec(fields=(rr.BaseTwist(),), horizon=16, dt_ns=50_000_000)


class MyBase:
    """Follows commands exactly; yours reads its odometry, and stops by itself when commands stop coming."""

    silence_s = 0.25  # after so long without a command [s]
    x, twist, t_ns = np.zeros(3), np.zeros(3), time.monotonic_ns()

    def read(self):
        now_ns = time.monotonic_ns()
        (forward, left, turn), yaw = self.twist * (now_ns - self.t_ns) / 1e9, self.x[2]
        c, s = np.cos(yaw), np.sin(yaw)
        self.x = self.x + np.array([c * forward - s * left, s * forward + c * left, turn])
        self.t_ns = now_ns
        return rr.BaseState(t_ns=now_ns, x_WB=self.x, V_WB_B=self.twist)

    def write(self, command):
        self.twist = command.V_WB_B

    def stop(self):
        self.twist = np.zeros(3)


def robot():
    one = np.array([1.0, 1.0, 2.0])  # x, y [m], yaw [rad]
    return rr.Robot(
        base=MyBase(), limits=rr.Limits(base=rr.MotionLimits(speed=one, acceleration=one, jerk=9 * one))
    )


@rr.policy(rr.PolicyInfo(name="circle", action_spec=TWISTS))
def circle(observation):
    return np.tile([0.2, 0.0, 0.5], (TWISTS.horizon, 1))  # vx, vy [m/s], wz [rad/s]
