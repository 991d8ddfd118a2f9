"""What the servos of a simulated arm turn its joints with, measured under a name of its own."""

import numpy as np
import pytest

from robot_runtime.core.method.table import method_named
from robot_runtime.core.policy import policy
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ActionSpec, GripperWidth, JointCommand, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.evaluation.loop import play, play_together
from robot_runtime.evaluation.traces import constant
from sim.episodes.task_env import TaskEnv
from sim.scene.clock import SimClock
from sim.scene.drivers import SimArm, SimTorques, sim_robot

MS = 1_000_000


def test_an_arm_that_is_led_away_is_turned_there_and_at_rest_only_its_weight_would_need_torque(track_world):
    clock = SimClock(1_000 * MS)
    track_world.reset(0, t_start_ns=clock.now_ns())
    arm, torques = SimArm(track_world, clock), SimTorques(track_world, clock)
    clock.sleep_until_ns(2_000 * MS)
    assert np.abs(torques.read()).max() < 0.5
    arm.write(JointCommand(q=arm.read().q + 0.1 * np.eye(7)[0]))
    clock.sleep_until_ns(2_004 * MS)
    assert torques.read()[0] > 5.0
    assert sim_robot(track_world, clock, has_torques=True).schema().measured == {"arm_torques": 7}


@pytest.mark.long
def test_a_policy_that_feels_is_shown_the_torques_in_simulated_time_too():
    spec = ActionSpec(fields=(JointPosition(7), GripperWidth()), horizon=16, dt_ns=50 * MS)
    shown = []

    @policy(PolicyInfo(name="feels", action_spec=spec, schema=Schema.of(spec, measured={"arm_torques": 7})))
    def feels(observation):
        shown.append(observation.state.measured["arm_torques"])
        state = observation.state
        swing = 0.2 * np.sin(np.arange(16) / 4.0)
        rows = np.tile([*state.q, state.gripper_width], (16, 1))
        rows[:, 0] += swing
        return rows

    env = TaskEnv("track", has_torques=True)
    episode = play(feels, env, method=method_named("time-aligned"), seed=0, trace=constant(100.0))
    play_together(feels, [episode])
    assert len(shown) >= 5
    assert all(torques.shape == (7,) for torques in shown)
    assert np.abs(shown[0]).max() < 0.5
    assert np.abs(shown[1]).max() > 5.0
