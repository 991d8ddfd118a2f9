"""Your own robot. This one follows commands exactly; yours talks to its hardware in `read` and `write`.

robot-runtime serve --policy sine                              a server, in another terminal
robot-runtime run --robot own_robot.py:robot --duration-s 3    or: python own_robot.py tcp://HOST:PORT
"""

import sys
import time

import numpy as np

import robot_runtime as rr


class MyArm:
    num_joints = 7
    q = np.array([0.0, -0.8, 0.0, -2.4, 0.0, 1.6, 0.8])

    def read(self):
        return rr.ArmState(t_ns=time.monotonic_ns(), q=self.q, dq=np.zeros(7))

    def write(self, command):
        self.q = command.q

    def stop(self):
        pass  # hold still


class MyGripper:
    width = 0.04

    def read(self):
        return self.width

    def write(self, command):
        self.width = command.width

    def stop(self):
        pass


def robot():
    n, one = np.ones(7), np.ones(1)
    hand = rr.MotionLimits(speed=0.1 * one, acceleration=one, jerk=100 * one)
    limits = rr.Limits(q_min=-3 * n, q_max=3 * n, dq_max=2 * n, ddq_max=9 * n, dddq_max=999 * n, gripper=hand)
    return rr.Robot(arm=MyArm(), gripper=MyGripper(), limits=limits)


if __name__ == "__main__":
    record = rr.run(robot(), policy=sys.argv[1], task="swing", duration_s=3.0)
    print(f"{record.num_splices} chunks, {record.num_ticks} ticks", record.fault)
