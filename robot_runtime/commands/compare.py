"""`robot-runtime compare`: two groups of logged runs side by side."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional

from robot_runtime.cli.options import Maybe, OutputFile
from robot_runtime.cli.progress import counted
from robot_runtime.commands.read_log import log_of
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.results import keep_text, result_json

if TYPE_CHECKING:
    from robot_runtime.evaluation.compare import Comparison, Trial


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Compare the logged runs of one policy, method or robot with those of another.

    Prints how many trials there were, how they ended, how long they took, how smooth the motion was and how
    long the robot waited for chunks, with 95 % intervals. Trials with the same seeds are compared seed by
    seed.
    """

    a: Annotated[str, Positional]
    """Log of a run, .mcap, or a folder of logs."""
    b: Annotated[str, Positional]
    """Log or folder of logs to compare with a."""
    json: Maybe[OutputFile] = None
    """Write the results to this file, as JSON."""

    def main(self) -> int:
        from robot_runtime.evaluation.compare import compare

        damage = list[str]()
        a, b = trials_at(Path(self.a), damage), trials_at(Path(self.b), damage)
        found = compare(a, b)
        show(found, (self.a, self.b))
        if self.json is not None:
            groups = {"a": [_plain(trial) for trial in a], "b": [_plain(trial) for trial in b]}
            keep_text(self.json, result_json({**asdict(found), **groups}))
        if damage:
            raise RobotRuntimeError(
                f"trials in which something is missing were left out: {'; '.join(damage)}"
            )
        return 0


def trials_at(path: Path, damage: list[str]) -> "list[Trial]":
    """Return the trials of a log, or of all logs of a folder. InvalidValueError: there are none.

    damage: gets a sentence on what is missing for each damaged log.
    """
    from robot_runtime.evaluation.compare import trials_of

    files = sorted(path.glob("*.mcap")) if path.is_dir() else [path]
    if not files:
        raise InvalidValueError(f"there is no log, *.mcap, in the folder {path}")
    trials: list[Trial] = []
    with counted() as progress:
        for file in progress.track(files, description=f"read {path.name}"):
            with log_of(file, needs_whole=False) as log:
                trials += trials_of(log)
            damage += [log.damage] * bool(log.damage)
    if not trials and damage:
        raise InvalidValueError(f"there is no whole trial to compare: {'; '.join(damage)}")
    if not trials:
        raise InvalidValueError(f"{path}: nothing ran in it, there is no trial to compare")
    return trials


def _plain(trial: "Trial") -> dict[str, object]:
    return {"seed": trial.seed, "outcome": trial.outcome.value, **trial.figures}


def show(found: "Comparison", names: Sequence[str]) -> None:
    """Print the comparison as a table."""
    from rich.table import Table

    from robot_runtime.cli.console import plain_console
    from robot_runtime.evaluation.compare import FIGURES

    console = plain_console(is_wide=True)
    for letter, name, n, outcomes in zip("ab", names, found.trials, found.outcomes, strict=True):
        ended = ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in outcomes.items())
        console.print(
            f"{letter}: {name}, {n} trial{'s' * (n != 1)}: {ended}", highlight=False, soft_wrap=True
        )
    table = Table(title="means of the trials" + (", compared seed by seed" if found.is_paired else ""))
    for column in ("figure", "a", "b", "b - a, 95 %"):
        table.add_column(column, justify="left" if column == "figure" else "right", no_wrap=True)
    table.add_column("what it is")
    for row in found.rows:
        meaning = FIGURES.get(row.name, "of the trials of which it is known")
        table.add_row(row.name, _figure(row.a), _figure(row.b), _between(row.difference_95), meaning)
    console.print(table)
    if any(row.difference_95 is None for row in found.rows):
        console.print("–: too few trials for an interval", highlight=False)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _between(interval: tuple[float, float] | None) -> str:
    return "–" if interval is None else f"{interval[0]:+.3g} to {interval[1]:+.3g}"
