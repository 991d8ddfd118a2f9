"""The requests of the last seconds as a page draws them: `Chunks`, built from /chunk messages. Pure.

asked ●────────┐ came                               times since the start of the run
               └ spliced: first_s |██████ end_s|░░░░░░ last_s |
                                      has run      would run
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.log.config import RunInfo

MAX_CHUNKS = 200
WINDOW_S = 10.0
"""Older ones are not drawn."""


@dataclass(kw_only=True)
class Chunk:
    """The history of one request; times since the start of the run [s], None: not yet."""

    n: int
    """Number of its request."""
    asked_s: float
    came_s: float | None = None
    """When its first rows arrived, or when it became known that none would."""
    first_s: float | None = None
    """When its first row that runs is due."""
    last_s: float | None = None
    """When the last row received so far is due."""
    end_s: float | None = None
    """Up to when it has run."""
    state: str = "asked"
    """asked, streaming, waiting, running, done or dropped."""
    why: str = ""
    """Why it was dropped."""


class Chunks:
    """The chunks by request, oldest first."""

    def __init__(self) -> None:
        self.by_request: dict[int, Chunk] = {}
        self.latencies_ms: deque[float] = deque(maxlen=50)
        """From capture to the first rows of an answer."""
        self.came_s: deque[float] = deque(maxlen=MAX_CHUNKS)
        """When the first rows arrived."""
        self._running: int | None = None
        self._t0_s = self._start_ns = self._dt_s = 0.0
        self._horizon = 0

    def begin(self, info: RunInfo) -> None:
        """Take over what the run reports about its rows."""
        spec = info.policy.action_spec
        self._start_ns, self._dt_s, self._horizon = info.started_ns, spec.dt_ns / NS_PER_S, spec.horizon

    @property
    def _oldest(self) -> Chunk:
        return next(iter(self.by_request.values()))

    def goes_on(self, request: int | None, t_s: float) -> None:
        """Note that the running answer still runs."""
        if request is not None and (chunk := self.by_request.get(request)) is not None:
            chunk.end_s = t_s

    def take(self, t_s: float, message: Any) -> None:
        """Process a message of /chunk."""
        event, request = message["event"], message["request"]
        if event == "server lost":
            for each in self.by_request.values():
                if each.state in ("asked", "streaming"):
                    _drop(each, t_s, message.get("why", event))
            return
        if event == "asked":
            self.by_request[request] = Chunk(n=request, asked_s=t_s)
            while len(self.by_request) > MAX_CHUNKS or self._oldest.asked_s < t_s - WINDOW_S:
                del self.by_request[next(iter(self.by_request))]
            return
        chunk = self.by_request.get(request)
        if chunk is None:
            return
        match event:
            case "came":
                self._came(chunk, t_s, message)
            case "spliced":
                self._spliced(chunk, message)
            case "runs":
                self._runs(chunk, t_s)
            case "dropped" | "lost" if chunk.first_s is None:
                self._note_latency(chunk, t_s, message)
                _drop(chunk, t_s, message.get("why", event))

    def _came(self, chunk: Chunk, t_s: float, message: Any) -> None:
        self._note_latency(chunk, t_s, message)
        if chunk.state in ("asked", "streaming"):
            chunk.state = "waiting" if message["is_last"] else "streaming"
        if chunk.first_s is not None and chunk.last_s is not None:
            self._reaches(chunk, message["rows"][1])

    def _note_latency(self, chunk: Chunk, t_s: float, message: Any) -> None:
        if chunk.came_s is None:
            chunk.came_s = t_s
            if message.get("latency_ms") is not None:
                self.latencies_ms.append(message["latency_ms"])
                self.came_s.append(t_s)

    def _spliced(self, chunk: Chunk, message: Any) -> None:
        first = message["first_row"]
        if first is None:
            return
        self._t0_s = (message["row_0_due_ns"] - self._start_ns) / NS_PER_S
        chunk.first_s = self._t0_s + first * self._dt_s
        self._reaches(chunk, self._horizon)

    def _reaches(self, chunk: Chunk, num_rows: int) -> None:
        chunk.last_s = self._t0_s + (num_rows - 1) * self._dt_s

    def _runs(self, chunk: Chunk, t_s: float) -> None:
        before = None if self._running is None else self.by_request.get(self._running)
        if before is not None and before is not chunk:
            before.state, before.end_s = "done", t_s
        self._running, chunk.state, chunk.end_s = chunk.n, "running", t_s
        if chunk.first_s is not None:
            chunk.first_s = min(chunk.first_s, t_s)


def _drop(chunk: Chunk, t_s: float, why: str) -> None:
    chunk.state, chunk.why = "dropped", why
    chunk.came_s = t_s if chunk.came_s is None else chunk.came_s
