"""Your own simulator: a point that is led to a goal.   robot-runtime eval --env own_env.py:env --policy own_env.py:policy"""

import numpy as np

import robot_runtime as rr


class Point:
    info = rr.EnvInfo.of_numbers(
        "point", actions=("x", "y"), low=-1.0, high=1.0, state=("x", "y", "goal_x", "goal_y"), control_hz=10, max_steps=50
    )

    def reset(self, seed: int) -> rr.EnvStep:
        rng = np.random.default_rng(seed)
        self.at, self.goal = rng.uniform(-1.0, 1.0, 2), rng.uniform(-1.0, 1.0, 2)
        return self.shown()

    def step(self, action: np.ndarray) -> rr.EnvStep:
        self.at = self.at + 0.2 * (action - self.at)
        return self.shown()

    def shown(self) -> rr.EnvStep:
        far = float(np.hypot(*(self.at - self.goal)))
        return rr.EnvStep(state=[*self.at, *self.goal], is_done=far < 0.05, is_success=far < 0.05, metrics={"far": far})


env = Point
