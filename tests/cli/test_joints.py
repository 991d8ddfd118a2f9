"""What `serve --joints` says of the robot that `hold` and `sine` are for."""

import pytest

from policies.commands.serve import joints_schema
from policies.load import load_policy
from robot_runtime.errors import InvalidValueError


@pytest.mark.parametrize(
    ("joints", "names"),
    [
        (("2",), ("arm.joint_1", "arm.joint_2")),
        (("left_arm=1", "lift=1"), ("left_arm.joint_1", "lift.joint_1")),
        (("arm=shoulder,elbow",), ("arm.shoulder", "arm.elbow")),
    ],
)
def test_the_scripted_policies_are_for_the_joints_that_are_told(joints, names):
    for policy in ("hold", "sine"):
        info = load_policy(policy, schema=joints_schema(joints)).info
        assert info.action_spec.names == names
        assert info.schema.state_names == names
        assert not any(info.schema.needs_hand(part) for part in info.schema.parts)


@pytest.mark.parametrize(
    ("joints", "words"),
    [
        ("0", "an arm has 1 to 128 joints"),
        ("=3", "a part is called by"),
        ("arm=a,a", "each for one of them"),
        ("my arm=3", "a part is called by"),
    ],
)
def test_joints_that_cannot_be_are_refused(joints, words):
    with pytest.raises(InvalidValueError, match=words):
        joints_schema((joints,))


def test_a_policy_that_knows_its_robot_is_told_none():
    with pytest.raises(InvalidValueError, match="track knows its robot: joints apply to hold and sine only"):
        load_policy("track", schema=joints_schema(("7",)))
