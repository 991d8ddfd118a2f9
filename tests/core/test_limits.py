import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.action import (
    BasePoseCommand,
    BaseTwistCommand,
    Command,
    GripperCommand,
    JointCommand,
    PoseCommand,
)
from robot_runtime.core.limits import Limiter, Limits

LIMITS = Limits(
    q_min=np.array([-1.0]),
    q_max=np.array([1.0]),
    dq_max=np.array([2.0]),
    ddq_max=np.array([10.0]),
    base_speed_max=np.array([0.5, 0.5, 1.0]),
    base_acceleration_max=np.array([1.0, 1.0, 2.0]),
)
STEP = 2_000_000
DT_S = 0.002


def joint(q: float) -> Command:
    return Command(arm=JointCommand(q=np.array([q])))


def follow(targets: list[float]) -> np.ndarray:
    limiter = Limiter(LIMITS)
    limiter.reset(joint(targets[0]), 0)
    out = [limiter.limit(joint(q), (i + 1) * STEP)[0].arm.q[0] for i, q in enumerate(targets)]
    return np.array([targets[0], *out])


@given(st.lists(st.floats(-3.0, 3.0), min_size=2, max_size=60), st.integers(1, 30))
def test_no_command_leaves_the_limits_whatever_the_plan(targets, repeats):
    q = follow([0.0, *np.repeat(targets, repeats)])
    v = np.diff(q) / DT_S
    assert (np.abs(q) <= 1.0 + 1e-12).all()
    assert (np.abs(v) <= 2.0 + 1e-9).all()
    inside = np.abs(q[1:-1]) < 1.0 - 1e-9  # at a joint stop the position limit comes first
    assert (np.abs(np.diff(v))[inside[: len(v) - 1]] <= 10.0 * DT_S + 1e-9).all() or not inside.all()


def test_a_step_is_reached_without_overshoot():
    q = follow([0.0] + [0.5] * 600)
    assert q[-1] == pytest.approx(0.5, abs=1e-6)
    assert q.max() <= 0.5 + 1e-3


def test_a_plan_within_the_limits_passes_untouched():
    targets = [0.3 * (1.0 - np.cos(i * DT_S)) for i in range(1000)]
    np.testing.assert_array_equal(follow(targets)[1:], targets)


def test_a_clipped_command_says_what_gave():
    limiter = Limiter(LIMITS)
    limiter.reset(joint(0.0), 0)
    _, clip = limiter.limit(joint(5.0), STEP)
    assert clip.position
    assert clip.velocity
    assert clip.acceleration
    assert limiter.limit(Command(gripper=GripperCommand(width=0.5)), 2 * STEP)[0].gripper.width == 0.08


def test_hand_and_base_are_limited_too():
    limiter = Limiter(LIMITS)
    unit = np.array([1.0, 0, 0, 0])
    limiter.reset(
        Command(arm=PoseCommand(p_BE=np.zeros(3), quat_BE=unit), base=BaseTwistCommand(V_WB_B=np.zeros(3))),
        0,
    )
    out, clip = limiter.limit(
        Command(
            arm=PoseCommand(p_BE=np.array([1.0, 0, 0]), quat_BE=unit),
            base=BaseTwistCommand(V_WB_B=np.array([2.0, 0, 0])),
        ),
        STEP,
    )
    assert out.arm.p_BE[0] == pytest.approx(LIMITS.hand_speed_max * DT_S)
    assert out.base.V_WB_B[0] == pytest.approx(1.0 * DT_S)
    assert clip.base


def test_a_base_pose_moves_at_most_at_its_top_speed_and_turns_the_shorter_way():
    limiter = Limiter(LIMITS)
    limiter.reset(Command(base=BasePoseCommand(x_WB=np.array([0.0, 0.0, 3.1]))), 0)
    out, _ = limiter.limit(Command(base=BasePoseCommand(x_WB=np.array([1.0, 0.0, -3.1]))), STEP)
    assert out.base.x_WB[0] == pytest.approx(0.5 * DT_S)
    assert out.base.x_WB[2] == pytest.approx(3.1 + 1.0 * DT_S)
