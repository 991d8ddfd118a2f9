"""What a clip anchor is guided by while it is recorded, and judged when it ends: `AnchorClip`."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_runtime.cli.capture.anchor_watch import AnchorWatch, AnchorWords
from robot_runtime.cli.capture.rig import Rig
from robot_runtime.cli.capture.streams import Arrival
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from calibration.anchor_guide import AnchorGuide


class AnchorClip:
    """Of one recording: begins and ends with each of its clips."""

    def __init__(self, rig: Rig, models: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """models: role -> its `CameraModel`, or None if the rig's file names none."""
        self._rig, self._models, self._say = rig, models, say
        self._watch: AnchorWatch | None = None

    def begin(self) -> None:
        """Look from now on; where something is missing, that is said, and nobody looks."""
        if why := self._lacking():
            self._say(f"nobody looks at the board meanwhile: {why}")
            return
        from calibration.board import Board
        from calibration.store import load

        hands = [role for role in self._models if role != "chest"]
        models = {role: self._models[role] for role in ("chest", *hands)}
        board = load(Path(self._rig.more["board"]), Board)
        self._watch = AnchorWatch(board, models, AnchorWords(self._say).hear)
        self._say(self._watch.guide.advice)

    def tell(self, arrival: Arrival) -> None:
        """What is recorded."""
        if self._watch is not None:
            self._watch.tell(arrival)

    def end(self) -> None:
        """Look no more; what was seen is judged in a thread of its own."""
        watch, self._watch = self._watch, None
        if watch is not None:
            threading.Thread(target=self._judge, args=(watch,), daemon=True).start()

    def _lacking(self) -> str:
        if "board" not in self._rig.more:
            return "the rig's file names no board"
        if "chest" not in self._models or len(self._models) < 2:
            return "the rig has no chest and hand"
        without = [role for role, model in self._models.items() if model is None]
        return f"the rig's file names no intrinsics of {' and '.join(without)}" if without else ""

    def _judge(self, watch: AnchorWatch) -> None:
        watch.close()
        for role in watch.guide.progress:
            if role != "chest":
                self._say(f"anchor of {role}: {_judged(watch.guide, role)}")


def _judged(guide: "AnchorGuide", role: str) -> str:
    from calibration.anchor import solve_anchor

    try:
        anchor = solve_anchor(guide.board, guide.views("chest"), guide.views(role))
    except InvalidValueError as error:
        return f"NOT USABLE: {error}"
    return f"one sigma at the board {1e3 * anchor.sigma[0]:.1f} mm. {anchor.verdict}"
