"""The sine on arms that do not do at once what they are told."""

import math
from collections import deque

import numpy as np

from drivers.fr3 import FR3_LIMITS
from drivers.ideal import Q_HOME
from policies.scripted import FRANKA, SinePolicy
from robot_runtime.core.env import EnvInfo, EpisodeScore
from robot_runtime.core.method.choose import Default, default_for
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.evaluation.delay import answer_all
from robot_runtime.evaluation.loop import play
from robot_runtime.evaluation.traces import constant

PERIOD_NS = 20_000_000
MS = 1_000_000
AMPLITUDE = 0.1
TOP_SPEED = AMPLITUDE * 2 * np.pi * 0.25


class LateArm:
    """Seven joints that follow their setpoint of some time ago, with a first-order lag, from rest."""

    def __init__(self, *, lag_ms: int, dead_ms: int, declared_ms: int) -> None:
        self.info = EnvInfo(
            name="late arm",
            schema=FRANKA,
            control_period_ns=PERIOD_NS,
            episode_ns=6_000 * MS,
            limits=FR3_LIMITS,
            latency_ns={"arm": declared_ms * MS},
        )
        self._share = 1.0 - math.exp(-PERIOD_NS / (lag_ms * MS))
        self._dead = dead_ms * MS // PERIOD_NS

    def reset(self, seed: int) -> None:
        self.t_ns, self.q, self.dq = 0, Q_HOME.copy(), np.zeros(7)
        self._under_way = deque([Q_HOME] * self._dead)
        self.measured, self.told = [], []

    def read(self) -> RobotState:
        return RobotState(t_ns=self.t_ns, q=self.q, dq=self.dq, gripper_width=0.04)

    def observe(self, state, cameras) -> Observation:
        return Observation(state=state)

    def write(self, command):
        return command

    def advance(self, command, t_obs_ns) -> bool:
        self._under_way.append(command.parts["arm"].q)
        step = self._share * (self._under_way.popleft() - self.q)
        self.q, self.dq, self.t_ns = self.q + step, step / (PERIOD_NS / 1e9), self.t_ns + PERIOD_NS
        self.measured.append(self.q)
        self.told.append(command.parts["arm"].q)
        return False

    def score(self) -> EpisodeScore:
        return EpisodeScore(success=True, completion_s=None, metrics={})


def swung(arm: LateArm):
    """The episode's result; where it was measured and what it was told, from home (ticks, 7) [rad]."""
    policy = SinePolicy(amplitude=AMPLITUDE)
    method = default_for(Default(), policy.info.capabilities).method
    episode = play(policy, arm, method=method, seed=0, trace=constant(60.0))
    answer = None
    while True:
        try:
            request = next(episode) if answer is None else episode.send(answer)
        except StopIteration as ended:
            return ended.value.result, np.array(arm.measured) - Q_HOME, np.array(arm.told) - Q_HOME
        (answer,) = answer_all(policy, [request])


def test_an_arm_that_lags_and_is_late_swings_about_where_it_began_and_nothing_holds_it_back():
    result, measured, told = swung(LateArm(lag_ms=100, dead_ms=100, declared_ms=100))
    period = measured[-200:]  # of 4 s, long after the start
    np.testing.assert_allclose(period.mean(axis=0), 0.0, atol=0.02)
    np.testing.assert_allclose(np.ptp(told[-200:], axis=0), 2 * AMPLITUDE, atol=1e-3)
    assert np.abs(np.diff(told[-200:], axis=0)).max() < 1.01 * TOP_SPEED * PERIOD_NS / 1e9
    assert all(ticks < 20 for ticks, _ in result.held_back.values())  # while it begins
