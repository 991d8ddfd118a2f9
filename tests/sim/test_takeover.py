"""A policy that was made bad on purpose, and a scripted person beside it, under the virtual clock."""

import pytest

from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.orders import HandBack, SayPhase, TakeOver
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.config import LogConfig
from robot_runtime.log.reader import RunLog
from robot_runtime.log.replay import replay
from sim.episodes.task_env import TaskEnv
from sim.experts.policy import ExpertPolicy
from sim.takeover.episode import bad_policy, run_takeover
from sim.takeover.person import PersonRules
from sim.takeover.short_sighted import ShortSightedPolicy

IMPATIENT = PersonRules(patience_s=0.7, nearer=100.0, reaction_s=0.1, gained=0.35)
"""Takes over 0.8 s after the start, whatever happens, and hands back when it is 0.35 m nearer."""


@pytest.mark.long
def test_a_person_takes_over_and_hands_back_and_the_log_of_it_replays_to_the_same_bits(tmp_path):
    env = TaskEnv("fetch", control_period_ns=20_000_000, episode_s=2.3)
    takeover = run_takeover(bad_policy(), 10_002, env=env, rules=IMPATIENT, log=LogConfig(folder=tmp_path))
    assert takeover.num_takeovers == 1
    record = takeover.episode.record
    told = [(taken.order, taken.done_ns // 20_000_000, taken.refused) for taken in record.orders]
    (took, first, _), (recovers, _, _), (gave, last, _) = told
    assert (took, recovers, gave) == (TakeOver(), SayPhase(HandoverPhase.RECOVER), HandBack())
    assert first * 0.02 == pytest.approx(0.82)
    ticks = list(record.ticks)
    led = [i for i, tick in enumerate(ticks) if Authority.HUMAN in tick.authority.values()]
    assert led == list(range(first, last))
    assert set(ticks[-1].authority.values()) == {Authority.POLICY}
    assert all(tick.policy_command is not None for tick in ticks[first:last])
    [path] = tmp_path.glob("*.mcap")
    log = RunLog.open(path)
    assert [taken.by for taken in log.orders()] == ["scripted person"] * 3
    replayed = replay(log.journal())
    assert replayed.difference is None
    assert replayed.ticks == record.num_ticks


def test_what_cannot_be_short_sighted_or_patient_is_refused():
    with pytest.raises(InvalidValueError, match="expected a policy of fetch"):
        ShortSightedPolicy(ExpertPolicy("drawer"))
    with pytest.raises(InvalidValueError, match="expected patience_s above 0"):
        PersonRules(patience_s=-1.0)
