"""What a page's server shows and to whom it passes orders: `Source`, a live run or a recorded one."""

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct

from robot_runtime.core.orders import Order


class Picture(Struct, frozen=True):
    """A camera's newest image."""

    number: int
    """Differs from that of the previous one."""
    jpeg: bytes


class Player(Struct, frozen=True, tag_field="order"):
    """What a browser asks of a recorded run."""

    what: Literal["seek", "play", "pause"]
    t_s: float = 0.0


class Source(Protocol):
    """Provides the view and takes orders; the server's thread calls its methods, which never block."""

    def view(self) -> str:
        """The current view, as JSON."""
        ...

    def pictures(self) -> Mapping[str, Picture]:
        """The newest image of each camera."""
        ...

    def order(self, order: Order) -> None:
        """Take an order from a browser."""
        ...

    def play(self, player: Player) -> None:
        """Play or move a recorded run."""
        ...

    def refuse(self, what: str, why: str) -> None:
        """Note that a browser's message was not an order."""
        ...
