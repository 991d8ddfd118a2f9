"""The robot's side of the conversation, without I/O.

Theory of operation
-------------------
Packets and time go in, packets and events come out; no method waits or reads a clock. A session is one
handshake and what follows it, on one connection. Its number is drawn afresh for each and the server echoes
it, so an answer from before a loss is told by its number alone: `_is_ours` is the only place that drops other
sessions' packets. Requests are the business of `InFlightRequests`, which lives from Welcome to loss.

Which state follows from what, and what is done with which message, is in the tables `TRANSITIONS` and
`_HANDLERS`. Any other packet changes nothing but `ignored`. Until the server answers, Hello is said again, in
the same session. A server that is full, or refuses a robot which it has welcomed before, may change
its mind: it is asked again.

A server that is silent for longer than it may (`Heartbeats`) is lost. The owner hands over what has arrived
before it calls `handle_timer`. Over a thin link heartbeats wait behind pictures, so a peer that takes more
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
"""From one greeting to the next: first, and at most."""


class ClientState(Enum):
    """Of the conversation with the server."""

    DISCONNECTED = "disconnected"
    GREETING = "greeting"
    READY = "ready"
    REFUSED = "refused"


class _Cause(Enum):
    CONNECT = "the owner connects"
    WELCOMED = "the server's policy fits this robot"
    REFUSED = "refused for good: by the server, or by this side, which its policy or its version does not fit"
    LOST = "silence beyond the patience, a broken connection, a goodbye, or a server that does not know us"
    CLOSED = "the owner closes"


TRANSITIONS = MappingProxyType(
    {
        (ClientState.DISCONNECTED, _Cause.CONNECT): ClientState.GREETING,  # new session, Hello
        (ClientState.REFUSED, _Cause.CONNECT): ClientState.GREETING,  # the same
        (ClientState.GREETING, _Cause.WELCOMED): ClientState.READY,  # tells Welcome
        (ClientState.GREETING, _Cause.REFUSED): ClientState.REFUSED,  # tells Refused
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
        policy: which of the server's; empty for the only one.
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
        self._requests: InFlightRequests  # of this session, made anew by every Welcome
        self._heartbeats: Heartbeats  # the same
        self._hello_ns = 0
        self._hello_again_ns = HELLO_AGAIN_NS
        self._greeted_ns: int | None = None
        self._was_ready = self._was_told = False  # welcomed once; of a refusal since then
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
        """There is a sign of life other than a packet."""
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
        """Give up a request; nothing happens if it is over already."""
        if self.state is ClientState.READY:
            self._requests.cancel(request_id, epoch, now_ns)

    def abandon(self, request: ChunkRequest, reason: str, now_ns: int) -> None:
        """A request out of `packets_to_send` could not be sent: it has failed for that reason."""
        if self.state is ClientState.READY:
            self._requests.fail(request.request_id, request.epoch, reason, now_ns)

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
        """Take what decoding one arrival gave; `now_ns` is when it arrived."""
        if isinstance(received, ProtocolError):
            self._receive_undecodable(received, now_ns)
        elif self._is_ours(received.client_id, received.session):
            self.is_heard(now_ns)
            handler = _HANDLERS.get((self.state, type(received.message)))
            if handler is None:
                self.ignored["out of place"] += 1
            else:
                handler(self, received.message, now_ns)

    # ---- what is done with which message -------------------------------------------------------------------

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
        self._was_ready, self._was_told = True, False
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
            said = f"{error.code.value}: {printable(error.message)}"
            self._requests.fail(error.request_id, error.epoch, said, now_ns)

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
        said = printable(str(error))[:MAX_REASON]
        if self.state is ClientState.GREETING:
            reason = f"what the server answers to the greeting makes no sense: {said}"
            self._refuse(RefusalCode.SCHEMA, reason, now_ns)
        elif self.state is ClientState.READY and error.request_id is not None and error.epoch is not None:
            reason = f"the server's answer was dropped: {said}"
            self._requests.fail(error.request_id, error.epoch, reason, now_ns)

    # ---- states --------------------------------------------------------------------------------------------

    def _move(self, cause: _Cause) -> bool:
        """Whether that changes the state."""
        before, self.state = self.state, TRANSITIONS.get((self.state, cause), self.state)
        return self.state is not before

    def _is_ours(self, client_id: str, session: int) -> bool:
        if client_id == self._client_id and session == self.session_id:
            return True
        self.ignored["another session"] += 1
        return False

    def _greet(self, now_ns: int) -> None:
        """Begin a session; at once, unless the last one began just now."""
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
        """Hand an event on, rows in the robot's own order."""
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
        if not (may_change and self._was_told):
            self._events.append(Refused(code=code, reason=reason))
        self._was_told = True

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
"""State and message to what is done with it."""
