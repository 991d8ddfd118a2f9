"""Requests on their way through the server: `QueuedRequest`, and the `Line` they wait in.

    robot a   a1  a2  a3 ─┐
    robot b   b1         ─┼─►  one of each robot that may start, most urgent first:  a1  b1  c1
    robot c   c1  c2     ─┘

The requests of one robot are served oldest first. A robot is as urgent as the deadline of the oldest request
that it has made since its last turn: one that gives way to a newer request leaves it its place. Of those as
urgent, the one whose last turn is longest ago comes first.
"""

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from robot_runtime.core.policy import ChunkRequest
from robot_runtime.wire.arrays import Picture


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
    """The jobs that wait. One robot has at most MAX_IN_FLIGHT + 1: all but the newest are named by it."""

    def __init__(self) -> None:
        self.num_bytes = 0
        """What all of them hold of memory."""
        self._waiting: dict[bytes, deque[QueuedRequest]] = {}  # no empty ones
        self._place_ns: dict[bytes, int] = {}  # of the same robots

    def put(self, job: QueuedRequest) -> list[QueuedRequest]:
        """Let a job wait; the robot keeps its place. Returns those that gave way: it does not follow them."""
        older = self._waiting.get(job.peer, ())
        gave_way = [j for j in older if not job.request.follows(j.request)]
        self._waiting[job.peer] = deque([*(j for j in older if job.request.follows(j.request)), job])
        self._place_ns.setdefault(job.peer, job.expires_ns)
        self.num_bytes += job.num_bytes - sum(j.num_bytes for j in gave_way)
        return gave_way

    def heads(self, may_start: Callable[[QueuedRequest], bool]) -> list[QueuedRequest]:
        """The oldest job of every robot whose oldest may start, most urgent first."""
        startable = [jobs[0] for jobs in self._waiting.values() if may_start(jobs[0])]
        return sorted(startable, key=lambda job: self._place_ns[job.peer])

    def largest(self) -> QueuedRequest:
        """The oldest job of the robot whose jobs hold most; there must be some."""
        return max(self._waiting.values(), key=lambda jobs: sum(job.num_bytes for job in jobs))[0]

    def remove(self, job: QueuedRequest) -> None:
        """Take a job out, and its robot's turn with it; nothing happens if it does not wait."""
        jobs = self._waiting.get(job.peer, deque())
        if job not in jobs:
            return
        self.forget(job.peer)
        jobs.remove(job)
        if jobs:
            self._waiting[job.peer] = jobs
            self._place_ns[job.peer] = jobs[0].expires_ns
            self.num_bytes += sum(j.num_bytes for j in jobs)

    def forget(self, peer: bytes) -> None:
        """Take a robot out, and all that it waits for."""
        self.num_bytes -= sum(job.num_bytes for job in self._waiting.pop(peer, ()))
        self._place_ns.pop(peer, None)

    def jobs(self) -> list[QueuedRequest]:
        """All that wait."""
        return [job for jobs in self._waiting.values() for job in jobs]
