"""How long the export of a run's log into a LeRobot dataset takes, and whether rows, pictures and time agree.

    uv run --extra lerobot python -m scripts.bench.export --json export.json

The run: control steps at 500 Hz, two cameras of 480 x 640 at 30 Hz that look at something that moves, with
noise in every picture, as a sensor has it.
"""

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from robot_runtime.cli.options import Count, Maybe, OutputFile, Within
from scripts.harness import finish, run_script

if TYPE_CHECKING:
    from robot_runtime.core.values.state import Image
    from robot_runtime.dataset.stored import StoredDataset


HEIGHT, WIDTH, HZ = 480, 640, 30


@dataclass(frozen=True, kw_only=True)
class Options:
    """Measure the export of a run's log."""

    seconds: Annotated[float, Within(1, 3600)] = 60.0
    """Length of the run [s]."""
    times: Count = 3
    """Exports of the same log."""
    json: Maybe[OutputFile] = None
    """Write the results to this file, as JSON."""


def main(options: Options) -> int:
    import lerobot.datasets.lerobot_dataset  # noqa: F401  # takes seconds, and is no part of the export

    from robot_runtime.dataset.from_log import from_log
    from robot_runtime.dataset.stored import StoredDataset
    from robot_runtime.log.reader import RunLog
    from scripts.tables.runs import export
    from tests.dataset.runs import SCHEMA, write_run

    with tempfile.TemporaryDirectory() as scratch:
        schema = replace(SCHEMA, cameras={"chest": (HEIGHT, WIDTH), "wrist": (HEIGHT, WIDTH)})
        path = write_run(
            Path(scratch) / "log", seconds=options.seconds, hz=500, schema=schema, picture=_Scene().picture
        )
        rows = []
        for number in range(options.times):
            folder = Path(scratch) / f"dataset {number}"
            start_s = time.monotonic()
            [exported] = from_log(RunLog.open(path), folder, fps=HZ)
            took_s = time.monotonic() - start_s
            pictures = _pictures(StoredDataset(folder))
            rows.append({"frames": exported.num_frames, "pictures": pictures, "took_s": took_s})
    figures = {"seconds": options.seconds, "exports": rows}
    return finish(figures, options.json, export(figures))


def _pictures(dataset: "StoredDataset") -> dict[str, int]:
    """How many there are in each camera's video."""
    import av

    [episode] = dataset.episodes
    out = {}
    for camera in dataset.cameras:
        with av.open(str(dataset.video(episode, camera))) as file:
            out[camera] = file.streams.video[0].frames
    return out


class _Scene:
    """A picture that moves through a window."""

    def __init__(self) -> None:
        self._noise = np.random.default_rng(0)
        coarse = self._noise.integers(0, 255, (2 * HEIGHT // 8, 2 * WIDTH // 8, 3)).astype(np.uint8)
        self._whole = coarse.repeat(8, axis=0).repeat(8, axis=1)

    def picture(self, t_ns: int, name: str) -> "Image":
        from robot_runtime.core.values.state import Image

        angle = t_ns / 1e9
        top = round(HEIGHT / 2 * (1.0 + 0.6 * np.sin(1.5 * angle)))
        left = round(WIDTH / 2 * (1.0 + 0.6 * np.cos(angle)))
        seen = self._whole[top : top + HEIGHT, left : left + WIDTH].astype(np.int16)
        pixels = np.clip(seen + self._noise.integers(-4, 5, seen.shape), 0, 255).astype(np.uint8)
        return Image(t_ns=t_ns, pixels=pixels)


if __name__ == "__main__":
    run_script(Options, main, description=__doc__)
