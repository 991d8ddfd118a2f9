"""The messages of client and server. Every message travels in a `Packet`, which identifies its session.

The server never makes an absolute time: it echoes the robot's times and reports durations.

    from the client   Hello  ChunkRequest  Cancel  Heartbeat  Goodbye
    from the server   Welcome | Refused   Readiness   ChunkPart  Dropped  ErrorReply   Heartbeat  Goodbye

Requests and answers of the policy are the runtime's own types: `ChunkRequest`, `ChunkPart`.
"""

from enum import Enum

from msgspec import Struct

from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S, ChunkPart
from robot_runtime.core.values.schema import Schema
from robot_runtime.wire.arrays import Picture, SentImages
from robot_runtime.wire.fields import MAX_REASON, Count, Int64, Text

VERSION = 16
"""Both sides must have the same version; there is no negotiation."""
FULL_NS = 2 * NS_PER_S
"""Time until a server is asked again after a refusal that may change."""


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
    """The request names images that this side has not kept: send them."""
    INTERNAL = "internal"
    """The policy failed; the server's log has the error."""


class DropReason(Enum):
    """Why a request gets no answer although nothing failed."""

    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    OVERLOADED = "overloaded"
    """The server could not have answered in time, and other requests wait."""
    CLOSING = "closing"
    """The server is shutting down and takes no more requests."""


class _Message(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag=True):
    """Base of messages; in the header a map of type and fields. It holds no reference cycles."""


class Hello(_Message, frozen=True, kw_only=True):
    """Opens a session: names the robot and what it offers."""

    robot: Text
    schema: Schema
    policy: Text = ""
    """The requested policy of the server; empty for the only one."""


class Welcome(_Message, frozen=True, kw_only=True):
    """The server will answer requests; all of its policy is warm unless a `Readiness` came before this."""

    info: PolicyInfo
    """Description of the policy."""
    heartbeat_ns: int
    """The interval at which the client has to send heartbeats [ns]."""


class Readiness(_Message, frozen=True, kw_only=True):
    """The warm parts of a policy that still warms up: before the Welcome, and whenever there are more."""

    samplers: tuple[Text, ...]
    """Sampler parts whose requests are answered at once; if it is compiled, requests for others are held."""
    max_batch: Count
    """The most robots that are answered together for now."""
    pieces_left: Count
    """Steps of the warm-up that are left; 0 at its end."""


class Refused(_Message, frozen=True, kw_only=True):
    """The server will not work with this client; `reason` names both sides."""

    code: RefusalCode
    reason: Text


class Cancel(_Message, frozen=True, kw_only=True):
    """The answer is no longer wanted."""

    request_id: Int64
    epoch: Int64


class Dropped(_Message, frozen=True, kw_only=True):
    """The request will not be answered."""

    request_id: Int64
    epoch: Int64
    reason: DropReason


class ErrorReply(_Message, frozen=True, kw_only=True):
    """A message could not be served; names the request if it was one."""

    code: ErrorCode
    message: Text
    request_id: Int64 | None = None
    epoch: Int64 | None = None

    @classmethod
    def to(cls, request: ChunkRequest, code: ErrorCode, message: str) -> "ErrorReply":
        """Report why there is no answer, or no more rows; long messages are cut."""
        return cls(
            code=code, message=message[:MAX_REASON], request_id=request.request_id, epoch=request.epoch
        )


class Heartbeat(_Message, frozen=True, kw_only=True):
    """The sender is alive. The server echoes the client's: that measures the round trip."""

    t_ns: Int64
    """Robot's clock when the client sent it [ns]."""


class Goodbye(_Message, frozen=True, kw_only=True):
    """The sender is leaving on purpose."""


Message = (
    Hello
    | Welcome
    | Refused
    | Readiness
    | ChunkRequest
    | ChunkPart
    | Cancel
    | Dropped
    | ErrorReply
    | Heartbeat
    | Goodbye
)


class Packet(Struct, frozen=True, eq=False, gc=False):
    """A message and the session it belongs to."""

    client_id: str
    session: int
    """Drawn by the client for every handshake and echoed by the server: identifies late replies."""
    message: Message
    sent: SentImages | None = None
    """For a request to a policy that looks back: images that the peer has. Not on the wire."""
    pictures: tuple[Picture, ...] = ()
    """Images of a received request, still encoded. They are not part of its message until they are opened."""
