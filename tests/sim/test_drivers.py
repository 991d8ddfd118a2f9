import numpy as np
import pytest

from robot_runtime.core.robot import Arm, Camera, Gripper
from robot_runtime.core.values.action import GripperCommand, JointCommand, PoseCommand
from robot_runtime.core.values.transforms import quaternion_from_rotation
from sim.scene.clock import SimClock
from sim.scene.drivers import SimArm, SimCamera, SimGripper

MS = 1_000_000


@pytest.fixture
def clock() -> SimClock:
    return SimClock(1_000 * MS)


@pytest.fixture
def world(track_world, clock):
    track_world.reset(0, t_start_ns=clock.now_ns())
    return track_world


def test_drivers_satisfy_the_protocols(world, clock):
    arm: Arm = SimArm(world, clock)
    gripper: Gripper = SimGripper(world, clock)
    camera: Camera = SimCamera(world, clock, name="wrist")
    assert arm.num_joints == 7
    assert gripper.read() >= 0.0
    assert camera.size == (224, 224)
    camera.close()


def test_reading_makes_the_world_catch_up_with_the_clock(world, clock):
    clock.sleep_until_ns(1_050 * MS)
    assert SimArm(world, clock).read().t_ns == 1_050 * MS
    assert world.t_ns == 1_050 * MS


def test_joint_command_moves_the_arm_there(world, clock):
    arm = SimArm(world, clock)
    q = arm.read().q + 0.1
    arm.write(JointCommand(q=q))
    clock.sleep_until_ns(2_000 * MS)
    np.testing.assert_allclose(arm.read().q, q, atol=2e-3)


def test_pose_command_moves_the_hand_there(world, clock):
    arm = SimArm(world, clock)
    X_BE = arm.read().X_BE
    p = X_BE.translation + np.array([0.03, -0.05, 0.04])
    arm.write(PoseCommand(p_BE=p, quat_BE=quaternion_from_rotation(X_BE.rotation)))
    clock.sleep_until_ns(2_000 * MS)
    np.testing.assert_allclose(arm.read().X_BE.translation, p, atol=2e-3)


def test_command_beyond_the_joint_limits_reports_what_is_really_sent(world, clock):
    sent = SimArm(world, clock).write(JointCommand(q=np.full(7, 9.0)))
    assert isinstance(sent, JointCommand)
    assert (sent.q < 5.0).all()
    assert SimGripper(world, clock).write(GripperCommand(width=1.0)).width == 0.08


def test_stop_holds_the_position_of_that_moment(world, clock):
    arm = SimArm(world, clock)
    arm.write(JointCommand(q=arm.read().q + 0.5))
    clock.sleep_until_ns(1_100 * MS)
    stopped_at = arm.read().q
    arm.stop()
    arm.stop()
    clock.sleep_until_ns(2_000 * MS)
    np.testing.assert_allclose(arm.read().q, stopped_at, atol=2e-3)


def test_camera_that_does_not_exist_is_refused(world, clock):
    with pytest.raises(ValueError, match="overview, wrist, not"):
        SimCamera(world, clock, name="chest")
