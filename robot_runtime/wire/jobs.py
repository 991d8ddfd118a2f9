"""Requests on their way through the server: `Job`, and the `Line` they wait in.

    robot a   a1  a2  a3 ─┐
    robot b   b1         ─┼─►  a1  b1  c1  a2  c2  a3
    robot c   c1  c2     ─┘

Robots are served in turn, the requests of one robot oldest first.
"""

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from robot_runtime.core.request import ChunkRequest
from robot_runtime.wire.order import follows


class Job(Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """A request on its way through the server."""

    peer: bytes
    request: ChunkRequest
    """As it came; once it runs, as the policy is to see it."""
    received_ns: int
    """Server's clock."""
    expires_ns: int
    """The same."""

    @property
    def identity(self) -> tuple[int, int]:
        """Request id and epoch."""
        return self.request.request_id, self.request.epoch


class Line:
    """The jobs that wait. One robot has at most MAX_IN_FLIGHT + 1: all but the newest are named by it."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, deque[Job]] = {}  # robots in the order of their turns; no empty ones

    def put(self, job: Job) -> list[Job]:
        """Let a job wait; the robot keeps its turn. Returns those that gave way: it does not follow them."""
        older = self._waiting.get(job.peer, ())
        gave_way = [j for j in older if not follows(job.request, j.request)]
        self._waiting[job.peer] = deque([*(j for j in older if follows(job.request, j.request)), job])
        return gave_way

    def take(self, may_start: Callable[[Job], bool]) -> Job | None:
        """The oldest job of the first robot whose oldest may start; the robot's next turn is its last."""
        for peer, jobs in self._waiting.items():
            if may_start(jobs[0]):
                job = jobs.popleft()
                del self._waiting[peer]
                if jobs:
                    self._waiting[peer] = jobs
                return job
        return None

    def remove(self, job: Job) -> None:
        """Take a job out; nothing happens if it does not wait."""
        jobs = self._waiting.get(job.peer, deque())
        if job in jobs:
            jobs.remove(job)
            if not jobs:
                del self._waiting[job.peer]

    def forget(self, peer: bytes) -> None:
        """Take a robot out, and all that it waits for."""
        self._waiting.pop(peer, None)

    def jobs(self) -> list[Job]:
        """All that wait."""
        return [job for jobs in self._waiting.values() for job in jobs]
