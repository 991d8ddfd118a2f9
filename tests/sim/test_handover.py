import mujoco
import numpy as np
import pinocchio as pin
import pytest

from policies.flow.dataset import make_dataset
from policies.flow.demonstrations import load_demonstrations, save_demonstrations
from policies.flow.features import state_features
from robot_runtime.core.method.choose import Default, default_for
from robot_runtime.core.robot import Arm, Gripper
from robot_runtime.core.values.action import Command, GripperCommand, JointCommand
from robot_runtime.core.values.state import ArmState, GripperState
from sim.demonstrations.demonstrations import disturbed_episode, run_expert
from sim.demonstrations.perturbations import Demonstration
from sim.demonstrations.training_data import by_labels
from sim.episodes.evaluate import run_episode
from sim.experts.policy import ExpertPolicy
from sim.experts.two_hands import TWO_HAND_SPEC
from sim.scene.clock import SimClock
from sim.scene.drivers import sim_limits, sim_robot, sim_whole_body
from sim.scene.kinematics import Q_HOME
from sim.scene.world import World
from sim.tasks import make_task
from sim.tasks.handover import (
    CUBE_IN_TRAY_Z,
    EXCHANGE,
    GIVER,
    HOME_YAW,
    RECEIVER,
    edge_yaw,
    hand_angles,
    hand_rotation,
)

MS = 1_000_000


@pytest.fixture(scope="module")
def world() -> World:
    return World(make_task("handover"))


def put_cube(world: World, p) -> None:
    cube = world.data.joint("cube")
    cube.qpos[:], cube.qvel[:] = [*p, 1.0, 0.0, 0.0, 0.0], 0.0


def test_each_arm_stands_where_pinocchio_has_it(world):
    world.reset(3)
    for name, arm in world.arms.items():
        site = world.data.site(f"{arm.mount.prefix}end_effector")
        X_BE = arm.kinematics.forward(arm.q)
        np.testing.assert_allclose(X_BE.translation, site.xpos, atol=1e-9)
        np.testing.assert_allclose(X_BE.rotation.ravel(), site.xmat, atol=1e-9)
        J = np.zeros((6, world.model.nv))
        mujoco.mj_jacSite(world.model, world.data, J[:3], J[3:], site.id)
        first = world.model.joint(f"{arm.mount.prefix}fr3_joint1").dofadr[0]
        np.testing.assert_allclose(arm.kinematics.jacobian(arm.q), J[:, first : first + 7], atol=1e-9)
        assert name == arm.mount.arm


def test_a_world_of_two_arms_has_no_arm_of_which_it_is_said_which(world):
    with pytest.raises(ValueError, match="left_arm, right_arm"):
        _ = world.q


def test_drivers_read_and_write_the_arms_and_grippers_that_are_named(world):
    clock = SimClock()
    world.reset(0)
    robot = sim_robot(world, clock)
    assert list(robot.parts) == ["left_arm", "left_gripper", "right_arm", "right_gripper"]
    before = robot.read()
    q = before.arm("left_arm").q + 0.1
    sent = robot.write(Command({"left_arm": JointCommand(q=q), "right_gripper": GripperCommand(width=0.02)}))
    assert set(sent.parts) == {"left_arm", "right_gripper"}
    clock.sleep_until_ns(1_000 * MS)
    after = robot.read()
    np.testing.assert_allclose(after.arm("left_arm").q, q, atol=2e-3)
    np.testing.assert_allclose(after.arm("right_arm").q, before.arm("right_arm").q, atol=2e-3)
    assert after.gripper("right_gripper").width == pytest.approx(0.02, abs=1e-3)
    assert after.gripper("left_gripper").width == pytest.approx(0.08, abs=1e-3)
    assert isinstance(robot.parts["left_arm"], Arm)
    assert isinstance(robot.parts["left_gripper"], Gripper)


def test_an_observation_has_the_parts_and_numbers_of_the_schema(world):
    world.reset(1)
    observation, schema = world.observe(), world.task.schema
    assert list(observation.state.parts) == list(schema.parts)
    assert observation.environment_state.shape == (schema.environment_state_dim,)
    for part in observation.state.parts.values():
        assert isinstance(part, ArmState | GripperState)
    exact = world.observe(exact=True).environment_state
    assert 0.0 < np.abs(observation.environment_state - exact).max() < 0.02


def test_the_limits_and_the_resolution_cover_every_arm(world):
    sim_limits(world).check(TWO_HAND_SPEC, resolves_hand=sim_whole_body(world))
    assert TWO_HAND_SPEC.dim == 20
    assert TWO_HAND_SPEC.names[9] == "left_gripper.width"


def test_angles_of_a_hand_are_those_it_was_turned_by():
    for name in (GIVER, RECEIVER):
        for tilt, yaw in ((0.0, 0.3), (0.7, -0.4), (1.57, 1.2)):
            np.testing.assert_allclose(hand_angles(name, hand_rotation(name, tilt, yaw)), (tilt, yaw))
    assert hand_rotation(GIVER, np.pi / 2, 0.0)[1, 2] == pytest.approx(1.0)  # at the other arm
    assert hand_rotation(RECEIVER, np.pi / 2, 0.0)[1, 2] == pytest.approx(-1.0)


def test_the_turn_of_a_cube_stays_while_it_is_raised_about_an_edge():
    for raised in (0.0, 0.4, 0.8, 1.2):
        quat, turn, edge = np.zeros(4), np.zeros(4), np.zeros(4)
        mujoco.mju_axisAngle2Quat(turn, np.array([0.0, 0.0, 1.0]), 0.3)
        mujoco.mju_axisAngle2Quat(edge, np.array([1.0, 0.0, 0.0]), raised)
        mujoco.mju_mulQuat(quat, turn, edge)
        assert np.sin(4 * edge_yaw(quat)) == pytest.approx(np.sin(4 * 0.3))


def test_arms_that_run_into_each_other_fail_the_episode(world):
    world.reset(0)
    scorer = world.task.make_scorer(world)
    put_cube(world, [0.0, -0.2, 0.0225])
    for arm in world.arms.values():
        q = np.array(arm.mount.posture)
        q[1], q[3], q[5] = 0.9, -1.2, 2.1
        arm.set_joint_target(q)
    for t_ns in range(0, 2_000 * MS, 10 * MS):
        world.advance_to(t_ns)
        scorer.on_tick(t_ns, world, Command(), None)
    assert scorer.is_done
    assert not scorer.score().success
    assert scorer.score().metrics["arm_force_max_N"] > 20.0


def test_a_cube_that_falls_into_the_tray_is_no_success(world):
    world.reset(0)
    scorer, tray = world.task.make_scorer(world), world.data.mocap_pos[0].copy()
    for arm in world.arms.values():
        arm.place(np.array(Q_HOME), 0.08)
    put_cube(world, tray + np.array([0.0, 0.0, 0.15]))
    for t_ns in range(0, 2_000 * MS, 10 * MS):
        world.advance_to(t_ns)
        scorer.on_tick(t_ns, world, Command(), None)
    cube = world.data.joint("cube").qpos
    assert abs(cube[2] - CUBE_IN_TRAY_Z) < 0.01
    assert not scorer.score().success


class DropsAt:
    """Watches as the scorer does, and has the receiver's fingers open once it carries the cube."""

    def __init__(self, scorer, world):
        self._scorer, self._arm, self.has_dropped = scorer, world.arms[RECEIVER], False

    def __getattr__(self, name):
        return getattr(self._scorer, name)

    def on_tick(self, t_ns, world, command, t_obs_ns):
        p_BO = world.data.joint("cube").qpos[:3]
        if self._scorer.stage == 3 and p_BO[1] > 0.05:
            self.has_dropped = True
        if self.has_dropped:
            self._arm.set_gripper_target(0.08)
        self._scorer.on_tick(t_ns, world, command, t_obs_ns)


@pytest.mark.long
def test_a_cube_that_the_receiver_drops_has_to_be_passed_again(world, monkeypatch):
    task, made = world.task, []

    def make_scorer(world):
        made.append(DropsAt(type(task).make_scorer(task, world), world))
        return made[-1]

    monkeypatch.setattr(task, "make_scorer", make_scorer)
    monkeypatch.setattr(type(task), "episode_s", 14.0)
    score = run_expert(world, seed=0, rows_per_plan=4)
    assert made[-1].has_dropped
    assert not score.success
    assert score.metrics["num_drops"] >= 1.0


@pytest.mark.long
def test_the_expert_passes_the_cube_on(world):
    scores = [run_expert(world, seed=seed, rows_per_plan=4) for seed in range(3)]
    assert all(score.success for score in scores)
    assert all(score.metrics["num_drops"] == 0.0 for score in scores)
    assert all(score.metrics["arm_force_max_N"] == 0.0 for score in scores)


@pytest.fixture(scope="module")
def demonstrated(world) -> list[Demonstration]:
    kept = disturbed_episode(world, seed=0, episode=1)
    assert kept is not None, "the expert finds back from these disturbances"
    return kept


@pytest.mark.long
def test_demonstrations_of_two_arms_come_out_of_a_file_as_they_went_in(demonstrated, tmp_path):
    save_demonstrations(tmp_path / "two.npz", demonstrated)
    loaded = load_demonstrations(tmp_path / "two.npz")
    assert len(loaded) == len(demonstrated)
    for before, after in zip(demonstrated, loaded, strict=True):
        ours, theirs = before.observation.state, after.observation.state
        assert set(ours.parts) == set(theirs.parts)
        assert np.array_equal(ours.arm("left_arm").q, theirs.arm("left_arm").q)
        assert np.array_equal(ours.hand("right_arm").homogeneous, theirs.hand("right_arm").homogeneous)
        assert ours.gripper("right_gripper").width == theirs.gripper("right_gripper").width
        assert np.array_equal(before.rows, after.rows)


def test_a_network_is_shown_both_arms_in_the_order_of_the_schema(world, demonstrated):
    told = by_labels("handover", demonstrated, "base")
    observation = demonstrated[0].observation
    features = state_features(observation, told.schema, told.features)
    left, right = (observation.state.arm(name) for name in ("left_arm", "right_arm"))
    np.testing.assert_array_equal(features[:14], [*left.q, *right.q])
    np.testing.assert_array_equal(features[16:19], left.X_BE.translation)
    np.testing.assert_array_equal(features[25:28], right.X_BE.translation)
    np.testing.assert_array_equal(features[-8:], observation.environment_state)
    assert len(features) == 2 * (7 + 1 + 9 + 7 + 2 * 3) + 8
    assert make_dataset(demonstrated, told.schema, told.spec, told.features).rows.shape[1:] == (32, 20)


@pytest.mark.long
@pytest.mark.parametrize("delay_ms", [0, 300])
def test_the_expert_passes_the_cube_on_through_executor_limits_and_delay(delay_ms):
    policy = ExpertPolicy("handover")
    method = default_for(Default(), policy.info.capabilities).method
    episode = run_episode(
        policy,
        task_name="handover",
        method=method,
        seed=10_000,
        delay_ns=delay_ms * MS,
        control_period_ns=10 * MS,
    )
    assert episode.result.score.success


def test_the_hands_meet_in_the_air_in_front_of_both(world):
    world.reset(0)
    for name, arm in world.arms.items():
        tilted = pin.SE3(hand_rotation(name, np.pi / 2, HOME_YAW[name]), EXCHANGE)
        q = arm.kinematics.solve(tilted, np.array(arm.mount.posture), max_iterations=100)
        reached = arm.kinematics.forward(q)
        assert np.linalg.norm(reached.translation - EXCHANGE) < 1e-3
        smallest = np.linalg.svd(arm.kinematics.jacobian(q), compute_uv=False)[-1]
        assert smallest > 0.1
