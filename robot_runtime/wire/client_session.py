"""The robot's side of the conversation, without I/O.

Theory of operation
-------------------
Packets and time go in, packets and events come out; no method waits or reads a clock. A session is one
handshake and what follows it, on one connection. Its number is drawn afresh for each and the server echoes
it, so an answer from before a loss is told by its number alone: `_is_ours` is the only place that drops other
sessions' packets. Requests are the business of `InFlightRequests`, which lives from Welcome to loss.

    state         what happens                              next          also
    DISCONNECTED  connect()                                 GREETING      new session, Hello
    GREETING      no answer for a while                     GREETING      Hello again, in the same session
    GREETING      Welcome that fits this robot              READY         ServerReady
    GREETING      Refused, a Welcome that does not fit,     REFUSED       ServerRefused
                  or a peer of another version
    GREETING      the same, but the server is full or has   GREETING      ServerRefused, and Hello again later
                  welcomed this robot before
    READY         silence beyond the patience, broken(),    GREETING      RequestFailed for all open requests,
                  Goodbye, or ErrorReply(hello_first)                     ServerLost, new session, Hello
    REFUSED       connect()                                 GREETING      new session, Hello
    any           close()                                   DISCONNECTED  Goodbye

A packet that fits no row is counted in `ignored` and changes nothing.

Patience follows the smoothed round trip R of the heartbeats and its deviation D, as that of TCP does, which
makes everything behind a lost packet late (`RoundTrip`):

    patience = 2 s + 8 (R + 4 D), at most 30 s           heartbeats every max(the server's wish, R / 4)

A server that ends, or is killed, breaks its connection, which is noticed at once; patience is for those that
hang and cables that are cut. Silence is counted in heartbeats that went out, not in time that passed: a
client that slept, or had no processor, itself asks first and judges afterwards. Its owner hands over what has
arrived before it calls `handle_timer`. Over a thin link heartbeats wait behind pictures, so a peer that takes
more and more of what is being sent is not silent: `is_heard`.
"""

from collections import Counter, deque
from collections.abc import Iterator
from enum import Enum

from msgspec import structs

from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import aligned_info
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.core.values.alignment import Alignment
from robot_runtime.core.values.mismatches import mismatches
from robot_runtime.core.values.schema import Schema
from robot_runtime.wire.arrays import SentImages
from robot_runtime.wire.events import (
    Event,
    PartReceived,
    RequestFailed,
    ServerLost,
    ServerReady,
    ServerRefused,
)
from robot_runtime.wire.fields import MAX_REASON, printable
from robot_runtime.wire.frames import ProtocolError, VersionMismatchError
from robot_runtime.wire.in_flight import InFlightRequests
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
from robot_runtime.wire.round_trip import RoundTrip

HELLO_AGAIN_NS, MAX_HELLO_AGAIN_NS = 100 * NS_PER_MS, NS_PER_S
"""From one greeting to the next: first, and at most."""
FULL_NS = 2 * NS_PER_S
"""Until a server that refused what may change is asked again."""
MIN_PATIENCE_NS, MAX_PATIENCE_NS = 2 * NS_PER_S, 30 * NS_PER_S
MAX_PACE_NS = NS_PER_S
_KEPT_BEATS = 1024  # heartbeats whose answers tell the round trip


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
        session_ids: numbers in [0, 2**63) that do not repeat, one for every handshake.
        """
        self.state = ClientState.DISCONNECTED
        self.session_id = 0
        self.ignored: Counter[str] = Counter()
        """Packets that changed nothing, by cause."""
        self._client_id = client_id
        self._hello = Hello(robot=robot, schema=schema, policy=policy)
        self._session_ids = session_ids
        self._alignment: Alignment | None = None
        self._credit: InFlightRequests | None = None
        self._round_trip = RoundTrip()
        self._hello_ns = 0
        self._hello_again_ns = HELLO_AGAIN_NS
        self._greeted_ns: int | None = None
        self._was_ready = self._was_told = False  # welcomed once; of a refusal since then
        self._heartbeat_ns = self._next_heartbeat_ns = 0
        self._beats: deque[int] = deque(maxlen=_KEPT_BEATS)  # when those went out that are unanswered
        self._silent_ns = 0
        self._looked_ns = 0
        self._events: deque[Event] = deque()
        self._outbox: list[Packet] = []

    def connect(self, now_ns: int) -> None:
        """Greet the server, again and again until it answers."""
        if self.state in (ClientState.DISCONNECTED, ClientState.REFUSED):
            self._greet(now_ns)

    def broken(self, reason: str, now_ns: int) -> None:
        """The connection has ended; the owner makes another one if this begins a new session."""
        if self._credit is not None:
            self._lose(reason, now_ns)

    def is_heard(self, now_ns: int) -> None:
        """There is a sign of life other than a packet."""
        self._silent_ns, self._looked_ns = 0, now_ns

    def close(self) -> None:
        """Say goodbye; open requests fail."""
        if self._credit is not None:
            self._credit.fail_all("the client closed")
            self._credit = None
            self._send(Goodbye())
        self.state = ClientState.DISCONNECTED

    def submit(self, request: ChunkRequest, now_ns: int) -> None:
        """Send the request now, or hold it until there is credit; see `InFlightRequests`."""
        if self._credit is not None:
            self._credit.submit(
                (request if self._alignment is None else request.aligned(self._alignment)), now_ns
            )
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
            return self._hello_ns
        if self._credit is None:
            return None
        return min([self._next_heartbeat_ns, *self._credit.next_timer_ns()])

    def handle_timer(self, now_ns: int) -> None:
        """Do what is due: another greeting, loss, heartbeat, expiry."""
        if self.state is ClientState.GREETING and now_ns >= self._hello_ns:
            self._say_hello(now_ns)
        if self._credit is None:
            return
        step_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        if self._beats:
            self._silent_ns += min(step_ns, 2 * self._pace_ns())
        if self._silent_ns >= self.patience_ns:
            self._lose(f"no sign of life for {self._silent_ns // NS_PER_MS} ms", now_ns)
            return
        if now_ns >= self._next_heartbeat_ns:
            self._beat(now_ns)
        self._credit.expire(now_ns)

    def receive(self, received: Packet | ProtocolError, now_ns: int) -> None:
        """Take what decoding one arrival gave; `now_ns` is when it arrived."""
        if isinstance(received, ProtocolError):
            self._receive_undecodable(received, now_ns)
        elif self._is_ours(received.client_id, received.session):
            self.is_heard(now_ns)
            if self._credit is not None:
                self._receive_ready(self._credit, received.message, now_ns)
            else:
                self._receive_greeting(received.message, now_ns)

    @property
    def patience_ns(self) -> int:
        """How long the server may be silent."""
        slow_ns = self._round_trip.slow_ns
        if slow_ns is None:
            return MAX_PATIENCE_NS
        return min(MIN_PATIENCE_NS + 8 * slow_ns, MAX_PATIENCE_NS)

    def _receive_greeting(self, message: Message, now_ns: int) -> None:
        match self.state, message:
            case ClientState.GREETING, Welcome():
                self._become_ready(message, now_ns)
            case ClientState.GREETING, Refused():
                self._refuse(message.code, printable(message.reason), now_ns)
            case _:
                self.ignored["out of place"] += 1

    def _receive_ready(self, credit: InFlightRequests, message: Message, now_ns: int) -> None:
        match message:
            case ChunkReply():
                credit.receive_rows(message, now_ns)
            case HeartbeatReply(t_ns=t_ns) if t_ns in self._beats:
                while self._beats and self._beats[0] <= t_ns:
                    self._beats.popleft()
                self._round_trip.add(max(now_ns - t_ns, 0))
            case Dropped(request_id=request_id, epoch=epoch, reason=reason):
                credit.drop(request_id, epoch, reason, now_ns)
            case ErrorReply(code=ErrorCode.HELLO_FIRST):
                self._lose("the server does not know this session: it has restarted", now_ns)
            case ErrorReply(code=ErrorCode.PICTURES_LOST, request_id=int(request_id), epoch=int(epoch)):
                credit.send_whole(request_id, epoch, now_ns)
            case ErrorReply(request_id=int(request_id), epoch=int(epoch)):
                said = f"{message.code.value}: {printable(message.message)}"
                credit.fail(request_id, epoch, said, now_ns)
            case ErrorReply():
                self.ignored[f"error reply {message.code.value}"] += 1
            case Goodbye():
                self._lose("the server said goodbye", now_ns)
            case _:
                self.ignored["out of place"] += 1

    def _receive_undecodable(self, error: ProtocolError, now_ns: int) -> None:
        if isinstance(error, VersionMismatchError) and self.state is ClientState.GREETING:
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
        elif self._credit is not None and error.request_id is not None and error.epoch is not None:
            reason = f"the server's answer was dropped: {said}"
            self._credit.fail(error.request_id, error.epoch, reason, now_ns)

    def _is_ours(self, client_id: str, session: int) -> bool:
        if client_id == self._client_id and session == self.session_id:
            return True
        self.ignored["another session"] += 1
        return False

    def _greet(self, now_ns: int) -> None:
        """Begin a session; at once, unless the last one began just now."""
        self.state = ClientState.GREETING
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

    def _become_ready(self, welcome: Welcome, now_ns: int) -> None:
        differences = mismatches(robot=self._hello.schema, policy=welcome.info.schema)
        if differences:
            reason = f"robot {self._hello.robot!r} does not fit policy {welcome.info.name!r}: "
            self._refuse(RefusalCode.SCHEMA, printable(reason + "; ".join(differences))[:MAX_REASON], now_ns)
            return
        info = welcome.info
        self._alignment = Alignment.between(
            robot=self._hello.schema, policy=info.schema, action_spec=info.action_spec
        )
        self.state = ClientState.READY
        self._was_ready, self._was_told = True, False
        self._credit = InFlightRequests(welcome, send=self._send, emit=self._emit, ignored=self.ignored)
        self._heartbeat_ns = welcome.heartbeat_ns
        self._round_trip = RoundTrip()
        self._silent_ns, self._looked_ns = 0, now_ns
        self._beat(now_ns)
        aligned = aligned_info(info, self._alignment, robot=self._hello.schema)
        self._events.append(ServerReady(welcome=structs.replace(welcome, info=aligned)))

    def _emit(self, event: Event) -> None:
        """Hand an event on, rows in the robot's own order."""
        alignment = self._alignment
        if isinstance(event, PartReceived) and alignment is not None and alignment.rows is not None:
            part = structs.replace(event.part, rows=alignment.ours(event.part.rows))
            event = structs.replace(event, part=part)
        self._events.append(event)

    def _refuse(self, code: RefusalCode, reason: str, now_ns: int) -> None:
        may_change = code is RefusalCode.FULL or self._was_ready
        if may_change:
            self._hello_ns = now_ns + FULL_NS
        else:
            self.state = ClientState.REFUSED
        if not (may_change and self._was_told):
            self._events.append(ServerRefused(code=code, reason=reason))
        self._was_told = True

    def _lose(self, reason: str, now_ns: int) -> None:
        if self._credit is not None:
            self._credit.fail_all("server lost")
            self._credit = None
        self._beats.clear()
        self._events.append(ServerLost(reason=reason))
        self._greet(now_ns)

    def _beat(self, now_ns: int) -> None:
        self._send(Heartbeat(t_ns=now_ns))
        self._beats.append(now_ns)
        self._next_heartbeat_ns = now_ns + self._pace_ns()

    def _pace_ns(self) -> int:
        """From one heartbeat to the next."""
        slowest_ns = max(self._heartbeat_ns, MAX_PACE_NS)
        return min(max(self._heartbeat_ns, (self._round_trip.mean_ns or 0) // 4), slowest_ns)

    def _send(self, message: Message, sent: SentImages | None = None) -> None:
        self._outbox.append(Packet(self._client_id, self.session_id, message, sent))
