"""Tests `OpenCvCamera` and OpenCV's V4L2 code against a simulated camera that answers the kernel's calls.

    sudo python -m scripts.attack.v4l2_camera

Needs gcc and the permission to make device files. `v4l2_camera.c` is compiled, and loaded before libc into a
process that opens the camera in many ways: with valid and invalid sizes and rates, twice, silent, frozen,
with stamps of another clock, unplugged. Prints the result of each; exit code 1 if one is not as expected.
"""

import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from drivers.cameras import OpenCvCamera, v4l2
from robot_runtime.cli.console import plain_console
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.camera_watch import CameraFault
from robot_runtime.errors import DriverError, InvalidValueError
from robot_runtime.robot.cameras import camera_threads
from scripts.harness import run_script

V4L_MAJOR = 81
DEVICE, MODE = "FAKE_CAMERA", "FAKE_CAMERA_MODE"


@dataclass(frozen=True, kw_only=True)
class V4l2Camera:
    """Test the V4L2 camera driver against a simulated camera."""


def main(_: V4l2Camera) -> int:
    if DEVICE in os.environ:
        return tried(os.environ[DEVICE])
    with tempfile.TemporaryDirectory() as folder:
        library, device, mode = (str(Path(folder) / name) for name in ("camera.so", "video", "mode"))
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, str(source), "-ldl"], check=True)
        os.mknod(device, 0o600 | stat.S_IFCHR, os.makedev(V4L_MAJOR, 0))
        more = {"LD_PRELOAD": library, DEVICE: device, MODE: mode}
        return subprocess.run(
            [sys.executable, "-m", "scripts.attack.v4l2_camera"], env=os.environ | more, check=False
        ).returncode


def tried(device: str) -> int:
    """Test all ways, in the process into which the camera was loaded."""
    table, rows = Table("what", "came", "as it should"), []
    for what, way in WAYS.items():
        set_mode("g")
        try:
            came, is_right = way(device)
        except (DriverError, InvalidValueError) as error:
            came, is_right = str(error), False
        rows.append(is_right)
        table.add_row(what, came, "yes" if is_right else "NO")
    plain_console().print(table)
    return 0 if all(rows) else 1


def set_mode(letter: str) -> None:
    Path(os.environ[MODE]).write_text(letter)


def pictures(device: str) -> tuple[str, bool]:
    """Check that images come at the camera's rate, in its colour, with the kernel's age."""
    camera, gaps, ages = OpenCvCamera(device), list[float](), list[float]()
    images = [camera.read()]
    for _ in range(45):
        images.append(camera.read())
        ages.append((time.monotonic_ns() - images[-1].t_ns) / 1e6)
        gaps.append((images[-1].t_ns - images[-2].t_ns) / 1e6)
    camera.close()
    red, green, blue = images[-1].pixels.mean((0, 1))
    gap, age = float(np.median(gaps)), float(np.median(ages))
    is_right = 31 < gap < 36 and 7 <= age < 15 and bool(red > 2 * max(green, blue))
    return f"every {gap:.1f} ms, {age:.1f} ms old, {images[-1].pixels.shape}", is_right


def another_clock(device: str) -> tuple[str, bool]:
    """Check that impossible stamps are replaced by the arrival less the declared latency."""
    camera = OpenCvCamera(device, latency_s=0.02)
    set_mode("w")
    for _ in range(4):
        image = camera.read()
        age_ms = (time.monotonic_ns() - image.t_ns) / 1e6
    camera.close()
    return f"{age_ms:.1f} ms old", 20 <= age_ms < 30


def twice(device: str) -> tuple[str, bool]:
    """Check that a second opening is refused, and that the first continues."""
    first = OpenCvCamera(device)
    result, is_right = refused(DriverError, "cannot be opened")(device)
    before = first.read().t_ns
    goes_on = first.read().t_ns > before
    first.close()
    return result, is_right and goes_on


def given(height: int, width: int, **settings: object) -> Callable[[str], tuple[str, bool]]:
    """Check that images of that size come with these settings."""

    def way(device: str) -> tuple[str, bool]:
        camera = OpenCvCamera(device, **settings)  # type: ignore[arg-type]
        shape = camera.read().pixels.shape
        camera.close()
        return f"{shape}", shape == (height, width, 3)

    return way


def refused(error: type[Exception], words: str, **settings: object) -> Callable[[str], tuple[str, bool]]:
    """Check that this error with these words is raised within 2.5 s."""

    def way(device: str) -> tuple[str, bool]:
        begin_s = time.monotonic()
        try:
            OpenCvCamera(device, **settings).close()  # type: ignore[arg-type]
        except error as came:
            return str(came), words in str(came) and time.monotonic() - begin_s < 2.5
        return "was taken", False

    return way


def noticed(letter: str, fault: CameraFault) -> Callable[[str], tuple[str, bool]]:
    """Check that a run notices the fault within 200 ms of the first missing image."""

    def way(device: str) -> tuple[str, bool]:
        with camera_threads({"a": OpenCvCamera(device)}, MonotonicClock()) as cameras:
            cameras.await_first()
            time.sleep(0.6)
            set_mode(letter)
            begin_s, faults = time.monotonic(), dict[str, CameraFault]()
            while not faults and time.monotonic() < begin_s + 2.0:
                time.sleep(0.001)
                _, faults = cameras.newest(time.monotonic_ns())
            took_s = time.monotonic() - begin_s
        return f"{faults.get('a')} after {1e3 * took_s:.0f} ms", faults == {
            "a": fault
        } and took_s < 0.2 + 0.034

    return way


def listed(device: str) -> tuple[str, bool]:
    sizes = v4l2.sizes(device)
    return f"{sizes}", sizes == [(240, 320), (480, 640), (720, 1280)] and v4l2.is_camera(device)


WAYS: dict[str, Callable[[str], tuple[str, bool]]] = {
    "its sizes": listed,
    "its pictures": pictures,
    "stamps of another clock": another_clock,
    "opened twice": twice,
    "a size that it has": given(240, 320, size=(240, 320)),
    "turned": given(640, 480, size=(640, 480), rotate=90),
    "fitted": given(224, 224, size=(224, 224), fit="pad", capture_size=(720, 1280)),
    "a size that it has not": refused(InvalidValueError, "(240, 320), (480, 640)", size=(481, 640)),
    "a rate that it has not": refused(InvalidValueError, "gives 30 pictures a second", fps=60),
    "a format that it has not": refused(InvalidValueError, "'YUYV'", fourcc="MJPG"),
    "silent": noticed("s", CameraFault.SILENT),
    "frozen": noticed("f", CameraFault.FROZEN),
    "unplugged": noticed("u", CameraFault.FAILED),
}


if __name__ == "__main__":
    run_script(V4l2Camera, main, description=__doc__)
