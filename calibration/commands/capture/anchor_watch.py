"""Searches for the board while an anchor clip is recorded.

    Streams ─► tell ─► queue ─► thread of `AnchorWatch`: AnchorGuide ─► on_look ─► `AnchorWords` reports

`AnchorClip` guides the clips of one recording, and judges each when it ends.
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.commands.capture.rig import Rig
from calibration.commands.capture.streams import Arrival
from robot_runtime.core.values.state import Image
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from calibration.anchor_guide import AnchorGuide, AnchorLook
    from calibration.board import Board
    from calibration.camera import CameraModel


_WAIT_S = 0.05
_EVERY = 5


class AnchorWords:
    """Reports each device's progress, and the fault of the device that has to look at the board."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._last: dict[str, str] = {}

    def hear(self, guide: "AnchorGuide", look: "AnchorLook") -> None:
        """Print a line on every fifth view, and on every change."""
        from calibration.anchor_verdict import ENOUGH

        each, role = guide.progress[look.role], look.role
        if look.is_taken:
            line = each.lacking or "enough"
            if self._last.get(role) != line or len(each.views) % _EVERY == 0:
                self._say(f"{role}: {len(each.views)} of {ENOUGH} views; {line}")
        elif role == guide.next_role and self._last.get(role) != (line := look.problem):
            self._say(f"{role}: {line}")
        else:
            return
        self._last[role] = line


class AnchorWatch:
    """Searches for the board from `__init__` until `close`, and leaves all views in `guide`."""

    def __init__(
        self,
        board: "Board",
        cameras: "Mapping[str, CameraModel]",
        on_look: "Callable[[AnchorGuide, AnchorLook], None]",
    ) -> None:
        """cameras: role -> its camera, the chest's first. on_look: gets the result of each image, in the
        thread."""
        from calibration.anchor_guide import AnchorGuide

        self.guide = AnchorGuide(board, cameras)
        self._on_look, self._roles = on_look, set(cameras)
        self._waiting: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._is_over = False
        self.error: Exception | None = None
        """Error that ended the search, if any."""
        self._thread = threading.Thread(target=self._run, name="anchor", daemon=True)
        self._thread.start()

    def tell(self, arrival: Arrival) -> None:
        """Queue an arrival; it is ignored if its device is not part of the anchor, or once the search is
        over."""
        if arrival.t_ns is not None and arrival.role in self._roles and not self._is_over:
            self._waiting.put(arrival)

    @property
    def is_over(self) -> bool:
        """Whether both devices have enough views, or the search has ended."""
        return self._is_over

    def close(self) -> None:
        """End the search."""
        self._is_over = True
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._hear()
                if (look := self.guide.look()) is not None:
                    self._on_look(self.guide, look)
                    self._is_over = self._is_over or not self.guide.advice
        except Exception as error:  # its reader reports or raises it
            self.error = error
        finally:
            self._is_over = True

    def _hear(self) -> None:
        with contextlib.suppress(queue.Empty):
            self._take(self._waiting.get(timeout=_WAIT_S))
            for _ in range(self._waiting.qsize()):  # bounded: they may come faster than they are taken
                self._take(self._waiting.get_nowait())

    def _take(self, each: Arrival) -> None:
        assert each.t_ns is not None, "tell leaves others out"
        if isinstance(each.what, Image):
            self.guide.see(each.role, each.t_ns, np.asarray(each.what.pixels))
        else:
            self.guide.hear(each.role, each.t_ns, each.what.X_WC, each.what.tracking)


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
