"""Entries of a log beside the journal of its executor: `LogEntry`."""

from msgspec import Struct

from robot_runtime.core.orders import EpisodeMark, TakenOrder
from robot_runtime.core.values.command import Command


class Line(Struct, frozen=True, gc=False):
    """A line of the run's log."""

    t_ns: int
    text: str
    is_routine: bool = True


class Sent(Struct, frozen=True, gc=False):
    """The command that the drivers sent for the tick before it."""

    command: Command


class Timed(Struct, frozen=True, gc=False):
    """Timing of the control loop in this tick."""

    now_ns: int
    lateness_ns: int
    """Start of the tick after its deadline [ns]."""
    num_skipped: int
    """Deadlines before it that were missed."""
    took_ns: int
    """From its start until its command was sent [ns]."""


class Fault(Struct, frozen=True, gc=False):
    """Something that should not have happened."""

    t_ns: int
    text: str


class Arrived(Struct, frozen=True, gc=False):
    """Rows of an answer have arrived from the network; the executor took them after that."""

    request_id: int
    sent_ns: int
    """When the request was passed to the network [ns]."""
    arrived_ns: int


LogEntry = Arrived | Line | Sent | Timed | Fault | TakenOrder | EpisodeMark
