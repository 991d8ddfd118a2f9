"""Prepares flow policies behind an estimator: demonstrations with estimates, and a policy to start from.

recorded, with images        ─► the estimator's output
collected, without           ─► their own scene, with the errors and deviations of a similar recorded one

with the true scene          q, p_BE, ... │ points from the end effector │ scene
behind the estimator         q, p_BE, ... │ points from the end effector │ scene │ log deviations
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from msgspec import structs

from policies.flow.checkpoint import Checkpoint
from policies.flow.dataset import Demonstration
from policies.flow.demonstrations import StoredDemonstration
from policies.flow.features import FeatureConfig, Normaliser, state_features
from policies.flow.model import FlowTransformer
from policies.vision.estimator import Estimator, scene_numbers
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import ARM, Observation
from robot_runtime.errors import InvalidValueError

NUM_ALIKE = 8
"""Number of most similar recorded scenes, one of which provides the errors for another scene."""


def with_estimates(
    demonstrations: Sequence[Demonstration], estimator: Estimator, *, batch_size: int = 256
) -> list[StoredDemonstration]:
    """The demonstrations with the estimator's output as their scene."""
    out: list[StoredDemonstration] = []
    for first in range(0, len(demonstrations), batch_size):
        batch = demonstrations[first : first + batch_size]
        seen = estimator.see([d.observation for d in batch])
        out += [_with_scene(d, s.environment_state) for d, s in zip(batch, seen, strict=True)]
    return out


def with_errors(
    demonstrations: Sequence[Demonstration],
    recorded: Sequence[Observation],
    estimated: Sequence[Observation],
    *,
    points: tuple[int, ...],
    hands: Sequence[str] = (ARM,),
    seed: int,
) -> list[StoredDemonstration]:
    """Demonstrations without images, whose scenes get the errors and deviations of similar recorded ones.

    recorded: with their true scenes; estimated: the same with the estimator's output, for these arms' hands.
    A demonstration gets the error, estimated minus true, of one of its `NUM_ALIKE` nearest, by distance in
    standard deviations.
    """
    truth = np.array([scene_numbers(o, points, hands) for o in recorded])
    seen = np.array([o.environment_state for o in estimated])
    numbers = truth.shape[1]
    errors = np.concatenate([seen[:, :numbers] - truth, seen[:, numbers:]], axis=1)
    scale = Normaliser.fit(truth)
    scenes = np.array([scene_numbers(d.observation, points, hands) for d in demonstrations])
    nearest = _nearest(scale.features(scenes), scale.features(truth))
    choice = np.random.default_rng(seed).integers(nearest.shape[1], size=len(scenes))
    source = nearest[np.arange(len(scenes)), choice]
    scenes = np.concatenate([scenes, np.zeros_like(scenes)], axis=1) + errors[source]
    return [_with_scene(d, scene) for d, scene in zip(demonstrations, scenes, strict=True)]


def estimated_schema(schema: Schema, estimator: Estimator) -> Schema:
    """The schema of a flow policy behind the estimator."""
    return replace(
        schema, environment_state_dim=estimator.num_estimates, environment_state_names=(), cameras={}
    )


def behind_estimator(policy: Checkpoint, seen: Sequence[Demonstration], schema: Schema) -> Checkpoint:
    """A policy on the true scene, extended to one on an estimator's output, to fine-tune.

    seen: demonstrations with the estimator's output, for the statistics of deviations, which have no effect
    yet. schema: see `estimated_schema`. InvalidValueError: the policy takes another scene.
    """
    config = FeatureConfig(
        use_joints=policy.feature_config.use_joints,
        use_hand_pose=policy.feature_config.use_hand_pose,
        use_joint_velocity=policy.feature_config.use_joint_velocity,
    )
    num_known = policy.model_config.state_dim
    features = np.array([state_features(d.observation, schema, config) for d in seen])
    more = features.shape[1] - num_known
    if 2 * more != schema.environment_state_dim:
        raise InvalidValueError(
            f"{policy.info.name!r} takes {num_known} numbers; a vision policy starts from one of the same "
            f"task that takes {features.shape[1] - schema.environment_state_dim // 2}"
        )
    deviations = Normaliser.fit(features[:, num_known:])
    model = FlowTransformer(replace(policy.model_config, state_dim=features.shape[1]))
    weights = dict(policy.model.state_dict())
    weights["state_in.0.weight"] = F.pad(weights["state_in.0.weight"], (0, more))
    model.load_state_dict(weights)
    return replace(
        policy,
        model=model,
        model_config=model.config,
        feature_config=config,
        features=Normaliser(
            mean=np.concatenate([policy.features.mean, deviations.mean]),
            std=np.concatenate([policy.features.std, deviations.std]),
        ),
        info=replace(policy.info, schema=schema),
    )


def _nearest(scenes: Float[np.ndarray, "n S"], among: Float[np.ndarray, "m S"]) -> Int[np.ndarray, "n k"]:
    """Indices of the `NUM_ALIKE` nearest scenes."""
    there, k = torch.from_numpy(among), min(NUM_ALIKE, len(among))
    parts = torch.from_numpy(scenes).split(1024)
    return np.concatenate([torch.cdist(part, there).topk(k, largest=False).indices.numpy() for part in parts])


def _with_scene(demonstration: Demonstration, scene: Float[np.ndarray, " K"]) -> StoredDemonstration:
    return StoredDemonstration(
        observation=structs.replace(demonstration.observation, images={}, environment_state=scene),
        rows=demonstration.rows,
        num_committed=demonstration.num_committed,
    )
