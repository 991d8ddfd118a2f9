"""Splicer parts: where in time a chunk goes into the plan.

capture        arrival
   |              |
   0   1   2   3  |             TimeAligned: row i due at capture + i*dt, rows 0..3 are past and drop out
                  0   1   2     FromRowZero: row i due at arrival + i*dt
"""

from robot_runtime.core.action import ActionChunk
from robot_runtime.core.method import FromRowZero, SplicePart, TimeAligned


def first_row_due_ns(part: SplicePart, chunk: ActionChunk, *, now_ns: int, stood_still: bool) -> int:
    """When row 0 of a chunk that arrives at `now_ns` is due [ns].

    stood_still: the robot has not moved since the observation. Then nothing of the chunk has been overtaken,
        and dropping its first rows would throw the arm across the gap: row 0 starts on arrival.
    """
    match part:
        case FromRowZero():
            return now_ns
        case TimeAligned():
            return now_ns if stood_still else chunk.t_obs_ns
