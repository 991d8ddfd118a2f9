"""LeRobot's SmolVLA, pi0 and pi0.5 with random weights, of published size or narrow; nothing is downloaded.

They serve to measure speed, and for tests. Published sizes are SmolVLM2-500M (of which SmolVLA takes 16
layers) and LeRobot's own defaults for pi0 and pi0.5 (PaliGemma 2B with an expert of 300M).
"""

import importlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

WORDS = ("<unk>", "<pad>", "<s>", "</s>", "<image>", "<fake>", "<global>", "<end>", "pick", "it", "up", "\n")
_SPECIAL = MappingProxyType(
    {
        "image_token": "<image>",
        "fake_image_token": "<fake>",
        "global_image_token": "<global>",
        "end_of_utterance_token": "<end>",
    }
)


@dataclass(frozen=True, kw_only=True)
class SmolVlmSize:
    """Sizes of a SmolVLM: a vision transformer before a Llama."""

    width: int
    mlp: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    num_words: int
    vision_width: int
    vision_mlp: int
    vision_layers: int
    vision_heads: int
    image_size: int
    patch_size: int
    scale_factor: int
    """Square root of the number of patches that become one token."""


PUBLISHED = SmolVlmSize(
    width=960, mlp=2560, layers=32, heads=15, kv_heads=5, head_dim=64, num_words=49280,
    vision_width=768, vision_mlp=3072, vision_layers=12, vision_heads=12,
    image_size=512, patch_size=16, scale_factor=4,
)  # fmt: skip
NARROW = SmolVlmSize(
    width=32, mlp=64, layers=2, heads=4, kv_heads=2, head_dim=16, num_words=len(WORDS),
    vision_width=32, vision_mlp=64, vision_layers=2, vision_heads=2,
    image_size=32, patch_size=8, scale_factor=2,
)  # fmt: skip


def save_smolvlm(folder: Path, size: SmolVlmSize) -> Path:
    """Save configuration and processor, with a dozen words, where LeRobot's SmolVLA expects them."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (  # type: ignore[attr-defined]
        PreTrainedTokenizerFast,
        SmolVLMConfig,
        SmolVLMImageProcessor,
        SmolVLMProcessor,
        SmolVLMVideoProcessor,
    )

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        extra_special_tokens=dict(_SPECIAL),
    )
    text = {
        "model_type": "llama",
        "hidden_size": size.width,
        "intermediate_size": size.mlp,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "vocab_size": size.num_words,
        "pad_token_id": 1,
    }
    vision = {
        "hidden_size": size.vision_width,
        "intermediate_size": size.vision_mlp,
        "num_hidden_layers": size.vision_layers,
        "num_attention_heads": size.vision_heads,
        "image_size": size.image_size,
        "patch_size": size.patch_size,
    }
    config: dict[str, Any] = {
        "text_config": text,
        "vision_config": vision,
        "scale_factor": size.scale_factor,
        "image_token_id": WORDS.index("<image>"),
        "pad_token_id": 1,
    }
    SmolVLMConfig(**config).save_pretrained(folder)
    processor = SmolVLMProcessor(
        image_processor=SmolVLMImageProcessor(),
        tokenizer=tokenizer,
        video_processor=SmolVLMVideoProcessor(),
        image_seq_len=4,
    )
    processor.save_pretrained(folder)
    return folder


def save_clip(folder: Path) -> Path:
    """Save a CLIP of narrow layers, with a dozen words, where LeRobot's multi-task DiT expects it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import CLIPConfig, CLIPModel, PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    narrow = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": WORDS.index("<s>"), "eos_token_id": WORDS.index("</s>")}
    text = narrow | ends | {"vocab_size": len(WORDS), "max_position_embeddings": 16, "pad_token_id": 1}
    vision = narrow | {"image_size": 32, "patch_size": 16}
    sizes: dict[str, Any] = {"text_config": text, "vision_config": vision, "projection_dim": 32}
    CLIPModel(CLIPConfig(**sizes)).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
    return folder


@contextmanager
def narrow_pi(kind: str, words: Path) -> Iterator[None]:
    """A context in which LeRobot builds pi0 or pi0.5 with two narrow layers, and words from a folder."""
    module = importlib.import_module(f"lerobot.policies.{kind}.modeling_{kind}")
    gemma = module.GemmaConfig(width=32, depth=2, mlp_dim=64, num_heads=2, num_kv_heads=1, head_dim=16)
    whole, expert = module.PaliGemmaForConditionalGenerationWithPiGemma, module.PiGemmaForCausalLM

    def narrow_vlm(config: Any) -> Any:
        config.text_config.vocab_size = config.image_token_index = len(WORDS)
        for name in ("hidden_size", "projection_dim"):
            setattr(config.vision_config, name, gemma.width)
        config.vision_config.intermediate_size, config.vision_config.patch_size = gemma.mlp_dim, 16
        config.vision_config.num_hidden_layers = config.vision_config.num_attention_heads = 2
        return whole(config=config)

    def narrow_expert(config: Any) -> Any:
        config.vocab_size = len(WORDS)
        return expert(config=config)

    with (
        patch.object(module, "get_gemma_config", lambda variant: gemma),
        patch.object(module, "PaliGemmaForConditionalGenerationWithPiGemma", narrow_vlm),
        patch.object(module, "PiGemmaForCausalLM", narrow_expert),
        _words_of(kind, words),
    ):
        yield


@contextmanager
def _words_of(kind: str, folder: Path) -> Iterator[None]:
    """A context in which LeRobot's pi0 or pi0.5 uses a folder's vocabulary instead of PaliGemma's."""
    processor = importlib.import_module(f"lerobot.policies.{kind}.processor_{kind}")
    step = processor.TokenizerProcessorStep

    def with_these_words(tokenizer_name: str, **rest: Any) -> Any:
        return step(tokenizer_name=str(folder), **rest)

    with patch.object(processor, "TokenizerProcessorStep", with_these_words):
        yield


def random_policy(
    kind: str,
    *,
    is_small: bool,
    num_cameras: int,
    device: str,
    dtype: str = "float32",
    narrow: SmolVlmSize = NARROW,
    **options: Any,
) -> Any:
    """LeRobot's `smolvla`, `pi0` or `pi05` with its own defaults except for the number of cameras.

    narrow: sizes of a small SmolVLA. options: fields of LeRobot's configuration.
    """
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.factory import get_policy_class, make_policy_config

    side = 32 if is_small else 224
    more: dict[str, Any] = {} if kind == "smolvla" else {"dtype": dtype, "image_resolution": (side, side)}
    with ExitStack() as stack:
        words = Path(stack.enter_context(TemporaryDirectory()))
        if kind == "smolvla":
            more["vlm_model_name"] = str(save_smolvlm(words, narrow if is_small else PUBLISHED))
            if is_small:
                more |= {"num_vlm_layers": 2, "resize_imgs_with_padding": (side, side)}
        elif is_small:
            stack.enter_context(narrow_pi(kind, words))
        config = make_policy_config(
            kind,
            device=device,
            input_features={
                "observation.state": PolicyFeature(FeatureType.STATE, (8,)),
                **{
                    f"observation.images.{i}": PolicyFeature(FeatureType.VISUAL, (3, side, side))
                    for i in range(num_cameras)
                },
            },
            output_features={"action": PolicyFeature(FeatureType.ACTION, (8,))},
            **(more | options),
        )
        with torch.random.fork_rng(), torch.device(device):
            torch.manual_seed(0)
            policy = get_policy_class(kind)(config)
            # The flow time's modulation is initialised to zero and would have no effect.
            for layer in policy.modules():
                if getattr(layer, "cond_dim", None):
                    torch.nn.init.normal_(layer.dense.weight, std=0.02)
    policy = policy.to(device)
    if kind == "smolvla" and dtype == "bfloat16":
        policy.model.vlm_with_expert.to(torch.bfloat16)
    return policy.eval()


def random_batch(
    policy: Any, size: int, *, num_words: int = 20, length: int | None = None
) -> dict[str, Tensor]:
    """A preprocessed batch with images of noise and a prompt padded to the policy's length.

    length: length of the prompt in place of the policy's longest.
    """
    config = policy.config
    generator = torch.Generator().manual_seed(0)
    length = length or config.tokenizer_max_length
    batch = {
        "observation.state": torch.zeros((size, config.max_state_dim)),
        "observation.language.tokens": torch.randint(8, len(WORDS), (size, length), generator=generator),
        "observation.language.attention_mask": (torch.arange(length) < num_words).expand(size, -1),
    }
    for key, feature in config.image_features.items():
        batch[key] = torch.rand((size, *feature.shape), generator=generator)
    return {key: value.to(config.device) for key, value in batch.items()}


def random_steps(policy: Any) -> tuple[Any, Any]:
    """Pre- and postprocessor of a `random_policy`, with a dozen words; they leave numbers unchanged."""
    from lerobot.policies.factory import make_pre_post_processors

    config = policy.config
    stats = {
        "observation.state": _unit_statistics(config.input_features["observation.state"].shape),
        "action": _unit_statistics(config.output_features["action"].shape),
    }
    with TemporaryDirectory() as folder, ExitStack() as stack:
        words = save_smolvlm(Path(folder), NARROW)
        if config.type == "smolvla":
            config.vlm_model_name = str(words)  # the folder that its network was made from is gone
        else:
            stack.enter_context(_words_of(config.type, words))
        before, after = make_pre_post_processors(config, dataset_stats=stats)
    return before, after


def _unit_statistics(shape: tuple[int, ...]) -> dict[str, Tensor]:
    ones = torch.ones(shape)
    return {"mean": 0.0 * ones, "std": ones, "min": -ones, "max": ones, "q01": -ones, "q99": ones}
