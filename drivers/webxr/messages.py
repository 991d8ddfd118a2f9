"""What the page says, and what the server's process reports of it."""

import math

from msgspec import Struct

MAX_BYTES = 4096
"""Of one message of a page."""
_FAR = 100.0
"""No hand is so far from where its page began [m], and no stick beyond 1."""


class Hand(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One controller, or the phone itself."""

    p: tuple[float, float, float]
    """In WebXR's local space [m]: x right, y up, z towards the person."""
    q: tuple[float, float, float, float]
    """Unit quaternion wxyz."""
    clutch: bool
    grip: float | None = None
    """How far its trigger is pressed, 0 to 1; None: it has none."""


class Sticks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two sticks and a pair of buttons on a touch screen, each -1 to 1: up and left count up."""

    left: tuple[float, float]
    """(ahead, left) of the left stick."""
    right: tuple[float, float]
    """(up, turn) of the right stick."""
    grip: float = 0.0
    """1 opens, -1 closes."""
    held: bool = False
    """Whether a finger is on any of them."""
    base: bool = False
    """They drive the base, and not the hand."""


class PageMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of a page's, some 60 a second."""

    n: int
    """Counts up from 1."""
    t: float
    """When the poses are of, by the page's clock [ms]."""
    hands: dict[str, Hand] = {}
    """left, right: controllers; phone: the phone."""
    sticks: Sticks | None = None
    base: tuple[float, float, float] | None = None
    """(ahead, left, turn) of controllers' sticks, -1 to 1."""
    order: str = ""
    """A button that was pressed since the message before: one of `ORDERS`."""

    def fault(self) -> str:
        """What is wrong with its numbers; empty: nothing."""
        for name, hand in self.hands.items():
            if name not in ("left", "right", "phone"):
                return f"a hand is left, right or phone, got {name!r:.40}"
            if not all(math.isfinite(x) and abs(x) < _FAR for x in hand.p):
                return f"the place of hand {name} is none: {hand.p}"
            if not 0.5 < math.hypot(*hand.q) < 2.0:
                return f"the quaternion of hand {name} is none: {hand.q}"
            if hand.grip is not None and not 0.0 <= hand.grip <= 1.0:
                return f"the trigger of hand {name} is 0 to 1, got {hand.grip}"
        numbers = list(self.base or ())
        if self.sticks is not None:
            numbers += [*self.sticks.left, *self.sticks.right, self.sticks.grip]
        if not all(-1.001 <= x <= 1.001 for x in numbers):
            return f"sticks say -1 to 1, got {numbers}"
        if not math.isfinite(self.t) or self.n < 1:
            return "a message has a number from 1 on and a time"
        return ""


class Config(Struct, frozen=True, kw_only=True):
    """Of the server's process."""

    host: str
    port: int
    token: str
    certificate: str
    key: str
    """Files; empty: plain http, which browsers take for safe on this machine alone."""
    stale_ms: float


class RunStatus(Struct, frozen=True, kw_only=True):
    """What the robot's side says to the page."""

    parts: tuple[str, ...] = ()
    """Hands that can be led."""
    bases: tuple[str, ...] = ()
    mode: str = ""
    """run, hold or stop; empty: not known yet."""
    cause: str = ""
    led: bool = False
    """Whether anything follows."""
    episode: str = ""
    refused: str = ""


class Report(Struct, frozen=True, kw_only=True):
    """What the server's process knows."""

    t_ns: int
    """When what the page said was so, on this machine's monotonic clock; 0: nothing yet."""
    hands: dict[str, Hand] = {}
    sticks: Sticks | None = None
    base: tuple[float, float, float] | None = None
    orders: tuple[tuple[int, str], ...] = ()
    """The last ones, each with its number."""
    page: str = ""
    """Where the page that leads is; empty: nobody."""
    num_dropped: int = 0
    """Messages that were too old, or came out of turn."""
    num_refused: int = 0
    """Messages that were none."""
