"""How soon a camera that freezes is noticed: through a real socket, OpenCV, and the camera's own thread.

    python -m scripts.attack.frozen_cameras --injections 50 --json frozen.json

A camera of 30 pictures a second is well for a while, at random, then freezes in one way until that is
noticed, or for 2 s. Measured is the time from when the first bad or missing picture was due to when
`Cameras.newest`, asked 500 times a second, says so; and whether a bad picture was ever shown. Exit code 1 if
one was, if one was not noticed within --limit-ms, or if a camera that was well was said not to be. Times in
which the machine stood still for more than 20 ms, as a thread that only sleeps tells, are counted apart.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
from rich.table import Table

from drivers.cameras import OpenCvCamera
from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import Count, Maybe, OutputFile, Within
from robot_runtime.clock import MonotonicClock
from robot_runtime.robot.cameras import Cameras, camera_threads
from scripts.harness import run_script, write_result
from tests.process.picture_server import PictureServer, jpeg

MARK = 8
"""Side of what is white in bad pictures, and never in good ones [pixels]."""
STOOD_S = 0.02
Spoil = Callable[[np.ndarray, np.ndarray], bytes | None]


def half_frozen(new: np.ndarray, last: np.ndarray) -> bytes:
    """The upper half of this picture, with a white mark, and the lower of the last good one."""
    half, new = len(new) // 2, new.copy()
    new[:MARK, :MARK] = 255
    return jpeg(np.concatenate([new[:half], last[half:]]))


WAYS: dict[str, Spoil] = {
    "none at all": lambda new, last: None,
    "the same picture, new stamps": lambda new, last: jpeg(last),
    "half of a JPEG": lambda new, last: jpeg(new)[: len(jpeg(new)) // 2],
    "half of it frozen": half_frozen,
    "no JPEG": lambda new, last: b"no picture at all" * 30,
    "another size": lambda new, last: jpeg(new[::2, ::2]),
}


@dataclass(frozen=True, kw_only=True)
class FrozenCameras:
    """Freeze a camera in each way, again and again, and time how soon that is noticed."""

    injections: Count = 50
    """Of each way."""
    limit_ms: Annotated[float, Within(1, 10_000)] = 200.0
    """From the first bad or missing picture [ms]."""
    json: Maybe[OutputFile] = None
    """Write the figures to this file, as JSON."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to freeze."""

    way: str
    noticed_ms: list[float]
    """Each; 2000 and more: not at all."""
    num_shown: int
    """How often a bad picture was shown."""
    num_false: int
    """How often a camera that was well was said not to be."""
    num_stood: int
    """How often the machine stood still meanwhile; not in the others."""


class Pulse:
    """A thread that only sleeps, and sees by how much it is late."""

    def __init__(self) -> None:
        self.late_s = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            begin_s = time.monotonic()
            time.sleep(0.005)
            self.late_s = max(self.late_s, time.monotonic() - begin_s - 0.005)


def frozen(way: str, spoil: Spoil, injections: int, rng: np.random.Generator, pulse: Pulse) -> Row:
    """A camera that freezes so, so often."""
    noticed, num_shown, num_false, num_stood = list[float](), 0, 0, 0
    with PictureServer() as server:
        camera = OpenCvCamera(server.url)
        with camera_threads({"front": camera}, MonotonicClock()) as cameras:
            cameras.await_first()
            while len(noticed) < injections:
                pulse.late_s = 0.0
                is_false = watched_well(cameras, rng.uniform(0.5, 0.8))
                server.spoil, server.faulty_ns = spoil, 0
                logged_ns, was_shown = watched_until_noticed(cameras)
                faulty_ns, late_s = server.faulty_ns, pulse.late_s
                server.well()
                await_good(cameras)
                if late_s > STOOD_S and num_stood < 3 * injections:
                    num_stood += 1
                    continue
                noticed.append((logged_ns - faulty_ns) / 1e6)
                num_shown, num_false = num_shown + was_shown, num_false + is_false
    return Row(way=way, noticed_ms=noticed, num_shown=num_shown, num_false=num_false, num_stood=num_stood)


def watched_well(cameras: Cameras, for_s: float) -> bool:
    """Whether a fault was told in that time."""
    end_s, is_false = time.monotonic() + for_s, False
    while time.monotonic() < end_s:
        is_false |= bool(cameras.newest(time.monotonic_ns())[1])
        time.sleep(0.002)
    return is_false


def watched_until_noticed(cameras: Cameras) -> tuple[int, bool]:
    """When the camera was said to be blind [ns], and whether a bad picture was shown before."""
    end_ns, last, was_shown = time.monotonic_ns() + 2_000_000_000, None, False
    while (now_ns := time.monotonic_ns()) < end_ns:
        images, faults = cameras.newest(now_ns)
        if faults:
            return now_ns, was_shown
        image = images["front"]
        if last is not None and image.t_ns != last.t_ns:
            was_shown |= bool(image.pixels[:MARK, :MARK].min() > 240)
            was_shown |= np.array_equal(image.pixels, last.pixels)
        last = image
        time.sleep(0.002)
    return now_ns + 2_000_000_000, was_shown


def await_good(cameras: Cameras) -> None:
    end_s = time.monotonic() + 5.0
    while cameras.newest(time.monotonic_ns())[1] and time.monotonic() < end_s:
        time.sleep(0.002)


def main(options: FrozenCameras) -> int:
    rng, pulse = np.random.default_rng(0), Pulse()
    rows = [frozen(way, spoil, options.injections, rng, pulse) for way, spoil in WAYS.items()]
    table = Table("a camera of 30 Hz gives", "noticed p50 [ms]", "max [ms]", "shown", "false", "stood still")
    for row in rows:
        middle, most = np.median(row.noticed_ms), max(row.noticed_ms)
        counts = (row.num_shown, row.num_false, row.num_stood)
        table.add_row(row.way, f"{middle:.0f}", f"{most:.0f}", *map(str, counts))
    plain_console().print(table)
    if options.json is not None:
        write_result(options.json, {"rows": [asdict(row) for row in rows]})
    bad = [r for r in rows if r.num_shown or r.num_false or max(r.noticed_ms) > options.limit_ms]
    return 1 if bad else 0


if __name__ == "__main__":
    run_script(FrozenCameras, main, description=__doc__)
