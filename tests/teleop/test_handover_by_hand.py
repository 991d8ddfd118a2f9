"""At random moments a person takes moving arms from a policy, wherever her leaders are, and hands back."""

from itertools import pairwise

import numpy as np
import pinocchio as pin

from robot_runtime.core.authority import Authority
from robot_runtime.core.teleop import JointLead, Lead, PoseLead
from robot_runtime.teleop.config import TeleopConfig
from robot_runtime.teleop.leading import Leading
from robot_runtime.teleop.parts import followers_for
from sim.scene.kinematics import Kinematics
from tests.core.shared_robot import ARMS, LIMITS, MS, SPEC, TICK, SharedRobot
from tests.teleop.test_leading import Said

HELD_NS, NUM_MOMENTS = 300 * MS, 4
FR3 = LIMITS.arm("left_arm")
TICK_S = TICK / 1e9


class Heard:
    """An executor, and what it was led by first after each take-over."""

    def __init__(self, robot):
        self._robot, self._executor, self.first, self._is_new = robot, robot.executor, [], False

    def __getattr__(self, name):
        return getattr(self._executor, name)

    def take_over(self, parts, now_ns):
        self._is_new = True
        self._executor.take_over(parts, now_ns)

    def lead(self, commands, now_ns):
        if self._is_new:
            self.first.append((self._robot.before, self.commanded, dict(commands)))
        self._is_new = False
        self._executor.lead(commands, now_ns)


def test_no_handover_of_a_moving_arm_jumps_wherever_the_leader_is():
    draws, said, robot = np.random.default_rng(4), Said(), SharedRobot()
    heard = Heard(robot)
    config = TeleopConfig()
    known = dict.fromkeys(ARMS, Kinematics().forward)
    leading = Leading(
        heard,
        said,
        followers_for(SPEC, LIMITS, config, hand_pose=known),
        config,
        period_ns=TICK,
        say=lambda line: None,
        post=lambda order, by: None,
    )
    moments, t_ns = [], 400 * MS
    for _ in range(NUM_MOMENTS):
        t_ns += round(draws.uniform(450, 900)) * MS
        moments.append(t_ns)
    begun = 0

    def person(_, t):
        nonlocal begun
        while begun < NUM_MOMENTS and t >= moments[begun] + HELD_NS:
            begun += 1
        is_held = begun < NUM_MOMENTS and t >= moments[begun]
        where = np.random.default_rng(begun)  # far away, and moving by the tick
        X_LH = pin.SE3(pin.exp3(where.normal(size=3)), 5.0 * where.normal(size=3) + 1e-9 * t * 0.1)
        leaders = {"left_arm": PoseLead(X_LH=X_LH), "right_arm": JointLead(q=3.0 * where.normal(size=7))}
        said.lead = Lead(t_ns=t, parts=leaders, engaged=dict.fromkeys(leaders, is_held))
        leading.look(robot.state(t), t)

    robot.person = person
    ticks = robot.run(moments[-1] + 800 * MS)
    assert len(heard.first) == NUM_MOMENTS
    for before, commanded, led in heard.first:  # goes on at its speed, less what it may lose in a tick
        for part in ARMS:
            goes_on = 2.0 * commanded.parts[part].q - before.parts[part].q
            assert np.abs(led[part].q - goes_on).max() <= FR3.ddq_max[0] * TICK_S**2
    for part in ARMS:
        q = np.array([tick.command.parts[part].q for tick in ticks])
        dq = np.diff(q, axis=0) / TICK_S
        assert (np.abs(dq) <= FR3.dq_max + 1e-6).all()
        assert (np.abs(np.diff(dq, axis=0)) / TICK_S <= FR3.ddq_max * 1.01).all()
        who = [tick.authority[part] for tick in ticks]
        turns = [b for a, b in pairwise(who) if a is not b]
        assert turns.count(Authority.HUMAN) == NUM_MOMENTS
        assert turns.count(Authority.POLICY) >= NUM_MOMENTS - 1
