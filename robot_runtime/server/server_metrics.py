"""Counters of a server, updated where things happen: `ServerMetrics`. Written by the network thread."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from robot_runtime.core.values.action import NS_PER_S, ChunkPart
from robot_runtime.wire.server_session import RobotSeen

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SIZES = (1, 2, 4, 8, 16, 32)


class Histogram:
    """Counts values up to each bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """Counts of each bucket alone; the last is beyond all bounds."""
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one more value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


def _seconds() -> Histogram:
    return Histogram(SECONDS)


@dataclass(kw_only=True, eq=False)
class ServerMetrics:
    """Any other thread only reads; a reader may see a batch half counted."""

    clients: int = 0
    waiting: int = 0
    """Requests that no batch has taken yet."""
    is_ready: bool = False
    """Whether it accepts requests: false before the policy is warm and while the server shuts down."""
    warm: tuple[str, ...] = ()
    """Sampler parts that are warm."""
    max_batch: int = 0
    """The largest batch of the usual sampler part."""
    pieces_to_warm: int = 0
    """Pieces of warming up that are left (`server.warming`)."""
    requests: Counter[str] = field(default_factory=Counter)
    """Requests by outcome: answered, a `DropReason`, or an `ErrorCode`."""
    ignored: Counter[str] = field(default_factory=Counter)
    """Packets without effect, by cause."""
    turned_away: Counter[str] = field(default_factory=Counter)
    """Connections that failed to greet or were cut, by cause: counted for the server, in its first policy."""
    batch_size: Histogram = field(default_factory=lambda: Histogram(SIZES))
    queue_s: Histogram = field(default_factory=_seconds)
    """From receipt of a request to the start of inference [s]."""
    first_rows_s: Histogram = field(default_factory=_seconds)
    """From the start of inference to a request's first rows [s]."""
    infer_s: Histogram = field(default_factory=_seconds)
    """Inference time of a batch [s]."""
    rows_sent: int = 0
    rows_unwanted: int = 0
    """Rows that were final when no robot wanted them any more."""
    robots: tuple[RobotSeen, ...] = ()
    """Connected robots, a moment ago."""
    bytes_received: int = 0
    bytes_sent: int = 0

    def batch_started(self, queue_ns: Sequence[int]) -> None:
        """Count a batch that starts, of requests that have waited for these times [ns]."""
        self.batch_size.add(len(queue_ns))
        for waited_ns in queue_ns:
            self.queue_s.add(waited_ns / NS_PER_S)

    def rows_final(self, part: ChunkPart, *, is_wanted: bool) -> None:
        """Count rows of a request that are final."""
        if part.first_row == 0:
            self.first_rows_s.add(part.infer_ns / NS_PER_S)
        if is_wanted:
            self.rows_sent += len(part.rows)
        else:
            self.rows_unwanted += len(part.rows)
