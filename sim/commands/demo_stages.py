"""Stages of a demo that takes minutes: their progress, and the results kept for continuing it."""

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
    """Print on an interrupt that finished steps are kept."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"finished steps are kept in {output}: run the same command again to continue", file=sys.stderr)
        raise


class Stages:
    """Progress of the demo's steps: a bar with number and name for each, or a line without a terminal."""

    def __init__(self, progress: Progress, num: int) -> None:
        self._progress, self._num, self._number = progress, num, 0

    def begin(self, name: str, total: int | None = None) -> TaskID:
        """Begin the next step. total: None if it is unknown."""
        self._number += 1
        title = f"{self._number}/{self._num} {name}"
        if not self._progress.console.is_terminal:
            print(title, flush=True)
        return self._progress.add_task(title, total=total, note="")

    def update(self, bar: TaskID, done: int, total: int, note: str = "") -> None:
        """Show how much of a step is done."""
        self._progress.update(bar, completed=done, total=total, note=note)

    def advance(self, bar: TaskID) -> None:
        self._progress.advance(bar)

    def on_step(self, bar: TaskID) -> Callable[[int, float], None]:
        """Return the function that moves the bar of a training."""
        return report_steps(self._progress, bar)


class Kept:
    """Finished steps of a demo, in FOLDER/kept.json; those of another version are ignored."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "kept.json"
        try:
            content = json.loads(self._path.read_text())
            self._steps = dict(content["steps"]) if content["version"] == self._version() else {}
        except (OSError, ValueError, KeyError, TypeError):
            self._steps = {}

    def get(self, step: str) -> Any:
        """Return what was noted for a step; None: it is not done."""
        return self._steps.get(step)

    def note(self, step: str, value: Any) -> None:
        """Note a step as done. value: JSON, not None."""
        self._steps[step] = value
        text = json.dumps({"version": self._version(), "steps": self._steps}, indent=1)
        keep_text(self._path, text + "\n")

    @staticmethod
    def _version() -> list[Any]:
        return [version("robot-runtime"), code()["commit"]]
