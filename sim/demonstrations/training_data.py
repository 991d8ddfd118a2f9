"""Training data from demonstrations: the kind of labels, and the network's input from the scene."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from policies.flow.checkpoint import Checkpoint
from policies.flow.dataset import Demonstration
from policies.flow.features import FeatureConfig
from policies.flow.labels import relabelled
from policies.vision.estimator import Estimator
from policies.vision.finetune import behind_estimator, estimated_schema, with_errors, with_estimates
from policies.vision.train import EstimatorTrainConfig, train_estimator
from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import ARM, Observation
from robot_runtime.errors import InvalidValueError
from sim.demonstrations.random_views import random_views
from sim.experts import action_spec_of
from sim.experts.mobile import WORLD_SPEC
from sim.tasks import make_task

HAND_CAMERAS = {"wrist": ARM, "left_wrist": "left_arm", "right_wrist": "right_arm"}
"""Wrist cameras and their arms; the other cameras are fixed to the base."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingData:
    """Demonstrations with their schema, rows and features."""

    demonstrations: Sequence[Demonstration]
    schema: Schema
    spec: ActionSpec
    features: FeatureConfig
    notes: Mapping[str, object] = field(default_factory=dict)
    """Notes on their origin for a checkpoint."""
    init: Checkpoint | None = None
    """The policy to fine-tune, with the same inputs."""


def by_labels(
    task_name: str,
    demonstrations: Sequence[Demonstration],
    labels: Literal["base", "world"],
    *,
    joints: bool = True,
) -> TrainingData:
    """Training data with the scene measured by the task's tracker; a mobile robot's rows in base or world.

    joints: whether the network gets the arm's joints; a person's demonstrations have none of a robot.
    """
    task, spec = make_task(task_name), action_spec_of(task_name)
    schema, in_world = task.schema, labels == "world"
    if len({d.observation.task for d in demonstrations}) > 1:  # the scene state differs by task
        schema = replace(schema, environment_state_names=())
    if in_world:
        demonstrations = relabelled(demonstrations, spec, WORLD_SPEC)
        schema, spec = replace(schema, action_fields=WORLD_SPEC.fields), WORLD_SPEC
    points = () if task.observation_noise is None else task.observation_noise.points
    features = FeatureConfig(
        use_joints=joints, use_joint_velocity=joints, points=points, use_world_pose=in_world
    )
    return TrainingData(demonstrations=demonstrations, schema=schema, spec=spec, features=features)


def learn_to_see(
    task_name: str,
    demonstrations: Sequence[Demonstration],
    config: EstimatorTrainConfig,
    *,
    init: Estimator | None = None,
    num_random_views: int,
    on_random_view: Callable[[int], None],
    on_step: Callable[[int, float], None],
) -> tuple[Estimator, dict[str, float]]:
    """Train an estimator on demonstrations with images of one size; returns it and its held-out errors.

    init: one to fine-tune. num_random_views: see `random_views`; on_random_view gets the number so far.
    """
    task = make_task(task_name)
    sizes = {name: image.pixels.shape for name, image in demonstrations[0].observation.images.items()}
    cameras = {name: (height, width) for name, (height, width, _) in sizes.items()}
    demonstrated, seen = [d.observation for d in demonstrations], list[Observation]()
    if num_random_views:
        drawn = random_views(task_name, demonstrated, num=num_random_views, seed=config.seed, cameras=cameras)
        for view in drawn:
            seen.append(view)
            on_random_view(len(seen))
    return train_estimator(
        demonstrated,
        config,
        cameras=cameras,
        on_hand={name: HAND_CAMERAS[name] for name in cameras if name in HAND_CAMERAS},
        points=() if task.observation_noise is None else task.observation_noise.points,
        points_alike=task.observation_noise is not None and task.observation_noise.points_alike,
        random_views=seen,
        init=init,
        on_step=on_step,
    )


def by_estimates(
    task_name: str,
    demonstrations: Sequence[Demonstration],
    estimator: Estimator,
    *,
    more: Sequence[Demonstration] = (),
    init: Checkpoint | None = None,
    seed: int,
) -> TrainingData:
    """Training data with the scene estimated from images.

    demonstrations: with images; more: without, see `with_errors`, which uses the seed.
    init: a policy of the task to fine-tune, state-based or behind this estimator.
    InvalidValueError: the policy is of another task.
    """
    task = make_task(task_name)
    estimated = with_estimates(demonstrations, estimator)
    schema = estimated_schema(task.schema, estimator)
    start = init
    if init is not None and init.info.schema.environment_state_dim != schema.environment_state_dim:
        start = behind_estimator(init, estimated, schema)
    if more:
        recorded, config = [d.observation for d in demonstrations], estimator.network.config
        seen = [d.observation for d in estimated]
        estimated += with_errors(more, recorded, seen, points=config.points, hands=config.hands, seed=seed)
    return TrainingData(
        demonstrations=estimated,
        schema=schema,
        spec=action_spec_of(task_name),
        features=FeatureConfig() if start is None else start.feature_config,
        init=start,
        notes={"recorded": len(demonstrations)},
    )


def refuse_others(task_name: str, demonstrations: Sequence[Demonstration]) -> None:
    """InvalidValueError: the demonstrations are of another task."""
    shown = sorted({d.observation.task for d in demonstrations})
    if shown != [(instruction := make_task(task_name).instruction)]:
        raise InvalidValueError(
            f"the datasets show {', '.join(map(repr, shown))}, {task_name} is {instruction!r}"
        )
