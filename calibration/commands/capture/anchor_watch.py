"""`AnchorWatch` searches arriving images for the board in its own thread; `AnchorWords` reports the result.

Streams ─► tell ─► queue ─► its thread: AnchorGuide ─► on_look
"""

import contextlib
import queue
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from calibration.commands.capture.streams import Arrival
from robot_runtime.core.values.state import Image

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
