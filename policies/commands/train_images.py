"""`robot-runtime train --dataset` on images alone: labels of captures, or recordings with cameras.

    chest, wrist images ─► encoder ─► latents ─┐
    end effector, width, base twist ───────────┴─► network ─► rows        all trained together

No position of an object is needed, and no simulated task: labels declare the robot, its rows and the task.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import Progress

from robot_runtime.cli.options import need
from robot_runtime.cli.progress import counted, report_steps
from robot_runtime.core.values.action import NS_PER_S, ActionSpec
from robot_runtime.core.values.columns import VELOCITY
from robot_runtime.core.values.fields import (
    ActionField,
    BasePose,
    EndEffectorPose,
    GripperWidth,
    Reference,
    WorldEndEffectorPose,
    absolute,
)
from robot_runtime.core.values.schema import Schema
from robot_runtime.dataset.recording import ACTION, PICTURES, SCENE, STATE
from robot_runtime.dataset.stored import StoredDataset, refuse_no_dataset, slower_of
from robot_runtime.errors import InvalidValueError
from robot_runtime.processes import torch_threads
from robot_runtime.providers import provider

if TYPE_CHECKING:
    from policies.commands.train import Train
    from policies.flow.demonstrations import StoredDemonstration
    from policies.vision.encoder import ImageEncoder

Reporting = Callable[[int], Callable[[int, float], None]]
"""From the number of steps to what is called after each."""
HORIZON = 32
"""Default number of rows of a chunk."""
STEPS = 8000
"""Default number of gradient steps."""
MOST_PIXELS = 128
"""Default of the longer side of images that the encoder sees [pixels]."""


def is_from_images(options: "Train") -> bool:
    """Return whether the policy learns from images alone: labels of captures with images, or --encoder."""
    if options.encoder is not None and not options.dataset:
        raise InvalidValueError("--encoder goes with --dataset: it sees images")
    if not options.dataset or (options.estimator_steps is not None and options.encoder is None):
        return False
    for folder in options.dataset:
        refuse_no_dataset(folder)
    stored = [StoredDataset(folder) for folder in options.dataset]
    if options.encoder is None and (_has_estimator(options.init) or any(not each.cameras for each in stored)):
        return False
    return options.encoder is not None or all(_kind(each) or SCENE not in each.features for each in stored)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Samples:
    """What is learned from."""

    demonstrations: "Sequence[StoredDemonstration]"
    schema: Schema
    """The robot's parts, and the cameras with the sizes that are learned from."""
    spec: ActionSpec


def main(options: "Train") -> int:
    """Train a policy from images; return the exit code."""
    if options.network != "flow":
        need("lerobot", *(["diffusers"] if options.network == "diffusion" else []))
    _refuse(options)
    start_s, cpu_start_s = time.perf_counter(), time.process_time()
    with torch_threads(options.threads), counted(with_notes=True) as progress:
        samples = _samples(options, progress)
        bar = progress.add_task(f"train {options.network}", note="")
        train = _train_flow if options.network == "flow" else _train_lerobot
        num_steps = train(options, samples, lambda total: report_steps(progress, bar, total=total))
    times = {"train_s": time.perf_counter() - start_s, "train_cpu_s": time.process_time() - cpu_start_s}
    options.report(
        f"{options.network} from images",
        num_steps=num_steps,
        num_samples=len(samples.demonstrations),
        times=times,
    )
    return 0


def _refuse(options: "Train") -> None:
    """Raise InvalidValueError for options and datasets that do not go together, before images are read."""
    for name in ("random_views", "episodes", "demonstrations", "estimator_steps"):
        if getattr(options, name) is not None:
            flag = "--" + name.replace("_", "-")
            raise InvalidValueError(
                f"{flag} needs the scene of a simulator; here a policy learns from images"
            )
    if options.recipe in ("offset", "residual", "masked"):
        raise InvalidValueError(
            "from images a policy learns with recipe plain, prefix, lambda-mask or mixed-schedule; "
            f"got {options.recipe}"
        )
    for name in ("init", "recipe", "encoder", "execution_horizon", "max_delay"):
        if options.network != "flow" and getattr(options, name) is not None:
            raise InvalidValueError(f"--{name.replace('_', '-')} goes with --network flow")
    if options.network != "flow" and (options.mask or options.device != "cpu"):
        raise InvalidValueError("--mask and --device go with --network flow")
    if options.init is not None and (options.encoder is not None or options.mask or options.history > 1):
        raise InvalidValueError(
            "--init goes on with its own encoder: --encoder, --mask and --history go with a new policy"
        )
    if options.encoder not in (None, "small", "resnet18") and not Path(options.encoder).is_file():
        raise InvalidValueError(
            f"--encoder takes small, resnet18 or a file of pretrained weights; there is no file "
            f"{options.encoder}"
        )
    stored = [StoredDataset(folder) for folder in options.dataset]
    first = stored[0]
    _masked(options.mask, _cameras(first))
    for folder, each in zip(options.dataset, stored, strict=True):
        if not each.cameras:
            raise InvalidValueError(f"{folder} has no images: record or label it with cameras")
        facts = _facts(each)
        for what, value in _facts(first).items():
            if facts[what] != value:
                raise InvalidValueError(
                    f"{folder} has {what} {facts[what]}, {options.dataset[0]} has {value}: train on datasets "
                    "of one rig, one rate and one pace"
                )
        kind = _kind(each)
        if kind and not any(name.endswith(VELOCITY) for name in each.names(STATE)):
            raise InvalidValueError(
                f"{folder} has labels of a capture without joints of a robot: make them anew with "
                "`capture label ... --robot robot.toml`, or --task for the simulated robot"
            )
        if kind == "world":
            raise InvalidValueError(
                f"{folder} has actions in the room: make it with `capture label --labels decoupled`, and "
                "train with --labels world"
            )
        if not kind and not options.task:
            raise InvalidValueError(f"{folder} is of a simulator: --task says which task it shows")


def _facts(dataset: StoredDataset) -> Mapping[str, Any]:
    """Return what all datasets of one training share."""
    return {
        "cameras": ", ".join(_cameras(dataset)),
        "frames per second": f"{dataset.fps:g}",
        "a pace against the person of": f"{slower_of(dataset.features):g}",
        "actions of": _kind(dataset) or "a robot",
    }


def _cameras(dataset: StoredDataset) -> list[str]:
    return [name.removeprefix(f"{PICTURES}.") for name in dataset.cameras]


def _kind(dataset: StoredDataset) -> str:
    """Return the frame of the actions of a capture's labels; empty: it is no capture's."""
    return str((dataset.features.get(ACTION, {}).get("info") or {}).get("labels") or "")


def _has_estimator(init: str | None) -> bool:
    from policies.files import ESTIMATOR
    from policies.shipped import find_checkpoint

    return init is not None and (find_checkpoint(init) / ESTIMATOR).is_file()


def _spec(options: "Train") -> ActionSpec:
    """Return the rows of the datasets: of the task's robot, or of labels: base, end effector in it, width."""
    stored = StoredDataset(options.dataset[0])
    dt_ns = round(NS_PER_S / stored.fps)
    if options.task:
        spec: ActionSpec = provider("simulation").action_spec_of(options.task[0])
        if spec.dt_ns != dt_ns:
            raise InvalidValueError(
                f"{options.dataset[0]} has {stored.fps:g} frames a second; rows of --task {options.task[0]} "
                f"are {NS_PER_S / spec.dt_ns:g} a second"
            )
        return replace(spec, horizon=options.horizon or spec.horizon)
    fields = (BasePose(Reference.RELATIVE), EndEffectorPose(), GripperWidth())
    return ActionSpec(fields=fields, horizon=options.horizon or HORIZON, dt_ns=dt_ns)


def _samples(options: "Train", progress: Progress) -> _Samples:
    """Read every frame of the datasets; InvalidValueError: one shows another task than --task."""
    from policies.lerobot.data import load_dataset, parts_of
    from policies.lerobot.rows import FromActions

    spec, tasks = _spec(options), provider("simulation") if options.task else None
    hand_poses = tasks.hand_poses_of(options.task[0]) if tasks else {}
    actions = FromActions(spec=spec, hand_poses=hand_poses, only=options.only)
    wanted = {tasks.make_task(name).instruction for name in options.task} if tasks else None
    bar = progress.add_task("read images", total=len(options.dataset), note="")
    demonstrations: list[StoredDemonstration] = []
    for folder in options.dataset:
        found = load_dataset(
            folder,
            actions=actions,
            most_pixels=options.image_side or MOST_PIXELS,
            n_obs_steps=_n_obs_steps(options),
            image_age_ns=round(options.image_age_ms * 1e6),
        )
        other = set() if wanted is None else {d.observation.task for d in found} - wanted
        if other:
            raise InvalidValueError(
                f"{folder} shows {', '.join(map(repr, sorted(other)))}, which is not --task {options.task[0]}"
            )
        demonstrations += found
        progress.advance(bar)
    demonstrations, spec = _in_frame(demonstrations, spec, options.labels)
    images = demonstrations[0].observation.images
    schema = Schema(
        parts=parts_of(StoredDataset(options.dataset[0]).names(STATE)),
        action_fields=spec.fields,
        cameras={name: image.pixels.shape[:2] for name, image in images.items()},
    )
    return _Samples(demonstrations=demonstrations, schema=schema, spec=spec)


def _n_obs_steps(options: "Train") -> int:
    """Return how many observations the policy sees: those of --init, or --history."""
    return options.history if options.init is None else _encoder_of_init(options.init).n_obs_steps


def _in_frame(
    demonstrations: "list[StoredDemonstration]", spec: ActionSpec, labels: str
) -> "tuple[list[StoredDemonstration], ActionSpec]":
    """Return the demonstrations with the end effectors' rows in the frame of --labels, and their spec."""
    from policies.flow.labels import relabelled

    if labels == "base":
        return demonstrations, spec
    kinds = {type(f) for f in spec.fields}
    if EndEffectorPose not in kinds or (labels == "world" and BasePose not in kinds):
        raise InvalidValueError(
            f"--labels {labels} needs rows of an end effector{' and a base' * (labels == 'world')}, got "
            f"{', '.join(sorted(kind.__name__ for kind in kinds))}"
        )

    def moved(f: ActionField) -> ActionField:
        if labels == "world":
            return WorldEndEffectorPose(part=f.part) if isinstance(f, EndEffectorPose) else absolute(f)
        return replace(f, reference=Reference.RELATIVE) if isinstance(f, EndEffectorPose) else f

    to = replace(spec, fields=tuple(map(moved, spec.fields)))
    return relabelled(demonstrations, spec, to), to


def _encoder_of_init(init: str) -> "ImageEncoder":
    """Return the encoder of a policy to start from."""
    from policies.files import ENCODER
    from policies.shipped import find_checkpoint
    from policies.vision.encoder import ImageEncoder

    if not ((folder := find_checkpoint(init)) / ENCODER).is_file():
        raise InvalidValueError(f"--init {init} has no image encoder: it cannot go on from images")
    return ImageEncoder.load(folder)


def _encoder(options: "Train", cameras: Mapping[str, tuple[int, int]]) -> "ImageEncoder":
    """Return the encoder to train: that of --init, or a new one."""
    from policies.vision.encoder import EncoderConfig, ImageEncoder

    if options.init is not None:
        found = _encoder_of_init(options.init)
        found.network.train().requires_grad_(True)
        return found
    is_file = options.encoder not in (None, "small", "resnet18")
    config = EncoderConfig(
        cameras=tuple(cameras),
        sizes=tuple(cameras.values()),
        masked=_masked(options.mask, cameras),
        backbone="small" if options.encoder in (None, "small") else "resnet18",
        n_obs_steps=options.history,
    )
    pretrained = Path(options.encoder) if options.encoder is not None and is_file else None
    return ImageEncoder.new(config, seed=options.seed, pretrained=pretrained)


def _masked(masks: Sequence[str], cameras: Iterable[str]) -> tuple[tuple[float, float, float, float], ...]:
    """Return the masked rectangle of each camera, from CAMERA=TOP,LEFT,BOTTOM,RIGHT."""
    given = dict.fromkeys(cameras, (0.0, 0.0, 0.0, 0.0))
    for mask in masks:
        camera, _, numbers = mask.partition("=")
        try:
            top, left, bottom, right = map(float, numbers.split(","))
        except ValueError as error:
            raise InvalidValueError(
                f"--mask takes CAMERA=TOP,LEFT,BOTTOM,RIGHT as shares of the image, got {mask}"
            ) from error
        if camera not in given:
            raise InvalidValueError(f"--mask {mask}: the cameras are {', '.join(given)}")
        given[camera] = top, left, bottom, right
    return tuple(given.values()) if masks else ()


def _train_flow(options: "Train", samples: _Samples, reporting: Reporting) -> int:
    """Write the checkpoint; return the number of steps."""
    from policies.flow.checkpoint import load
    from policies.flow.recipes import make_recipe, refuse_beyond_chunk
    from policies.flow.train import TrainConfig, fine_tuning, train
    from policies.resume import state_path

    recipe = make_recipe(
        options.recipe or "prefix", **({} if options.max_delay is None else {"max_delay": options.max_delay})
    )
    if options.max_delay is not None:
        refuse_beyond_chunk(recipe, samples.spec.horizon)
    init = None if options.init is None else load(options.init)
    start = (
        TrainConfig(recipe=recipe, seed=options.seed, steps=STEPS)
        if init is None
        else fine_tuning(recipe, seed=options.seed)
    )
    given = options.given("steps", "batch_size", "learning_rate", "width")
    config = replace(start, features=_features(options), **given)
    config = replace(config, warmup_steps=min(config.warmup_steps, max(1, config.steps // 10)))
    train(
        samples.demonstrations,
        config,
        schema=samples.schema,
        action_spec=samples.spec,
        folder=options.output,
        init=init,
        execution_horizon=options.execution_horizon,
        notes=_notes(options, samples.schema),
        on_step=reporting(config.steps),
        device=options.device,
        encoder=_encoder(options, samples.schema.cameras),
        resume=state_path(options.output),
    )
    return config.steps


def _train_lerobot(options: "Train", samples: _Samples, reporting: Reporting) -> int:
    """Write LeRobot's files and our metadata; return the number of steps."""
    from policies.lerobot.train import LeRobotTrainConfig, train_lerobot
    from policies.resume import state_path

    assert options.network != "flow"
    given = options.given("steps", "batch_size", "learning_rate", "width")
    config = LeRobotTrainConfig(
        network=options.network, seed=options.seed, **{"steps": STEPS, "batch_size": 32, **given}
    )
    train_lerobot(
        samples.demonstrations,
        config,
        schema=samples.schema,
        action_spec=samples.spec,
        features=_features(options),
        folder=options.output,
        n_obs_steps=options.history,
        on_step=reporting(config.steps),
        resume=state_path(options.output),
    )
    return config.steps


def _features(options: "Train") -> Any:
    """Return the network's state features: a person has no joints, so labels show the end effector alone."""
    from policies.flow.features import FeatureConfig

    joints = not (options.no_joints or _kind(StoredDataset(options.dataset[0])))
    return FeatureConfig(
        use_joints=joints, use_joint_velocity=joints, use_world_pose=options.labels == "world"
    )


def _notes(options: "Train", schema: Schema) -> dict[str, object]:
    images = ", ".join(f"{name} {height}x{width}" for name, (height, width) in schema.cameras.items())
    return {
        "images": images,
        "labels": options.labels,
        "history": options.history,
        "image_age_ms": options.image_age_ms,
        **options.datasets(),
    }
