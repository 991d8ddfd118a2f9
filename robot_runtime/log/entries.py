"""What a log is told beside the journal of its executor: `LogEntry`."""

from msgspec import Struct

from robot_runtime.core.orders import EpisodeMark, TakenOrder
from robot_runtime.core.values.command import Command


class Line(Struct, frozen=True, gc=False):
    """A line of the run's log."""

    t_ns: int
    text: str
    is_routine: bool = True


class Sent(Struct, frozen=True, gc=False):
    """What the drivers made of the tick's command; it follows its tick."""

    command: Command


class Timed(Struct, frozen=True, gc=False):
    """How the control loop kept time with this tick."""

    now_ns: int
    lateness_ns: int
    """How long after its deadline it began [ns]."""
    num_skipped: int
    """Deadlines before it that passed unserved."""
    took_ns: int
    """From its begin to the command on its way [ns]."""


class Fault(Struct, frozen=True, gc=False):
    """Something that should not have happened."""

    t_ns: int
    text: str


class Arrived(Struct, frozen=True, gc=False):
    """Rows of an answer came off the network; the executor took them after that."""

    request_id: int
    sent_ns: int
    """When the request was handed to the network [ns]."""
    arrived_ns: int


LogEntry = Arrived | Line | Sent | Timed | Fault | TakenOrder | EpisodeMark
