"""What client and server say to each other. Every message travels in a `Packet`, which says whose it is.

The server never makes an absolute time: it echoes the robot's and reports durations.

    from the client   Hello  ChunkRequest  Cancel  Heartbeat  Goodbye
    from the server   Welcome | Refused   Readiness   ChunkPart  Dropped  ErrorReply   Heartbeat  Goodbye

What the policy is asked and what it answers travel as they are everywhere else: `ChunkRequest`, `ChunkPart`.
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
"""Both sides must speak the same one; there is no negotiation."""
FULL_NS = 2 * NS_PER_S
"""Until a server that refused what may change is asked again."""


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


class _Message(Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag=True):
    """In the header: a map with its type and its fields. Holds no reference cycles."""


class Hello(_Message, frozen=True, kw_only=True):
    """Opens a session: who the robot is and what it has."""

    robot: Text
    schema: Schema
    policy: Text = ""
    """Which of the server's policies; empty for the only one."""


class Welcome(_Message, frozen=True, kw_only=True):
    """The server will answer requests; all of its policy is warm unless a `Readiness` came before this."""

    info: PolicyInfo
    """Of the policy."""
    heartbeat_ns: int
    """How often the client shall send a heartbeat [ns]."""


class Readiness(_Message, frozen=True, kw_only=True):
    """What is warm of a policy that is not all so yet: before the Welcome, and whenever more of it is."""

    samplers: tuple[Text, ...]
    """Sampler parts whose requests are answered at once; if it is compiled, those for others are held."""
    max_batch: Count
    """Most robots that are answered together for now."""
    pieces_left: Count
    """Of warming up; 0 is the end of it."""


class Refused(_Message, frozen=True, kw_only=True):
    """The server will not work with this client; `reason` names both sides."""

    code: RefusalCode
    reason: Text


class Cancel(_Message, frozen=True, kw_only=True):
    """The answer is not wanted any more."""

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
        """Why there is no answer, or no more of it; as much of the message as travels."""
        return cls(
            code=code, message=message[:MAX_REASON], request_id=request.request_id, epoch=request.epoch
        )


class Heartbeat(_Message, frozen=True, kw_only=True):
    """The sender is alive. The server says the client's own again: that measures the round trip."""

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
    """Drawn afresh by the client for every handshake and echoed by the server: tells late replies apart."""
    message: Message
    sent: SentImages | None = None
    """Of a request to a policy that looks back: images that the peer has. Not on the wire."""
    pictures: tuple[Picture, ...] = ()
    """Of a request that has come: its images, still to be opened. Not part of its message until then."""
