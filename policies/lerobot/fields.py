"""The treatment of every field of a LeRobot configuration: honoured, mapped to something of ours, or refused.

    honoured     LeRobot's own code, which runs here unchanged, implements it
    mapped       the named feature of ours implements it
    fixed        supported with one value only; any other is refused with the reason
    irrelevant   it has no effect after training

A test walks LeRobot's own dataclasses and fails for a field that is in none of these lists.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from policies.files import MAX_LAYERS, MAX_SIZE
from robot_runtime.errors import CheckpointError

MAX_STEPS, MAX_HORIZON, MAX_OBS_STEPS = 1_000, 1_024, 64
_BOUNDS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "chunk_size": (1, MAX_HORIZON),
        "horizon": (1, MAX_HORIZON),
        "action_chunk_size": (1, MAX_HORIZON),
        "n_action_steps": (1, MAX_HORIZON),
        "n_obs_steps": (1, MAX_OBS_STEPS),
        "n_action_repeats": (1, MAX_HORIZON),
        "num_steps": (1, MAX_STEPS),
        "num_inference_steps": (1, MAX_STEPS),
        "num_denoising_steps": (1, MAX_STEPS),
        "num_integration_steps": (1, MAX_STEPS),
        "num_train_timesteps": (1, 10 * MAX_STEPS),
        "cem_iterations": (1, MAX_STEPS),
        "empty_cameras": (0, 16),
        "num_image_views": (1, 16),
        **dict.fromkeys(("gpt_n_layer", "depth"), (1, MAX_LAYERS)),
    }
)

_TRAINING = frozenset(
    {
        "push_to_hub", "repo_id", "private", "tags", "license", "pretrained_path", "pretrained_revision",
        "optimizer_lr", "optimizer_betas", "optimizer_eps", "optimizer_weight_decay",
        "optimizer_grad_clip_norm", "optimizer_lr_backbone", "optimizer_vqvae_lr",
        "optimizer_vqvae_weight_decay", "optimizer_soft_prompt_lr_scale",
        "optimizer_soft_prompt_warmup_lr_scale", "scheduler_name", "scheduler_warmup_steps",
        "scheduler_decay_steps", "scheduler_decay_lr", "freeze_vision_encoder", "freeze_language_encoder",
        "train_expert_only", "train_state_proj", "train_policy_transformer", "train_soft_prompts",
        "time_sampling_beta_alpha", "time_sampling_beta_beta", "time_sampling_scale", "time_sampling_offset",
        "kl_weight", "drop_n_last_frames", "do_mask_loss_for_padding", "offset_loss_weight",
        "primary_code_loss_weight", "secondary_code_loss_weight", "n_vqvae_training_steps",
        "reward_coeff", "expectile_weight", "value_coeff", "consistency_coeff", "advantage_scaling",
        "pi_coeff", "temporal_decay_coeff", "target_model_momentum", "max_random_shift_ratio", "dropout",
        "use_amp",  # applies to training and its evaluations; here a network has the type of its weights
        "crop_is_random", "image_crop_is_random",  # in training only; otherwise the crop is central
        "vision_encoder_lr_multiplier", "sigma_min", "timestep_sampling_strategy", "timestep_sampling_s",
        "timestep_sampling_alpha", "timestep_sampling_beta",
    }
)  # fmt: skip
_COMMON_MAPPED = MappingProxyType(
    {
        "device": "the device that serves the policy",
        "input_features": "the schema",
        "output_features": "the action spec",
        "gradient_checkpointing": "off: no training here",
        "compile_model": "serve --compile",
        "compile_mode": "serve --compile",
        "pretrained_backbone_weights": "none: all weights are the checkpoint's own",
        "load_vlm_weights": "off: all weights are the checkpoint's own",
        "n_action_steps": "the execution horizon, where it is less than a chunk",
        "rtc_config": "the methods rtc and pipelined-rtc",
        "temporal_ensemble_coeff": "the method temporal-ensembling with that m, as its default",
        "use_relative_actions": "rows relative to the measured joints",
        "relative_exclude_joints": "absolute columns among those",
        "action_feature_names": "names of its columns, which determine those excluded",
    }
)
_COMMON_FIXED: Mapping[str, tuple[object, str]] = MappingProxyType(
    {
        "n_obs_steps": (1, "LeRobot's own uses the newest observation only"),
        "use_peft": (False, "an adapter is not a complete policy; merge it into its policy"),
        "adapt_to_pi_aloha": (False, "ALOHA's joints would have to be converted to pi's and back"),
        "use_delta_joint_actions_aloha": (False, "LeRobot itself does not implement it"),
        "use_cache": (True, "rows are sampled on a cached prefix"),
        "attention_mode": ("cross_attn", "rows are sampled with cross attention"),
        "domain_feature_key": (None, "requests have no domain; use xvla_add_domain_id"),
    }
)


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The configuration fields of one type of policy; those shared by all types are in the module's lists."""

    honoured: frozenset[str]
    chunk: str
    """The field with the number of rows of a chunk."""
    choices: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """Honoured fields with a fixed set of values, and these values."""


_RESNETS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
_PI = Fields(
    honoured=frozenset(
        {
            "normalization_mapping", "paligemma_variant", "action_expert_variant", "dtype", "chunk_size",
            "max_state_dim", "max_action_dim", "num_inference_steps", "min_period", "max_period",
            "image_resolution", "empty_cameras", "tokenizer_max_length",
        }
    ),
    chunk="chunk_size",
    choices={
        "paligemma_variant": ("gemma_2b", "gemma_300m"),
        "action_expert_variant": ("gemma_2b", "gemma_300m"),
        "dtype": ("float32", "bfloat16"),
    },
)  # fmt: skip
FIELDS: Mapping[str, Fields] = MappingProxyType(
    {
        "act": Fields(
            honoured=frozenset(
                {
                    "normalization_mapping", "chunk_size", "vision_backbone", "pre_norm", "dim_model",
                    "replace_final_stride_with_dilation", "n_heads", "dim_feedforward", "use_vae",
                    "feedforward_activation", "n_encoder_layers", "n_decoder_layers", "latent_dim",
                    "n_vae_encoder_layers",
                }
            ),
            chunk="chunk_size",
            choices={"vision_backbone": _RESNETS, "feedforward_activation": ("relu", "gelu", "glu")},
        ),
        "diffusion": Fields(
            honoured=frozenset(
                {
                    "n_obs_steps", "normalization_mapping", "horizon", "vision_backbone", "resize_shape",
                    "crop_ratio",
                    "crop_shape", "use_group_norm", "spatial_softmax_num_keypoints",
                    "use_separate_rgb_encoder_per_camera", "down_dims", "kernel_size", "n_groups",
                    "diffusion_step_embed_dim", "use_film_scale_modulation", "noise_scheduler_type",
                    "num_train_timesteps", "beta_schedule", "beta_start", "beta_end", "prediction_type",
                    "clip_sample", "clip_sample_range", "num_inference_steps",
                }
            ),
            chunk="n_action_steps",
            choices={
                "vision_backbone": _RESNETS,
                "noise_scheduler_type": ("DDPM", "DDIM"),
                "beta_schedule": ("linear", "scaled_linear", "squaredcos_cap_v2"),
                "prediction_type": ("epsilon", "sample"),
            },
        ),
        "vqbet": Fields(
            honoured=frozenset(
                {
                    "n_obs_steps", "normalization_mapping", "n_action_pred_token", "action_chunk_size",
                    "vision_backbone",
                    "crop_shape", "use_group_norm", "spatial_softmax_num_keypoints", "vqvae_n_embed",
                    "vqvae_embedding_dim", "vqvae_enc_hidden_dim", "gpt_block_size", "gpt_input_dim",
                    "gpt_output_dim", "gpt_n_layer", "gpt_n_head", "gpt_hidden_dim",
                    "bet_softmax_temperature", "sequentially_select",
                }
            ),
            chunk="action_chunk_size",
            choices={"vision_backbone": _RESNETS},
        ),
        "multi_task_dit": Fields(
            honoured=frozenset(
                {
                    "n_obs_steps", "normalization_mapping", "horizon", "objective", "noise_scheduler_type",
                    "num_train_timesteps", "beta_schedule", "beta_start", "beta_end", "prediction_type",
                    "clip_sample", "clip_sample_range", "num_inference_steps", "num_integration_steps",
                    "integration_method", "hidden_dim", "num_layers", "num_heads", "use_positional_encoding",
                    "timestep_embed_dim", "use_rope", "rope_base", "vision_encoder_name",
                    "use_separate_rgb_encoder_per_camera", "image_resize_shape", "image_crop_shape",
                    "text_encoder_name", "tokenizer_max_length", "tokenizer_padding",
                    "tokenizer_padding_side", "tokenizer_truncation",
                }
            ),
            chunk="n_action_steps",
            choices={
                "objective": ("diffusion", "flow_matching"),
                "noise_scheduler_type": ("DDPM", "DDIM"),
                "beta_schedule": ("linear", "scaled_linear", "squaredcos_cap_v2"),
                "prediction_type": ("epsilon", "sample"),
                "integration_method": ("euler", "rk4"),
                "tokenizer_padding": ("longest", "max_length"),
                "tokenizer_padding_side": ("left", "right"),
            },
        ),
        "tdmpc": Fields(
            honoured=frozenset(
                {
                    "normalization_mapping", "n_action_repeats", "horizon", "image_encoder_hidden_dim",
                    "state_encoder_hidden_dim", "latent_dim", "q_ensemble_size", "mlp_dim", "discount",
                    "use_mpc", "cem_iterations", "max_std", "min_std", "n_gaussian_samples", "n_pi_samples",
                    "uncertainty_regularizer_coeff", "n_elites", "elite_weighting_temperature",
                    "gaussian_mean_momentum",
                }
            ),
            chunk="horizon",
        ),
        "smolvla": Fields(
            honoured=frozenset(
                {
                    "normalization_mapping", "chunk_size", "max_state_dim", "max_action_dim",
                    "resize_imgs_with_padding", "empty_cameras", "tokenizer_max_length", "num_steps",
                    "vlm_model_name", "add_image_special_tokens", "prefix_length", "pad_language_to",
                    "num_expert_layers", "num_vlm_layers", "self_attn_every_n_layers",
                    "expert_width_multiplier", "min_period", "max_period",
                }
            ),
            chunk="chunk_size",
            choices={"pad_language_to": ("longest", "max_length")},
        ),
        "pi0": _PI,
        "pi05": _PI,
        "xvla": Fields(
            honoured=frozenset(
                {
                    "normalization_mapping", "chunk_size", "dtype", "florence_config", "tokenizer_name",
                    "tokenizer_max_length", "tokenizer_padding_side", "pad_language_to", "hidden_size",
                    "depth", "num_heads", "mlp_ratio", "num_domains", "len_soft_prompts", "dim_time",
                    "max_len_seq", "use_hetero_proj", "action_mode", "num_denoising_steps", "use_proprio",
                    "max_state_dim", "max_action_dim", "resize_imgs_with_padding", "num_image_views",
                    "empty_cameras",
                }
            ),
            chunk="chunk_size",
            choices={
                "dtype": ("float32", "bfloat16"),
                "tokenizer_padding_side": ("left", "right"),
                "pad_language_to": ("longest", "max_length"),
            },
        ),
    }
)  # fmt: skip
TYPES = tuple(FIELDS)
"""Supported types of LeRobot policies."""


def fate_of(kind: str, name: str) -> str | None:
    """The treatment of a field; None if it is in none of the lists."""
    if name in FIELDS[kind].honoured:
        return "honoured"
    if name in _COMMON_FIXED:
        return "fixed"
    if name in _COMMON_MAPPED:
        return "mapped"
    return "irrelevant" if name in _TRAINING else None


def refuse_unhonoured(kind: str, config: Mapping[str, Any], where: str) -> None:
    """Check the fields of a file before LeRobot reads them.

    CheckpointError names one that is unknown, or whose value is unsupported or out of bounds.
    """
    for name, value in config.items():
        if name == "type":
            continue
        fate = fate_of(kind, name)
        if fate is None:
            raise CheckpointError(f"{where}: a policy of type {kind} has no field {name!r}")
        if fate == "fixed":
            only, why = _COMMON_FIXED[name]
            if value != only or isinstance(value, bool) != isinstance(only, bool):
                raise CheckpointError(f"{where}: {name} = {value!r} cannot be run, only {only!r}: {why}")
        elif fate != "irrelevant":
            _check_bounds(kind, name, value, where)


def _check_bounds(kind: str, name: str, value: Any, where: str) -> None:
    choices = FIELDS[kind].choices.get(name)
    if choices is not None and value not in choices:
        raise CheckpointError(f"{where}: {name} is one of {', '.join(map(str, choices))}, got {value!r}")
    if isinstance(value, dict):  # sizes of a part
        for inner, each in value.items():
            _check_bounds(kind, inner, each, where)
        return
    layers = (-1, MAX_LAYERS) if "layers" in name or name == "depths" else (-1, MAX_SIZE)
    least, most = _BOUNDS.get(name, layers)
    for each in value if isinstance(value, list | tuple) else [value]:
        is_number = isinstance(each, int | float) and not isinstance(each, bool)
        if is_number and not least <= each <= most:
            raise CheckpointError(f"{where}: {name} lies in {least}..{most}, got {each!r}")
