import subprocess
import sys

import numpy as np
import pytest

from policies.load import load_policy
from policies.scripted import FRANKA, HoldPolicy, SinePolicy
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest, Policy
from robot_runtime.core.values.action import JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Observation, RobotState
from tests.policies.toy import infer


def observe(t_ns: int = 0, q: np.ndarray | None = None) -> Observation:
    q = np.linspace(-1.0, 1.0, 7) if q is None else q
    return Observation(state=RobotState(t_ns=t_ns, q=q, dq=np.zeros(7), gripper_width=0.03))


def test_hold_repeats_what_was_measured() -> None:
    rows = infer(HoldPolicy(horizon=5), observe())
    assert np.array_equal(rows, np.tile([*np.linspace(-1.0, 1.0, 7), 0.03], (5, 1)))


def test_sine_starts_where_the_arm_is() -> None:
    rows = infer(SinePolicy(), observe(t_ns=123_456_789))
    assert np.array_equal(rows[0], [*np.linspace(-1.0, 1.0, 7), 0.03])


def test_sine_chunks_of_a_robot_that_follows_lie_on_one_curve() -> None:
    policy = SinePolicy()
    first = infer(policy, observe())
    later = infer(policy, observe(t_ns=10 * policy.info.action_spec.dt_ns, q=first[10, :7]))
    np.testing.assert_allclose(later[:-10], first[10:], atol=1e-12)  # rad, rounding


@pytest.mark.parametrize("policy", [HoldPolicy(block_rows=5), SinePolicy(block_rows=5)])
def test_blocks_put_together_are_the_chunk(policy: Policy) -> None:
    blocks = list(policy.infer(ChunkRequest(observation=observe(), sampler=ConstantSchedule(), seed=0)))
    assert [len(block) for block in blocks] == [5, 5, 5, 5, 5, 5, 2]
    whole = type(policy)()  # type: ignore[call-arg]
    assert np.array_equal(np.concatenate(blocks), infer(whole, observe()))


def test_committed_rows_are_repeated() -> None:
    prefix = np.random.default_rng(0).normal(size=(3, 8))
    rows = infer(SinePolicy(), observe(), prefix=prefix)
    assert rows.shape == (32, 8)
    assert np.array_equal(rows[:3], prefix)


def test_a_scripted_policy_takes_the_schema_of_the_robot() -> None:
    schema = Schema(action_fields=(JointPosition(7),), num_joints=7, has_gripper=False, has_base=False)
    assert load_policy("hold", schema=schema).info.schema == schema
    assert load_policy("sine").info.schema == FRANKA


def test_importing_the_protocol_and_scripted_policies_leaves_torch_alone() -> None:
    code = (
        "import sys, policies, robot_runtime.core.policy, policies.scripted, policies.load;"
        "policies.load.load_policy('sine'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
