"""What a person asks of a run is done by the control thread, at the next tick, and written down."""

from dataclasses import replace

import numpy as np
import pytest

import robot_runtime as rr
from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from policies.scripted import SinePolicy
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.orders import (
    Arm,
    BeginEpisode,
    EndEpisode,
    EpisodeMark,
    HandBack,
    Keep,
    Outcome,
    Reset,
    SayPhase,
    SetTask,
    Stop,
    TakeOver,
)
from robot_runtime.core.safety import Mode
from robot_runtime.core.values.command import JointCommand
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.config import AfterRelease
from tests.process.toy import serving

pytestmark = pytest.mark.usefixtures("patient_time")
PATIENT_NS = 2_000_000_000


class ListeningPolicy(SinePolicy):
    """Notes the task of each question."""

    def __init__(self) -> None:
        super().__init__(amplitude=0.1)
        self.info = replace(self.info, tasks=("swing", "fold the towel"))
        self.heard: list[str] = []

    def infer(self, request):
        self.heard.append(request.observation.task)
        yield from super().infer(request)


def session_at(server, **options) -> rr.Session:
    robot = rr.Robot(arm=IdealArm(clock=MonotonicClock()), gripper=IdealGripper(), limits=FR3_LIMITS)
    return rr.Session(robot, policy=server.address, control_hz=200.0, task="swing", **options)


@pytest.fixture(scope="module")
def policy():
    return ListeningPolicy()


@pytest.fixture(scope="module")
def server(policy):
    with serving(policy, heartbeat_ns=PATIENT_NS) as server:
        yield server


def test_a_task_is_changed_in_mid_run_and_one_that_the_policy_does_not_know_is_refused(server, policy):
    with session_at(server) as session:
        assert session.task == "swing"
        ticks_of_new = 0
        for tick in session:
            if session.record.num_ticks == 20 and tick.mode is not Mode.STOP:
                session.post(SetTask("jump"), by="page")
                session.post(SetTask("fold the towel"), by="page")
            said = [text for _, text in session.record.log]
            ticks_of_new += any("its first rows run" in text for text in said)
            if ticks_of_new > 3 or session.record.num_ticks > 2000:
                session.stop()
        assert session.task == "fold the towel"
    refused, done = session.record.orders
    assert "does not know the task 'jump'" in refused.refused
    assert done.refused == ""
    assert done.posted_ns <= done.done_ns
    assert done.by == "page"
    changed = policy.heard.index("fold the towel")
    assert set(policy.heard[:changed]) == {"swing"}
    assert set(policy.heard[changed:]) == {"fold the towel"}
    assert [text for text in said if "rows for 'swing' run on until the first for it come" in text]
    steps = np.abs(np.diff(session.record.commands()[:, 1:8], axis=0)).max()
    assert steps <= FR3_LIMITS.arm("arm").dq_max.max() / 200.0


def test_a_stop_that_was_ordered_stands_until_a_reset_and_episodes_are_marked(server):
    with session_at(server, arming=rr.ArmingRules()) as session:
        modes = []
        for tick in session:
            modes.append(tick.mode)
            if not session.why_not_armed and not session.is_armed:
                session.post(Arm(), by="key a")
            match len(session.record.orders):
                case 1 if tick.mode is Mode.RUN:
                    session.post(BeginEpisode(), by="key b")
                    session.post(Stop(), by="page")
                case 3 if session.runner.executor.is_at_rest:
                    session.post(EndEpisode(Outcome.OPERATOR_ABORT, keep=False), by="page")
                    session.post(Keep(), by="page")
                    session.post(Reset(), by="page")
                case 7 if tick.mode is Mode.RUN:
                    session.stop()
            assert len(modes) < 4000
    began, stopped = session.record.orders[1], session.record.orders[2]
    ended, kept = session.record.orders[3], session.record.orders[4]
    assert session.record.episodes[0] == EpisodeMark(
        start_ns=began.done_ns, end_ns=ended.done_ns, outcome=Outcome.OPERATOR_ABORT, keep=False
    )
    assert "keeps no log" in kept.refused
    of_stop = next(tick for tick in session.record.ticks if tick.now_ns >= stopped.done_ns)
    assert of_stop.mode is Mode.STOP
    assert Mode.RUN in modes[modes.index(Mode.STOP) :], "it went on"


@pytest.mark.parametrize("after", AfterRelease)
def test_a_person_takes_over_leads_and_hands_back_and_the_episode_goes_on_or_ends(server, after, tmp_path):
    log = rr.LogConfig(folder=tmp_path)
    with session_at(server, after_release=after, log=log) as session:
        who, since, is_back = [], {}, False
        for tick in session:
            who.append(tick.authority["arm"])
            if who[-1] is not who[-2:][0] or len(who) == 1:
                since[who[-1]] = tick.command.parts["arm"].q
            taken = session.runner.executor.taken_over
            if who[-1] is Authority.POLICY and len(who) > 40 and not session.record.orders:
                session.post(HandBack(), by="page")  # nobody has anything
                session.post(TakeOver(("arm",)), by="page")
                session.post(TakeOver(("leg",)), by="page")
            if taken:
                session.lead({"arm": JointCommand(q=since[Authority.POLICY] + 0.1)})
            if who[-1] is Authority.HUMAN and who.count(Authority.HUMAN) == 60:
                session.post(SayPhase(HandoverPhase.RECOVER), by="pedal")
                session.post(HandBack(), by="pedal")
            is_back |= Authority.HUMAN in who and who[-1] is Authority.POLICY
            if is_back or (tick.mode is Mode.STOP and session.record.episodes) or len(who) > 3000:
                session.stop()
    refused = [taken.refused for taken in session.record.orders]
    assert "no operator has taken over anything" in refused[0]
    assert "unknown part" in refused[2]
    assert refused[1] == refused[3] == refused[4] == ""
    assert is_back == (after is AfterRelease.CONTINUE)
    ended = [mark.outcome for mark in session.record.episodes]
    assert ended == ([] if after is AfterRelease.CONTINUE else [Outcome.UNKNOWN])
    (path,) = session.record.log_files
    if after is AfterRelease.END:
        assert rr.RunLog.open(path).episodes() == list(session.record.episodes)
    steps = np.abs(np.diff(session.record.commands()[:, 1:8], axis=0))
    assert (steps.max(axis=0) <= FR3_LIMITS.arm("arm").dq_max / 200.0).all()


def test_what_is_no_order_is_refused_where_it_is_posted(server):
    with session_at(server) as session, pytest.raises(InvalidValueError, match="an order is one of"):
        session.post("stop", by="me")
