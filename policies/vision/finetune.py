"""Flow policies behind an estimator: demonstrations as it tells them, and a policy to go on from.

recorded, with pictures      ─► what the estimator tells of them
collected, without           ─► their own scene, and the errors and deviations of a recorded one like it

told the scene               q, p_BE, ... │ points from the hand │ scene
behind the estimator         q, p_BE, ... │ points from the hand │ scene │ logarithms of deviations
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
"""One of so many recorded scenes that are most like another lends its errors."""


def with_estimates(
    demonstrations: Sequence[Demonstration], estimator: Estimator, *, batch_size: int = 256
) -> list[StoredDemonstration]:
    """The demonstrations as a flow policy behind the estimator sees them."""
    out: list[StoredDemonstration] = []
    for first in range(0, len(demonstrations), batch_size):
        batch = demonstrations[first : first + batch_size]
        seen = estimator.see([d.observation for d in batch])
        out += [_told(d, s.environment_state) for d, s in zip(batch, seen, strict=True)]
    return out


def with_errors(
    demonstrations: Sequence[Demonstration],
    recorded: Sequence[Observation],
    told: Sequence[Observation],
    *,
    points: tuple[int, ...],
    hands: Sequence[str] = (ARM,),
    seed: int,
) -> list[StoredDemonstration]:
    """Demonstrations without pictures, their scenes told as wrongly and as surely as recorded ones like them.

    recorded: with their true scenes; told: the same as the estimator sees them, from the hands of these arms.
    A demonstration gets what one of the `NUM_ALIKE` nearest, every number in its standard deviations, was
    told minus what was true of it.
    """
    truth = np.array([scene_numbers(o, points, hands) for o in recorded])
    seen = np.array([o.environment_state for o in told])
    numbers = truth.shape[1]
    errors = np.concatenate([seen[:, :numbers] - truth, seen[:, numbers:]], axis=1)
    scale = Normaliser.fit(truth)
    scenes = np.array([scene_numbers(d.observation, points, hands) for d in demonstrations])
    alike = _nearest(scale.features(scenes), scale.features(truth))
    choice = np.random.default_rng(seed).integers(alike.shape[1], size=len(scenes))
    lender = alike[np.arange(len(scenes)), choice]
    scenes = np.concatenate([scenes, np.zeros_like(scenes)], axis=1) + errors[lender]
    return [_told(d, scene) for d, scene in zip(demonstrations, scenes, strict=True)]


def estimated_schema(schema: Schema, estimator: Estimator) -> Schema:
    """Of the flow policy behind it."""
    return replace(
        schema, environment_state_dim=estimator.num_estimates, environment_state_names=(), cameras={}
    )


def behind_estimator(told: Checkpoint, seen: Sequence[Demonstration], schema: Schema) -> Checkpoint:
    """A policy that is told the scene as one that is told what an estimator tells, to go on from.

    seen: demonstrations as the estimator tells them, for the statistics of deviations, which have no effect
    yet. schema: see `estimated_schema`. InvalidValueError: it is told another scene.
    """
    config = FeatureConfig(
        use_joints=told.feature_config.use_joints,
        use_hand_pose=told.feature_config.use_hand_pose,
        use_joint_velocity=told.feature_config.use_joint_velocity,
    )
    num_known = told.model_config.state_dim
    features = np.array([state_features(d.observation, schema, config) for d in seen])
    more = features.shape[1] - num_known
    if 2 * more != schema.environment_state_dim:
        raise InvalidValueError(
            f"{told.info.name!r} is told {num_known} numbers; a policy that sees goes on from one that is "
            f"told {features.shape[1] - schema.environment_state_dim // 2}, of the same task"
        )
    deviations = Normaliser.fit(features[:, num_known:])
    model = FlowTransformer(replace(told.model_config, state_dim=features.shape[1]))
    weights = dict(told.model.state_dict())
    weights["state_in.0.weight"] = F.pad(weights["state_in.0.weight"], (0, more))
    model.load_state_dict(weights)
    return replace(
        told,
        model=model,
        model_config=model.config,
        feature_config=config,
        features=Normaliser(
            mean=np.concatenate([told.features.mean, deviations.mean]),
            std=np.concatenate([told.features.std, deviations.std]),
        ),
        info=replace(told.info, schema=schema),
    )


def _nearest(scenes: Float[np.ndarray, "n S"], among: Float[np.ndarray, "m S"]) -> Int[np.ndarray, "n k"]:
    """Indices of the `NUM_ALIKE` nearest."""
    there, k = torch.from_numpy(among), min(NUM_ALIKE, len(among))
    parts = torch.from_numpy(scenes).split(1024)
    return np.concatenate([torch.cdist(part, there).topk(k, largest=False).indices.numpy() for part in parts])


def _told(demonstration: Demonstration, scene: Float[np.ndarray, " K"]) -> StoredDemonstration:
    return StoredDemonstration(
        observation=structs.replace(demonstration.observation, images={}, environment_state=scene),
        rows=demonstration.rows,
        num_committed=demonstration.num_committed,
    )
