"""What a `ClientSession` tells its owner; what the server says of itself or of a request comes unchanged.

    Welcome         the server takes requests; its info in the robot's own order
    Readiness       what is warm of its policy, while that is not all of it, and once it is
    Refused         the server will not work with this robot
    ServerLost      the server went away; the session is already greeting again
    PartReceived    rows of an answer
    Dropped         the request was given up on purpose, or there was no complete answer within its deadline
    RequestFailed   the server could not answer, or its answer made no sense

Every submitted request ends in exactly one of: a `PartReceived` whose part is the last, `Dropped`,
`RequestFailed`.
"""

from msgspec import Struct

from robot_runtime.core.values.action import ChunkPart
from robot_runtime.wire.messages import Dropped, Readiness, Refused, Welcome


class ServerLost(Struct, frozen=True, kw_only=True, gc=False):
    """The server went away; what was in flight has failed. The session is already greeting again."""

    reason: str


class PartReceived(Struct, frozen=True, kw_only=True, gc=False, eq=False):
    """The next rows of the answer, in row order, each row once."""

    part: ChunkPart
    sent_ns: int
    """When the request was handed to the network, robot's clock [ns]."""
    arrived_ns: int
    """When the rows came off the network, robot's clock [ns]."""


class RequestFailed(Struct, frozen=True, kw_only=True, gc=False):
    """The server could not answer, or its answer made no sense."""

    request_id: int
    epoch: int
    reason: str


Event = Welcome | Readiness | Refused | ServerLost | PartReceived | Dropped | RequestFailed
