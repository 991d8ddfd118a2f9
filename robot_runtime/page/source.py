"""What a page's server shows and whom it tells: `Source`, a live run or a recorded one."""

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct

from robot_runtime.core.orders import Order


class Picture(Struct, frozen=True):
    """A camera's newest picture."""

    number: int
    """Differs from that of the one before."""
    jpeg: bytes


class Player(Struct, frozen=True, tag_field="order"):
    """What a browser asks of a recorded run."""

    what: Literal["seek", "play", "pause"]
    t_s: float = 0.0


class Source(Protocol):
    """What is shown, and who is told; its methods are called in the server's thread and never wait."""

    def view(self) -> str:
        """What is shown now, as JSON."""
        ...

    def pictures(self) -> Mapping[str, Picture]:
        """The newest of each camera."""
        ...

    def order(self, order: Order) -> None:
        """Somebody has pressed a button."""
        ...

    def play(self, told: Player) -> None:
        """Somebody moves a recorded run."""
        ...

    def refuse(self, what: str, why: str) -> None:
        """What came from a browser was no order."""
        ...
