"""`robot-runtime calibrate anchor`: the hand's odometry world in the chest's, from a board that both saw."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from tyro.conf import Positional

from robot_runtime.cli.calibrate.result import keep, pose_words
from robot_runtime.cli.options import InputFile, InputFolder, Maybe, OutputFile, need
from robot_runtime.cli.progress import counted
from robot_runtime.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from calibration.anchor import Anchor
    from calibration.board import Board
    from calibration.capture.raw import RawCapture


@dataclass(frozen=True, kw_only=True)
class CalibrateAnchor:
    """Join a chest's and a hand's odometry worlds by the board that both looked at; say how far to trust it.

    Every clip anchor of the capture makes a file: anchor.json, anchor-2.json, and so on; between the first
    and each later one the closure is printed. Exit code 1: one is not usable, and why.

    Example: robot-runtime calibrate anchor captures/kitchen --output anchor.json
    """

    capture: Annotated[InputFolder, Positional]
    """The capture's folder."""
    output: OutputFile = Path("anchor.json")
    """File to write; of further clips, with a number."""
    hand: str = "hand"
    """Which hand: hand, left_hand or right_hand."""
    board: Maybe[InputFile] = None
    """board.json; what the capture names if not given."""
    chest_intrinsics: Maybe[InputFile] = None
    """camera.json of the chest's camera; what the capture holds if not given."""
    hand_intrinsics: Maybe[InputFile] = None
    """camera.json of the hand's camera; what the capture holds if not given."""
    same_time: bool = False
    """The board was held in a hand: use pictures that both took at the same time. Needs sync spans."""

    def main(self) -> int:
        need("scipy", "cv2", "av", extras=("calibration",))
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
            code = max(code, _shown(_numbered(self.output, number), anchor))
            if number > 1:
                gap = closure(anchors[0], anchor)
                print(
                    f"closure to the first: {1e3 * gap.distance_m:.1f} mm, {np.rad2deg(gap.yaw):.2f} "
                    f"degrees ({gap.sigmas:.1f} standard deviations): drift between the two, or a board "
                    "that was moved"
                )
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


def _shown(output: Path, anchor: "Anchor") -> int:
    place, yaw = anchor.sigma
    rows = {
        "hand's world in the chest's": pose_words(anchor.X_WcWh),
        "one sigma, at the board": f"{1e3 * place:.2f} mm, {np.rad2deg(yaw):.3f} degrees",
        "one sigma, 2 m from it": f"{1e3 * np.hypot(place, 2.0 * yaw):.1f} mm",
    }
    return keep(output, anchor, rows)
