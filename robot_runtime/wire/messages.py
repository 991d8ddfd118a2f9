"""What client and server say to each other. Every message travels in a `Packet`, which says whose it is.

The server never makes an absolute time: it echoes the robot's and reports durations.

    from the client   Hello  ChunkRequest  Cancel  Heartbeat  Goodbye
    from the server   Welcome | Refused   ChunkReply  Dropped  ErrorReply   HeartbeatReply  Goodbye
"""

from enum import Enum

from msgspec import Struct

from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ChunkPart
from robot_runtime.core.values.schema import Schema
from robot_runtime.wire.arrays import SentImages
from robot_runtime.wire.fields import Fields, Int64, Text

VERSION = 11
"""Both sides must speak the same one; there is no negotiation."""


class RefusalCode(Enum):
    """Why a server will not work with a client."""

    VERSION = "version"
    SCHEMA = "schema"
    POLICY = "policy"
    KEY = "key"
    FULL = "full"


class ErrorCode(Enum):
    """What was wrong with a message or with the answer to it."""

    HELLO_FIRST = "hello_first"
    """The server does not know this session, usually because it restarted: greet again."""
    PROTOCOL = "protocol"
    TOO_FAST = "too_fast"
    BAD_REQUEST = "bad_request"
    """The observation, previous chunk or sampler does not fit the policy."""
    PICTURES_LOST = "pictures_lost"
    """The request names pictures that this side has not kept: send them whole."""
    INTERNAL = "internal"
    """The policy failed; the server's log says how."""


class DropReason(Enum):
    """Why a request gets no answer although nothing failed."""

    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    OVERLOADED = "overloaded"
    """The server could not have answered in time, and others wait that it can answer."""
    CLOSING = "closing"
    """The server is on its way out and takes no more requests."""


class Hello(Fields, frozen=True, kw_only=True):
    """Opens a session: who the robot is and what it has."""

    robot: Text
    schema: Schema
    policy: Text = ""
    """Which of the server's policies; empty for the only one."""


class Welcome(Fields, frozen=True, kw_only=True):
    """The server is warm and will answer requests."""

    info: PolicyInfo
    """Of the policy."""
    heartbeat_ns: int
    """How often the client shall send a heartbeat [ns]."""


class Refused(Fields, frozen=True, kw_only=True):
    """The server will not work with this client; `reason` names both sides."""

    code: RefusalCode
    reason: Text


class ChunkReply(Fields, frozen=True, kw_only=True):
    """Rows of the answer that are final now."""

    part: ChunkPart
    queue_ns: int
    """From receipt of the request to the start of inference [ns]."""
    infer_ns: int
    """From the start of inference until these rows were final [ns]."""


class Cancel(Fields, frozen=True, kw_only=True):
    """The answer is not wanted any more."""

    request_id: Int64
    epoch: Int64


class Dropped(Fields, frozen=True, kw_only=True):
    """The request will not be answered."""

    request_id: Int64
    epoch: Int64
    reason: DropReason


class ErrorReply(Fields, frozen=True, kw_only=True):
    """A message could not be served; names the request if it was one."""

    code: ErrorCode
    message: Text
    request_id: Int64 | None = None
    epoch: Int64 | None = None


class Heartbeat(Fields, frozen=True, kw_only=True):
    """The client is alive; the answer measures the round trip."""

    t_ns: Int64
    """Robot's clock when sent [ns]."""


class HeartbeatReply(Fields, frozen=True, kw_only=True):
    """The server is alive."""

    t_ns: Int64
    """Echo of the heartbeat's stamp [ns]."""


class Goodbye(Fields, frozen=True, kw_only=True):
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


class Packet(Struct, frozen=True, eq=False, gc=False):
    """A message and the session it belongs to."""

    client_id: str
    session: int
    """Drawn afresh by the client for every handshake and echoed by the server: tells late replies apart."""
    message: Message
    sent: SentImages | None = None
    """Of a request to a policy that looks back: images that the peer has. Not on the wire."""
