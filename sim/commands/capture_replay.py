"""`robot-runtime capture replay`: shows labels on the simulated robot, before anything is trained."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from tyro.conf import Positional, arg

from robot_runtime.cli.options import AnyCount, InputFolder, Maybe, OutputFile, need
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from robot_runtime.dataset.stored import StoredDataset
    from sim.capture.label_video import Shown


@dataclass(frozen=True, kw_only=True)
class CaptureReplay:
    """Show an episode of labels on the simulated mobile robot.

    Places the robot along the labels, row by row, without physics: dots are the end effector's path, balls
    the detected objects, red is out of reach. Prints the share of rows that the arm reaches. --labels selects
    another kind than the action's: chest shows the effect of leaning on labels in the chest frame.

    Example: robot-runtime capture replay datasets/fetch --episode 0 --video labels.mp4
    """

    folder: Annotated[Positional[InputFolder], arg(metavar="DATASET")]
    """Dataset made by `capture label`."""
    episode: AnyCount = 0
    """Episode of the dataset."""
    labels: Maybe[Literal["decoupled", "chest", "world"]] = None
    """Labels to follow; those of the action if not given."""
    video: Maybe[OutputFile] = None
    """Write a video to this .mp4 file."""

    def main(self) -> int:
        need("mujoco", "pyarrow", "av", extras=("sim", "lerobot"))
        from robot_runtime.dataset.stored import StoredDataset

        shown = shown_of(StoredDataset(self.folder), self.episode, self.labels)
        share = float(shown.reached.mean())
        print(f"episode {self.episode}: {len(shown.reached)} rows, the arm reaches {100 * share:.1f} %")
        if not shown.reached.all():
            print(f"the first that it does not: row {int(np.argmin(shown.reached))}")
        if self.video is not None:
            from sim.capture.label_video import film_labels

            film_labels(shown, self.video)
            print(f"video: {self.video}")
        return 0


def shown_of(dataset: "StoredDataset", episode: int, kind: str | None) -> "Shown":
    """Place the simulated robot along an episode's labels.

    InvalidValueError: no such episode, or the dataset has no labels of a capture.
    """
    from robot_runtime.core.values.transforms import pose_from_planar
    from sim.capture.label_video import Shown
    from sim.capture.robot import SimReach

    if not 0 <= episode < len(dataset.episodes):
        raise InvalidValueError(
            f"{dataset.root} has {len(dataset.episodes)} episodes, got --episode {episode}"
        )
    rows, shown_kind = _rows(dataset, episode, kind)
    x_WB, hands = rows[:, :3], _hands(rows, shown_kind)
    reach = SimReach()
    q, reached, held = [], [], reach.q_home
    for X_BE in hands:
        found, is_there = reach.solve(X_BE, held)
        if not is_there:
            found, is_there = reach.solve(X_BE, reach.q_home)
        held = found if is_there else held
        q.append(held)
        reached.append(is_there)
    p_WE = np.array([(pose_from_planar(x) * X).translation for x, X in zip(x_WB, hands, strict=True)])
    return Shown(
        x_WB=np.column_stack([x_WB[:, :2], np.unwrap(x_WB[:, 2])]),
        q=np.array(q),
        width=rows[:, 12],
        p_WE=p_WE,
        reached=np.array(reached),
        things=_things(dataset, episode, x_WB),
        caption=f"{shown_kind} labels, episode {episode}",
    )


def _rows(dataset: "StoredDataset", episode: int, kind: str | None) -> tuple[np.ndarray, str]:
    """Return the labels' rows (N, 13), and their kind."""
    from robot_runtime.dataset.recording import ACTION
    from robot_runtime.dataset.stored import array_of

    of_action = dict(dataset.features.get(ACTION, {}).get("info") or {}).get("labels")
    if of_action is None:
        raise InvalidValueError(
            f"{dataset.root} has no labels of a capture: `capture label` makes such datasets"
        )
    column = ACTION if kind is None else f"labels.{kind}"
    table = dataset.table(dataset.episodes[episode])
    return array_of(table, column, (13,)).astype(float), str(of_action if kind is None else kind)


def _hands(rows: np.ndarray, kind: str) -> list:
    """Return X_BE of each row; labels in the world are transformed into the base."""
    import pinocchio as pin

    from robot_runtime.core.values.transforms import pose_from_planar, rotation_from_6d

    hands = [pin.SE3(rotation_from_6d(row[6:12]), row[3:6]) for row in rows]
    if kind != "world":
        return hands
    return [pose_from_planar(row[:3]).actInv(X) for row, X in zip(rows, hands, strict=True)]


def _things(dataset: "StoredDataset", episode: int, x_WB: np.ndarray) -> dict[str, np.ndarray]:
    """Return positions of objects in W, from numbers named NAME.x, NAME.y, NAME.z, or as the task has
    them."""
    from robot_runtime.dataset.recording import SCENE
    from robot_runtime.dataset.stored import array_of
    from sim.capture.things import points_in_scene
    from sim.tasks import HOUSEHOLD_TASKS, make_task

    if SCENE not in dataset.features:
        return {}
    names = list(dataset.features[SCENE]["names"] or ())
    one_episode = dataset.episodes[episode]
    values = array_of(dataset.table(one_episode), SCENE, (len(names),)).astype(float)
    points = {}
    for name in dict.fromkeys(each.rpartition(".")[0] for each in names if "." in each):
        if all(f"{name}.{axis}" in names for axis in "xyz"):
            points[name] = values[:, [names.index(f"{name}.{axis}") for axis in "xyz"]]
    for task in HOUSEHOLD_TASKS:
        one = make_task(task)
        if names[:1] == ["scene_0"] and (one.instruction, one.schema.environment_state_dim) in [
            (words, len(names)) for words in one_episode.tasks
        ]:
            points |= points_in_scene(task, values)
    c, s = np.cos(x_WB[:, 2]), np.sin(x_WB[:, 2])
    return {
        name: np.column_stack(
            [x_WB[:, 0] + c * p[:, 0] - s * p[:, 1], x_WB[:, 1] + s * p[:, 0] + c * p[:, 1], p[:, 2]]
        )
        for name, p in points.items()
    }
