"""Puts the parts of one chunk into row order, in whatever order they arrive."""

from robot_runtime.core.values.action import ActionSpec, ChunkPart
from robot_runtime.wire.frames import ProtocolError


class ChunkReassembler:
    """Reassembles one answer.

        rows      0 ........ next_row | gap | held ....... | ... horizon
        delivered ^^^^^^^^^^           waits for the gap

    A repeated part is dropped; a part that overlaps others without being one of them is an error.
    """

    def __init__(self, *, spec: ActionSpec, t_obs_ns: int) -> None:
        self._spec = spec
        self._t_obs_ns = t_obs_ns
        self._spans: dict[int, tuple[int, bool]] = {}  # first row -> (end, is_last), delivered or held
        self._held: dict[int, ChunkPart] = {}
        self._next_row = 0
        self._end: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the last row was delivered."""
        return self._next_row == self._end

    def add(self, part: ChunkPart) -> list[ChunkPart]:
        """Add a part; return the parts that are next in row order now.

        ProtocolError: it contradicts the others, the request or the action spec; nothing is changed.
        """
        first, end = part.first_row, part.first_row + part.rows.shape[0]
        if self._spans.get(first) == (end, part.is_last):
            return []
        complaint = self._contradiction(part, first, end)
        if complaint is not None:
            raise ProtocolError(f"rows {first} to {end} {complaint}")
        self._spans[first] = (end, part.is_last)
        if part.is_last:
            self._end = end
        self._held[first] = part
        ready = []
        while self._next_row in self._held:
            ready.append(self._held.pop(self._next_row))
            self._next_row = self._spans[self._next_row][0]
        return ready

    def _contradiction(self, part: ChunkPart, first: int, end: int) -> str | None:
        spec = self._spec
        if part.t_obs_ns != self._t_obs_ns:
            return f"answer the observation at {part.t_obs_ns} ns, not ours"
        if part.rows.shape[1] != spec.dim:
            return f"have {part.rows.shape[1]} columns, expected {spec.dim}"
        if end == first or end > spec.horizon:
            return f"are none or beyond the horizon of {spec.horizon}"
        for other, (other_end, _) in self._spans.items():
            if first < other_end and other < end:
                return "overlap rows that came before"
            if part.is_last and end < other_end:
                return "do not agree with which row is the last"
        if self._end is not None and end > self._end:
            return "do not agree with which row is the last"
        return None
