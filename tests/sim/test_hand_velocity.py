"""How fast a hand moves, for policies that do not know the joints of the arm that it is on."""

from dataclasses import replace

import numpy as np
import pytest

from policies.flow.demonstrations import load_demonstrations, save_demonstrations
from robot_runtime.core.method.table import method_named
from robot_runtime.core.policy import policy
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import JointCommand
from robot_runtime.core.values.transforms import rotation_to_6d
from robot_runtime.evaluation.traces import constant
from robot_runtime.robot.hand_velocity import HandVelocity
from sim.capture.samples import samples
from sim.demonstrations.training_data import by_labels
from sim.episodes.evaluate import run_episode
from sim.experts import action_spec_of
from sim.scene.clock import SimClock
from sim.scene.drivers import SimArm
from sim.tasks import make_task
from tests.sim.capture.test_samples import N, walked

MS = 1_000_000


class _SeenEnough(Exception):
    pass


def test_it_is_what_the_pose_of_the_hand_changes_by(track_world):
    clock = SimClock(1_000 * MS)
    track_world.reset(0, t_start_ns=clock.now_ns())
    arm = SimArm(track_world, clock)
    velocity = HandVelocity(arm, track_world.arm.kinematics.forward)
    assert np.abs(velocity.read()).max() < 0.01
    arm.write(JointCommand(q=arm.read().q + 0.2 * np.eye(7)[0]))
    places, found = [], []
    for _ in range(30):
        clock.sleep_until_ns(clock.now_ns() + 2 * MS)
        places.append(arm.read().X_BE.translation)
        found.append(velocity.read())
    moved = np.diff(places, axis=0) / 0.002
    later = np.array(found)[1:]  # a physics step goes on with the velocity at its end
    assert np.linalg.norm(moved, axis=1).max() > 0.3
    assert np.linalg.norm(moved - later, axis=1).max() < 0.02 * np.linalg.norm(moved, axis=1).max()


def test_a_robot_measures_it_for_a_policy_that_needs_it():
    spec, shown = action_spec_of("fetch"), []
    schema = replace(make_task("fetch").schema, measured={"hand_velocity": 3})

    @policy(PolicyInfo(name="feels", action_spec=spec, schema=schema))
    def feels(observation):
        shown.append(observation.state.measured["hand_velocity"])
        if len(shown) == 8:
            raise _SeenEnough
        p, R = observation.state.X_BE.translation, observation.state.X_BE.rotation
        row = [0.0, 0.0, 0.0, p[0], p[1], p[2] - 0.1, *rotation_to_6d(R), 0.08]
        return np.tile(row, (spec.horizon, 1))

    with pytest.raises(_SeenEnough):
        run_episode(feels, task_name="fetch", method=method_named("naive"), seed=0, trace=constant(100.0))
    assert np.abs(shown[0]).max() < 0.01
    assert min(v[2] for v in shown) < -0.05


def test_demonstrations_of_people_tell_it_and_their_policies_see_it(tmp_path):
    told = walked()
    told = told.__class__(
        **{**told.__dict__, "p_WE": told.p_WE + np.outer(np.linspace(0.0, 0.59, N), [0.0, 0.0, 1.0])}
    )
    file = tmp_path / "told.npz"
    save_demonstrations(file, samples(told, np.random.default_rng(0), beside=1, off_plan=1))
    demonstrations = load_demonstrations(file)
    for sample in demonstrations:
        np.testing.assert_allclose(
            sample.observation.state.measured["hand_velocity"], [0.0, 0.0, 0.2], atol=1e-6
        )
    assert by_labels("fetch", demonstrations, "base", joints=False).schema.measured == {"hand_velocity": 3}
    assert by_labels("fetch", demonstrations, "base").schema.measured == {}
