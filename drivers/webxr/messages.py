"""Messages of the page, and reports of the server's process."""

import math

from msgspec import Struct

MAX_BYTES = 4096
"""Largest size of a page's message."""
_FAR = 100.0
"""No controller is this far from where its page began [m]."""


class Hand(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One controller, or the phone itself."""

    p: tuple[float, float, float]
    """In WebXR's local space [m]: x right, y up, z towards the person."""
    q: tuple[float, float, float, float]
    """Unit quaternion wxyz."""
    clutch: bool
    grip: float | None = None
    """How far its trigger is pressed, 0 to 1; None: no trigger."""


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
    """Whether they drive the base and not the end effector."""


class PageMessage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message of a page, some 60 per second."""

    n: int
    """Counts up from 1."""
    t: float
    """Time of the poses, by the page's clock [ms]."""
    hands: dict[str, Hand] = {}
    """left, right: controllers; phone: the phone."""
    sticks: Sticks | None = None
    base: tuple[float, float, float] | None = None
    """(ahead, left, turn) of controllers' sticks, -1 to 1."""
    order: str = ""
    """A button that was pressed since the previous message: one of `ORDERS`."""

    def fault(self) -> str:
        """Return what is wrong with its numbers; empty: nothing."""
        for name, hand in self.hands.items():
            if name not in ("left", "right", "phone"):
                return f"expected hand left, right or phone, got {name!r:.40}"
            if not all(math.isfinite(x) and abs(x) < _FAR for x in hand.p):
                return f"invalid position of hand {name}: {hand.p}"
            if not 0.5 < math.hypot(*hand.q) < 2.0:
                return f"invalid quaternion of hand {name}: {hand.q}"
            if hand.grip is not None and not 0.0 <= hand.grip <= 1.0:
                return f"expected a trigger of hand {name} from 0 to 1, got {hand.grip}"
        numbers = list(self.base or ())
        if self.sticks is not None:
            numbers += [*self.sticks.left, *self.sticks.right, self.sticks.grip]
        if not all(-1.001 <= x <= 1.001 for x in numbers):
            return f"expected sticks from -1 to 1, got {numbers}"
        if not math.isfinite(self.t) or self.n < 1:
            return "expected a message with a number from 1 on and a time"
        return ""


class Config(Struct, frozen=True, kw_only=True):
    """Settings of the server's process."""

    host: str
    port: int
    token: str
    certificate: str
    key: str
    """Files; empty: plain http, which browsers accept as safe on this machine only."""
    stale_ms: float


class RunStatus(Struct, frozen=True, kw_only=True):
    """The robot's state, for the page."""

    parts: tuple[str, ...] = ()
    """Arms whose end effectors can be driven."""
    bases: tuple[str, ...] = ()
    mode: str = ""
    """run, hold or stop; empty: unknown yet."""
    cause: str = ""
    led: bool = False
    """Whether any part follows."""
    episode: str = ""
    refused: str = ""


class Report(Struct, frozen=True, kw_only=True):
    """The state of the page, for the robot's side."""

    t_ns: int
    """Time of the page's state on this machine's monotonic clock [ns]; 0: none yet."""
    hands: dict[str, Hand] = {}
    sticks: Sticks | None = None
    base: tuple[float, float, float] | None = None
    orders: tuple[tuple[int, str], ...] = ()
    """The last ones, each with its number."""
    page: str = ""
    """Address of the page in control; empty: none."""
    num_dropped: int = 0
    """Messages that were too old, or out of order."""
    num_refused: int = 0
    """Invalid messages."""
