"""Meta-World (arXiv 1910.10897): a gripper on a moving hand pushes a puck, or picks it up and places it.

    record --env scripts/lab/third_party/metaworld_env.py:Push
           --expert scripts/lab/third_party/metaworld_env.py:expert

Its own 80 steps a second are taken four at a time, with one action: 20 Hz, as robots are commanded. Actions
are steps of the hand (1 is a centimetre a simulator step) and the gripper's effort. Experts are its own.
"""

import numpy as np

import robot_runtime as rr

REPEAT, HZ = 4, 20.0
SHOWN = [0, 1, 2, 3, 4, 5, 6, 36, 37, 38]
"""Of its 39 numbers: hand, opening, puck, goal. Left out are a rotation, past values and zeros."""
STATE = (
    *("hand_x", "hand_y", "hand_z", "opening"),
    *("puck_x", "puck_y", "puck_z", "goal_x", "goal_y", "goal_z"),
)


class Metaworld:
    """One of its tasks; an episode ends with success, or after 6 s."""

    def __init__(self, task: str) -> None:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE

        self._env = ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE[f"{task}-goal-observable"](seed=0)
        self._env.seeded_rand_vec, self._env._freeze_rand_vec = True, False
        self.task, self.observation = task, np.zeros(39)
        self.info = rr.EnvInfo.of_numbers(
            f"metaworld {task}",
            actions=("step_x", "step_y", "step_z", "effort"),
            low=-1.0,
            high=1.0,
            state=STATE,
            control_hz=HZ,
            max_steps=120,
            task=task,
            at_rest={"step_x": 0.0, "step_y": 0.0, "step_z": 0.0},
        )

    def reset(self, seed: int) -> rr.EnvStep:
        self._env.seed(seed)
        self.observation, _ = self._env.reset()
        return rr.EnvStep(state=self.observation[SHOWN])

    def step(self, action: np.ndarray) -> rr.EnvStep:
        is_success = False
        for _ in range(REPEAT):
            self.observation, _, _, _, info = self._env.step(action.astype(np.float32))
            is_success = is_success or info["success"] > 0.0
        return rr.EnvStep(state=self.observation[SHOWN], is_done=is_success, is_success=is_success)


class Push(Metaworld):
    def __init__(self) -> None:
        super().__init__("push-v3")


class PickPlace(Metaworld):
    def __init__(self) -> None:
        super().__init__("pick-place-v3")


def expert(env: Metaworld, late: int = 0):
    """The simulator's own script, which reads all of its numbers, as they were so many steps ago."""
    from metaworld.policies import SawyerPickPlaceV3Policy, SawyerPushV3Policy

    script = SawyerPushV3Policy() if env.task == "push-v3" else SawyerPickPlaceV3Policy()
    seen: list[np.ndarray] = []

    def act(step: rr.EnvStep) -> np.ndarray:
        seen.append(env.observation)
        return script.get_action(seen[-1 - late]) if len(seen) > late else np.zeros(4)

    return act
