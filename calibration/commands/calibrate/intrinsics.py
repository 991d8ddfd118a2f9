"""`robot-runtime calibrate intrinsics`: calibrates a camera's intrinsics from images of a board."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from tyro.conf import Positional

from calibration.commands.calibrate.live_guide import LiveGuide, need_page, refuse_page
from calibration.commands.calibrate.result import keep as keep_result
from calibration.commands.calibrate.shown import guide_of_views
from calibration.commands.calibrate.sources import pictures_of
from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import (
    Count,
    InputFile,
    Maybe,
    NewFolder,
    OutputFile,
    PageAddress,
    PictureFile,
    need,
)
from robot_runtime.cli.progress import counted
from robot_runtime.errors import InvalidValueError
from robot_runtime.results import keep

if TYPE_CHECKING:
    from calibration.board import Board
    from calibration.detection import Corners
    from calibration.intrinsics import Calibrated
    from calibration.view_guide import ViewGuide

LOOK_EVERY_S = 0.15
"""Live: time between the images that are searched for the board [s]."""


@dataclass(frozen=True, kw_only=True)
class CalibrateIntrinsics:
    """Calibrate a camera's intrinsics from images of a board.

    Finds focal lengths, principal point and distortion, and judges whether they can be trusted. Calibrate at
    the size and zoom that are used later, with autofocus and stabilisation off. Exit code 1: the result is
    not usable, and the reason is printed.

    Example: robot-runtime calibrate intrinsics chest.mp4 --board board/board.json --output chest.json
    """

    source: Annotated[str, Positional]
    """A video, a folder of images, a capture, or with --live a camera: /dev/video0, an address, a file."""
    board: InputFile
    """board.json of the board, by `calibrate board`."""
    output: OutputFile = Path("camera.json")
    """File to write."""
    model: Literal["pinhole", "fisheye"] = "pinhole"
    """Camera model. fisheye: for lenses wider than about 100 degrees, as on a GoPro (Kannala and Brandt)."""
    role: str = "chest"
    """With a capture: device whose camera is calibrated."""
    live: bool = False
    """Take the images now: move the board or the camera as instructed; Ctrl-C ends it."""
    views: Count = 40
    """Live: number of views to take."""
    keep_pictures: Maybe[NewFolder] = None
    """Live: save the images in this folder, to calibrate from again."""
    picture: Maybe[PictureFile] = None
    """Draw the corners and their errors into this file; live, also the coverage so far."""
    every: Count = 1
    """With a long video: use every n-th image."""

    page: PageAddress = None
    """Live: show the image, the board found in it and what to do next in a browser, at this address;
    127.0.0.1:8080 if the option has no value. Beyond this machine the page requires a token, which the
    printed address has."""

    def main(self) -> int:
        need("scipy", "cv2", "av", "matplotlib", extras=("calibration",))
        need_page(self.page)
        from calibration.board import Board
        from calibration.store import load

        board = load(self.board, Board)
        if self.live:
            return self._live(board)
        refuse_page(self.page)
        views, without = self._seen(board)
        total = len(views) + len(without)
        found = self._found(board, views, without, len(views), total)
        return self._kept(found, _rows(found, len(views), total))

    def _live(self, board: "Board") -> int:
        from calibration.view_guide import ViewGuide
        from robot_runtime.robot_file.names import shipped_driver

        views = ViewGuide(board, num=self.views, model=self.model)
        with closing(shipped_driver("opencv")(self.source)) as camera:
            if self.keep_pictures is not None:
                self.keep_pictures.mkdir(parents=True)
            with LiveGuide(f"calibrate intrinsics {self.source}", self.page) as guide:
                self._take(views, _read(camera, lambda: guide.is_stopped), guide)
                guide.compute()
                found = self._found(board, views.views, views.without, views.num_seen, views.num_pictures)
                rows = _rows(found, views.num_seen, views.num_pictures)
                code = self._kept(found, rows)
                guide.judge(found.intrinsics, rows)
                return code

    def _found(
        self,
        board: "Board",
        views: Sequence["Corners"],
        without: Sequence[np.ndarray],
        num_seen: int,
        num_pictures: int,
    ) -> "Calibrated":
        from calibration.intrinsics import calibrate

        if len(views) < 3:
            raise InvalidValueError(_too_few(board, len(views), num_seen, num_pictures, without))
        found = calibrate(board, views, self.model)
        if self.picture is not None:
            _draw(self.picture, found.views, found.bundle.off, _lines(found))
        return found

    def _kept(self, found: "Calibrated", rows: Mapping[str, str]) -> int:
        code = keep_result(self.output, found.intrinsics, rows)
        if code:
            plain_console(is_error=True).print("not usable: the file is written, but no command will read it")
        return code

    def _seen(self, board: "Board") -> tuple[list["Corners"], list[np.ndarray]]:
        """Return the views, and a few of the images without a board."""
        from calibration.detection import detect

        views: list[Corners] = []
        without: list[np.ndarray] = []
        with counted(stays=False) as progress:
            bar = progress.add_task(f"look at {Path(self.source).name}", total=None)
            for number, (_, picture) in enumerate(pictures_of(Path(self.source), self.role)):
                progress.update(bar, completed=number + 1)
                if number % self.every:
                    continue
                if len(corners := detect(board, picture)):
                    views.append(corners)
                else:
                    without.append(picture if len(without) < 8 else picture[:0])
            progress.update(bar, total=number + 1)
        return views, without

    def _take(self, views: "ViewGuide", pictures: Iterator[np.ndarray], guide: LiveGuide) -> None:
        """Take views until there are enough, the camera ends or the user stops it."""
        guide.say(views.advice)
        guide.show(guide_of_views(guide.guide, views))
        for picture in pictures:
            look = views.look(picture)
            guide.show(guide_of_views(guide.guide, views, look), picture)
            if look.problem:
                guide.say(look.problem)
            if look.is_taken:
                guide.say(f"{len(views.views)} taken; {views.advice or 'enough'}")
                self._keep_view(views, picture)
            if views.is_over:
                return
        print(f"ended with {len(views.views)} views")

    def _keep_view(self, views: "ViewGuide", picture: np.ndarray) -> None:
        import cv2

        taken = views.views
        if self.keep_pictures is not None:
            cv2.imwrite(str(self.keep_pictures / f"{len(taken):03d}.png"), picture[..., ::-1])
        if self.picture is not None:
            _draw(self.picture, taken, [np.zeros((len(view), 2)) for view in taken], [])


def _read(camera: Any, should_stop: Callable[[], bool]) -> Iterator[np.ndarray]:
    """Yield images as they come, a few per second, until the camera ends."""
    next_s = time.monotonic()
    while not should_stop():
        try:
            image = camera.read()
        except ValueError:
            continue
        except Exception as error:  # a camera's end can be any error
            print(f"the camera ends: {error}")
            return
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + LOOK_EVERY_S
            yield np.asarray(image.pixels)


def _too_few(board: "Board", num_views: int, num_seen: int, total: int, without: Sequence[np.ndarray]) -> str:
    """Return why there are too few views: another board, none, or one that was seen too seldom."""
    from calibration.coverage import ENOUGH_VIEWS
    from calibration.detection import wrong_board
    from calibration.intrinsics import LEAST_VIEWS

    count = f"the board is seen in {num_seen} of {total} pictures."
    pictures = [picture for picture in without if picture.size]
    if (reason := wrong_board(board, pictures) if pictures else None) is not None:
        return f"{count} {reason.name}: {reason}"
    in_view = "is it in view, whole, flat, sharp and lit?"
    if not num_seen:
        return f"{count} Expected {board}: {in_view}"
    others = f" In the others: {in_view}" if num_seen < total else ""
    return (
        f"{count} few-views: {num_views} view{'s' * (num_views != 1)}, and {LEAST_VIEWS} are needed at "
        f"least, {ENOUGH_VIEWS} make it sure: show it from more sides.{others}"
    )


def _lines(found: "Calibrated") -> list[str]:
    camera, numbers = found.intrinsics.camera, found.intrinsics.residuals
    return [
        f"{camera.MODEL} {camera.size[1]}x{camera.size[0]}: fx {camera.fx:.2f} fy {camera.fy:.2f} "
        f"cx {camera.cx:.2f} cy {camera.cy:.2f}",
        f"rms {numbers['rms_px']:.3f} px, {numbers['views']:.0f} views, "
        f"{100 * numbers['coverage_share']:.0f} % covered, "
        f"focal length repeats within {100 * numbers['focal_repeat_share']:.3f} %",
    ]


def _draw(path: Path, views: Any, off: Any, lines: list[str]) -> None:
    import matplotlib.image

    from calibration.coverage import coverage_picture

    picture = coverage_picture(views, off, lines)
    keep(path, lambda to: matplotlib.image.imsave(to, picture, format=path.suffix[1:]))


def _rows(found: "Calibrated", num: int, total: int) -> dict[str, str]:
    camera = found.intrinsics.camera
    return {
        "pictures": f"{total}, with the board {num}, used {len(found.views)}",
        "model": f"{camera.MODEL}, {camera.size[1]}x{camera.size[0]} pixels",
        "fx, fy": f"{camera.fx:.3f}, {camera.fy:.3f}",
        "cx, cy": f"{camera.cx:.3f}, {camera.cy:.3f}",
        "distortion": " ".join(f"{value:.5f}" for value in camera.distortion),
    }
