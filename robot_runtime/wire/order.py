"""Which requests of one robot stand beside each other: `follows`."""

from robot_runtime.core.policy import ChunkRequest


def follows(later: ChunkRequest, earlier: ChunkRequest) -> bool:
    """Whether a request still wants the answer to an earlier one; if not, the earlier one gives way to it."""
    return earlier.request_id in later.in_flight and earlier.epoch == later.epoch
