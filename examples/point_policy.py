"""A policy for own_env.py that goes straight to the goal."""

import numpy as np

import robot_runtime as rr

SPEC = rr.ActionSpec(fields=(rr.Numbers(("x", "y")),), horizon=16, dt_ns=100_000_000)
SCHEMA = rr.Schema.of(SPEC, environment_state_dim=4)  # x, y, goal_x, goal_y


@rr.policy(rr.PolicyInfo(name="to_goal", action_spec=SPEC, schema=SCHEMA))
def policy(observation):
    return np.tile(observation.environment_state[2:4], (SPEC.horizon, 1))
