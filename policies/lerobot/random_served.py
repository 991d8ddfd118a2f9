"""A VLA with random weights as a server runs it: `random_served`, for measuring the cost of serving."""

from dataclasses import replace
from typing import Any

from policies.flow.features import FeatureConfig
from policies.lerobot.flow_policy import LeRobotFlowPolicy
from policies.lerobot.metadata import PolicyMetadata
from policies.lerobot.prompts import prompt_length
from policies.lerobot.random import random_steps
from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.sampler_parts import HorizonAwareSchedule
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S, ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.dataset.recording import camera_of
from robot_runtime.server.warming import zero_observation

ROWS_PER_S = 30
_WORD = "pick"


def random_served(
    policy: Any, *, num_words: int, is_compiled: bool, is_whole: bool = False
) -> LeRobotFlowPolicy:
    """A `random_policy` for an arm of seven joints with a gripper; it takes only the horizon-aware schedule.

    Its one task gives a prompt of `num_words` tokens, or has one word if LeRobot's own additions are longer.
    """
    config, (before, after) = policy.config, random_steps(policy)
    spec = ActionSpec(
        fields=(JointPosition(7), GripperWidth()), horizon=config.chunk_size, dt_ns=NS_PER_S // ROWS_PER_S
    )
    cameras = {
        camera_of(key): (feature.shape[1], feature.shape[2]) for key, feature in config.image_features.items()
    }
    schema = replace(Schema.of(spec), cameras=cameras)
    can = Capabilities(samplers=(HorizonAwareSchedule,), max_inference_delay=spec.horizon // 2)
    info = PolicyInfo(
        name=f"random {config.type}", action_spec=spec, schema=schema, tasks=(_WORD,), capabilities=can
    )
    features = FeatureConfig(use_hand_pose=False, use_joint_velocity=False)
    metadata = PolicyMetadata(info=info, features=features, adds_origin=False)
    around = prompt_length(before(metadata.seen([zero_observation(schema, _WORD)]))) - 1
    task = " ".join([_WORD] * max(1, num_words - around))
    metadata = replace(metadata, info=replace(info, tasks=(task,)))
    served = LeRobotFlowPolicy(policy, before, after, metadata, is_compiled=is_compiled, is_whole=is_whole)
    # It would also take all sampler parts that need no training, and its server would warm them all up.
    served.info = replace(served.info, capabilities=replace(served.info.capabilities, samplers=can.samplers))
    return served
