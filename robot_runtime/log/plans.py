"""The plan for people: `Plans` computes the path of an answer's rows, by column, when they enter the plan and
when all of them have arrived.

    /plan   {"request": 7, "due_ns": [...], "first_row": 3, "columns": {"arm.joint_1": [...], ...}}

Rows before `first_row` were settled when the answer arrived: they belong to it and never run. Times are of
the run's clock [ns]; grippers and plain numbers are left out, as they are not drawn.
"""

from typing import Any

import numpy as np

from robot_runtime.core.journal import PartCame
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import ActionChunk, ActionSpec
from robot_runtime.core.values.columns import POSE
from robot_runtime.core.values.fields import joint_names
from robot_runtime.core.values.schema import ArmSchema, Schema
from robot_runtime.core.values.waypoints import Waypoints

MAX_OPEN = 64
"""Maximum number of requests whose rows are gathered."""


class Plans:
    """Joins the parts of answers; one thread owns it."""

    def __init__(self, schema: Schema, spec: ActionSpec) -> None:
        """spec: of the policy's rows."""
        self._schema, self._spec = schema, spec
        self._asked: dict[int, tuple[ChunkRequest, list[np.ndarray]]] = {}
        self._placed: dict[int, tuple[int, int]] = {}

    def asked(self, request: ChunkRequest) -> None:
        """Note a request whose answer will come."""
        self._asked[request.request_id] = request, []
        for known in (self._asked, self._placed):
            while len(known) > MAX_OPEN:
                del known[next(iter(known))]

    def of_part(self, entry: PartCame) -> dict[str, Any] | None:
        """The message for a part that has arrived; None: there is nothing new to draw."""
        part, splice = entry.part, entry.splice
        if (asked := self._asked.get(part.request_id)) is None:
            return None
        request, rows = asked
        rows.append(part.rows)
        if splice is not None and splice.seam.first_row is not None:
            self._placed[part.request_id] = splice.t0_ns, splice.seam.first_row
        elif not part.is_last:
            return None
        if part.is_last:
            del self._asked[part.request_id]
        if (placed := self._placed.get(part.request_id)) is None:
            return None
        t0_ns, first_row = placed
        try:
            columns = self._columns(request, np.concatenate(rows))
        except ValueError:  # invalid rows: the executor has reported them
            return None
        num = len(next(iter(columns.values()), ()))
        due = [t0_ns + i * self._spec.dt_ns for i in range(num)]
        return {"request": part.request_id, "due_ns": due, "first_row": first_row, "columns": columns}

    def _columns(self, request: ChunkRequest, rows: np.ndarray) -> dict[str, list[float]]:
        chunk = ActionChunk(
            spec=self._spec,
            rows=rows,
            anchor=request.observation.state,
            request_id=request.request_id,
            epoch=request.epoch,
        )
        out: dict[str, list[float]] = {}
        for (part, quantity), values in Waypoints.from_chunk(chunk).rows_of.items():
            match quantity:
                case "q":
                    names = self._joints(part, values.shape[1])
                case "p_BE":
                    names = ("x", "y", "z")
                case "x_WB":
                    names = POSE
                case _:
                    continue
            out |= {f"{part}.{name}": values[:, i].tolist() for i, name in enumerate(names)}
        return out

    def _joints(self, part: str, num: int) -> tuple[str, ...]:
        schema = self._schema.parts.get(part)
        return (
            schema.names if isinstance(schema, ArmSchema) and len(schema.names) == num else joint_names(num)
        )
