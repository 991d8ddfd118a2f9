"""A point that is led to a goal, as an env, and policies for it."""

import time

import numpy as np

from robot_runtime.core.env import EnvInfo, EnvStep
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ActionSpec, JointPosition, Numbers
from robot_runtime.core.values.schema import Schema

HZ, HORIZON = 10.0, 8


def point_info(*, is_held: bool = True) -> EnvInfo:
    return EnvInfo.of_numbers(
        "point",
        actions=("x", "y"),
        low=-1.0,
        high=1.0,
        state=("x", "y", "goal_x", "goal_y"),
        control_hz=HZ,
        max_steps=50,
        task="to the goal",
        is_held=is_held,
    )


class Point:
    """Comes a fifth of the way to where it is led; keeps what it was told."""

    def __init__(self, info: EnvInfo | None = None) -> None:
        self.info = point_info() if info is None else info
        self.told: list[np.ndarray] = []

    def reset(self, seed: int) -> EnvStep:
        rng = np.random.default_rng(seed)
        self.at, self.goal = rng.uniform(-0.9, 0.9, 2), rng.uniform(-0.9, 0.9, 2)
        self.told = []
        return self.shown()

    def step(self, action: np.ndarray) -> EnvStep:
        self.told.append(action.copy())
        self.at = self.at + 0.2 * (action - self.at)
        return self.shown()

    def shown(self) -> EnvStep:
        far = float(np.hypot(*(self.at - self.goal)))
        return EnvStep(state=[*self.at, *self.goal], is_success=far < 0.05, metrics={"far": far})


class NumbersPolicy:
    """What a function of the numbers of the state says: (H, D)."""

    def __init__(self, function, fields, *, num_state, horizon=HORIZON, dt_ns=100_000_000, **spec) -> None:
        self._function = function
        action_spec = ActionSpec(fields=fields, horizon=horizon, dt_ns=dt_ns, **spec)
        joints = sum(f.dim for f in fields if isinstance(f, JointPosition))
        schema = Schema(
            action_fields=fields,
            environment_state_dim=num_state,
            num_joints=joints,
            has_gripper=False,
            has_base=False,
        )
        self.info = PolicyInfo(name="numbers", action_spec=action_spec, schema=schema)

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        return np.array(self._function(numbers), dtype=float)

    def infer(self, request):
        yield self.rows(request.observation.environment_state)


def goal_policy(
    *, is_held: bool = True, pause_s: float = 0.0, names: tuple[str, str] = ("x", "y"), **spec
) -> NumbersPolicy:
    """Straight to the goal, with a wobble that no two rows share.

    pause_s: how long it takes on the wall clock. names: the order of its columns.
    """
    fields = (Numbers(names=names, is_held=is_held),)

    def rows(s):
        time.sleep(pause_s)
        wobble = 0.01 * np.sin(9.0 * s[0] + np.arange(HORIZON))[:, None]
        out = s[:2] + np.linspace(0.3, 1.0, HORIZON)[:, None] * (s[2:] - s[:2]) + wobble
        return out[:, [("x", "y").index(name) for name in names]]

    return NumbersPolicy(rows, fields, num_state=4, **spec)


policy = goal_policy()


def whole_chunks(env: Point, policy: NumbersPolicy, *, seed: int) -> np.ndarray:
    """What LeRobot's loop and every Gymnasium one sends: a chunk's rows, one a step, then the next chunk."""
    step, left, told = env.reset(seed), [], []
    for _ in range(round(env.info.episode_ns / env.info.control_period_ns)):
        if not left:
            left = list(policy.rows(np.asarray(step.state)))
        told.append(left.pop(0))
        step = env.step(told[-1])
    return np.array(told)


def expert(env: Point):
    """Straight to the goal, step by step."""
    return lambda step: np.asarray(step.state[2:])
