"""Requests on their way through the server: `QueuedRequest`, and the `RequestQueue` that holds them.

    robot a   a1  a2  a3 ─┐
    robot b   b1         ─┼─►  one of each robot that may start, most urgent first:  a1  b1  c1
    robot c   c1  c2     ─┘

The requests of one robot are served oldest first. A robot is as urgent as the deadline of the oldest request
that it has made since its last turn: one that gives way to a newer request leaves it its place. Of those as
urgent, the one whose last turn is longest ago comes first. A robot has one request running, and starts none
that follows it before it has ended.

A request is over with its last row, for one of the causes in the table below, of which its robot is told, or
when its robot leaves.
"""

from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from robot_runtime.core.policy import ChunkRequest
from robot_runtime.wire.arrays import Picture
from robot_runtime.wire.messages import Dropped, DropReason, ErrorCode, ErrorReply

MAX_QUEUED_BYTES = 512 * 1024 * 1024
"""Of all requests that wait, images and plans as they came."""


class _Place(Enum):
    NEW = "it has come, and is looked at"
    WAITS = "in the queue"
    RUNS = "the policy is at it"
    OVER = "nobody wants it any more"


ENDS = MappingProxyType(
    {
        (
            _Place.NEW,
            ErrorCode.BAD_REQUEST,
        ): "does not fit the policy, or takes longer than its answer is of use",
        (_Place.NEW, ErrorCode.PICTURES_LOST): "names pictures that the one before has not shown",
        (_Place.NEW, DropReason.CLOSING): "the server is on its way out",
        (_Place.WAITS, DropReason.SUPERSEDED): "its robot has asked anew, without naming it",
        (_Place.WAITS, DropReason.CANCELLED): "its robot does not want the answer any more",
        (_Place.WAITS, DropReason.DEADLINE): "nobody has answered it in time",
        (_Place.WAITS, DropReason.OVERLOADED): "too late, or its robot holds most of the memory",
        (_Place.RUNS, DropReason.SUPERSEDED): "another of its robot starts, which does not name it",
        (_Place.RUNS, DropReason.CANCELLED): "its robot does not want the answer any more",
        (_Place.RUNS, DropReason.OVERLOADED): "its rows are of no use any more, and others wait",
        (_Place.RUNS, DropReason.DEADLINE): "its last row has not come in time",
        (_Place.RUNS, ErrorCode.BAD_REQUEST): "the policy, or its plan, makes no sense of it",
        (_Place.RUNS, ErrorCode.INTERNAL): "the policy has failed",
    }
)
"""Where a request is, and why it is over without its last row. A pair that is not here changes nothing."""


class QueuedRequest(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """A request on its way through the server."""

    peer: bytes
    request: ChunkRequest
    """As it came; once it runs, as the policy is to see it. Its images are in `pictures`."""
    pictures: tuple[Picture, ...] = ()
    """As they came: who runs the policy opens them."""
    received_ns: int
    """Server's clock."""
    expires_ns: int
    """The same."""

    @property
    def identity(self) -> tuple[int, int]:
        """Request id and epoch."""
        return self.request.request_id, self.request.epoch

    @property
    def num_bytes(self) -> int:
        """Memory that it holds while it waits."""
        planned = self.request.prev_action_chunk
        return sum(len(p.buffer) for p in self.pictures) + (0 if planned is None else planned.nbytes)


class RequestQueue:
    """One policy's. A robot has at most MAX_IN_FLIGHT + 1: all but the newest are named by it."""

    def __init__(self, tell: Callable[[bytes, Dropped | ErrorReply], None]) -> None:
        """tell: says to a robot how one of its requests has ended."""
        self.outcomes: Counter[str] = Counter()
        """Requests by how they ended: answered, a `DropReason`, an `ErrorCode`; none of robots that left."""
        self._tell = tell
        self._num_bytes = 0  # that those hold which wait
        self._waiting: dict[bytes, deque[QueuedRequest]] = {}  # no empty ones
        self._place_ns: dict[bytes, int] = {}  # of the same robots
        self._running: dict[bytes, QueuedRequest] = {}

    @property
    def num_waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def jobs(self) -> list[QueuedRequest]:
        """All that wait or run."""
        return [*(job for jobs in self._waiting.values() for job in jobs), *self._running.values()]

    def put(self, job: QueuedRequest) -> None:
        """Let a job wait. Those of its robot that it does not follow give way, and leave it their place."""
        older = self._waiting.get(job.peer, ())
        gave_way = [j for j in older if not job.request.follows(j.request)]
        self._waiting[job.peer] = deque([*(j for j in older if job.request.follows(j.request)), job])
        self._place_ns.setdefault(job.peer, job.expires_ns)
        self._num_bytes += job.num_bytes - sum(j.num_bytes for j in gave_way)
        for each in gave_way:
            self._say_end(each.peer, each.request, DropReason.SUPERSEDED, "")
        while self._num_bytes > MAX_QUEUED_BYTES:
            of_most = max(self._waiting.values(), key=lambda jobs: sum(job.num_bytes for job in jobs))
            self.end(of_most[0], DropReason.OVERLOADED)

    def startable(self) -> list[QueuedRequest]:
        """The oldest job of every robot whose oldest may start, most urgent first."""
        heads = [jobs[0] for jobs in self._waiting.values() if self._may_start(jobs[0])]
        return sorted(heads, key=lambda job: self._place_ns[job.peer])

    def start(
        self, job: QueuedRequest, shown: Callable[[ChunkRequest], ChunkRequest]
    ) -> QueuedRequest | None:
        """A job that waits runs now; what its robot has running gives way.

        shown: the request as the policy is to see it; ValueError if its plan makes no sense. Returns the job
        with that request; None: it has none, and is over.
        """
        if (running := self._running.get(job.peer)) is not None:
            self.end(running, DropReason.SUPERSEDED)
        self._take_out(job)
        self._running[job.peer] = job
        try:
            request = shown(job.request)
        except ValueError as error:
            self.end(job, ErrorCode.BAD_REQUEST, str(error))
            return None
        if request is not job.request:
            job = self._running[job.peer] = replace(job, request=request)
        return job

    def is_running(self, job: QueuedRequest) -> bool:
        return self._running.get(job.peer) is job

    def answered(self, job: QueuedRequest) -> None:
        """A running job has got its last row."""
        del self._running[job.peer]
        self.outcomes["answered"] += 1

    def end(self, job: QueuedRequest, cause: DropReason | ErrorCode, message: str = "") -> None:
        """It is over without its last row, and its robot is told, if that is one of `ENDS`.

        message: of an error.
        """
        place = self._place_of(job)
        if (place, cause) not in ENDS:
            return
        if place is _Place.WAITS:
            self._take_out(job)
        else:
            del self._running[job.peer]
        self._say_end(job.peer, job.request, cause, message)

    def refuse(
        self, peer: bytes, request: ChunkRequest, cause: DropReason | ErrorCode, message: str = ""
    ) -> None:
        """A request that has come is not taken, and its robot is told; as `end`."""
        assert (_Place.NEW, cause) in ENDS
        self._say_end(peer, request, cause, message)

    def forget(self, peer: bytes) -> None:
        """A robot has left, and nobody is told of what it has asked."""
        self._running.pop(peer, None)
        self._drop_waiting(peer)

    def _place_of(self, job: QueuedRequest) -> _Place:
        if self.is_running(job):
            return _Place.RUNS
        return _Place.WAITS if job in self._waiting.get(job.peer, ()) else _Place.OVER

    def _may_start(self, job: QueuedRequest) -> bool:
        running = self._running.get(job.peer)
        return running is None or not job.request.follows(running.request)

    def _take_out(self, job: QueuedRequest) -> None:
        """Of those that wait, and its robot's turn with it."""
        jobs = self._waiting[job.peer]
        self._drop_waiting(job.peer)
        jobs.remove(job)
        if jobs:
            self._waiting[job.peer] = jobs
            self._place_ns[job.peer] = jobs[0].expires_ns
            self._num_bytes += sum(j.num_bytes for j in jobs)

    def _drop_waiting(self, peer: bytes) -> None:
        self._num_bytes -= sum(job.num_bytes for job in self._waiting.pop(peer, ()))
        self._place_ns.pop(peer, None)

    def _say_end(
        self, peer: bytes, request: ChunkRequest, cause: DropReason | ErrorCode, message: str
    ) -> None:
        self.outcomes[cause.value] += 1
        match cause:
            case DropReason():
                ids = {"request_id": request.request_id, "epoch": request.epoch}
                self._tell(peer, Dropped(**ids, reason=cause))
            case ErrorCode():
                self._tell(peer, ErrorReply.to(request, cause, message))
