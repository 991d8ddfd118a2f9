"""Data, draws and networks small enough to compare a recipe with its paper by eye."""

import numpy as np
import pinocchio as pin
import torch

from policies.flow.batches import (
    Draw,
)
from policies.flow.dataset import Dataset, make_dataset
from policies.flow.features import FeatureConfig
from policies.flow.model import FlowTransformer, ModelConfig
from policies.flow.recipes import (
    Recipe,
)
from tests.policies.toy import SCHEMA, SPEC, Sample, make_observation

H, B = SPEC.horizon, 64


def make_samples(num_committed: int = 0, *, n: int = B) -> list[Sample]:
    """Rows that move evenly, each sample at its own speed, so that every row is told apart."""
    rng, out = np.random.default_rng(0), []
    for i in range(n):
        observation = make_observation(i)
        rows = np.cumsum(rng.normal(size=(H, SPEC.dim)), axis=0) * 0.1
        out.append(Sample(observation, rows + observation.state.q[0], num_committed))
    return out


def make_data(recipe: Recipe | None, num_committed: int = 0) -> Dataset:
    return make_dataset(
        make_samples(num_committed), SCHEMA, SPEC, FeatureConfig(), recipe=recipe, hand_pose=hand_pose
    )


def hand_pose(q: np.ndarray) -> pin.SE3:
    return pin.SE3(np.eye(3), q[:3])


def make_draw(dataset: Dataset, seed: int = 0) -> Draw:
    generator = torch.Generator().manual_seed(seed)
    index = torch.arange(len(dataset.rows))
    noise = torch.randn(dataset.rows.shape, generator=generator)
    return Draw(
        dataset=dataset, index=index, features=dataset.features, rows=dataset.rows, noise=noise,
        generator=generator,
    )  # fmt: skip


def make_model(*, dataset: Dataset, seed: int = 0, **changes: object) -> FlowTransformer:
    torch.manual_seed(seed)
    config = ModelConfig(
        state_dim=dataset.features.shape[1], num_tasks=1, action_dim=SPEC.dim, horizon=H, width=16,
        num_layers=2, num_heads=2, **changes,
    )  # fmt: skip
    model = FlowTransformer(config).eval()
    with torch.no_grad():  # the last layer starts at zero, which would hide everything
        for name, parameter in model.named_parameters():
            if "lora_" not in name:
                parameter.add_(0.2 * torch.randn(parameter.shape))
    return model


def masked_model(dataset: Dataset) -> FlowTransformer:
    return make_model(dataset=dataset, lora_rank=4, lora_alpha=8.0, lora_dropout=0.0)
