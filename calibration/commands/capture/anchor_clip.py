"""What a clip anchor is guided by while it is recorded, and judged when it ends: `AnchorClip`."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.commands.capture.anchor_watch import AnchorWatch, AnchorWords
from calibration.commands.capture.rig import Rig
from calibration.commands.capture.streams import Arrival
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from calibration.anchor_guide import AnchorGuide
    from calibration.board import Board


class AnchorClip:
    """Of one recording: begins and ends with each of its clips."""

    def __init__(self, rig: Rig, models: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """
        models: role -> its `CameraModel`, or None if the rig's file names none.
        InvalidValueError, OSError: the board's file cannot be read.
        """
        self._models, self._say = models, say
        self._board = board_of(rig)
        self._watch: AnchorWatch | None = None

    def begin(self) -> None:
        """Look from now on; where something is missing, that is said, and nobody looks."""
        if self._board is None or (why := self._lacking()):
            why = "the rig's file names no board" if self._board is None else why
            self._say(f"nobody looks at the board meanwhile: {why}")
            return
        hands = [role for role in self._models if role != "chest"]
        models = {role: self._models[role] for role in ("chest", *hands)}
        self._watch = AnchorWatch(self._board, models, AnchorWords(self._say).hear)
        self._say(self._watch.guide.advice)

    def tell(self, arrival: Arrival) -> None:
        """What is recorded."""
        if self._watch is None:
            return
        self._watch.tell(arrival)
        if (error := self._watch.error) is not None:
            self._say(f"nobody looks at the board any more: {type(error).__name__}: {error}")
            self._watch = None

    def end(self) -> threading.Thread | None:
        """Look no more; what was seen is judged in a thread of its own, which is returned."""
        watch, self._watch = self._watch, None
        if watch is None:
            return None
        thread = threading.Thread(target=self._judge, args=(watch,), daemon=True)
        thread.start()
        return thread

    def _lacking(self) -> str:
        if "chest" not in self._models or len(self._models) < 2:
            return "the rig has no chest and hand"
        without = [role for role, model in self._models.items() if model is None]
        return f"the rig's file names no intrinsics of {' and '.join(without)}" if without else ""

    def _judge(self, watch: AnchorWatch) -> None:
        watch.close()
        for role in watch.guide.progress:
            if role != "chest":
                self._say(f"anchor of {role}: {_judged(watch.guide, role)}")


def board_of(rig: Rig) -> "Board | None":
    """As its file names it. InvalidValueError, OSError: that cannot be read."""
    from calibration.board import Board
    from calibration.store import load

    return load(Path(rig.more["board"]), Board) if "board" in rig.more else None


def _judged(guide: "AnchorGuide", role: str) -> str:
    from calibration.anchor import solve_anchor

    if lacking := [each for each in ("chest", role) if not guide.progress[each].views]:
        return f"NOT USABLE: {' and '.join(lacking)} never looked at the board"
    try:
        anchor = solve_anchor(guide.board, guide.views("chest"), guide.views(role))
    except (InvalidValueError, np.linalg.LinAlgError) as error:
        return f"NOT USABLE: {error}"
    return f"one sigma at the board {1e3 * anchor.sigma[0]:.1f} mm. {anchor.verdict}"
