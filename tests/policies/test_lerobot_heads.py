"""LeRobot's flows with heads and layers that are not as usual: compiled, they give the rows they gave."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch

from policies.lerobot.random import NARROW, random_batch, random_policy
from robot_runtime.core.method.sampler_parts import ClampedPrefix
from tests.policies.test_lerobot_less import KINDS, PARTS, chunk, flow_of

pytest.importorskip("lerobot", reason="serves LeRobot's policies")
pytest.importorskip("transformers", reason="SmolVLA and pi need it")


def heads(**changes: int) -> dict[str, object]:
    """A narrow SmolVLM with other heads."""
    return {"narrow": replace(NARROW, **changes)}


@pytest.mark.parametrize(
    "changes",
    [
        heads(heads=2, kv_heads=2),  # as many keys as queries, as SmolVLM2-2.2B has
        heads(heads=8, kv_heads=2, head_dim=8),  # not the width's
        heads(heads=4, kv_heads=1, head_dim=24),
        {"expert_width_multiplier": 0.5},
        {"self_attn_every_n_layers": -1},
        {"self_attn_every_n_layers": 1},
        {"add_image_special_tokens": True},
        {"prefix_length": 128},
        {"num_expert_layers": 1},
        {"attention_mode": "self_attn"},
    ],
    ids=lambda changes: " ".join(map(str, changes)),
)
def test_a_smolvla_with_other_heads_or_layers_gives_its_own_rows_when_compiled(changes, monkeypatch, caplog):
    """Its products are merged, or left unmerged, which is logged."""
    policy = random_policy("smolvla", is_small=True, num_cameras=2, device="cpu", **changes)
    seen = random_batch(policy, 2)
    expected = chunk(flow_of(policy), seen, ClampedPrefix(num_steps=3))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    with caplog.at_level(logging.WARNING):
        network = flow_of(policy, is_compiled=True)
    np.testing.assert_allclose(chunk(network, seen, ClampedPrefix(num_steps=3)), expected, atol=1e-5)
    stays = bool({"num_expert_layers", "attention_mode"} & set(changes))
    assert ("layers of smolvla are left unmerged, which is slower" in caplog.text) == stays


@pytest.mark.parametrize("kind", KINDS)
def test_layers_that_are_others_than_products_are_made_of_stay_and_the_log_says_which(
    kind, monkeypatch, caplog
):
    policy = random_policy(kind, is_small=True, num_cameras=1, device="cpu")
    is_pi = kind != "smolvla"
    model = policy.model
    expert = model.paligemma_with_expert.gemma_expert.model if is_pi else model.vlm_with_expert.lm_expert
    attention = expert.layers[1].self_attn
    attention.k_proj = Scaled(attention.k_proj)
    seen = random_batch(policy, 2)
    expected = [chunk(flow_of(policy), seen, part) for part in PARTS]
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    with caplog.at_level(logging.WARNING):
        network = flow_of(policy, is_compiled=True)
    assert caplog.messages == [
        f"layers of {kind} are left unmerged, which is slower: k_proj of layer {1 + 2 * is_pi} is a Scaled"
    ]
    for part, rows in zip(PARTS, expected, strict=True):
        np.testing.assert_allclose(chunk(network, seen, part), rows, atol=1e-5)


class Scaled(torch.nn.Linear):
    """A product with something else behind it, as quantised ones have."""

    def __init__(self, of: torch.nn.Linear) -> None:
        super().__init__(of.in_features, of.out_features, bias=of.bias is not None)
        self.load_state_dict(of.state_dict())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1.1 * super().forward(x)
