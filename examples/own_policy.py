"""Your own policy: a function from an observation to (H, D) rows. This one swings the first joint.

robot-runtime serve --policy own_policy.py:policy              or: python own_policy.py
"""

import numpy as np

import robot_runtime as rr

ROWS = rr.ActionSpec(fields=(rr.JointPosition(7), rr.GripperWidth()), horizon=32, dt_ns=50_000_000)


@rr.policy(rr.PolicyInfo(name="mine", action_spec=ROWS))
def policy(observation):
    state = observation.state
    t_s = state.t_ns / 1e9 + ROWS.dt_s * np.arange(ROWS.horizon)
    rows = np.tile([*state.q, state.gripper_width], (ROWS.horizon, 1))
    rows[:, 0] += 0.1 * (np.sin(t_s) - np.sin(t_s[0]))
    return rows


if __name__ == "__main__":
    rr.serve(policy)
