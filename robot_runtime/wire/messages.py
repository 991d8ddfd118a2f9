"""What client and server say to each other. Every message travels in a `Packet`, which says whose it is.

The server never makes an absolute time: it echoes the robot's and reports durations.

    from the client   Hello  ChunkRequest  Cancel  Heartbeat  Goodbye
    from the server   Welcome | Refused   ChunkReply  Dropped  ErrorReply   HeartbeatReply  Goodbye
"""

from dataclasses import dataclass
from enum import Enum

from robot_runtime.core.action import ActionSpec, ChunkPart
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.schema import Schema

VERSION = 1
"""Both sides must speak the same one; there is no negotiation."""


class RefusalCode(Enum):
    """Why a server will not work with a client."""

    VERSION = "version"
    SCHEMA = "schema"
    FULL = "full"


class ErrorCode(Enum):
    """What was wrong with a message or with the answer to it."""

    HELLO_FIRST = "hello_first"
    """The server does not know this session, usually because it restarted: greet again."""
    PROTOCOL = "protocol"
    TOO_FAST = "too_fast"
    BAD_REQUEST = "bad_request"
    """The observation, previous chunk or sampler does not fit the policy."""
    INTERNAL = "internal"
    """The policy failed; the server's log says how."""


class DropReason(Enum):
    """Why a request gets no answer although nothing failed."""

    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"


@dataclass(frozen=True, kw_only=True)
class Hello:
    """Opens a session: who the robot is and what it has."""

    robot: str
    schema: Schema


@dataclass(frozen=True, kw_only=True)
class Welcome:
    """The server is warm and will answer requests."""

    policy: str
    schema: Schema
    action_spec: ActionSpec
    tasks: tuple[str, ...]
    """Task texts the policy was trained on; empty if any text will do."""
    heartbeat_ns: int
    """How often the client shall send a heartbeat [ns]."""


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The server will not work with this client; `reason` names both sides."""

    code: RefusalCode
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class ChunkReply:
    """Rows of the answer that are final now."""

    part: ChunkPart
    queue_ns: int
    """From receipt of the request to the start of inference [ns]."""
    infer_ns: int
    """From the start of inference until these rows were final [ns]."""


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """The answer is not wanted any more."""

    request_id: int
    epoch: int


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """The request will not be answered."""

    request_id: int
    epoch: int
    reason: DropReason


@dataclass(frozen=True, kw_only=True)
class ErrorReply:
    """A message could not be served; names the request if it was one."""

    code: ErrorCode
    message: str
    request_id: int | None = None
    epoch: int | None = None


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """The client is alive; the answer measures the round trip."""

    t_ns: int
    """Robot's clock when sent [ns]."""


@dataclass(frozen=True, kw_only=True)
class HeartbeatReply:
    """The server is alive."""

    t_ns: int
    """Echo of the heartbeat's stamp [ns]."""


@dataclass(frozen=True, kw_only=True)
class Goodbye:
    """The sender is leaving on purpose."""


Message = (
    Hello
    | Welcome
    | Refused
    | ChunkRequest
    | ChunkReply
    | Cancel
    | Dropped
    | ErrorReply
    | Heartbeat
    | HeartbeatReply
    | Goodbye
)


@dataclass(frozen=True, eq=False)
class Packet:
    """A message and the session it belongs to."""

    client_id: str
    session: int
    """Drawn afresh by the client for every handshake and echoed by the server: tells late replies apart."""
    message: Message
