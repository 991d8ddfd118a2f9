"""A person leads, lets go, is lost: what the executor is told of it, tick by tick."""

import numpy as np
import pytest

from drivers.fr3 import FR3_LIMITS
from robot_runtime.core.authority import Authority
from robot_runtime.core.orders import SetTask
from robot_runtime.core.safety import Mode
from robot_runtime.core.teleop import GripperLead, JointLead, Lead, TwistLead
from robot_runtime.core.values.action import ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.command import JointCommand
from robot_runtime.errors import InvalidValueError
from robot_runtime.teleop.config import OnRelease, TeleopConfig
from robot_runtime.teleop.leading import Leading
from robot_runtime.teleop.parts import followers_for
from sim.scene.kinematics import Q_HOME
from tests.teleop.support import TICK, LedRobot

MS = 1_000_000
FORWARD = TwistLead(v=np.array([0.1, 0.0, 0.0]))


class Said:
    """What a teleoperator has said, as it is watched; no thread, no clock."""

    name, why_lost = "sticks", ""

    def __init__(self):
        self.lead, self.posted, self.is_hanging = None, [], False

    def look(self, now_ns, stale_ns):
        is_old = self.lead is None or now_ns - self.lead.t_ns > stale_ns
        return None if is_old or self.why_lost else self.lead

    def orders(self):
        out, self.posted = self.posted, []
        return out

    def is_silent(self, stale_ns):
        return self.is_hanging


class Bench:
    """One robot and one teleoperator; a tick every 2 ms."""

    def __init__(self, **config):
        self.robot, self.said, self.now_ns = LedRobot(), Said(), 0
        self.lines, self.orders, self.latencies = [], [], []
        spec = ActionSpec(fields=(JointPosition(7), GripperWidth()), horizon=2, dt_ns=1)
        config = TeleopConfig(**config)
        forward = self.robot.kinematics.forward
        self.leading = Leading(
            self.robot,
            self.said,
            followers_for(spec, FR3_LIMITS, config, hand_pose=forward),
            config,
            period_ns=TICK,
            say=self.lines.append,
            post=lambda order, by: self.orders.append((order, by)),
        )

    def tick(self, count=1, **lead):
        """Each with a fresh lead, if one is given."""
        for _ in range(count):
            self.now_ns += TICK
            if lead:
                self.said.lead = Lead(t_ns=self.now_ns - MS, **lead)
            self.leading.look(self.robot.state(self.now_ns), self.now_ns)
            self.latencies.append(self.leading.fresh_ns and self.now_ns - self.leading.fresh_ns)


def leads(on=True, wish=FORWARD):
    return {"parts": {"arm": wish}, "engaged": {"arm": on}}


def test_engaging_takes_over_and_letting_go_hands_back():
    bench = Bench()
    before = bench.robot.commanded
    bench.tick(5, **leads(on=False))
    assert bench.robot.commanded is before
    bench.tick(50, **leads())
    assert bench.robot.said == [("take over", ("arm",))]
    assert bench.leading.led == ("arm",)
    bench.tick(5, **leads(on=False))
    assert bench.robot.said[1:] == [("hand back", ("arm",))]
    assert bench.lines == ["sticks drives arm", "sticks releases arm: the policy has it again"]


def test_a_part_may_stand_instead_when_it_is_let_go():
    bench = Bench(on_release=OnRelease.HOLD)
    bench.tick(5, **leads())
    bench.tick(5, **leads(on=False))
    assert bench.robot.said == [("take over", ("arm",))]
    assert bench.lines[-1].endswith("it holds")


@pytest.mark.parametrize("what", ["stale", "lost", "hangs"])
def test_what_is_stale_lost_or_hangs_leads_no_more(what):
    bench = Bench()
    bench.tick(5, **leads())
    if what == "lost":
        bench.said.why_lost = "DriverError: unplugged"
        bench.tick()
    elif what == "hangs":
        bench.said.is_hanging = True
        bench.tick()
    else:
        bench.tick(124)
        assert len(bench.robot.said) == 1
        bench.tick(2)  # 251 ms and a lead that was 1 ms old
    assert bench.robot.said[1:] == [("hand back", ("arm",))]
    if what == "lost":
        assert "sticks is lost: DriverError: unplugged" in bench.lines


def test_after_a_loss_she_has_to_let_go_before_she_leads_again():
    bench = Bench()
    bench.tick(5, **leads())
    bench.tick(130)
    bench.tick(5, **leads())  # a browser that woke up with its button still held
    assert bench.leading.led == ()
    bench.tick(1, **leads(on=False))
    bench.tick(1, **leads())
    assert bench.leading.led == ("arm",)


def test_a_robot_that_stops_is_not_led_and_goes_on_from_where_it_stands():
    bench = Bench()
    bench.tick(100, **leads())
    bench.robot.mode = Mode.STOP
    bench.tick(5, **leads())
    assert bench.leading.led == ()
    q = bench.robot.commanded.parts["arm"].q
    bench.robot.mode = Mode.HOLD
    bench.tick(20, **leads())
    np.testing.assert_array_equal(bench.robot.commanded.parts["arm"].q, q)
    bench.tick(1, **leads(on=False))
    bench.tick(1, **leads())
    assert np.abs(bench.robot.commanded.parts["arm"].q - q).max() < 1e-3


def test_a_part_that_brakes_for_a_fault_follows_again_from_where_it_stands():
    bench = Bench()
    bench.tick(50, **leads())
    bench.robot.authority = {"arm": Authority.SAFETY}
    q = np.array(Q_HOME) + 0.1  # it came to rest elsewhere
    bench.robot.commanded = bench.robot.commanded.with_parts({"arm": JointCommand(q=q)})
    bench.tick(5, **leads())
    np.testing.assert_array_equal(bench.robot.commanded.parts["arm"].q, q)
    bench.robot.authority = {"arm": Authority.HOLD}
    bench.tick(1, **leads())
    assert 0.0 < np.abs(bench.robot.commanded.parts["arm"].q - q).max() < 1e-3
    assert bench.robot.said == [("take over", ("arm",))]


def test_handing_back_by_an_order_ends_it_until_she_engages_anew():
    bench = Bench()
    bench.tick(3, **leads())
    bench.leading.let_go(bench.now_ns)
    bench.tick(3, **leads())
    assert bench.leading.led == ()


def test_two_parts_are_led_at_once_and_let_go_one_by_one():
    bench = Bench()
    wishes = {"arm": FORWARD, "gripper": GripperLead(speed=-1.0)}
    bench.tick(3, parts=wishes, engaged={"arm": True, "gripper": True})
    bench.tick(1, parts=wishes, engaged={"arm": True, "gripper": False})
    assert bench.robot.said[2:] == [("hand back", ("gripper",))]
    assert bench.leading.led == ("arm",)


def test_another_kind_of_lead_goes_on_from_where_the_arm_is():
    bench = Bench()
    bench.tick(100, **leads())
    q = bench.robot.commanded.parts["arm"].q
    bench.tick(1, **leads(wish=JointLead(q=np.zeros(7))))
    assert np.abs(bench.robot.commanded.parts["arm"].q - q).max() < 1e-3
    assert len(bench.robot.said) == 1


def test_what_cannot_be_led_is_said_once_and_the_rest_goes_on():
    bench = Bench()
    wishes = {"tail": FORWARD, "arm": JointLead(q=np.zeros(6)), "gripper": GripperLead(speed=1.0)}
    bench.tick(5, parts=wishes, engaged=dict.fromkeys(wishes, True))
    assert bench.leading.led == ("gripper",)
    assert [line for line in bench.lines if "cannot be driven" in line or "joints" in line] == [
        "tail cannot be driven: the parts that can be are arm, gripper",
        "the leader has 6 joints, the arm 7",
    ]


def test_latency_counts_from_each_lead_to_the_tick_that_commands_by_it():
    bench = Bench()
    bench.tick(3, **leads())
    bench.tick(3)  # the same lead again
    assert bench.latencies == [MS] * 3 + [None] * 3


def test_her_buttons_are_orders_with_her_name():
    bench = Bench()
    bench.said.posted = [SetTask("fold the towel")]
    bench.tick()
    assert bench.orders == [(SetTask("fold the towel"), "sticks")]


def test_what_a_reset_took_from_her_she_has_to_engage_anew():
    bench = Bench()
    bench.tick(3, **leads())
    bench.robot.taken_over = ()  # stopped and reset between two ticks
    q = bench.robot.commanded.parts["arm"].q
    bench.tick(3, **leads())
    assert bench.leading.led == ()
    np.testing.assert_array_equal(bench.robot.commanded.parts["arm"].q, q)


def test_a_leader_that_loses_joints_while_it_leads_is_let_go():
    bench = Bench()
    bench.tick(3, **leads(wish=JointLead(q=np.zeros(7))))
    bench.tick(3, **leads(wish=JointLead(q=np.zeros(3))))
    assert bench.leading.led == ()
    assert bench.robot.said[1:] == [("hand back", ("arm",))]


def test_orders_that_are_not_taken_are_said_and_she_leads_on():
    bench = Bench()

    def full(order, by):
        raise InvalidValueError("200 orders wait already")

    bench.leading._post = full
    bench.said.posted = [SetTask("fold")]
    bench.tick(3, **leads())
    assert "sticks: 200 orders wait already" in bench.lines
    assert bench.leading.led == ("arm",)
