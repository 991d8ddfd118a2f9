"""Makes the pictures of README and docs/ again, from the current code: each has its recipe below.

python -m scripts.tables.docs_pictures --list                    which picture is made by what
python -m scripts.tables.docs_pictures --only page.png page_phone.png
python -m scripts.tables.docs_pictures          all; the demos take minutes, on a quiet machine
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from robot_runtime.cli.options import Several
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.page.picture import picture_of
from scripts.harness import run_script

ROOT = Path(__file__).parents[2]
STATIC, RESULTS = ROOT / "docs" / "_static", ROOT / "scripts" / "results"
COMMAND = (sys.executable, "-m", "robot_runtime.cli")
SERVER = ("serve", "--policy", "fetch", "--address", "tcp://127.0.0.1:15757")
RUN = ("run", "--task", "fetch", "--policy", "tcp://127.0.0.1:15757", "--duration-s")
PAGE, STATUS = "127.0.0.1:18080", "127.0.0.1:18090"
START_S = 120.0


def command(folder: Path, *arguments: str) -> None:
    """RobotRuntimeError: it fails."""
    done = subprocess.run([*COMMAND, *arguments], cwd=folder, check=False)
    if done.returncode:
        raise RobotRuntimeError(f"{' '.join(arguments)} ended with exit code {done.returncode}")


@contextmanager
def beside(folder: Path, *arguments: str, ready: str) -> Iterator[None]:
    """A command that goes on meanwhile, once it has printed these words. RobotRuntimeError: it never does."""
    output = folder / f"{arguments[0]}.txt"
    with output.open("w") as file:
        process = subprocess.Popen([*COMMAND, *arguments], cwd=folder, stdout=file, stderr=subprocess.STDOUT)
    try:
        end_s = time.monotonic() + START_S
        while ready not in output.read_text():
            if process.poll() is not None or time.monotonic() > end_s:
                raise RobotRuntimeError(f"{' '.join(arguments)} did not start: {output.read_text()[-500:]}")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def recorded_page(size: tuple[int, int], folder: Path, to: Path) -> None:
    with beside(folder, *SERVER, ready="ready"):
        command(folder, *RUN, "12", "--log", "log")
    (log,) = (folder / "log").glob("*.mcap")
    with beside(folder, "page", str(log), "--address", PAGE, ready="page: "):
        picture_of(f"http://{PAGE}/", to, size=size, at_s=6.0, wait_s=25.0)


def status_page(folder: Path, to: Path) -> None:
    with (
        beside(folder, *SERVER, "--page", STATUS, ready="ready"),
        beside(folder, *RUN, "120", "--no-log", ready="connected"),
    ):
        picture_of(f"http://{STATUS}/", to, size=(1400, 500), wait_s=4.0)


def demo(show: str, file: str, folder: Path, to: Path) -> None:
    """file: of the demo's folder; of a video the frame in its middle."""
    command(folder, "demo", show, "--output", "demo")
    made = folder / "demo" / file
    if made.suffix != ".mp4":
        shutil.copy(made, to)
        return
    import av

    with av.open(str(made)) as video:
        frames = list(video.decode(video=0))
    frames[len(frames) // 2].to_image().save(to)


def drawn(script: str, folder: Path, to: Path) -> None:
    """By a module of `scripts`, from a result file."""
    subprocess.run([sys.executable, "-m", script, "--output", str(to)], cwd=ROOT, check=True)


@dataclass(frozen=True)
class Picture:
    to: Path
    by: str
    make: Callable[[Path, Path], None] | None = None
    """None: a measurement writes it beside its result file."""


PICTURES = (
    Picture(STATIC / "page.png", "page RUN.mcap, in chromium", partial(recorded_page, (1400, 900))),
    Picture(STATIC / "page_phone.png", "the same, 420 x 900", partial(recorded_page, (420, 900))),
    Picture(STATIC / "page_server.png", "serve --page with one robot, in chromium", status_page),
    Picture(STATIC / "takeover.png", "demo takeover", partial(demo, "takeover", "takeover.png")),
    Picture(
        STATIC / "capture-person.png",
        "demo capture: the middle of person.mp4",
        partial(demo, "capture", "person.mp4"),
    ),
    Picture(RESULTS / "demo.png", "demo: the middle of track.mp4", partial(demo, "table", "track.mp4")),
    Picture(RESULTS / "demo-timeline.png", "demo", partial(demo, "table", "track-timeline.png")),
    Picture(
        RESULTS / "demo-mobile.png",
        "demo mobile: the middle of wipe.mp4",
        partial(demo, "mobile", "wipe.mp4"),
    ),
    Picture(
        RESULTS / "third-party.png",
        "scripts.tables.third_party",
        partial(drawn, "scripts.tables.third_party"),
    ),
    Picture(RESULTS / "lab.png", "python -m scripts.bench methods"),
    Picture(RESULTS / "mobile.png", "python -m scripts.bench household"),
    Picture(STATIC / "page_calibrate.png", "a live calibration: a person moves the board"),
    Picture(STATIC / "teleop-phone.png", "a phone at run --teleop webxr"),
    Picture(STATIC / "run_log.png", "a plot of a run's log with rr.RunLog"),
)


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Make the committed pictures again."""

    only: Several[str] = ()
    """Pictures to make, such as page.png; if not given, all that need no person and no measurement."""
    list: bool = False
    """Only print how each picture is made."""

    def main(self) -> int:
        if unknown := set(self.only) - {picture.to.name for picture in PICTURES}:
            raise InvalidValueError(
                f"expected names of pictures, got {', '.join(sorted(unknown))}; see --list"
            )
        for picture in PICTURES:
            if self.list:
                how = "" if picture.make else "   (not made by this script)"
                print(f"{picture.to.relative_to(ROOT)}   {picture.by}{how}")
            elif picture.make and (not self.only or picture.to.name in self.only):
                with tempfile.TemporaryDirectory() as folder:
                    picture.make(Path(folder), picture.to)
                print(picture.to.relative_to(ROOT))
        return 0


if __name__ == "__main__":
    run_script(Pictures, Pictures.main, description=__doc__)
