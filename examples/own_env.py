"""Your own simulator: a point that moves to a goal.

robot-runtime eval --env own_env.py:Point --policy my_policy.py:policy --delay-ms 300
"""

import numpy as np

import robot_runtime as rr


class Point:
    state = ("x", "y", "goal_x", "goal_y")
    info = rr.EnvInfo.of_numbers(
        "point", actions=("x", "y"), low=-1.0, high=1.0, state=state, control_hz=10.0, max_steps=50
    )

    def reset(self, seed):
        self.at, self.goal = np.random.default_rng(seed).uniform(-1.0, 1.0, (2, 2))
        return self.shown()

    def step(self, action):
        self.at = self.at + 0.2 * (action - self.at)
        return self.shown()

    def shown(self):
        far = float(np.hypot(*(self.at - self.goal)))
        return rr.EnvStep(state=[*self.at, *self.goal], is_success=far < 0.05, metrics={"far": far})
