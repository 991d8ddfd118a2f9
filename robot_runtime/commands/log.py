"""Inspect, recover, cut and export the logs of runs.

Foxglove and other programs for MCAP open a log as it is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from tyro.conf import Positional

from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import InputFile, Maybe, OutputFile, OutputFolder, Seconds, Within, Written
from robot_runtime.cli.progress import counted
from robot_runtime.commands.read_log import log_of
from robot_runtime.errors import InvalidValueError
from robot_runtime.log import FORMAT

if TYPE_CHECKING:
    from robot_runtime.log.reader import RunLog
    from robot_runtime.log.summary import Summary

NewLog = Annotated[Path, Written(is_new=True)]


@dataclass(frozen=True, kw_only=True)
class LogInfo:
    """Show what a log contains: the run, its length and events, and whether it is complete.

    Exit code 1: the log was cut or is damaged.
    """

    file: Annotated[InputFile, Positional]
    """The log, a file that ends in .mcap."""

    def main(self) -> int:
        from robot_runtime.log.summary import size_of, summary

        with log_of(self.file) as log:
            with counting("reading") as _:
                found = summary(log)
            plain_console().print(self._table(log, found, size_of(self.file)))
        return 0

    def _table(self, log: "RunLog", found: "Summary", size: str) -> Table:
        info = log.info
        table = Table("what", "value", title=str(self.file), show_header=False)
        rows = {
            "task": info.task,
            "robot": info.robot,
            "policy": f"{info.policy.name} {info.address}".strip(),
            "method": method_words(info.method),
            "began": found.began,
            "length": f"{found.seconds:.1f} s" + (" of simulated time" if info.is_virtual else ""),
            "control steps": f"{found.ticks}, every {info.control_period_ns / 1e6:g} ms",
            "modes": ", ".join(f"{name} {share}" for name, share in found.modes.most_common()),
            "requests": f"{found.requests}, {found.splices} entered the plan",
            "pictures": ", ".join(f"{name} {count}" for name, count in found.pictures.items()) or "none",
            "orders": str(found.orders),
            "faults": str(found.faults),
            "episodes": ", ".join(
                f"{m.outcome.value} {(m.end_ns - m.start_ns) / 1e9:.1f} s" for m in found.episodes
            ),
            "the file": f"{size}, {'incomplete' if log.damage else 'closed'}",
            "written by": f"{info.version}, format {FORMAT}",
            "came to": ", ".join(f"{name}: {text}" for name, text in log.end.items()),
        }
        for name, value in rows.items():
            if value:
                table.add_row(name, value)
        return table


@dataclass(frozen=True, kw_only=True)
class LogRecover:
    """Recover a log that was cut or is damaged.

    Writes all that can be read of it, after a kill or a full disk, into a file that every MCAP program opens,
    and notes what is missing.
    """

    file: Annotated[InputFile, Positional]
    """The log."""
    output: NewLog
    """New file to write, such as part.mcap."""

    def main(self) -> int:
        from robot_runtime.log.copy import recovered

        with log_of(self.file, needs_whole=False) as log, counting("messages") as on_message:
            count = recovered(log, self.output, on_message=on_message)
        print(f"{count} messages: {self.output}")
        if log.damage:
            print(log.damage)
        return 0


@dataclass(frozen=True, kw_only=True)
class LogCut:
    """Cut a part of a log out into its own file.

    Only a part from the beginning of the log can be replayed.
    """

    file: Annotated[InputFile, Positional]
    """The log."""
    start_s: Annotated[float, Within(0, 1_000_000)] = 0.0
    """Where the part starts, counted from the first control step [s]."""
    end_s: Maybe[Seconds] = None
    """Where it ends [s]; the log's end if not given."""
    output: NewLog
    """New file to write, such as part.mcap."""

    def main(self) -> int:
        from robot_runtime.log.copy import cut_out

        with log_of(self.file) as log:
            with counting("messages") as on_message:
                count = cut_out(
                    log, self.output, start_s=self.start_s, end_s=self.end_s, on_message=on_message
                )
            print(f"{count} messages: {self.output}")
        return 0


@dataclass(frozen=True, kw_only=True)
class LogExport:
    """Export a log's numbers as CSV or JSON, or its trials as a LeRobot v3 dataset.

    A table has one row for each control step. With --dataset, trials become episodes with their images; the
    dataset is created or extended. Episodes already in it stay unchanged, so run an interrupted export again.
    """

    file: Annotated[InputFile, Positional]
    """The log."""
    output: Maybe[OutputFile] = None
    """File to write. Its ending sets the format: .csv, or .json, which also has chunks, orders, episodes and
    lines."""
    dataset: Maybe[OutputFolder] = None
    """Folder of the LeRobot dataset."""
    fps: Maybe[Annotated[int, Within(1, 1000)]] = None
    """Frames per second of the dataset; the rate of its slowest camera if not given, or 20 without
    cameras."""
    cameras: Maybe[tuple[str, ...]] = None
    """Cameras of the dataset; all if not given, none if the option has no value."""
    operator: str = ""
    """Pseudonym of the operator, for the dataset."""

    def main(self) -> int:
        if (self.output is None) == (self.dataset is None):
            raise InvalidValueError("--output FILE or --dataset FOLDER says what to write: one of them")
        if self.dataset is not None:
            from robot_runtime.commands.log_dataset import export_dataset

            fps, cameras = self.fps, self.cameras
            return export_dataset(self.file, self.dataset, fps=fps, cameras=cameras, operator=self.operator)
        if self.output is None or self.fps is not None or self.cameras is not None or self.operator:
            raise InvalidValueError("--fps, --cameras and --operator go with --dataset")
        from robot_runtime.log.export import export

        with log_of(self.file) as log:
            with counting("rows") as on_row:
                count = export(log, self.output, on_row=on_row)
            print(f"{count} rows: {self.output}")
        return 0


def method_words(text: str) -> str:
    """Return a method's name in the table, else its parts. text: its name, or its repr."""
    import re

    from robot_runtime.core.method.table import METHODS

    if not text.startswith("Method("):
        return text
    for name, method in METHODS.items():
        if repr(method) == text:
            return name
    parts = re.findall(r"(?:request|sampler|splice|blend|correction)=(\w+)", text)
    return ", ".join(part for part in parts if part not in ("Replace", "NoCorrection"))  # as most have


@contextmanager
def counting(what: str) -> Iterator[Callable[[], None]]:
    """Yield a function that counts up a number shown meanwhile."""
    with counted(stays=False) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda: progress.advance(bar)
