"""Converts demonstrations to other rows: end-effector poses in the world instead of in the base, say."""

from collections.abc import Sequence

from policies.flow.dataset import Demonstration
from policies.flow.demonstrations import StoredDemonstration
from robot_runtime.core.values.action import ActionChunk, ActionSpec
from robot_runtime.core.values.waypoints import Waypoints


def relabelled(
    demonstrations: Sequence[Demonstration], spec: ActionSpec, to: ActionSpec
) -> list[StoredDemonstration]:
    """Each demonstration's rows of `spec` as rows of `to`, which give the same commands."""
    out = []
    for d in demonstrations:
        chunk = ActionChunk(spec=spec, rows=d.rows, anchor=d.observation.state, request_id=0, epoch=0)
        rows = Waypoints.from_chunk(chunk).encode(to, d.observation.state)
        out.append(StoredDemonstration(observation=d.observation, rows=rows, num_committed=d.num_committed))
    return out
