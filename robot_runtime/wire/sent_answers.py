"""What one robot was answered last, kept on the server until its next request starts: `SentAnswers`."""

import numpy as np

from robot_runtime.core.plan.overlap import OpenAnswers
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import ActionSpec


class SentAnswers:
    """Puts the streamed rows of each answer together, and shows them to the requests that follow it.

    Rows are kept as they were sent and looked at only if the next request names them: a robot that has one
    request under way at a time pays for nothing. What a request does not name when it starts is forgotten;
    a later one cannot want it. Of an answer that was given up, the rows that were sent count: the robot runs
    those.
    """

    def __init__(self, spec: ActionSpec) -> None:
        self._spec = spec
        self._open: OpenAnswers | None = None
        self._sent: dict[int, tuple[ChunkRequest, list[np.ndarray]]] = {}

    def add(self, request: ChunkRequest, rows: np.ndarray) -> None:
        """Remember the next rows of an answer."""
        self._sent.setdefault(request.request_id, (request, []))[1].append(rows)

    def shown(self, request: ChunkRequest) -> ChunkRequest:
        """A request that starts now, as the policy is to see it; ValueError if its plan cannot be read."""
        sent, self._sent = self._sent, {}
        if not request.in_flight:
            self._open = None
            return request
        if self._open is None:
            self._open = OpenAnswers(self._spec)
        for request_id in request.in_flight:
            if request_id in sent:
                earlier, blocks = sent[request_id]
                self._open.add(earlier, np.concatenate(blocks))
        return self._open.shown(request)
