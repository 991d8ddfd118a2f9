"""Overlapping requests: the commands that the robot will have been sent by the time an answer starts.

    capture of request k-2    |------- d -------●---------        answer k-2, from its row d on
    capture of request k-1        |------- d -------●-----        answer k-1
    capture of request k              |.....|...|...○---------    its committed rows: the robot's plan,
                                       plan  k-2 k-1              then answer k-2's rows, then answer k-1's

When the robot asks for the third time it has neither of the first two answers and cannot show the policy
their rows; the server that computes them in turn can. Without them, every answer continues a plan that the
answer before has already replaced, and a robot that asks often makes no progress.
"""

from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import ActionChunk, ActionSpec
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.timed_waypoints import TimedWaypoints, pick_rows, with_rows
from robot_runtime.core.values.waypoints import Waypoints


@dataclass(kw_only=True, eq=False)
class _Answer:
    """The rows of one answer that were sent so far."""

    request: ChunkRequest
    blocks: list[np.ndarray]
    timed: TimedWaypoints | None = None
    """Its rows as absolute targets, computed on demand."""


class OpenAnswers:
    """The last answers to one robot, which it may not have received yet; kept where the policy runs.

    Rows are kept as they were sent and decoded only if a later request names them: a robot with one open
    request at a time pays nothing. An answer that a request does not name when it starts is dropped; a later
    one cannot name it. The rows sent of an answer that was given up count: the robot runs them.
    """

    def __init__(self, spec: ActionSpec) -> None:
        self._spec = spec
        self._answers: dict[int, _Answer] = {}

    def add(self, request: ChunkRequest, rows: Float[np.ndarray, "m D"]) -> None:
        """Remember the next rows of an answer."""
        answer = self._answers.setdefault(request.request_id, _Answer(request=request, blocks=[]))
        answer.blocks.append(rows)
        answer.timed = None

    def shown(self, request: ChunkRequest) -> ChunkRequest:
        """The request as the policy should see it: its plan with the rows of the answers still open.
        ValueError: its plan cannot be decoded.

        A request without a plan, or without open answers, is returned as it is. An answer that is not known
        here (it was given up, or made elsewhere) changes nothing.
        """
        self._answers = {i: self._answers[i] for i in request.in_flight if i in self._answers}
        plan = request.prev_action_chunk
        answers = [answer for answer in self._answers.values() if answer.request.epoch == request.epoch]
        if plan is None or not answers:
            return request
        state, dt_ns = request.observation.state, self._spec.dt_ns
        due_ns = state.t_ns + np.arange(self._spec.horizon) * dt_ns
        planned, num_planned = self._timed(request, plan).at(due_ns), len(plan)
        for answer in answers:
            earlier, timed = answer.request, self._timed_rows(answer)
            start_ns = (
                earlier.observation.state.t_ns + earlier.inference_delay * dt_ns
            )  # what is not committed
            rows = np.flatnonzero((due_ns >= start_ns) & timed.covers(due_ns))
            if len(rows) > 0 and rows[0] <= num_planned:
                # Past a short answer's end the robot is stationary, which is a commitment as well.
                num_planned = max(int(rows[-1]) + 1, request.inference_delay)
                rows = np.arange(rows[0], num_planned)
                planned = with_rows(planned, int(rows[0]), timed.at(due_ns[rows]))
        planned = pick_rows(planned, np.arange(num_planned))
        return replace(request, prev_action_chunk=planned.encode(self._spec, state))

    def _timed_rows(self, answer: _Answer) -> TimedWaypoints:
        if answer.timed is None:
            answer.timed = self._timed(answer.request, np.concatenate(answer.blocks))
        return answer.timed

    def _timed(self, request: ChunkRequest, rows: Float[np.ndarray, "m D"]) -> TimedWaypoints:
        """Rows as absolute targets; row 0 is due at the observation."""
        anchor = request.observation.state
        chunk = ActionChunk(
            spec=self._spec, rows=rows, anchor=anchor, request_id=request.request_id, epoch=request.epoch
        )
        return TimedWaypoints(
            waypoints=Waypoints.from_chunk(chunk), t0_ns=anchor.t_ns, dt_ns=self._spec.dt_ns
        )
