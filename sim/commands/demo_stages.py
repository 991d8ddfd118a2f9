"""A demo that takes minutes says which step it is at, and goes on where it was interrupted."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.progress import Progress, TaskID

from robot_runtime.cli.progress import report_steps
from robot_runtime.results import code, keep_text


@contextmanager
def kept_if_interrupted(output: Path) -> Iterator[None]:
    """Says, where it is interrupted, that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"what is done is kept in {output}: the same command goes on from there", file=sys.stderr)
        raise


class Stages:
    """The steps of the demo: each a bar with its number and name, or a line where there is no terminal."""

    def __init__(self, progress: Progress, num: int) -> None:
        self._progress, self._num, self._number = progress, num, 0

    def begin(self, name: str, total: int | None = None) -> TaskID:
        """total: None: nobody knows how much it is."""
        self._number += 1
        said = f"{self._number}/{self._num} {name}"
        if not self._progress.console.is_terminal:
            print(said, flush=True)
        return self._progress.add_task(said, total=total, note="")

    def update(self, bar: TaskID, done: int, total: int, note: str = "") -> None:
        """So much of it is done."""
        self._progress.update(bar, completed=done, total=total, note=note)

    def advance(self, bar: TaskID) -> None:
        self._progress.advance(bar)

    def on_step(self, bar: TaskID) -> Callable[[int, float], None]:
        """What moves the bar of a training."""
        return report_steps(self._progress, bar)


class Kept:
    """Which steps of a demo its folder holds already, in FOLDER/kept.json; none of another version's."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "kept.json"
        try:
            said = json.loads(self._path.read_text())
            self._steps = dict(said["steps"]) if said["version"] == self._version() else {}
        except (OSError, ValueError, KeyError, TypeError):
            self._steps = {}

    def get(self, step: str) -> Any:
        """What was noted of it; None: it is to be done."""
        return self._steps.get(step)

    def note(self, step: str, value: Any) -> None:
        """It is done; value: of JSON, not None."""
        self._steps[step] = value
        text = json.dumps({"version": self._version(), "steps": self._steps}, indent=1)
        keep_text(self._path, text + "\n")

    @staticmethod
    def _version() -> list[Any]:
        return [version("robot-runtime"), code()["commit"]]
