"""Your own robot with two arms and a lift; a policy moves the parts it names, and the others hold still.

robot-runtime serve --policy sine --joints left_arm=6 right_arm=6
robot-runtime run --robot two_arms.py:robot --duration-s 3
"""

import time

import numpy as np

import robot_runtime as rr


class Joints:
    """An arm, or any other group of joints; this one follows commands exactly."""

    def __init__(self, num_joints):
        self.num_joints, self.q = num_joints, np.zeros(num_joints)

    def read(self):
        return rr.ArmState(t_ns=time.monotonic_ns(), q=self.q, dq=np.zeros(self.num_joints))

    def write(self, command):
        self.q = command.q

    def stop(self):
        pass  # hold still


def limits_of(joints):
    one = np.ones(joints.num_joints)
    return rr.JointLimits(q_min=-3 * one, q_max=3 * one, dq_max=one, ddq_max=9 * one, dddq_max=999 * one)


def robot():
    parts = {"left_arm": Joints(6), "right_arm": Joints(6), "lift": Joints(1)}
    limits = rr.Limits({name: limits_of(part) for name, part in parts.items()})
    return rr.Robot(parts, limits=limits)
