"""LeRobot's real SmolVLA, pi0 and pi0.5 at toy size with random weights, saved as LeRobot saves them."""

from pathlib import Path

import torch

from policies.flow.features import FeatureConfig
from policies.lerobot.metadata import PolicyMetadata
from policies.lerobot.random import NARROW, save_smolvlm
from robot_runtime.core.method.capabilities import Capabilities
from robot_runtime.core.method.sampler_parts import ConstantSchedule, SamplerPart
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.schema import Schema

TASK = "pick it up"
HORIZON, DIM, PADDED = 8, 3, 6
SPEC = ActionSpec(fields=(JointPosition(2), GripperWidth()), horizon=HORIZON, dt_ns=50_000_000)
SCHEMA = Schema(
    action_fields=SPEC.fields, num_joints=2, has_gripper=True, has_base=False, cameras={"wrist": (32, 32)}
)
FEATURES = FeatureConfig(use_hand_pose=False, use_joint_velocity=False)


def save_pi(
    kind: str, folder: Path, *, trained_for: tuple[type[SamplerPart], ...] = (), **options: object
) -> Path:
    """As `save_smolvla`; to be loaded in `narrow_pi` too."""
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors

    save_smolvlm(folder / "vlm", NARROW)
    config = make_policy_config(
        kind,
        chunk_size=HORIZON,
        n_action_steps=HORIZON,
        max_state_dim=PADDED,
        max_action_dim=PADDED,
        image_resolution=(32, 32),
        tokenizer_max_length=16,
        device="cpu",
        input_features={
            "observation.state": PolicyFeature(FeatureType.STATE, (3,)),
            "observation.images.wrist": PolicyFeature(FeatureType.VISUAL, (3, 32, 32)),
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, (DIM,))},
        **options,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = get_policy_class(kind)(config)
        # What the flow time modulates starts at zero, and would do nothing.
        for layer in policy.modules():
            if getattr(layer, "cond_dim", None):
                torch.nn.init.normal_(layer.dense.weight, std=0.1)
    return _save(folder, policy, make_pre_post_processors(config, dataset_stats=_stats()), trained_for)


def save_smolvla(folder: Path, *, trained_for: tuple[type[SamplerPart], ...] = ()) -> Path:
    """A checkpoint folder, with our metadata."""
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import make_pre_post_processors
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
    from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy

    config = SmolVLAConfig(
        vlm_model_name=str(save_smolvlm(folder / "vlm", NARROW)),
        num_vlm_layers=2,
        expert_width_multiplier=1.0,
        chunk_size=HORIZON,
        n_action_steps=HORIZON,
        max_state_dim=PADDED,
        max_action_dim=PADDED,
        resize_imgs_with_padding=(32, 32),
        device="cpu",
        input_features={
            "observation.state": PolicyFeature(FeatureType.STATE, (3,)),
            "observation.images.wrist": PolicyFeature(FeatureType.VISUAL, (3, 32, 32)),
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, (DIM,))},
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = SmolVLAPolicy(config)
    return _save(folder, policy, make_pre_post_processors(config, dataset_stats=_stats()), trained_for)


def _stats() -> dict[str, dict[str, torch.Tensor]]:
    return {
        "observation.state": {
            "mean": torch.zeros(3),
            "std": torch.ones(3),
            "q01": torch.full((3,), -3.0),
            "q99": torch.full((3,), 3.0),
        },
        "action": {
            "mean": torch.tensor([0.5, -1.0, 0.04]),
            "std": torch.tensor([2.0, 0.5, 0.01]),
            "q01": torch.tensor([-1.0, -2.0, 0.0]),
            "q99": torch.tensor([2.0, 1.0, 0.08]),
        },
    }


def _save(folder: Path, policy, processors, trained_for: tuple[type[SamplerPart], ...]) -> Path:
    for part in (policy, *processors):
        part.save_pretrained(folder)
    metadata = PolicyMetadata(
        info=PolicyInfo(
            name=f"{policy.config.type} {folder.name}",
            action_spec=SPEC,
            schema=SCHEMA,
            capabilities=Capabilities(
                samplers=(ConstantSchedule, *trained_for), max_inference_delay=4 if trained_for else 0
            ),
        ),
        features=FEATURES,
        adds_origin=False,
    )
    metadata.save(folder)
    return folder
