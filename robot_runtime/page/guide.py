"""What the page of a calibration shows: `Guide`, made by the command, drawn by the browser unchanged.

    the command ── GuidePageConfig, then Messages ─► its page's process ── Guide, JSON ─► browsers

Words, numbers and limits come from the command, which prints the same: the page computes nothing.
"""

from msgspec import Struct


class Mark(Struct, frozen=True, kw_only=True):
    """One of several things that are needed."""

    name: str
    text: str = ""
    """How much of it is there."""
    is_there: bool


class Gauge(Struct, frozen=True, kw_only=True):
    """A number against its limit."""

    name: str
    text: str
    """The number and the limit, with units; empty: unknown."""
    share: float = 0.0
    """The number as a share of the bar's scale, from 0 to 1."""
    limit_share: float | None = None
    """The limit on that scale; None: at its end."""
    is_good: bool = True


class Cells(Struct, frozen=True, kw_only=True):
    """Parts of the image, row after row from its top left: which of them were seen often enough."""

    rows: int
    columns: int
    are_filled: tuple[bool, ...]


class Judged(Struct, frozen=True, kw_only=True):
    """One finding about a result."""

    name: str
    text: str
    is_fatal: bool


class End(Struct, frozen=True, kw_only=True):
    """The result of the command."""

    text: str
    is_good: bool
    reasons: tuple[Judged, ...] = ()
    rows: tuple[tuple[str, str], ...] = ()
    """The result: names and values."""


class Guide(Struct, frozen=True, kw_only=True):
    """All that is shown at one moment."""

    title: str
    do: str = ""
    """What to do next, in large letters."""
    problem: str = ""
    """Why the image is not usable as a view; empty: it is."""
    num_taken: int = 0
    num_wanted: int | None = None
    """None: nothing is counted."""
    corners: tuple[tuple[float, float], ...] = ()
    """Corners found in the image, as shares of its width and height."""
    cells: Cells | None = None
    marks_name: str = ""
    marks: tuple[Mark, ...] = ()
    gauges: tuple[Gauge, ...] = ()
    end: End | None = None
    """None: it goes on."""


class Message(Struct, frozen=True, kw_only=True):
    """What the command sends its page."""

    guide: Guide
    jpeg: bytes = b""
    """The image in which the corners are; empty: the last one."""


class GuidePageConfig(Struct, frozen=True, kw_only=True, tag="guide"):
    """Where the page listens, as one line of JSON before all messages."""

    host: str
    port: int
    is_exact: bool
    """Whether only this port will do; otherwise a free one is used if it is taken."""
