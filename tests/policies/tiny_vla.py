"""LeRobot's real SmolVLA, pi0 and pi0.5 at toy size with random weights, saved as LeRobot saves them."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch

from policies.flow.features import FeatureConfig
from policies.lerobot import Sidecar
from robot_runtime.core.action import ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.schema import Schema

TASK = "pick it up"
HORIZON, DIM, PADDED = 8, 3, 6
SPEC = ActionSpec(fields=(JointPosition(2), GripperWidth()), horizon=HORIZON, dt_ns=50_000_000)
SCHEMA = Schema(
    action_fields=SPEC.fields, num_joints=2, has_gripper=True, has_base=False, cameras={"wrist": (32, 32)}
)
FEATURES = FeatureConfig(use_hand_pose=False, use_joint_velocity=False)
WORDS = ("<unk>", "<pad>", "<s>", "</s>", "<image>", "<fake>", "<global>", "<end>", *TASK.split(), "\n")


def tiny_smolvlm(folder: Path) -> Path:
    """A SmolVLM of two narrow layers with fifteen words, as LeRobot's SmolVLA looks for one."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        PreTrainedTokenizerFast,
        SmolVLMConfig,
        SmolVLMImageProcessor,
        SmolVLMProcessor,
        SmolVLMVideoProcessor,
    )

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {
        "image_token": "<image>",
        "fake_image_token": "<fake>",
        "global_image_token": "<global>",
        "end_of_utterance_token": "<end>",
    }
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        extra_special_tokens=special,
    )
    layers = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = SmolVLMConfig(
        text_config={
            **layers,
            "model_type": "llama",
            "num_key_value_heads": 2,
            "head_dim": 16,
            "vocab_size": len(WORDS),
            "pad_token_id": 1,
        },
        vision_config={**layers, "image_size": 32, "patch_size": 8},
        scale_factor=2,
        image_token_id=4,
        pad_token_id=1,
    )
    config.save_pretrained(folder)
    processor = SmolVLMProcessor(
        image_processor=SmolVLMImageProcessor(),
        tokenizer=tokenizer,
        video_processor=SmolVLMVideoProcessor(),
        image_seq_len=4,
    )
    processor.save_pretrained(folder)
    return folder


@contextmanager
def narrow_pi(kind: str, vlm: Path) -> Iterator[None]:
    """While it lasts, LeRobot builds its pi0 or pi0.5 two narrow layers deep, with words from a folder."""
    module = importlib.import_module(f"lerobot.policies.{kind}.modeling_{kind}")
    processor = importlib.import_module(f"lerobot.policies.{kind}.processor_{kind}")
    gemma = module.GemmaConfig(width=32, depth=2, mlp_dim=64, num_heads=2, num_kv_heads=1, head_dim=16)
    whole, expert = module.PaliGemmaForConditionalGenerationWithPiGemma, module.PiGemmaForCausalLM
    step = processor.TokenizerProcessorStep

    def narrow_vlm(config):
        config.text_config.vocab_size = config.image_token_index = len(WORDS)
        for name in ("hidden_size", "projection_dim"):
            setattr(config.vision_config, name, gemma.width)
        config.vision_config.intermediate_size, config.vision_config.patch_size = gemma.mlp_dim, 16
        config.vision_config.num_hidden_layers = config.vision_config.num_attention_heads = 2
        return whole(config=config)

    def narrow_expert(config):
        config.vocab_size = len(WORDS)
        return expert(config=config)

    def with_these_words(tokenizer_name, **rest):
        return step(tokenizer_name=str(vlm), **rest)

    with (
        patch.object(module, "get_gemma_config", lambda variant: gemma),
        patch.object(module, "PaliGemmaForConditionalGenerationWithPiGemma", narrow_vlm),
        patch.object(module, "PiGemmaForCausalLM", narrow_expert),
        patch.object(processor, "TokenizerProcessorStep", with_these_words),
    ):
        yield


def save_pi(kind: str, folder: Path, *, trained_for: tuple[str, ...] = ()) -> Path:
    """As `save_smolvla`; to be loaded in `narrow_pi` too."""
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import get_policy_class, make_policy_config, make_pre_post_processors

    tiny_smolvlm(folder / "vlm")
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
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = get_policy_class(kind)(config)
        # What the flow time modulates starts at zero, and would do nothing.
        for layer in policy.modules():
            if getattr(layer, "cond_dim", None):
                torch.nn.init.normal_(layer.dense.weight, std=0.1)
    return _save(folder, policy, make_pre_post_processors(config, dataset_stats=_stats()), trained_for)


def save_smolvla(folder: Path, *, trained_for: tuple[str, ...] = ()) -> Path:
    """A checkpoint folder, with our sidecar."""
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import make_pre_post_processors
    from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig
    from lerobot.policies.smolvla.modeling_smolvla import SmolVLAPolicy

    config = SmolVLAConfig(
        vlm_model_name=str(tiny_smolvlm(folder / "vlm")),
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


def _save(folder: Path, policy, processors, trained_for: tuple[str, ...]) -> Path:
    for part in (policy, *processors):
        part.save_pretrained(folder)
    sidecar = Sidecar(
        schema=SCHEMA,
        action_spec=SPEC,
        features=FEATURES,
        adds_origin=False,
        trained_for=trained_for,
        max_inference_delay=4 if trained_for else 0,
    )
    sidecar.save(folder)
    return folder
