"""`robot-runtime calibrate anchor`: computes the hand's odometry world in the chest's from a board."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from tyro.conf import Positional

from calibration.commands.calibrate.live_guide import LiveGuide, need_page, refuse_page
from calibration.commands.calibrate.result import keep, pose_words
from robot_runtime.cli.options import InputFile, InputFolder, Maybe, OutputFile, PageAddress, need
from robot_runtime.cli.progress import counted
from robot_runtime.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from calibration.anchor import Anchor
    from calibration.board import Board
    from calibration.capture.raw import RawCapture


@dataclass(frozen=True, kw_only=True)
class CalibrateAnchor:
    """Compute the transform between chest and hand odometry from a board that both saw.

    Each anchor clip of the capture makes a file: anchor.json, anchor-2.json, and so on; the closure between
    the first and each later one is printed. Exit code 1: an anchor is not usable, and the reason is printed.

    With --live, both cameras look at the board now, and instructions lead to enough views. The anchor is
    valid as long as both odometries keep running.

    Example: robot-runtime calibrate anchor captures/kitchen --output anchor.json

    Example: robot-runtime calibrate anchor --live rig.toml --page
    """

    capture: Annotated[Maybe[InputFolder], Positional] = None
    """The capture's folder."""
    live: Maybe[InputFile] = None
    """Calibrate live, in place of a capture, with the devices of this file, as for `capture record`. Follow
    the instructions; Ctrl-C ends it."""
    output: OutputFile = Path("anchor.json")
    """File to write; further clips get a number."""
    hand: Literal["hand", "right_hand", "left_hand"] = "hand"
    """Hand device to anchor."""
    board: Maybe[InputFile] = None
    """board.json; the one of the capture or the rig's file if not given."""
    chest_intrinsics: Maybe[InputFile] = None
    """camera.json of the chest's camera; the one named there if not given."""
    hand_intrinsics: Maybe[InputFile] = None
    """camera.json of the hand's camera; the one named there if not given."""
    same_time: bool = False
    """Use only images that both cameras took at the same time, for a board held by hand. Needs sync spans."""
    page: PageAddress = None
    """Live: show the images, and what to do next, in a browser, at this address; 127.0.0.1:8080 if the option
    has no value. Beyond this machine the page requires a token, which the printed address has."""

    def main(self) -> int:
        need("scipy", "cv2", "av", extras=("calibration",))
        if self.live is not None and self.capture is None:
            return self._look_live(self.live)
        if self.capture is None or self.live is not None:
            raise InvalidValueError("give a capture's folder, or --live and the file of the devices")
        refuse_page(self.page)
        from calibration.anchor import closure
        from calibration.capture.check import join_clocks, on_clock_of
        from calibration.capture.raw import RawCapture

        capture = RawCapture.open(self.capture)
        for role in ("chest", self.hand):
            if role not in capture.devices:
                raise UnknownNameError(f"device of {self.capture}", role, capture.devices)
        clips = capture.clips("anchor")
        if not clips:
            raise InvalidValueError(
                f"{self.capture} has no anchor clip, in which both cameras look at the board: key a begins "
                "and ends one in `capture record`, a line of --marks gives its times to `capture import`"
            )
        clocks, trouble = join_clocks(capture)
        for reason in trouble:
            print(f"note: {reason}")
        anchors: list[Anchor] = []
        code = 0
        with counted(stays=False) as progress:
            for span in progress.track(clips, description="anchor clips"):
                begin, end = on_clock_of(self.hand, clocks, *span)
                anchors.append(self._solved(capture, span, (begin, end), clocks))
        for number, anchor in enumerate(anchors, start=1):
            code = max(code, keep(_numbered(self.output, number), anchor, _rows(anchor)))
            if number > 1:
                gap = closure(anchors[0], anchor)
                print(
                    f"closure to the first: {1e3 * gap.distance_m:.1f} mm, {np.rad2deg(gap.yaw):.2f} "
                    f"degrees ({gap.sigmas:.1f} standard deviations): odometry drifts between the two, "
                    "which labels spread over the path; much more than a few cm means that the board moved"
                )
        return code

    def _look_live(self, rig: Path) -> int:
        from calibration.commands.calibrate.live_anchor import look_live

        if self.same_time:
            raise InvalidValueError("--same-time is of a capture: live, the board lies still")
        need_page(self.page)
        intrinsics = {"chest": self.chest_intrinsics, self.hand: self.hand_intrinsics}
        with LiveGuide(f"calibrate anchor {rig}", self.page) as guide:
            anchor = look_live(rig, guide, intrinsics=intrinsics, board=self.board)
            code = keep(self.output, anchor, _rows(anchor))
            guide.judge(anchor, _rows(anchor))
            return code

    def _solved(
        self, capture: "RawCapture", chest_ns: tuple[int, int], hand_ns: tuple[int, int], clocks: Any
    ) -> "Anchor":
        from calibration.anchor import AnchorConfig, solve_anchor
        from calibration.camera import Intrinsics
        from calibration.capture.check import on_clock_of
        from calibration.labels.anchors import views_in
        from calibration.store import load

        board = self._board(capture)
        sides = [
            views_in(capture, board, role, span, None if file is None else load(file, Intrinsics))
            for role, file, span in (
                ("chest", self.chest_intrinsics, chest_ns),
                (self.hand, self.hand_intrinsics, hand_ns),
            )
        ]
        is_joined = self.hand in clocks or capture.setup.more.get("clock") == "shared"
        hand_time = (lambda t_ns: int(on_clock_of(self.hand, clocks, t_ns)[0])) if is_joined else None
        config = AnchorConfig(hand_time=hand_time, at_the_same_time=self.same_time)
        return solve_anchor(board, sides[0], sides[1], config)

    def _board(self, capture: "RawCapture") -> "Board":
        from calibration.board import Board
        from calibration.store import load

        if self.board is not None:
            return load(self.board, Board)
        if capture.board is None:
            raise InvalidValueError("the capture names no board: give --board board.json")
        return Board.from_dict(capture.board)


def _numbered(path: Path, number: int) -> Path:
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def _rows(anchor: "Anchor") -> dict[str, str]:
    position, yaw = anchor.sigma
    return {
        "hand's world in the chest's": pose_words(anchor.X_WcWh),
        "one sigma, at the board": f"{1e3 * position:.2f} mm, {np.rad2deg(yaw):.3f} degrees",
        "one sigma, 2 m from it": f"{1e3 * np.hypot(position, 2.0 * yaw):.1f} mm",
    }
