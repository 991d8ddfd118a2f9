"""Check, merge, split and relabel LeRobot v3 datasets."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.progress import Progress
from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, arg

from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import (
    Filled,
    InputFolder,
    Maybe,
    NewFolder,
    OutputFile,
    Seed,
    Several,
    TaskName,
    Within,
    need,
)
from robot_runtime.cli.progress import advance, counted
from robot_runtime.errors import InvalidValueError
from robot_runtime.providers import provider
from robot_runtime.results import keep_text, result_json

if TYPE_CHECKING:
    from robot_runtime.dataset.check.dataset import Robot
    from robot_runtime.dataset.check.finding import Report
    from robot_runtime.dataset.stored import StoredDataset

Folder = Annotated[Positional[InputFolder], arg(metavar="FOLDER")]
OutcomeName = Literal["success", "failure", "timeout", "operator_abort", "fault", "unknown"]
MOST_LINES = 40
_COLOURS = {"good": "green", "doubtful": "yellow", "unusable": "red"}


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check which episodes of a dataset are usable for training, and report faults.

    Takes any LeRobot v3 dataset. Decodes every image. Exit code 1: an episode, or the dataset as a whole, is
    unusable.
    """

    folder: Folder
    """The dataset."""
    robot: Maybe[str] = None
    """The recorded robot, as for run; values beyond its limits are reported. A robot file needs no devices
    here."""
    task: Maybe[TaskName] = None
    """The recorded task in simulation, in place of --robot: checks its robot's limits and reach."""
    pictures: Literal["all", "none"] = "all"
    """none: check the numbers only, which takes seconds."""
    all: bool = False
    """List good episodes too when there are many."""
    json: Maybe[OutputFile] = None
    """Write all findings to this file, as JSON."""

    def main(self) -> int:
        need("pyarrow", "av", extras=("lerobot",))
        from robot_runtime.dataset.check.dataset import check_dataset
        from robot_runtime.dataset.recording import STATE
        from robot_runtime.dataset.stored import StoredDataset

        if self.robot is not None and self.task is not None:
            raise InvalidValueError("--robot and --task both say what was recorded: give one of them")
        dataset = StoredDataset(self.folder)
        robot = self._robot(dataset.names(STATE) if STATE in dataset.features else [])
        with counted() as progress:
            bar = progress.add_task(f"check {self.folder.name}", total=None)
            report = check_dataset(
                dataset, robot, with_pictures=self.pictures == "all", progress=advance(progress, bar)
            )
        show(report, self.folder, every=self.all or len(report.verdicts) <= MOST_LINES)
        if self.json is not None:
            keep_text(self.json, result_json({"dataset": str(self.folder), **report.to_dict()}))
        return 0 if report.is_usable else 1

    def _robot(self, names: list[str]) -> "Robot":
        from robot_runtime.dataset.check.dataset import Robot

        if self.task is not None:
            robot: Robot = provider("simulation").dataset_robot(self.task)
            return robot
        return Robot() if self.robot is None else _of_robot(self.robot, names)


def _of_robot(text: str, names: list[str]) -> "Robot":
    """Return the robot. names: of the numbers of the dataset's state, which give a part's number of
    joints."""
    from robot_runtime.dataset.check.dataset import Robot
    from robot_runtime.dataset.check.reach import bounds_of
    from robot_runtime.robot_file import open_robot
    from robot_runtime.robot_file.declared import declared_limits

    if text.endswith(".toml"):
        joints = _joints_in(names)
        return Robot(bounds_of(declared_limits(Path(text), joints), joints))
    with ExitStack() as stack:
        robot = stack.enter_context(open_robot(text)).robot
        if robot.limits is None:
            raise InvalidValueError(f"--robot {text} has no limits: nothing to hold the dataset against")
        joints = {part: arm.names for part, arm in robot.schema().arms.items()}
        return Robot(bounds_of(robot.limits, joints))


def _joints_in(names: list[str]) -> dict[str, tuple[str, ...]]:
    """Return part -> its joints: those whose velocity is also measured, else all its numbers."""
    from robot_runtime.core.values.columns import VELOCITY

    parts: dict[str, list[str]] = {}
    for name in names:
        part, _, column = name.partition(".")
        parts.setdefault(part, []).append(column)
    out = {}
    for part, columns in parts.items():
        moved = [column for column in columns if column + VELOCITY in columns]
        if joints := moved or [column for column in columns if column.startswith("joint_")]:
            out[part] = tuple(joints)
    return out


def show(report: "Report", folder: Path, *, every: bool) -> None:
    """Print the report.

    every: include good episodes.
    """
    console = plain_console()
    table = Table(box=None, pad_edge=False)
    for name in ("episode", "frames", "s"):
        table.add_column(name, justify="right")
    for name in ("verdict", "reason"):
        table.add_column(name)
    for verdict in report.verdicts:
        if every or verdict.findings:
            word = Text(verdict.word, style=_COLOURS[verdict.word])
            cells = (str(verdict.episode), str(verdict.length), f"{verdict.seconds:.1f}", word)
            table.add_row(*cells, verdict.reason)
    if table.row_count:
        console.print(table)
    for finding in report.findings:
        print(f"the dataset: {finding.severity.name.lower()}: {finding.text}")
    counts = ", ".join(f"{len(report.episodes(word))} {word}" for word in _COLOURS)
    print(f"{folder}: {len(report.verdicts)} episodes: {counts}")


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Merge several datasets of the same robot into a new one.

    Columns are matched by name, in the order of the first dataset; a dataset of another robot is refused.
    Videos are copied, not encoded again. Later annotations of episodes are kept.
    """

    folders: Annotated[Positional[Annotated[tuple[InputFolder, ...], Filled()]], arg(metavar="FOLDER")]
    """The datasets, two or more."""
    output: NewFolder
    """Folder of the new dataset."""

    def main(self) -> int:
        need("pyarrow", "av", "lerobot", extras=("lerobot",))
        from robot_runtime.dataset.edit.merge import merge
        from robot_runtime.dataset.stored import StoredDataset

        sources = [StoredDataset(folder) for folder in self.folders]
        with counted() as progress:
            bar = progress.add_task("merge", total=None)
            count = merge(sources, self.output, advance(progress, bar))
        print(f"{self.output}: {count} episodes of {len(sources)} datasets")
        return 0


@dataclass(frozen=True, kw_only=True)
class Split:
    """Split a dataset into several, each in its own folder inside the output.

    One of --episodes, --share and --by selects how.
    """

    folder: Folder
    """The dataset."""
    output: NewFolder
    """Folder of the new datasets."""
    episodes: Several[str] = ()
    """Episodes, as in 0:10 12 20:, that go into the dataset chosen; the others go into rest."""
    share: Maybe[Annotated[float, Within(0, 1, is_above=True)]] = None
    """Share of all episodes, drawn with --seed, that goes into the dataset train; the others go into test."""
    by: Maybe[Literal["outcome", "task", "verdict"]] = None
    """Make one dataset for each outcome, each task, or each verdict of check."""
    seed: Seed = 0
    """Seed of --share."""

    def main(self) -> int:
        need("pyarrow", "av", "lerobot", extras=("lerobot",))
        from robot_runtime.dataset.edit.merge import split
        from robot_runtime.dataset.stored import StoredDataset

        if (len(self.episodes) > 0) + (self.share is not None) + (self.by is not None) != 1:
            raise InvalidValueError("one of --episodes, --share and --by says how to split")
        source = StoredDataset(self.folder)
        with counted() as progress:
            parts = {name: indices for name, indices in self._parts(source, progress).items() if indices}
            bar = progress.add_task("split", total=None)
            split(source, parts, self.output, advance(progress, bar))
        for name, indices in parts.items():
            print(f"{self.output / name}: {len(indices)} episodes")
        return 0

    def _parts(self, source: "StoredDataset", progress: Progress) -> dict[str, list[int]]:
        from robot_runtime.dataset.edit import parts

        if self.episodes:
            return parts.by_index(source, self.episodes)
        if self.share is not None:
            return parts.by_share(source, self.share, self.seed)
        if self.by == "outcome":
            return parts.by_outcome(source)
        if self.by == "task":
            return parts.by_task(source)
        from robot_runtime.dataset.check.dataset import check_dataset

        bar = progress.add_task("check", total=None)
        report = check_dataset(source, progress=advance(progress, bar))
        return {word: report.episodes(word) for word in _COLOURS}


@dataclass(frozen=True, kw_only=True)
class Relabel:
    """Change the task or outcome of episodes.

    The old value stays in meta/annotations.jsonl, with the author and time of the change; stock LeRobot sees
    the new value.
    """

    folder: Folder
    """The dataset."""
    episodes: Several[str] = ()
    """Episodes to change, as in 3 5:8; all if not given."""
    task: Maybe[str] = None
    """The task that they really show."""
    outcome: Maybe[OutcomeName] = None
    """Their real outcome."""
    by: Maybe[str] = None
    """Author of the change; the user who is logged in if not given."""
    why: str = ""
    """A note on the change."""

    def main(self) -> int:
        need("pyarrow", "lerobot", extras=("lerobot",))
        from robot_runtime.dataset.edit.annotations import who
        from robot_runtime.dataset.edit.parts import indices_of
        from robot_runtime.dataset.edit.relabel import relabel
        from robot_runtime.dataset.stored import StoredDataset

        if self.task is None and self.outcome is None:
            raise InvalidValueError("--task, --outcome or both say what the episodes are to be called")
        if self.task is not None and not self.task.strip():
            raise InvalidValueError("--task is a text, got an empty one")
        indices = indices_of(StoredDataset(self.folder), self.episodes or (":",))
        changes = relabel(
            self.folder,
            indices,
            task=self.task,
            outcome=self.outcome,
            by=self.by or who(),
            why=self.why,
        )
        for each in changes:
            print(f"episode {each.episode}: {each.field} {each.old or 'none'} -> {each.new}")
        print(f"{self.folder}: {len({each.episode for each in changes})} of {len(indices)} episodes changed")
        return 0
