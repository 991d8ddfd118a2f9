"""Every field of LeRobot's configurations has a fate, and what is not run is refused by its name."""

from dataclasses import fields

import pytest

from policies.lerobot.fields import FIELDS, TYPES, fate_of, refuse_unhonoured
from robot_runtime.errors import CheckpointError

pytest.importorskip("lerobot", reason="whose configurations they are")


def names_of(kind: str) -> set[str]:
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies import factory  # noqa: F401  # registers them

    return {field.name for field in fields(PreTrainedConfig.get_choice_class(kind))}


@pytest.mark.parametrize("kind", TYPES)
def test_no_field_of_a_configuration_is_without_a_fate(kind):
    forgotten = [name for name in sorted(names_of(kind)) if fate_of(kind, name) is None]
    assert not forgotten


@pytest.mark.parametrize("kind", TYPES)
def test_no_fate_is_of_a_field_that_there_is_not(kind):
    assert names_of(kind) >= FIELDS[kind].honoured
    assert FIELDS[kind].chunk in names_of(kind)
    assert FIELDS[kind].honoured >= FIELDS[kind].choices.keys()


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("smolvla", {"n_obs_steps": 2}, "n_obs_steps = 2 cannot be run, only 1: .*newest observation"),
        ("vqbet", {"n_obs_steps": 500}, "n_obs_steps lies in 1..64, got 500"),
        ("act", {"n_obs_steps": True}, "n_obs_steps = True"),
        ("smolvla", {"adapt_to_pi_aloha": True}, "adapt_to_pi_aloha = True"),
        ("smolvla", {"use_delta_joint_actions_aloha": True}, "use_delta_joint_actions_aloha"),
        ("smolvla", {"use_cache": False}, "use_cache"),
        ("smolvla", {"attention_mode": "self_attn"}, "attention_mode"),
        ("pi0", {"use_peft": True}, "use_peft = True .*merge it"),
        ("xvla", {"domain_feature_key": "domain"}, "domain_feature_key"),
        ("act", {"vision_backbone": "get_model"}, "vision_backbone is one of resnet18"),
        ("act", {"chunk_size": 2**40}, "chunk_size lies in 1..1024, got 1099511627776"),
        ("smolvla", {"num_steps": -1}, "num_steps lies in 1..1000, got -1"),
        ("pi0", {"num_inference_steps": 10**9}, "num_inference_steps lies in"),
        ("diffusion", {"down_dims": [10**9]}, "down_dims lies in"),
        ("xvla", {"florence_config": {"text_config": {"decoder_layers": 10**4}}}, "decoder_layers lies in"),
        ("act", {"colour": "blue"}, "a policy of type act has no field 'colour'"),
    ],
)
def test_what_is_not_run_is_refused_by_name(kind, change, words):
    with pytest.raises(CheckpointError, match=words):
        refuse_unhonoured(kind, change, "config.json")
