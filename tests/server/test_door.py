"""What a policy must be before a server opens its address for it."""

from dataclasses import replace

import pytest

from policies.scripted import FRANKA, HoldPolicy
from robot_runtime.errors import PolicyError
from robot_runtime.server.door import checked_welcome
from robot_runtime.server.server import HEARTBEAT_NS


def with_cameras(**cameras: tuple[int, int]) -> HoldPolicy:
    return HoldPolicy(schema=replace(FRANKA, cameras=cameras))


def test_an_ordinary_policy_is_let_through():
    assert checked_welcome(with_cameras(wrist=(480, 640)), HEARTBEAT_NS).info.name == "hold"


def with_tasks(task: str, number: int) -> HoldPolicy:
    policy = HoldPolicy()
    policy.info = replace(policy.info, tasks=(task,) * number)
    return policy


def looking_back(n_obs_steps: int, **cameras: tuple[int, int]) -> HoldPolicy:
    policy = with_cameras(**cameras)
    policy.info = replace(policy.info, n_obs_steps=n_obs_steps)
    return policy


def looking_far_back(n_obs_steps: int, **schema) -> HoldPolicy:
    policy = HoldPolicy(schema=replace(FRANKA, **schema))
    policy.info = replace(policy.info, n_obs_steps=n_obs_steps)
    return policy


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (HoldPolicy(horizon=2000), "chunks of so many rows: 2000; expected 1 to 1024"),
        (with_tasks("x" * 4000, 30), "policy 'hold' cannot be described to robots: the header has"),
        (HoldPolicy(schema=replace(FRANKA, environment_state_dim=2000)), "environment state: 2000"),
        (with_cameras(wrist=(4000, 4000)), "bytes of a picture of camera 'wrist': 48000000"),
        (looking_back(33, a=(8, 8), b=(8, 8)), "pictures in a request: 66; expected 0 to 64"),
        (with_cameras(**{f"c{i}": (3000, 3000) for i in range(3)}), "bytes of pictures in all: 81000000"),
        (looking_back(3, a=(3000, 3000)), "bytes of pictures in all: 81000000"),
        (looking_far_back(8, environment_state_dim=1024), "8 observations of arm, gripper and 1024 numbers"),
        (looking_far_back(1, measured={"skin": 8192}), "1 observations of arm, gripper, skin and 0 numbers"),
    ],
)
def test_a_policy_that_could_not_be_served_is_refused_in_a_sentence(made: HoldPolicy, words: str):
    with pytest.raises(PolicyError, match=words):
        checked_welcome(made, HEARTBEAT_NS)
