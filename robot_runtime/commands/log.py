"""Look into the log that a run has left, recover one that was cut, cut a part out, export its numbers.

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
from robot_runtime.log.config import FORMAT

if TYPE_CHECKING:
    from robot_runtime.log.reader import RunLog
    from robot_runtime.log.summary import Summary

NewLog = Annotated[Path, Written(is_new=True)]


@dataclass(frozen=True, kw_only=True)
class LogInfo:
    """Say what is in a log: of which run it is, how long, what happened, and whether it is whole.

    Exit code 1: it was cut, or is damaged.
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
    """Write what can be read of a log that was cut, by a kill or a full disk, or is damaged, into one that
    every program opens. What is missing is noted in it."""

    file: Annotated[InputFile, Positional]
    """The log."""
    output: NewLog
    """File to write, a new one, as part.mcap."""

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
    """Write a part of a log into a file of its own. One from the begin can be replayed, others cannot."""

    file: Annotated[InputFile, Positional]
    """The log."""
    start_s: Annotated[float, Within(0, 1_000_000)] = 0.0
    """Where the part starts, from the first control step on [s]."""
    end_s: Maybe[Seconds] = None
    """Where it ends [s]; the log's end if not given."""
    output: NewLog
    """File to write, a new one, as part.mcap."""

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
    """Write the numbers of a log for other programs, one row for each control step; or, with --dataset, its
    trials as episodes of a LeRobot v3 dataset, pictures and all.

    The dataset is made or gone on with. What is in it already is left as it is, so an export that was
    interrupted is simply run again.
    """

    file: Annotated[InputFile, Positional]
    """The log."""
    output: Maybe[OutputFile] = None
    """File to write; its ending says the format: .csv, or .json, which has chunks, orders, episodes and lines
    as well."""
    dataset: Maybe[OutputFolder] = None
    """Folder of the LeRobot dataset."""
    fps: Maybe[Annotated[int, Within(1, 1000)]] = None
    """Frames a second of the dataset; that of its slowest camera if not given, or 20 without any."""
    cameras: Maybe[tuple[str, ...]] = None
    """Of the dataset; all if not given, none with nothing after it."""
    operator: str = ""
    """Who drove, for the dataset: a name that does not say which person that is."""

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


def method_words(said: str) -> str:
    """A method by its name in the table, else by its parts. said: its name, or how Python shows it."""
    import re

    from robot_runtime.core.method.table import METHODS

    if not said.startswith("Method("):
        return said
    for name, method in METHODS.items():
        if repr(method) == said:
            return name
    parts = re.findall(r"(?:request|sampler|splice|blend|correction)=(\w+)", said)
    return ", ".join(part for part in parts if part not in ("Replace", "NoCorrection"))  # as most have


@contextmanager
def counting(what: str) -> Iterator[Callable[[], None]]:
    """What counts up a number that is shown while it does."""
    with counted(stays=False) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda: progress.advance(bar)
