"""What a `ClientSession` tells its owner.

Every submitted request ends in exactly one of: a `PartReceived` whose part is the last, `RequestDropped`,
`RequestExpired`, `RequestFailed`.
"""

from msgspec import Struct

from robot_runtime.core.values.action import ChunkPart
from robot_runtime.wire.messages import DropReason, RefusalCode, Welcome


class ServerReady(Struct, frozen=True, kw_only=True, gc=False):
    """The server is warm and takes requests."""

    welcome: Welcome


class ServerLost(Struct, frozen=True, kw_only=True, gc=False):
    """The server went away; what was in flight has failed. The session is already greeting again."""

    reason: str


class ServerRefused(Struct, frozen=True, kw_only=True, gc=False):
    """The server will not work with this robot; nothing more is tried until `connect` is called again."""

    code: RefusalCode
    reason: str


class PartReceived(Struct, frozen=True, kw_only=True, gc=False, eq=False):
    """The next rows of the answer, in row order, each row once."""

    part: ChunkPart
    queue_ns: int
    """Time the request waited on the server [ns]."""
    infer_ns: int
    """From the start of inference until these rows were final [ns]."""
    sent_ns: int
    """When the request was handed to the network, robot's clock [ns]."""
    arrived_ns: int
    """When the rows came off the network, robot's clock [ns]."""


class RequestDropped(Struct, frozen=True, kw_only=True, gc=False):
    """Given up on purpose: a newer one took its place, or it was cancelled."""

    request_id: int
    epoch: int
    reason: DropReason


class RequestExpired(Struct, frozen=True, kw_only=True, gc=False):
    """No complete answer within the request's deadline."""

    request_id: int
    epoch: int


class RequestFailed(Struct, frozen=True, kw_only=True, gc=False):
    """The server could not answer, or its answer made no sense."""

    request_id: int
    epoch: int
    reason: str


Event = (
    ServerReady | ServerLost | ServerRefused | PartReceived | RequestDropped | RequestExpired | RequestFailed
)
