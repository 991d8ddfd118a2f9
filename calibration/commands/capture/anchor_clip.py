"""`AnchorClip`: guides an anchor clip while it is recorded, and judges it when it ends."""

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
    """Guide of the anchor clips of one recording, from the beginning to the end of each."""

    def __init__(self, rig: Rig, models: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """
        models: role -> its `CameraModel`, or None if the rig's file names none.
        InvalidValueError, OSError: the board's file cannot be read.
        """
        self._models, self._say = models, say
        self._board = board_of(rig)
        self._watch: AnchorWatch | None = None

    def begin(self) -> None:
        """Start searching for the board; print what is missing if that is impossible."""
        if self._board is None or (why := self._lacking()):
            why = "the rig's file names no board" if self._board is None else why
            self._say(f"this anchor clip is not checked live: {why}")
            return
        hands = [role for role in self._models if role != "chest"]
        models = {role: self._models[role] for role in ("chest", *hands)}
        self._watch = AnchorWatch(self._board, models, AnchorWords(self._say).hear)
        self._say(self._watch.guide.advice)

    def tell(self, arrival: Arrival) -> None:
        """Take an image or pose that is being recorded."""
        if self._watch is None:
            return
        self._watch.tell(arrival)
        if (error := self._watch.error) is not None:
            self._say(f"the anchor clip is no longer checked live: {type(error).__name__}: {error}")
            self._watch = None

    def end(self) -> threading.Thread | None:
        """Stop searching; judge the views in a thread, which is returned."""
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
    """Return the board that the rig's file names. InvalidValueError, OSError: it cannot be read."""
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
