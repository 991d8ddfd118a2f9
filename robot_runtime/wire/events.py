"""What a `ClientSession` tells its owner.

Every submitted request ends in exactly one of: a `PartReceived` whose part is the last, `RequestDropped`,
`RequestExpired`, `RequestFailed`.
"""

from dataclasses import dataclass

from robot_runtime.core.action import ChunkPart
from robot_runtime.wire.messages import DropReason, RefusalCode, Welcome


@dataclass(frozen=True, kw_only=True)
class ServerReady:
    """The server is warm and takes requests."""

    welcome: Welcome


@dataclass(frozen=True, kw_only=True)
class ServerLost:
    """The server went away; what was in flight has failed. The session is already greeting again."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class ServerRefused:
    """The server will not work with this robot; nothing more is tried until `connect` is called again."""

    code: RefusalCode
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class PartReceived:
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


@dataclass(frozen=True, kw_only=True)
class RequestDropped:
    """Given up on purpose: a newer one took its place, or it was cancelled."""

    request_id: int
    epoch: int
    reason: DropReason


@dataclass(frozen=True, kw_only=True)
class RequestExpired:
    """No complete answer within the request's deadline."""

    request_id: int
    epoch: int


@dataclass(frozen=True, kw_only=True)
class RequestFailed:
    """The server could not answer, or its answer made no sense."""

    request_id: int
    epoch: int
    reason: str


Event = (
    ServerReady | ServerLost | ServerRefused | PartReceived | RequestDropped | RequestExpired | RequestFailed
)
