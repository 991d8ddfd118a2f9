"""Requests in the server: `QueuedRequest`, and the `RequestQueue` that holds them.

    robot a   a1  a2  a3 ─┐
    robot b   b1         ─┼─►  one of each robot that may start, most urgent first:  a1  b1  c1
    robot c   c1  c2     ─┘

Requests of one robot are served oldest first. A robot's urgency is the deadline of the oldest request
that it has made since its last turn: a request that is replaced by a newer one leaves it its rank. Among
equals, the robot whose last turn is longest ago comes first. A robot has one request running, and starts none
that follows it before it has ended.

A request is over with its last row, for one of the causes in the table below, which its robot is informed of,
or when its robot leaves.
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
"""Limit for all waiting requests, encoded images and plans included."""


class _Stage(Enum):
    NEW = "it has arrived, and is checked"
    WAITS = "in the queue"
    RUNS = "the policy computes it"
    OVER = "it is no longer wanted"


ENDS = MappingProxyType(
    {
        (
            _Stage.NEW,
            ErrorCode.BAD_REQUEST,
        ): "does not fit the policy, or takes longer than its answer is of use",
        (_Stage.NEW, ErrorCode.PICTURES_LOST): "names images that the previous one did not have",
        (_Stage.NEW, DropReason.CLOSING): "the server is shutting down",
        (_Stage.WAITS, DropReason.SUPERSEDED): "its robot has made another request, which does not name it",
        (_Stage.WAITS, DropReason.CANCELLED): "its robot no longer wants the answer",
        (_Stage.WAITS, DropReason.DEADLINE): "it was not answered in time",
        (_Stage.WAITS, DropReason.OVERLOADED): "too late, or its robot holds most of the memory",
        (_Stage.RUNS, DropReason.SUPERSEDED): "another request of its robot starts, which does not name it",
        (_Stage.RUNS, DropReason.CANCELLED): "its robot no longer wants the answer",
        (_Stage.RUNS, DropReason.OVERLOADED): "its rows are no longer of use, and others wait",
        (_Stage.RUNS, DropReason.DEADLINE): "its last row was not ready in time",
        (_Stage.RUNS, ErrorCode.BAD_REQUEST): "the policy rejects it, or its plan is invalid",
        (_Stage.RUNS, ErrorCode.INTERNAL): "the policy has failed",
    }
)
"""Stage of a request, and why it ends without its last row. A pair that is not here changes nothing."""


class QueuedRequest(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """A request in the server."""

    peer: bytes
    request: ChunkRequest
    """As received; once it runs, as the policy gets it. Its images are in `pictures`."""
    pictures: tuple[Picture, ...] = ()
    """Encoded images; the process of the policy opens them."""
    received_ns: int
    """Server's clock [ns]."""
    expires_ns: int
    """Server's clock [ns]."""

    @property
    def identity(self) -> tuple[int, int]:
        """Request id and epoch."""
        return self.request.request_id, self.request.epoch

    @property
    def num_bytes(self) -> int:
        """The memory that it takes while it waits [bytes]."""
        planned = self.request.prev_action_chunk
        return sum(len(p.buffer) for p in self.pictures) + (0 if planned is None else planned.nbytes)


class RequestQueue:
    """The requests of one policy. A robot has at most MAX_IN_FLIGHT + 1: the newest names all the others."""

    def __init__(self, tell: Callable[[bytes, Dropped | ErrorReply], None]) -> None:
        """tell: informs a robot how one of its requests has ended."""
        self.outcomes: Counter[str] = Counter()
        """Requests by how they ended: answered, a `DropReason`, an `ErrorCode`; none of robots that left."""
        self._tell = tell
        self._num_bytes = 0  # of the waiting requests
        self._waiting: dict[bytes, deque[QueuedRequest]] = {}  # no empty ones
        self._rank_ns: dict[bytes, int] = {}  # of the same robots
        self._running: dict[bytes, QueuedRequest] = {}

    @property
    def num_waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def jobs(self) -> list[QueuedRequest]:
        """All that wait or run."""
        return [*(job for jobs in self._waiting.values() for job in jobs), *self._running.values()]

    def put(self, job: QueuedRequest) -> None:
        """Let a job wait. It replaces those of its robot that it does not follow, and takes their rank."""
        older = self._waiting.get(job.peer, ())
        gave_way = [j for j in older if not job.request.follows(j.request)]
        self._waiting[job.peer] = deque([*(j for j in older if job.request.follows(j.request)), job])
        self._rank_ns.setdefault(job.peer, job.expires_ns)
        self._num_bytes += job.num_bytes - sum(j.num_bytes for j in gave_way)
        for each in gave_way:
            self._report_end(each.peer, each.request, DropReason.SUPERSEDED, "")
        while self._num_bytes > MAX_QUEUED_BYTES:
            of_most = max(self._waiting.values(), key=lambda jobs: sum(job.num_bytes for job in jobs))
            self.end(of_most[0], DropReason.OVERLOADED)

    def startable(self) -> list[QueuedRequest]:
        """Return the oldest job of every robot whose oldest may start, most urgent first."""
        heads = [jobs[0] for jobs in self._waiting.values() if self._may_start(jobs[0])]
        return sorted(heads, key=lambda job: self._rank_ns[job.peer])

    def start(
        self, job: QueuedRequest, shown: Callable[[ChunkRequest], ChunkRequest]
    ) -> QueuedRequest | None:
        """Start a waiting job; it replaces a running job of its robot.

        shown: the request as the policy gets it; ValueError if its plan is invalid. Returns the job
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
        """Note that a running job has got its last row."""
        del self._running[job.peer]
        self.outcomes["answered"] += 1

    def end(self, job: QueuedRequest, cause: DropReason | ErrorCode, message: str = "") -> None:
        """End a job without its last row and inform its robot, if the pair is in `ENDS`.

        message: of an error.
        """
        stage = self._stage_of(job)
        if (stage, cause) not in ENDS:
            return
        if stage is _Stage.WAITS:
            self._take_out(job)
        else:
            del self._running[job.peer]
        self._report_end(job.peer, job.request, cause, message)

    def refuse(
        self, peer: bytes, request: ChunkRequest, cause: DropReason | ErrorCode, message: str = ""
    ) -> None:
        """Refuse a received request and inform its robot; as `end`."""
        assert (_Stage.NEW, cause) in ENDS
        self._report_end(peer, request, cause, message)

    def forget(self, peer: bytes) -> None:
        """Drop the requests of a robot that has left, without a reply."""
        self._running.pop(peer, None)
        self._drop_waiting(peer)

    def _stage_of(self, job: QueuedRequest) -> _Stage:
        if self.is_running(job):
            return _Stage.RUNS
        return _Stage.WAITS if job in self._waiting.get(job.peer, ()) else _Stage.OVER

    def _may_start(self, job: QueuedRequest) -> bool:
        running = self._running.get(job.peer)
        return running is None or not job.request.follows(running.request)

    def _take_out(self, job: QueuedRequest) -> None:
        """Remove a job from those that wait, and its robot's rank with it."""
        jobs = self._waiting[job.peer]
        self._drop_waiting(job.peer)
        jobs.remove(job)
        if jobs:
            self._waiting[job.peer] = jobs
            self._rank_ns[job.peer] = jobs[0].expires_ns
            self._num_bytes += sum(j.num_bytes for j in jobs)

    def _drop_waiting(self, peer: bytes) -> None:
        self._num_bytes -= sum(job.num_bytes for job in self._waiting.pop(peer, ()))
        self._rank_ns.pop(peer, None)

    def _report_end(
        self, peer: bytes, request: ChunkRequest, cause: DropReason | ErrorCode, message: str
    ) -> None:
        self.outcomes[cause.value] += 1
        match cause:
            case DropReason():
                ids = {"request_id": request.request_id, "epoch": request.epoch}
                self._tell(peer, Dropped(**ids, reason=cause))
            case ErrorCode():
                self._tell(peer, ErrorReply.to(request, cause, message))
