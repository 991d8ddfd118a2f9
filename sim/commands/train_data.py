"""Training data of `robot-runtime train`: demonstrations selected by its options, in its network's format."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from rich.progress import Progress

from robot_runtime.cli.progress import advance, report_steps
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError
from robot_runtime.results import keep

if TYPE_CHECKING:
    from policies.commands.train import Train
    from policies.flow.checkpoint import Checkpoint
    from policies.flow.dataset import Demonstration
    from policies.flow.demonstrations import StoredDemonstration
    from policies.vision.estimator import Estimator
    from sim.demonstrations.training_data import TrainingData

EPISODES = MappingProxyType(
    {
        "track": 400,
        "pick_place": 800,
        "strike": 1500,
        "conveyor": 500,
        "clear": 250,
        "drawer": 250,
        "fetch": 250,
        "wipe": 250,
        "handover": 400,
    }
)
"""Default number of demonstrated episodes for each task."""
GLIMPSES = 20_000


def demonstrations(options: "Train", progress: Progress) -> "Sequence[Demonstration]":
    """Return the demonstrations, from the datasets if any are given."""
    if options.dataset:
        from policies.lerobot.data import load_dataset
        from policies.lerobot.rows import FromActions
        from sim.experts import action_spec_of
        from sim.tasks import hand_poses_of, make_task

        _refuse_unfit(options)
        task = options.task[0]
        robot = make_task(task).schema
        actions = FromActions(spec=action_spec_of(task), hand_poses=hand_poses_of(task), only=options.only)
        out: list[Demonstration] = []
        for folder in options.dataset:
            if of_people([folder]) and not _has_pictures(folder):
                out += _retargeted_from_beside(folder, options, progress)
            else:
                out += load_dataset(folder, robot, actions)
        return out
    return _without_pictures(options, progress)


def _refuse_unfit(options: "Train") -> None:
    """Raise InvalidValueError if the datasets do not fit the options, before they are read."""
    from robot_runtime.dataset.stored import refuse_no_dataset

    for folder in options.dataset:
        refuse_no_dataset(folder)
        _refuse_other_rate(folder)
        _refuse_labels_of_no_task(folder, options.task[0])
        if of_people([folder]) and (len(options.task) > 1 or options.only != "all"):
            raise InvalidValueError(
                f"{folder} has labels of a person's captures: they are of one --task, and all of them a "
                "person's"
            )
    _refuse_paces(options.dataset)
    is_to_see = options.estimator_steps is not None or options.random_views is not None
    if is_to_see and not any(map(_has_pictures, options.dataset)):
        raise InvalidValueError("the datasets have no pictures: no --estimator-steps and no --random-views")
    if options.network == "flow":
        _refuse_unseen_scene(options.task[0], options.dataset)


def of_people(datasets: Sequence[Path]) -> bool:
    """Return whether all are labels of captures, made for a task, which contain no joints."""
    from sim.capture.retargeted import has_places

    return bool(datasets) and all(has_places(folder) for folder in datasets)


def _has_pictures(folder: Path) -> bool:
    from robot_runtime.dataset.stored import StoredDataset

    return bool(StoredDataset(folder).cameras)


def _retargeted_from_beside(
    folder: Path, options: "Train", progress: Progress
) -> "list[StoredDemonstration]":
    """Return samples of labels, on the path, beside it and off the plan: a person is never either
    (`samples`)."""
    from sim.capture.loop import samples_of
    from sim.capture.retargeted import retargeted_in

    retargeted = retargeted_in(folder, options.task[0])
    bar = progress.add_task(f"retarget {folder.name}", total=len(retargeted), note="")
    return samples_of(retargeted, options.seed, advance(progress, bar))


def _refuse_unseen_scene(task: str, datasets: Sequence[Path]) -> None:
    """Raise InvalidValueError for images of a wrist camera without anything in space to see."""
    from policies.files import read_json
    from robot_runtime.dataset.recording import PICTURES
    from sim.demonstrations.training_data import HAND_CAMERAS
    from sim.tasks import TASKS, make_task

    def has_points(name: str) -> bool:
        noise = make_task(name).observation_noise
        return noise is not None and 3 in noise.points

    for folder in datasets if not has_points(task) else ():
        features = read_json(folder / "meta" / "info.json").get("features", {})
        if any(f"{PICTURES}.{camera}" in features for camera in HAND_CAMERAS):
            able = ", ".join(name for name in sorted(TASKS) if has_points(name))
            raise InvalidValueError(
                f"no vision policy can be trained for {task}, whose scene has nothing in space: one can for "
                f"{able}; a dataset recorded with --cameras and nothing after it makes a state-based one"
            )


def _refuse_labels_of_no_task(folder: Path, task: str) -> None:
    """Raise InvalidValueError for labels of a capture that lack the joints of the task's robot, or its
    scene."""
    from robot_runtime.core.values.columns import VELOCITY
    from robot_runtime.dataset.recording import ACTION, SCENE, STATE
    from robot_runtime.dataset.stored import StoredDataset

    dataset = StoredDataset(folder)
    features = dataset.features
    if "labels" not in (features.get(ACTION, {}).get("info") or {}):
        return
    lacking = []
    if not any(name.endswith(VELOCITY) for name in dataset.names(STATE)):
        lacking.append("joints of a robot")
    has_scene = SCENE in features and dataset.names(SCENE)[0] == "scene_0"
    if not has_scene and (SCENE in features or not dataset.cameras):
        lacking.append(f"the scene as policies of {task} know it")
    if lacking:
        raise InvalidValueError(
            f"{folder} has labels of a capture without {' and without '.join(lacking)}: make them anew with "
            f"`capture label ... --task {task}`"
        )


def _refuse_other_rate(dataset: Path) -> None:
    """Raise InvalidValueError if the dataset's frame rate is not the rate of rows."""
    from policies.files import read_json
    from sim.experts.motion import DT_NS

    fps, ours = read_json(dataset / "meta" / "info.json").get("fps"), NS_PER_S / DT_NS
    if fps != ours:
        raise InvalidValueError(f"{dataset} has {fps} frames a second; rows here are {ours:g} a second")


def _refuse_paces(datasets: Sequence[Path]) -> None:
    """Raise InvalidValueError if the datasets' labels have different paces relative to the person."""
    from robot_runtime.dataset.stored import StoredDataset, slower_of

    paces = {folder: slower_of(StoredDataset(folder).features) for folder in datasets}
    if len(set(paces.values())) > 1:
        found = ", ".join(f"{folder} takes {pace:g} times as long" for folder, pace in paces.items())
        raise InvalidValueError(f"a policy is of one pace against the person; here {found}")


def _without_pictures(options: "Train", progress: Progress) -> "Sequence[Demonstration]":
    """Load demonstrations from the file if it exists; else collect them, and save them if a file is named."""
    from policies.flow.demonstrations import load_demonstrations, save_demonstrations
    from sim.demonstrations.demonstrations import collect

    if options.demonstrations is not None and options.demonstrations.exists():
        return load_demonstrations(options.demonstrations)
    out: list[Demonstration] = []
    for task in options.task:
        bar = progress.add_task(f"demonstrate {task}", note="")
        out += collect(
            task,
            num_episodes=options.episodes or EPISODES[task],
            seed=options.seed,
            num_workers=options.workers,
            progress=advance(progress, bar),
        )
    if options.demonstrations is not None:
        keep(options.demonstrations, lambda path: save_demonstrations(path, out))
    return out


def training_data(
    options: "Train",
    demonstrations: "Sequence[Demonstration]",
    init: "Checkpoint | None",
    progress: Progress,
) -> "TrainingData":
    """Return demonstrations in the network's format; with images, an estimator is trained first."""
    from sim.demonstrations.training_data import by_estimates, by_labels, refuse_others

    assert options.labels != "relative", "refused before"
    if not options.dataset:
        return by_labels(options.task[0], demonstrations, options.labels, joints=not options.no_joints)
    refuse_others(options.task[0], demonstrations)
    has_pictures = any(d.observation.images for d in demonstrations)
    if not (has_pictures and _keeps_estimator(options)):
        _refuse_no_scene(options.task[0], demonstrations)
    more = [*_without_pictures(options, progress)] if options.episodes or options.demonstrations else []
    if not has_pictures:
        both, joints = [*demonstrations, *more], not (options.no_joints or of_people(options.dataset))
        return by_labels(options.task[0], both, options.labels, joints=joints)
    estimator, notes = _estimator(options, demonstrations, init, progress)
    keep(options.output, estimator.save)
    data = by_estimates(options.task[0], demonstrations, estimator, more=more, init=init, seed=options.seed)
    return replace(data, notes={**data.notes, **notes})


def _keeps_estimator(options: "Train") -> bool:
    """Return whether a trained encoder estimates the scene, so that no dataset has to contain it."""
    from policies.files import ESTIMATOR
    from policies.shipped import find_checkpoint

    folder = None if options.init is None else find_checkpoint(options.init)
    return options.estimator_steps is None and folder is not None and (folder / ESTIMATOR).is_file()


def _refuse_no_scene(task: str, demonstrations: "Sequence[Demonstration]") -> None:
    """Raise InvalidValueError if the demonstrations lack the scene state that the task's policies see."""
    from robot_runtime.dataset.recording import SCENE
    from sim.tasks import make_task

    wanted = make_task(task).schema.environment_state_dim
    found = sorted({len(d.observation.environment_state) for d in demonstrations} - {wanted})
    if found:
        raise InvalidValueError(
            f"expected {wanted} numbers of the scene ({SCENE}) with every frame, as policies of {task} see "
            f"it, got {' and '.join(map(str, found))}: record it with them; or start from a vision policy "
            "with --init, whose encoder estimates them from pictures"
        )


def _estimator(
    options: "Train",
    demonstrations: "Sequence[Demonstration]",
    init: "Checkpoint | None",
    progress: Progress,
) -> "tuple[Estimator, dict[str, object]]":
    """Train the estimator, starting from that of --init if it has one; return it and the card's entries.

    The estimator of --init stays unchanged if no number of steps is given.
    """
    from policies.files import ESTIMATOR
    from policies.shipped import find_checkpoint
    from policies.vision.estimator import Estimator
    from policies.vision.train import EstimatorTrainConfig
    from sim.demonstrations.training_data import learn_to_see

    folder, start, num_before = None if options.init is None else find_checkpoint(options.init), None, 0
    if init is not None and folder is not None and (folder / ESTIMATOR).is_file():
        start = Estimator.load(folder)
        if options.estimator_steps is None and options.random_views is not None:
            raise InvalidValueError(
                f"{options.init} keeps its encoder, which sees no --random-views without --estimator-steps"
            )
        if options.estimator_steps is None:
            keys = [k for k in init.training if k == "glimpses" or k.startswith("estimator_")]
            return start, {key: init.training[key] for key in keys}
        num_before = int(str(init.training.get("estimator_steps", 0)))
    config = EstimatorTrainConfig(seed=options.seed)
    if options.estimator_steps is not None:
        config = replace(config, steps=options.estimator_steps)
    num_random_views = (
        options.random_views if options.random_views is not None else GLIMPSES * options.is_mobile
    )
    looked = progress.add_task("glimpses", note="", total=num_random_views)
    bar = progress.add_task("learn to see", note="", total=config.steps)
    estimator, errors = learn_to_see(
        options.task[0],
        demonstrations,
        config,
        init=start,
        num_random_views=num_random_views,
        on_random_view=lambda num: progress.update(looked, completed=num),
        on_step=report_steps(progress, bar),
    )
    progress.print("held-out pictures: " + ", ".join(f"{k} {v:.3f}" for k, v in errors.items()))
    rounded = {f"estimator_{name}": round(value, 4) for name, value in errors.items()}
    num_steps = num_before + config.steps
    return estimator, {"glimpses": num_random_views, "estimator_steps": num_steps, **rounded}
