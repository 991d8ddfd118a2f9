"""The robot's side of the conversation, without I/O.

Theory of operation
-------------------
Packets and time go in, packets and events come out; no method waits or reads a clock. A session is one
handshake and what follows it, on one connection. Its number is drawn for each handshake and the server echoes
it, so an answer from before a loss is recognized by its number: `_is_ours` is the only place that drops
packets of other sessions. Requests are handled by `InFlightRequests`, which lives from Welcome to loss.

Transitions between states, and the handler of each message, are in the tables `TRANSITIONS` and
`_HANDLERS`. Any other packet changes nothing but `ignored`. Until the server answers, Hello is repeated, in
the same session. A server that is full, or refuses a robot that it has welcomed before, may change
its answer: it is asked again.

A server that is silent for longer than it may (`Heartbeats`) is lost. The owner passes on what has arrived
before it calls `handle_timer`. Over a slow link heartbeats wait behind images, so a peer that takes more
and more of what is being sent is not silent: `is_heard`.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from enum import Enum
from types import MappingProxyType

from msgspec import structs

from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import aligned_info
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S, ChunkPart
from robot_runtime.core.values.alignment import Alignment
from robot_runtime.core.values.mismatches import mismatches
from robot_runtime.core.values.schema import Schema
from robot_runtime.wire.arrays import SentImages
from robot_runtime.wire.events import Event, PartReceived, RequestFailed, ServerLost
from robot_runtime.wire.fields import MAX_REASON, printable
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.heartbeats import Heartbeats
from robot_runtime.wire.in_flight import InFlightRequests
from robot_runtime.wire.messages import (
    FULL_NS,
    Dropped,
    ErrorCode,
    ErrorReply,
    Goodbye,
    Heartbeat,
    Hello,
    Message,
    Packet,
    Readiness,
    RefusalCode,
    Refused,
    Welcome,
)

HELLO_AGAIN_NS, MAX_HELLO_AGAIN_NS = 100 * NS_PER_MS, NS_PER_S
"""Interval between greetings: the first, and the longest."""


class ClientState(Enum):
    """State of the conversation with the server."""

    DISCONNECTED = "disconnected"
    GREETING = "greeting"
    READY = "ready"
    REFUSED = "refused"


class _Cause(Enum):
    CONNECT = "the owner connects"
    WELCOMED = "the server's policy fits this robot"
    REFUSED = "refused for good: by the server, or by this side, because its policy or version does not fit"
    LOST = "silence beyond the timeout, a broken connection, a goodbye, or a server that has no such session"
    CLOSED = "the owner closes"


TRANSITIONS = MappingProxyType(
    {
        (ClientState.DISCONNECTED, _Cause.CONNECT): ClientState.GREETING,  # new session, Hello
        (ClientState.REFUSED, _Cause.CONNECT): ClientState.GREETING,  # as above
        (ClientState.GREETING, _Cause.WELCOMED): ClientState.READY,  # emits Welcome
        (ClientState.GREETING, _Cause.REFUSED): ClientState.REFUSED,  # emits Refused
        (ClientState.READY, _Cause.LOST): ClientState.GREETING,  # open requests fail, ServerLost, as CONNECT
        (ClientState.GREETING, _Cause.CLOSED): ClientState.DISCONNECTED,
        (ClientState.READY, _Cause.CLOSED): ClientState.DISCONNECTED,  # open requests fail, Goodbye
        (ClientState.REFUSED, _Cause.CLOSED): ClientState.DISCONNECTED,
    }
)
"""State and cause to the next state; any other pair changes nothing."""


class ClientSession:
    """One robot's conversation with the server; owned and called by one thread."""

    def __init__(
        self, *, client_id: str, robot: str, schema: Schema, session_ids: Iterator[int], policy: str = ""
    ) -> None:
        """
        policy: which of the server's policies; empty for the only one.
        session_ids: numbers in [0, 2**63) that do not repeat, one for every handshake.
        """
        self.state = ClientState.DISCONNECTED
        self.session_id = 0
        self.ignored: Counter[str] = Counter()
        """Packets that changed nothing, by cause."""
        self._client_id = client_id
        self._hello = Hello(robot=robot, schema=schema, policy=policy)
        self._session_ids = session_ids
        self._alignment: Alignment  # the same
        self._requests: InFlightRequests  # of this session, renewed by every Welcome
        self._heartbeats: Heartbeats  # the same
        self._hello_ns = 0
        self._hello_again_ns = HELLO_AGAIN_NS
        self._greeted_ns: int | None = None
        self._was_ready = self._has_reported_refusal = False  # welcomed once; a refusal reported since then
        self._events: deque[Event] = deque()
        self._outbox: list[Packet] = []

    def connect(self, now_ns: int) -> None:
        """Greet the server, again and again until it answers."""
        if self._move(_Cause.CONNECT):
            self._greet(now_ns)

    def broken(self, reason: str, now_ns: int) -> None:
        """The connection has ended; the owner makes another one if this begins a new session."""
        self._lose(reason, now_ns)

    def is_heard(self, now_ns: int) -> None:
        """Note a sign of life other than a packet."""
        if self.state is ClientState.READY:
            self._heartbeats.heard(now_ns)

    def close(self) -> None:
        """Say goodbye; open requests fail."""
        if self.state is ClientState.READY:
            self._requests.fail_all("the client closed")
            self._send(Goodbye())
        self._move(_Cause.CLOSED)

    def submit(self, request: ChunkRequest, now_ns: int) -> None:
        """Send the request now, or hold it until there is credit; see `InFlightRequests`."""
        if self.state is ClientState.READY:
            self._requests.submit(request.aligned(self._alignment), now_ns)
        else:
            reason = f"no server: {self.state.value}"
            self._events.append(
                RequestFailed(request_id=request.request_id, epoch=request.epoch, reason=reason)
            )

    def cancel(self, *, request_id: int, epoch: int, now_ns: int) -> None:
        """Cancel a request; nothing happens if it is over already."""
        if self.state is ClientState.READY:
            self._requests.cancel(request_id, epoch, now_ns)

    def abandon(self, request: ChunkRequest, reason: str, now_ns: int) -> None:
        """Fail a request of `packets_to_send` that could not be sent."""
        if self.state is ClientState.READY:
            self._requests.fail(request.request_id, request.epoch, reason, now_ns)

    def next_event(self) -> Event | None:
        """Return the oldest event that has not been returned yet."""
        return self._events.popleft() if self._events else None

    def packets_to_send(self) -> list[Packet]:
        """Return the packets to send, oldest first."""
        out, self._outbox = self._outbox, []
        return out

    def next_timer_ns(self) -> int | None:
        """Return when `handle_timer` has to be called."""
        if self.state is ClientState.GREETING:
            return self._hello_ns
        if self.state is not ClientState.READY:
            return None
        return min([self._heartbeats.next_ns, *self._requests.next_timer_ns()])

    def handle_timer(self, now_ns: int) -> None:
        """Do what is due: another greeting, loss, heartbeat, expiry."""
        if self.state is ClientState.GREETING and now_ns >= self._hello_ns:
            self._say_hello(now_ns)
        if self.state is not ClientState.READY:
            return
        if self._heartbeats.look(now_ns):
            self._lose(f"no sign of life for {self._heartbeats.silent_ns // NS_PER_MS} ms", now_ns)
            return
        if now_ns >= self._heartbeats.next_ns:
            self._beat(now_ns)
        self._requests.expire(now_ns)

    def receive(self, received: Packet | ProtocolError, now_ns: int) -> None:
        """Handle the decoded packet or error of one arrival; `now_ns` is its arrival time."""
        if isinstance(received, ProtocolError):
            self._receive_undecodable(received, now_ns)
        elif self._is_ours(received.client_id, received.session):
            self.is_heard(now_ns)
            handler = _HANDLERS.get((self.state, type(received.message)))
            if handler is None:
                self.ignored["out of place"] += 1
            else:
                handler(self, received.message, now_ns)

    # ---- handlers of messages -------------------------------------------------------------------

    def _receive_welcome(self, welcome: Welcome, now_ns: int) -> None:
        differences = mismatches(robot=self._hello.schema, policy=welcome.info.schema)
        if differences:
            reason = f"robot {self._hello.robot!r} does not fit policy {welcome.info.name!r}: "
            self._refuse(RefusalCode.SCHEMA, printable(reason + "; ".join(differences))[:MAX_REASON], now_ns)
            return
        info = welcome.info
        self._alignment = Alignment.between(
            robot=self._hello.schema, policy=info.schema, action_spec=info.action_spec
        )
        self._move(_Cause.WELCOMED)
        self._was_ready, self._has_reported_refusal = True, False
        self._requests = InFlightRequests(welcome, send=self._send, emit=self._emit, ignored=self.ignored)
        self._heartbeats = Heartbeats(welcome.heartbeat_ns, now_ns)
        self._beat(now_ns)
        aligned = aligned_info(info, self._alignment, robot=self._hello.schema)
        self._events.append(structs.replace(welcome, info=aligned))

    def _receive_refused(self, refused: Refused, now_ns: int) -> None:
        self._refuse(refused.code, printable(refused.reason), now_ns)

    def _receive_readiness(self, readiness: Readiness, now_ns: int) -> None:
        self._events.append(readiness)

    def _receive_rows(self, part: ChunkPart, now_ns: int) -> None:
        self._requests.receive_rows(part, now_ns)

    def _receive_heartbeat(self, heartbeat: Heartbeat, now_ns: int) -> None:
        if not self._heartbeats.answered(heartbeat.t_ns, now_ns):
            self.ignored["out of place"] += 1

    def _receive_dropped(self, dropped: Dropped, now_ns: int) -> None:
        self._requests.drop(dropped, now_ns)

    def _receive_error(self, error: ErrorReply, now_ns: int) -> None:
        if error.code is ErrorCode.HELLO_FIRST:
            self._lose("the server does not know this session: it has restarted", now_ns)
        elif error.request_id is None or error.epoch is None:
            self.ignored[f"error reply {error.code.value}"] += 1
        elif error.code is ErrorCode.PICTURES_LOST:
            self._requests.send_whole(error.request_id, error.epoch, now_ns)
        else:
            text = f"{error.code.value}: {printable(error.message)}"
            self._requests.fail(error.request_id, error.epoch, text, now_ns)

    def _receive_goodbye(self, goodbye: Goodbye, now_ns: int) -> None:
        self._lose("the server said goodbye", now_ns)

    def _receive_undecodable(self, error: ProtocolError, now_ns: int) -> None:
        if error.their_version is not None and self.state is ClientState.GREETING:
            reason = f"{error} (this side is the robot, the peer the server)"
            self._refuse(RefusalCode.VERSION, reason, now_ns)
            return
        self.ignored["not a message"] += 1
        if not self._is_ours(error.client_id, error.session):
            return
        text = printable(str(error))[:MAX_REASON]
        if self.state is ClientState.GREETING:
            reason = f"what the server answers to the greeting makes no sense: {text}"
            self._refuse(RefusalCode.SCHEMA, reason, now_ns)
        elif self.state is ClientState.READY and error.request_id is not None and error.epoch is not None:
            reason = f"the server's answer was dropped: {text}"
            self._requests.fail(error.request_id, error.epoch, reason, now_ns)

    # ---- states --------------------------------------------------------------------------------------------

    def _move(self, cause: _Cause) -> bool:
        """Apply a cause; return whether it changes the state."""
        before, self.state = self.state, TRANSITIONS.get((self.state, cause), self.state)
        return self.state is not before

    def _is_ours(self, client_id: str, session: int) -> bool:
        if client_id == self._client_id and session == self.session_id:
            return True
        self.ignored["another session"] += 1
        return False

    def _greet(self, now_ns: int) -> None:
        """Begin a session; at once, unless the last one began just before."""
        self.session_id = next(self._session_ids)
        self._outbox.clear()
        self._hello_again_ns = HELLO_AGAIN_NS
        self._hello_ns = now_ns
        if self._greeted_ns is not None:
            self._hello_ns = max(now_ns, self._greeted_ns + HELLO_AGAIN_NS)
        if self._hello_ns == now_ns:
            self._say_hello(now_ns)

    def _say_hello(self, now_ns: int) -> None:
        self._send(self._hello)
        self._greeted_ns, self._hello_ns = now_ns, now_ns + self._hello_again_ns
        self._hello_again_ns = min(2 * self._hello_again_ns, MAX_HELLO_AGAIN_NS)

    def _emit(self, event: Event) -> None:
        """Pass an event on, with rows in the robot's own order."""
        if isinstance(event, PartReceived) and self._alignment.rows is not None:
            part = structs.replace(event.part, rows=self._alignment.ours(event.part.rows))
            event = structs.replace(event, part=part)
        self._events.append(event)

    def _refuse(self, code: RefusalCode, reason: str, now_ns: int) -> None:
        may_change = code is RefusalCode.FULL or self._was_ready
        if may_change:
            self._hello_ns = now_ns + FULL_NS
        else:
            self._move(_Cause.REFUSED)
        if not (may_change and self._has_reported_refusal):
            self._events.append(Refused(code=code, reason=reason))
        self._has_reported_refusal = True

    def _lose(self, reason: str, now_ns: int) -> None:
        if not self._move(_Cause.LOST):
            return
        self._requests.fail_all("server lost")
        self._events.append(ServerLost(reason=reason))
        self._greet(now_ns)

    def _beat(self, now_ns: int) -> None:
        if self._heartbeats.beat(now_ns):
            self._send(Heartbeat(t_ns=now_ns))

    def _send(self, message: Message, sent: SentImages | None = None) -> None:
        self._outbox.append(Packet(self._client_id, self.session_id, message, sent))


_HANDLERS: MappingProxyType[tuple[ClientState, type], Callable[..., None]] = MappingProxyType(
    {
        (ClientState.GREETING, Readiness): ClientSession._receive_readiness,
        (ClientState.GREETING, Welcome): ClientSession._receive_welcome,
        (ClientState.GREETING, Refused): ClientSession._receive_refused,
        (ClientState.READY, Readiness): ClientSession._receive_readiness,
        (ClientState.READY, ChunkPart): ClientSession._receive_rows,
        (ClientState.READY, Dropped): ClientSession._receive_dropped,
        (ClientState.READY, ErrorReply): ClientSession._receive_error,
        (ClientState.READY, Heartbeat): ClientSession._receive_heartbeat,
        (ClientState.READY, Goodbye): ClientSession._receive_goodbye,
    }
)
"""State and message type to the handler."""
