"""The page of a calibration, seen from the command: `GuidePage` sends it what to show, and never waits.

the command ─► show ─► only the newest ─► a thread: JPEG ─► the page's process ─► browsers
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from threading import Condition, Thread

import msgspec
import numpy as np

from robot_runtime.core.values.shapes import UInt8
from robot_runtime.jpeg import jpeg_encoder
from robot_runtime.page.guide import Guide, GuidePageConfig, Message
from robot_runtime.page.process import DEFAULT_HOST, DEFAULT_PORT, PageProcess

PICTURES_HZ = 12.0
"""A browser gets no more than that."""
_WIDTH = 1280
"""Wider images are shown smaller [pixels]."""
_encode = jpeg_encoder(quality=80)
_LAST_S = 1.0
"""How long the last message may take to reach the page [s]."""


class GuidePage(AbstractContextManager["GuidePage"]):
    """A context manager around the calibration; one thread shows."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        address: tuple[str, int] | None = None,
        say: Callable[[str], None],
    ) -> None:
        """
        command: starts the page's process, which reads a `GuidePageConfig` and then a `Message` a line.
        address: host and port; None: loopback, at 8080 or a free port.
        say: receives the page's address, or why there is none.
        """
        host, port = (DEFAULT_HOST, DEFAULT_PORT) if address is None else address
        self._command, self._say = command, say
        self._config = GuidePageConfig(host=host, port=port, is_exact=address is not None)
        self._changed = Condition()
        self._guide: Guide | None = None
        self._picture: np.ndarray | None = None
        self._is_over = False

    def __enter__(self) -> "GuidePage":
        self._process = PageProcess(self._command, self._config, say=self._say)
        self._thread = Thread(target=self._run, name="page", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join(_LAST_S)
        if self._thread.is_alive():  # the page does not read
            self._process.kill()
            self._thread.join()
        self._process.__exit__(*error)

    @property
    def url(self) -> str:
        """Address of the page; empty until it is up."""
        return self._process.url

    def show(self, guide: Guide, picture: UInt8[np.ndarray, "h w 3"] | None = None) -> None:
        """Show this from now on; a guide that was not sent yet is dropped.

        picture: RGB, the image of the guide's corners, which must not change any more; None: the last one.
        """
        with self._changed:
            self._guide = guide
            self._picture = self._picture if picture is None else picture
            self._changed.notify()

    # ---- in its own thread -----------------------------------------------------------------------

    def _run(self) -> None:
        """Send the newest; also the last one at the end."""
        try:
            while (newest := self._newest()) is not None:
                guide, picture = newest
                jpeg = b"" if picture is None else jpeg_of(picture)
                self._process.tell(msgspec.json.encode(Message(guide=guide, jpeg=jpeg)))
        except OSError:
            if not self._is_over:
                why = self._process.why_ended(_LAST_S) or "it does not hear any more"
                self._say(f"the page has ended, the calibration goes on without it: {why}")

    def _newest(self) -> tuple[Guide, np.ndarray | None] | None:
        """Wait for it; None: the page is closing and nothing is left."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over, 1.0 / PICTURES_HZ)
            self._changed.wait_for(lambda: self._guide is not None or self._is_over)
            guide, picture = self._guide, self._picture
            self._guide = self._picture = None
        return None if guide is None else (guide, picture)


def jpeg_of(picture: UInt8[np.ndarray, "h w 3"]) -> bytes:
    """Encode it for viewing: in a wide image k by k pixels become one."""
    k = -(-picture.shape[1] // _WIDTH)
    if k > 1:
        height, width = picture.shape[0] // k * k, picture.shape[1] // k * k
        parts = [picture[i:height:k, j:width:k] for i in range(k) for j in range(k)]
        picture = (sum(part.astype(np.uint32) for part in parts) // k**2).astype(np.uint8)
    return _encode(picture)
