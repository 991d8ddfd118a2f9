"""A policy for gym_pusht/PushT-v0 that goes to the block, whose position the environment provides."""

import numpy as np

import robot_runtime as rr

SPEC = rr.ActionSpec(fields=(rr.Numbers(("action_1", "action_2")),), horizon=16, dt_ns=100_000_000)
SCHEMA = rr.Schema.of(SPEC, environment_state_dim=5)  # agent x, y, block x, y, angle [pixels, rad]


@rr.policy(rr.PolicyInfo(name="to_block", action_spec=SPEC, schema=SCHEMA))
def policy(observation):
    return np.tile(observation.environment_state[2:4], (SPEC.horizon, 1))
