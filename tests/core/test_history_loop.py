"""The virtual loop shows a policy that looks back what it would have seen on the robot."""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from robot_runtime.core.env import EnvInfo, EpisodeScore
from robot_runtime.core.history import PER_SPACING
from robot_runtime.core.method.table import method_named
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import Command
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.evaluation.loop import play, play_together
from robot_runtime.evaluation.traces import constant
from tests.core.support import DT, OPEN_LIMITS, SPEC, state_at

SCHEMA = Schema(
    action_fields=SPEC.fields, num_joints=2, has_gripper=True, has_base=False, cameras={"wrist": (2, 2)}
)


class CountingEnv:
    """A robot that is where it is commanded; its images and scene encode their capture times."""

    def __init__(self, period_ns: int) -> None:
        self.info = EnvInfo(
            name="counting",
            schema=SCHEMA,
            control_period_ns=period_ns,
            episode_ns=40 * DT,
            limits=OPEN_LIMITS,
        )
        self.num_pictures = 0

    def reset(self, seed: int) -> None:
        self._t_ns, self._state = 0, state_at(0)

    def read(self) -> RobotState:
        return self._state

    def observe(self, state: RobotState, cameras: Mapping[str, tuple[int, int]]) -> Observation:
        self.num_pictures += len(cameras)
        pixels = np.full((2, 2, 3), state.t_ns // DT, np.uint8)
        images = {name: Image(t_ns=state.t_ns, pixels=pixels) for name in cameras}
        return Observation(state=state, images=images)

    def write(self, command: Command) -> Command:
        return command

    def advance(self, command: Command, t_obs_ns: int | None) -> bool:
        self._t_ns += self.info.control_period_ns
        assert command.arm is not None
        self._state = state_at(self._t_ns, tuple(command.arm.q))
        return False

    def score(self) -> EpisodeScore:
        return EpisodeScore(success=True, completion_s=None, metrics={})


class LookingPolicy:
    """A policy that holds still, and keeps the times of its observations."""

    def __init__(self, n_obs_steps: int) -> None:
        self.info = PolicyInfo(name="looking", action_spec=SPEC, schema=SCHEMA, n_obs_steps=n_obs_steps)
        self.shown: list[list[int]] = []

    def infer(self, request: ChunkRequest) -> Iterator[np.ndarray]:
        frames = request.observation.frames(self.info.n_obs_steps)
        for frame in frames:
            assert frame.images["wrist"].t_ns == frame.t_obs_ns
        self.shown.append([frame.t_obs_ns for frame in frames])
        yield np.tile([0.0, 0.0, 0.08], (SPEC.horizon, 1))


def shown(n_obs_steps: int, *, period_ns: int, delay_ms: float, method: str) -> tuple[list, int]:
    policy, env = LookingPolicy(n_obs_steps), CountingEnv(period_ns)
    episode = play(policy, env, method=method_named(method), seed=3, trace=constant(delay_ms))
    play_together(policy, [episode])
    return policy.shown, env.num_pictures


@pytest.mark.parametrize("method", ["synchronous", "naive", "time-aligned"])
@pytest.mark.parametrize(("period_ns", "delay_ms"), [(DT, 0.0), (DT // 5, 130.0), (2_000_000, 77.0)])
def test_frames_are_one_row_apart_and_the_oldest_is_repeated_at_the_start(method, period_ns, delay_ms):
    asked, _ = shown(3, period_ns=period_ns, delay_ms=delay_ms, method=method)
    assert len(asked) >= 4
    assert asked[0] == [0, 0, 0]
    tolerance_ns = DT / PER_SPACING / 2 + period_ns if period_ns < DT else 0
    for times in asked:
        for k, t_ns in enumerate(reversed(times)):
            assert abs(t_ns - max(0, times[-1] - k * DT)) <= tolerance_ns


def test_an_env_that_is_stepped_once_a_row_is_seen_at_every_step_exactly():
    asked, num_pictures = shown(5, period_ns=DT, delay_ms=0.0, method="synchronous")
    for times in asked:
        assert times == [max(0, times[-1] - k * DT) for k in (4, 3, 2, 1, 0)]
    assert num_pictures == 40


def test_a_policy_of_one_observation_takes_a_picture_for_each_request_and_no_more():
    asked, num_pictures = shown(1, period_ns=DT, delay_ms=0.0, method="synchronous")
    assert num_pictures == len(asked)
