import mujoco
import numpy as np
import pinocchio as pin

from sim.scene.kinematics import Q_HOME, R_DOWN, Kinematics, solve_down

ROUNDING = 1e-9  # m or 1: both sides compute in doubles
MJCF_ROUNDING = 1e-7  # rad: the file writes the hand's quaternion with 7 digits


def test_hand_pose_agrees_with_mujoco(track_world):
    kinematics, rng = Kinematics(), np.random.default_rng(0)
    data = mujoco.MjData(track_world.model)
    for _ in range(100):
        q = rng.uniform(kinematics.q_min, kinematics.q_max)
        data.qpos[:7] = q
        mujoco.mj_kinematics(track_world.model, data)
        site, X_BE = data.site("end_effector"), kinematics.forward(q)
        np.testing.assert_allclose(X_BE.translation, site.xpos, atol=ROUNDING)
        np.testing.assert_allclose(X_BE.rotation, site.xmat.reshape(3, 3), atol=ROUNDING)


def test_jacobian_is_the_derivative_of_the_hand_pose():
    kinematics, rng, h = Kinematics(), np.random.default_rng(1), 1e-6
    q = rng.uniform(kinematics.q_min, kinematics.q_max)
    J, X_BE = kinematics.jacobian(q), kinematics.forward(q)
    for i in range(7):
        moved = kinematics.forward(q + h * np.eye(7)[i])
        np.testing.assert_allclose((moved.translation - X_BE.translation) / h, J[:3, i], atol=1e-5)
        turn = pin.log3(moved.rotation @ X_BE.rotation.T) / h
        np.testing.assert_allclose(turn, J[3:, i], atol=1e-5)


def test_inverse_reaches_reachable_poses_from_home_within_limits():
    kinematics, rng = Kinematics(), np.random.default_rng(2)
    for _ in range(100):
        tilt = pin.exp3(rng.uniform(-0.4, 0.4, 3))
        X_BE = pin.SE3(tilt @ R_DOWN, rng.uniform([0.35, -0.25, 0.1], [0.6, 0.25, 0.45]))
        q = kinematics.solve(X_BE, np.array(Q_HOME))
        assert np.linalg.norm(pin.log6(kinematics.forward(q).actInv(X_BE)).vector) < 1e-5
        assert (q >= kinematics.q_min).all()
        assert (q <= kinematics.q_max).all()


def test_inverse_does_not_depend_on_where_it_starts():
    kinematics, rng = Kinematics(), np.random.default_rng(3)
    X_BE = pin.SE3(R_DOWN, np.array([0.5, 0.1, 0.3]))
    expected = kinematics.solve(X_BE, np.array(Q_HOME))
    for _ in range(20):
        start = np.array(Q_HOME) + rng.uniform(-0.3, 0.3, 7)
        np.testing.assert_allclose(kinematics.solve(X_BE, start), expected, atol=1e-5)


def test_inverse_of_an_unreachable_pose_stays_finite_and_within_limits():
    kinematics = Kinematics()
    q = kinematics.solve(pin.SE3(R_DOWN, np.array([3.0, 0.0, 0.3])), np.array(Q_HOME))
    assert np.isfinite(q).all()
    assert (q >= kinematics.q_min).all()
    assert (q <= kinematics.q_max).all()


def test_closed_form_for_a_hand_pointing_down_agrees_with_the_forward_kinematics():
    kinematics, rng = Kinematics(), np.random.default_rng(4)
    p_BE = rng.uniform([0.3, -0.3, 0.0], [0.6, 0.3, 0.46], (100, 3))
    yaw = rng.uniform(-0.7, 0.7, 100)
    for q, p, angle in zip(solve_down(p_BE, yaw), p_BE, yaw, strict=True):
        X_BE = kinematics.forward(q)
        np.testing.assert_allclose(X_BE.translation, p, atol=ROUNDING)
        R_BE = pin.utils.rotate("z", angle) @ R_DOWN
        np.testing.assert_allclose(X_BE.rotation, R_BE, atol=MJCF_ROUNDING)
