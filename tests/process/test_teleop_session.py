"""A person in a run, in real time: with a policy that she takes parts from, and without any."""

import numpy as np
import pytest

import robot_runtime as rr
from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from policies.scripted import SinePolicy
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.arming import ArmingRules
from robot_runtime.core.authority import Authority
from robot_runtime.core.orders import Arm, BeginEpisode, EndEpisode, HandBack, Outcome, Reset, Stop
from robot_runtime.core.safety import Mode
from robot_runtime.core.teleop import JointLead, Lead, TwistLead
from robot_runtime.errors import DriverError, InvalidValueError
from sim.scene.kinematics import Kinematics
from tests.process.toy import serving

CLOCK = MonotonicClock()
pytestmark = [pytest.mark.usefixtures("patient_time"), pytest.mark.real_time]


HZ = 100.0
"""Of control loops whose annotations are checked at each call: a slow machine makes no 500 ticks a second."""


class Script:
    """A person: leads by what a function of the time since she began says; None, she has let go."""

    name = "a script"

    def __init__(self, wish, *, orders=()):
        self.wish, self.orders, self.num_closed = wish, list(orders), 0
        self.runs = []

    def open(self, parts):
        self.parts, self.begun_ns = parts, CLOCK.now_ns()

    def read(self):
        now_ns = CLOCK.now_ns()
        wish = self.wish((now_ns - self.begun_ns) / 1e9)
        orders, self.orders = tuple(self.orders), []
        parts = {} if wish is None else {"arm": wish}
        return Lead(t_ns=now_ns, parts=parts, engaged=dict.fromkeys(parts, True), orders=orders)

    def show_run(self, run):
        self.runs.append(run)

    def close(self):
        self.num_closed += 1


def robot():
    return rr.Robot(arm=IdealArm(), gripper=IdealGripper(), limits=FR3_LIMITS, hand_pose=Kinematics().forward)


def ahead(_):
    return TwistLead(v=np.array([0.1, 0.0, 0.0]))


def ran(session):
    with session:
        return [(tick, session.runner.teleop.led) for tick in session]


def test_without_a_policy_a_person_drives_and_her_latency_is_measured():
    script, mine = Script(ahead, orders=[BeginEpisode()]), robot()
    before = Kinematics().forward(mine.arm.q).translation
    session = rr.Session(mine, policy=None, teleop=script, duration_s=0.7, control_hz=HZ)
    ticks = ran(session)
    moved = Kinematics().forward(mine.arm.q).translation - before
    assert moved[0] > 0.03
    assert np.abs(moved[1:]).max() < 0.005
    assert session.record.fault == ""
    assert ticks[20][0].authority["arm"] is Authority.HUMAN
    figures = session.record.summary()
    assert 0.0 < figures["lead_latency_p50_s"] < 0.1
    assert figures["led_share"] > 0.5
    assert script.num_closed >= 1
    jumps = np.abs(np.diff([tick.command.parts["arm"].q for tick, _ in ticks], axis=0)).max(axis=0)
    assert (jumps <= FR3_LIMITS.dq_max * 1.05 / HZ).all()


def test_a_person_takes_a_moving_arm_from_a_policy_and_gives_it_back():
    def wish(t_s):
        return TwistLead(v=np.zeros(3)) if 0.4 < t_s < 0.9 else None

    with serving(SinePolicy(), heartbeat_ns=2_000_000_000) as server:
        session = rr.Session(robot(), policy=server.address, teleop=Script(wish), duration_s=1.6)
        ticks = ran(session)
    who = [tick.authority["arm"] for tick, _ in ticks]
    assert Authority.POLICY in who
    assert Authority.HUMAN in who
    assert who[-1] is not Authority.HUMAN
    after = who[len(who) - who[::-1].index(Authority.HUMAN) :]
    assert Authority.POLICY in after  # on a fresh chunk
    assert any("drives arm" in line for _, line in session.record.log)


def test_a_teleoperator_that_is_pulled_out_stops_nothing_but_what_it_led():
    def wish(t_s):
        if t_s > 0.3:
            raise DriverError("it was pulled out")
        return TwistLead(v=np.array([0.1, 0.0, 0.0]))

    session = rr.Session(robot(), policy=None, teleop=Script(wish), duration_s=0.8)
    ticks = ran(session)
    assert ticks[-1][1] == ()
    rest = [tick.command.parts["arm"].q for tick, _ in ticks[-50:]]
    assert np.abs(np.diff(rest, axis=0)).max() == 0.0
    assert any("is lost: DriverError: it was pulled out" in line for _, line in session.record.log)


def test_a_robot_that_has_to_be_armed_is_armed_by_her_button_and_waits_for_no_policy():
    script = Script(ahead)
    session = rr.Session(
        robot(), policy=None, teleop=script, arming=ArmingRules(), duration_s=0.4, control_hz=HZ
    )
    with session:
        for k, _ in enumerate(session):
            if k == 10:
                assert not session.is_armed
                script.orders.append(Arm())
                script.wish = lambda _: None
            if k == 20:
                assert session.is_armed
                script.wish = ahead
    assert session.record.num_led > 10


def test_parts_that_somebody_else_hands_back_are_hers_again_when_she_engages_anew():
    script = Script(ahead)
    session = rr.Session(robot(), policy=None, teleop=script, duration_s=0.6, control_hz=HZ)
    with session:
        for k, _ in enumerate(session):
            if k == 20:
                assert session.runner.teleop.led == ("arm",)
                session.post(HandBack(), "page")
            if k == 30:
                assert session.runner.teleop.led == ()


def test_an_episode_is_marked_by_her_buttons():
    script = Script(ahead, orders=[BeginEpisode()])
    session = rr.Session(robot(), policy=None, teleop=script, duration_s=0.4, control_hz=HZ)
    with session:
        for k, _ in enumerate(session):
            if k == 20:
                script.orders.append(EndEpisode(Outcome.SUCCESS))
    (mark,) = session.record.episodes
    assert mark.outcome is Outcome.SUCCESS


def test_a_teleoperator_that_can_show_it_is_told_how_the_run_goes():
    script, said = Script(ahead, orders=[BeginEpisode()]), []
    script.buttons = ("press green", "press blue")
    session = rr.Session(robot(), policy=None, teleop=script, duration_s=1.2, control_hz=HZ, say=said.append)
    with session:
        for k, _ in enumerate(session):
            if k == 40:
                script.orders += [Arm(), EndEpisode(Outcome.SUCCESS), Stop()]
                script.wish = lambda _: None
            if k == 90:
                script.orders.append(Reset())
    led = [run for run in script.runs if run.led]
    assert led[-1].episode == "recording 0 s"
    assert led[-1].mode is Mode.HOLD
    stopped = [run for run in script.runs if run.mode is Mode.STOP]
    assert (stopped[0].episode, stopped[0].cause) == ("kept, success", "a stop was asked for")
    assert "stopped, resumes after a reset: press blue" in said


def test_nobody_to_drive_and_what_is_no_teleoperator_are_refused():
    with pytest.raises(InvalidValueError, match="without a policy a person has to drive"):
        rr.Session(robot(), policy=None)
    with pytest.raises(InvalidValueError, match=r"with read\(\) -> Lead and close\(\), got int"):
        rr.Session(robot(), policy=None, teleop=3)
    leader = Script(lambda _: JointLead(q=np.zeros(6)))
    session = rr.Session(robot(), policy=None, teleop=leader, duration_s=0.1)
    ran(session)
    assert any("the leader has 6 joints, the arm 7" in line for _, line in session.record.log)
    assert session.record.fault == "the robot did not move: no person drove it"
