"""The robot's side of the conversation, without I/O.

Theory of operation
-------------------
Packets and time go in, packets and events come out; no method waits or reads a clock. A session is one
handshake and what follows it. Its number is drawn afresh for every attempt and the server echoes it, so an
answer from before a loss is told by its number alone: `_is_ours` is the only place that drops other sessions'
packets. Requests are the business of `Credit`, which lives from Welcome to loss.

    state         what happens                              next          also
    DISCONNECTED  connect()                                 GREETING      new session, Hello
    GREETING      Welcome                                   READY         ServerReady
    GREETING      Refused, or a peer of another version     REFUSED       ServerRefused
    GREETING      no answer within the patience             GREETING      new session, Hello, patience doubles
    READY         a heartbeat unanswered for 5 intervals,   GREETING      RequestFailed for all open requests,
                  Goodbye, or ErrorReply(hello_first)                     ServerLost, new session, Hello
    REFUSED       connect()                                 GREETING      new session, Hello
    any           close()                                   DISCONNECTED  Goodbye

Patience starts at 50 ms and ends at 500 ms. A packet that fits no row is counted in `ignored` and changes
nothing. Liveness counts from the oldest unanswered heartbeat, not from the last packet: a client that slept
itself asks first and judges afterwards. Its owner hands over what has arrived before it calls `handle_timer`.
"""

from collections import Counter, deque
from collections.abc import Iterator
from enum import Enum

from robot_runtime.core.action import NS_PER_MS
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.schema import Schema
from robot_runtime.wire.credit import Credit
from robot_runtime.wire.events import Event, RequestFailed, ServerLost, ServerReady, ServerRefused
from robot_runtime.wire.frames import ProtocolError, VersionMismatchError
from robot_runtime.wire.messages import (
    ChunkReply,
    Dropped,
    ErrorCode,
    ErrorReply,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Message,
    Packet,
    RefusalCode,
    Refused,
    Welcome,
)

FIRST_PATIENCE_NS = 50 * NS_PER_MS
MAX_PATIENCE_NS = 500 * NS_PER_MS
MISSED_HEARTBEATS = 5


class ClientState(Enum):
    """See the table in the module's docstring."""

    DISCONNECTED = "disconnected"
    GREETING = "greeting"
    READY = "ready"
    REFUSED = "refused"


class ClientSession:
    """One robot's conversation with the server; owned and called by one thread."""

    def __init__(
        self, *, client_id: str, robot: str, schema: Schema, session_ids: Iterator[int], policy: str = ""
    ) -> None:
        """
        policy: which of the server's; empty for the only one.
        session_ids: numbers in [0, 2**63) that do not repeat, one for every handshake."""
        self.state = ClientState.DISCONNECTED
        self.session_id = 0
        self.round_trip_ns: int | None = None
        """Of the last answered heartbeat [ns]."""
        self.ignored: Counter[str] = Counter()
        """Packets that changed nothing, by cause."""
        self._client_id = client_id
        self._hello = Hello(robot=robot, schema=schema, policy=policy)
        self._session_ids = session_ids
        self._credit: Credit | None = None
        self._patience_ns = FIRST_PATIENCE_NS
        self._greeting_ends_ns = 0
        self._heartbeat_ns = 0
        self._next_heartbeat_ns = 0
        self._unanswered_ns: int | None = None
        self._events: deque[Event] = deque()
        self._outbox: list[Packet] = []

    def connect(self, now_ns: int) -> None:
        """Greet the server, again and again until it answers."""
        if self.state in (ClientState.DISCONNECTED, ClientState.REFUSED):
            self._patience_ns = FIRST_PATIENCE_NS
            self._greet(now_ns)

    def close(self) -> None:
        """Say goodbye; open requests fail."""
        if self._credit is not None:
            self._credit.fail_all("the client closed")
            self._credit = None
            self._send(Goodbye())
        self.state = ClientState.DISCONNECTED

    def submit(self, request: ChunkRequest, now_ns: int) -> None:
        """Send the request now, or hold it until there is credit; see `Credit`."""
        if self._credit is not None:
            self._credit.submit(request, now_ns)
        else:
            reason = f"no server: {self.state.value}"
            self._events.append(
                RequestFailed(request_id=request.request_id, epoch=request.epoch, reason=reason)
            )

    def cancel(self, *, request_id: int, epoch: int, now_ns: int) -> None:
        """Give up a request; nothing happens if it is over already."""
        if self._credit is not None:
            self._credit.cancel(request_id, epoch, now_ns)

    def abandon(self, request: ChunkRequest, reason: str, now_ns: int) -> None:
        """A request out of `packets_to_send` could not be sent: it has failed for that reason."""
        if self._credit is not None:
            self._credit.fail(request.request_id, request.epoch, reason, now_ns)

    def next_event(self) -> Event | None:
        """The oldest event not yet handed out."""
        return self._events.popleft() if self._events else None

    def packets_to_send(self) -> list[Packet]:
        """What has to go out, oldest first."""
        out, self._outbox = self._outbox, []
        return out

    def next_timer_ns(self) -> int | None:
        """When `handle_timer` wants to be called."""
        if self.state is ClientState.GREETING:
            return self._greeting_ends_ns
        if self._credit is None:
            return None
        times = [self._next_heartbeat_ns, *self._credit.next_timer_ns()]
        if self._unanswered_ns is not None:
            times.append(self._unanswered_ns + MISSED_HEARTBEATS * self._heartbeat_ns)
        return min(times)

    def handle_timer(self, now_ns: int) -> None:
        """Do what is due: another greeting, loss, heartbeat, expiry."""
        if self.state is ClientState.GREETING and now_ns >= self._greeting_ends_ns:
            self._patience_ns = min(2 * self._patience_ns, MAX_PATIENCE_NS)
            self._greet(now_ns)
        if self._credit is None:
            return
        silent_ns = 0 if self._unanswered_ns is None else now_ns - self._unanswered_ns
        if silent_ns >= MISSED_HEARTBEATS * self._heartbeat_ns:
            self._lose(f"no sign of life for {silent_ns // NS_PER_MS} ms", now_ns)
            return
        if now_ns >= self._next_heartbeat_ns:
            self._beat(now_ns)
        self._credit.expire(now_ns)

    def receive(self, received: Packet | ProtocolError, now_ns: int) -> None:
        """Take what decoding one arrival gave; `now_ns` is when it arrived."""
        if isinstance(received, ProtocolError):
            self._receive_undecodable(received, now_ns)
        elif self._is_ours(received.client_id, received.session):
            self._unanswered_ns = None
            if self._credit is not None:
                self._receive_ready(self._credit, received.message, now_ns)
            else:
                self._receive_greeting(received.message, now_ns)

    def _receive_greeting(self, message: Message, now_ns: int) -> None:
        match self.state, message:
            case ClientState.GREETING, Welcome():
                self._become_ready(message, now_ns)
            case ClientState.GREETING, Refused():
                self._refuse(message.code, message.reason)
            case _:
                self.ignored["out of place"] += 1

    def _receive_ready(self, credit: Credit, message: Message, now_ns: int) -> None:
        match message:
            case ChunkReply():
                credit.receive_rows(message, now_ns)
            case HeartbeatReply(t_ns=t_ns):
                self.round_trip_ns = max(now_ns - t_ns, 0)
            case Dropped(request_id=request_id, epoch=epoch, reason=reason):
                credit.drop(request_id, epoch, reason, now_ns)
            case ErrorReply(code=ErrorCode.HELLO_FIRST):
                self._lose("the server does not know this session: it has restarted", now_ns)
            case ErrorReply(request_id=int(request_id), epoch=int(epoch)):
                credit.fail(request_id, epoch, f"{message.code.value}: {message.message}", now_ns)
            case ErrorReply():
                self.ignored[f"error reply {message.code.value}"] += 1
            case Goodbye():
                self._lose("the server said goodbye", now_ns)
            case _:
                self.ignored["out of place"] += 1

    def _receive_undecodable(self, error: ProtocolError, now_ns: int) -> None:
        if isinstance(error, VersionMismatchError) and self.state is ClientState.GREETING:
            self._refuse(RefusalCode.VERSION, f"{error} (this side is the robot, the peer the server)")
            return
        self.ignored["not a message"] += 1
        if self._credit is None or error.request_id is None or error.epoch is None:
            return
        if self._is_ours(error.client_id, error.session):
            reason = f"the server's answer was dropped: {error}"
            self._credit.fail(error.request_id, error.epoch, reason, now_ns)

    def _is_ours(self, client_id: str, session: int) -> bool:
        if client_id == self._client_id and session == self.session_id:
            return True
        self.ignored["another session"] += 1
        return False

    def _greet(self, now_ns: int) -> None:
        self.state = ClientState.GREETING
        self.session_id = next(self._session_ids)
        self._greeting_ends_ns = now_ns + self._patience_ns
        self._outbox.clear()
        self._send(self._hello)

    def _become_ready(self, welcome: Welcome, now_ns: int) -> None:
        self.state = ClientState.READY
        self._credit = Credit(welcome, send=self._send, emit=self._events.append, ignored=self.ignored)
        self._patience_ns = FIRST_PATIENCE_NS
        self._heartbeat_ns = welcome.heartbeat_ns
        self._beat(now_ns)
        self._events.append(ServerReady(welcome=welcome))

    def _refuse(self, code: RefusalCode, reason: str) -> None:
        self.state = ClientState.REFUSED
        self._events.append(ServerRefused(code=code, reason=reason))

    def _lose(self, reason: str, now_ns: int) -> None:
        if self._credit is not None:
            self._credit.fail_all("server lost")
            self._credit = None
        self._events.append(ServerLost(reason=reason))
        self._greet(now_ns)

    def _beat(self, now_ns: int) -> None:
        self._send(Heartbeat(t_ns=now_ns))
        self._next_heartbeat_ns = now_ns + self._heartbeat_ns
        if self._unanswered_ns is None:
            self._unanswered_ns = now_ns

    def _send(self, message: Message) -> None:
        self._outbox.append(Packet(self._client_id, self.session_id, message))
