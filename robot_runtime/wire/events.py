"""The events that a `ClientSession` reports to its owner; the server's own messages are passed unchanged.

    Welcome         the server takes requests; its info in the robot's own order
    Readiness       which parts of its policy are warm, until all of them are
    Refused         the server will not work with this robot
    ServerLost      the server was lost; the session is already greeting again
    PartReceived    rows of an answer
    Dropped         the request was given up on purpose, or there was no complete answer within its deadline
    RequestFailed   the server could not answer, or its answer was invalid

Every submitted request ends in exactly one of: a `PartReceived` whose part is the last, `Dropped`,
`RequestFailed`.
"""

from msgspec import Struct

from robot_runtime.core.values.action import ChunkPart
from robot_runtime.wire.messages import Dropped, Readiness, Refused, Welcome


class ServerLost(Struct, frozen=True, kw_only=True, gc=False):
    """The server was lost; requests in flight have failed. The session is already greeting again."""

    reason: str


class PartReceived(Struct, frozen=True, kw_only=True, gc=False, eq=False):
    """The next rows of the answer, in row order, each row once."""

    part: ChunkPart
    sent_ns: int
    """When the request was handed to the network, robot's clock [ns]."""
    arrived_ns: int
    """When the rows came off the network, robot's clock [ns]."""


class RequestFailed(Struct, frozen=True, kw_only=True, gc=False):
    """The server could not answer, or its answer was invalid."""

    request_id: int
    epoch: int
    reason: str


Event = Welcome | Readiness | Refused | ServerLost | PartReceived | Dropped | RequestFailed
