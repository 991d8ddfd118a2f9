"""A page of a calibration in its own process: `GuideSource` keeps the newest message of the command."""

from collections.abc import Mapping

import msgspec

from robot_runtime.core.orders import Order
from robot_runtime.page.guide import End, Guide, Message
from robot_runtime.page.source import Picture, Player

CAMERA = "camera"
"""Name of the only camera."""
_DECODER = msgspec.json.Decoder(Message)


class GuideSource:
    """One thread takes messages; the server's reads what is shown. It accepts no orders."""

    def __init__(self) -> None:
        self._guide = Guide(title="", do="no news yet")
        self._view = _json(self._guide)
        self._pictures: dict[str, Picture] = {}
        self._count = 0

    def take(self, line: bytes) -> None:
        """Process a `Message` as JSON."""
        message = _DECODER.decode(line)
        if message.jpeg:
            self._count += 1
            self._pictures = {CAMERA: Picture(self._count, message.jpeg)}
        self._guide = message.guide
        self._view = _json(self._guide)

    def end(self) -> None:
        """Note that the command has ended; one that was killed has not reported it."""
        if self._guide.end is None:
            ended = End(text="The command has ended without a result.", is_good=False)
            self._guide = msgspec.structs.replace(self._guide, do="", end=ended)
            self._view = _json(self._guide)

    # ---- in the server's thread ------------------------------------------------------------------

    def view(self) -> str:
        return self._view

    def pictures(self) -> Mapping[str, Picture]:
        return self._pictures

    def order(self, order: Order) -> None:
        """Ignore it: a calibration takes no orders."""

    def play(self, player: Player) -> None:
        """Ignore it: nothing is played."""

    def refuse(self, what: str, why: str) -> None:
        """Ignore it: nothing can be typed."""


def _json(guide: Guide) -> str:
    return msgspec.json.encode(guide).decode()
