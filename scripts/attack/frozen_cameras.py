"""Measures how soon a frozen camera is noticed, through a real socket, OpenCV and the camera's own thread.

    python -m scripts.attack.frozen_cameras --injections 50 --json frozen.json

A camera with 30 images per second works for a random time, then freezes in one way until that is noticed, or
for 2 s. The script measures the time from when the first bad or missing image was due until `Cameras.newest`,
called 500 times per second, reports it; and whether a bad image was ever shown. Exit code 1 if one was, if
one was not noticed within --limit-ms, or if a working camera was reported as faulty. Times in which the
machine stalled for more than 20 ms, as measured by a thread that only sleeps, are counted separately.
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
"""Side of the white mark in bad images, which good ones never have [pixels]."""
STOOD_S = 0.02
Spoil = Callable[[np.ndarray, np.ndarray], bytes | None]


def half_frozen(new: np.ndarray, last: np.ndarray) -> bytes:
    """Return the upper half of this image, with a white mark, and the lower half of the last good one."""
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
    """Freeze a camera in each way, again and again, and measure how soon that is noticed."""

    injections: Count = 50
    """Injections of each way."""
    limit_ms: Annotated[float, Within(1, 10_000)] = 200.0
    """Longest allowed time from the first bad or missing image [ms]."""
    json: Maybe[OutputFile] = None
    """Write the figures to this file, as JSON."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Results of one way to freeze."""

    way: str
    noticed_ms: list[float]
    """Time of each; 2000 and more: not noticed."""
    num_shown: int
    """How often a bad image was shown."""
    num_false: int
    """How often a working camera was reported as faulty."""
    num_stood: int
    """How often the machine stalled meanwhile; such cases are not in the others."""


class Pulse:
    """Thread that only sleeps, and measures how late it wakes up."""

    def __init__(self) -> None:
        self.late_s = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            begin_s = time.monotonic()
            time.sleep(0.005)
            self.late_s = max(self.late_s, time.monotonic() - begin_s - 0.005)


def frozen(way: str, spoil: Spoil, injections: int, rng: np.random.Generator, pulse: Pulse) -> Row:
    """Freeze a camera in one way, `injections` times."""
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
    """Return whether a fault was reported in that time."""
    end_s, is_false = time.monotonic() + for_s, False
    while time.monotonic() < end_s:
        is_false |= bool(cameras.newest(time.monotonic_ns())[1])
        time.sleep(0.002)
    return is_false


def watched_until_noticed(cameras: Cameras) -> tuple[int, bool]:
    """Return when the camera was reported as faulty [ns], and whether a bad image was shown before."""
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
