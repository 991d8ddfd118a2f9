"""What the page of a calibration shows: `Guide`, made by the command, drawn by a browser as it is.

    the command ── GuidePageConfig, then Messages ─► its page's process ── Guide, JSON ─► browsers

Words, numbers and what is enough come from the command, which prints the same: nothing is computed here.
"""

from msgspec import Struct


class Mark(Struct, frozen=True, kw_only=True):
    """One of several things that are wanted."""

    name: str
    text: str = ""
    """How much of it there is."""
    is_there: bool


class Gauge(Struct, frozen=True, kw_only=True):
    """A number against its limit."""

    name: str
    text: str
    """The number and the limit, with units; empty: it is not known now."""
    share: float = 0.0
    """Of the scale that a bar shows, from 0 to 1."""
    limit_share: float | None = None
    """Where on it the limit is; None: at its end."""
    is_good: bool = True


class Cells(Struct, frozen=True, kw_only=True):
    """Parts of the picture, row after row from its top left: which of them were seen often enough."""

    rows: int
    columns: int
    are_filled: tuple[bool, ...]


class Judged(Struct, frozen=True, kw_only=True):
    """One thing that was found about a result."""

    name: str
    text: str
    is_fatal: bool


class End(Struct, frozen=True, kw_only=True):
    """What the command came to."""

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
    """What keeps the picture from being a view; empty: nothing does."""
    num_taken: int = 0
    num_wanted: int | None = None
    """None: nobody counts."""
    corners: tuple[tuple[float, float], ...] = ()
    """Found in the picture, as shares of its width and height."""
    cells: Cells | None = None
    marks_name: str = ""
    marks: tuple[Mark, ...] = ()
    gauges: tuple[Gauge, ...] = ()
    end: End | None = None
    """None: it goes on."""


class Message(Struct, frozen=True, kw_only=True):
    """What the command tells its page."""

    guide: Guide
    jpeg: bytes = b""
    """The picture in which the corners are; none: as before."""


class GuidePageConfig(Struct, frozen=True, kw_only=True, tag="guide"):
    """Where the page is to be, as one line of JSON before all messages."""

    host: str
    port: int
    is_exact: bool
    """Whether only this port will do; else a free one, if it is in use."""
