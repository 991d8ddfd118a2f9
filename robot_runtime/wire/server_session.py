"""The server's side of all conversations, without I/O.

Theory of operation
-------------------
One entry per client, keyed by the peer's address on the ROUTER socket. A client that reconnects comes from a
new address and coexists with its older self, which goes when its connection ends (`forget`) or falls silent:
no client can displace another. A peer that greets again in the same session is welcomed again and keeps its
requests. All other peers get `hello_first`, so that a client notices a restarted server at its next
heartbeat. The handlers of messages are in the table at the end of this file.

A request names the earlier ones of its client that it follows (`ChunkRequest.in_flight`); it replaces the
others. Stages, order and ends of requests are handled by `RequestQueue`. The policy gets a request with the
rows that the answers it follows will have changed (`OpenAnswers`), so it starts only when those have ended.
Which of the startable requests start, and together, is the owner's choice; it calls `is_wanted` to find out
that a running job is over.

A peer's packets count against it before the server works on them: `lets_in` counts a packet unread, the
session is compared before the request, its numbers and sizes before it waits, and images stay encoded
until the policy needs them. A peer that sends more than PACKETS_PER_S is informed, and ignored until it is
forgotten. Where all slots are taken, a client that asks nothing gives its slot to a newcomer; those that
are refused and ask again get slots in the order of their first request, so a crowd keeps no newcomer out.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from robot_runtime.core.method.sampler_parts import SamplerPart
from robot_runtime.core.plan.overlap import OpenAnswers
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_S, ChunkPart
from robot_runtime.wire.admission import PACKETS_PER_S, PeerRates, misfit, refusal
from robot_runtime.wire.arrays import Picture
from robot_runtime.wire.fields import MAX_REASON
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.kept_pictures import KeptPictures, is_missing
from robot_runtime.wire.messages import (
    FULL_NS,
    Cancel,
    DropReason,
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
from robot_runtime.wire.request_queue import QueuedRequest, RequestQueue

SILENCE_NS = 20 * NS_PER_S
"""A client that is silent for this long is forgotten; this allows for lossy links of 2 s each way."""
MAX_CLIENTS = 64
_MUTED_NS = NS_PER_S
IDLE_NS, NEW_NS = 10 * NS_PER_S, 2 * NS_PER_S
"""A client that has asked nothing for this long, or not once since it came, keeps its slot only while no
other client wants it."""
LINE_NS = 3 * FULL_NS
"""A newcomer that was refused keeps its position in the queue for this long."""
MAX_DEADLINE_NS = 60 * NS_PER_S
"""No request is kept for longer."""
MAX_KEPT_BYTES = 256 * 1024 * 1024
"""Limit for all images that are kept for a policy that looks back."""


class RequestSeen(Struct, frozen=True, kw_only=True):
    """A request in the server, for monitoring."""

    waited_ns: int
    """Time since its arrival [ns]."""
    left_ns: int
    """Time until its answer is no longer wanted [ns]."""
    is_running: bool


class RobotSeen(Struct, frozen=True, kw_only=True):
    """A robot that has greeted, for monitoring."""

    name: str
    silent_ns: int
    """Time since its last packet [ns]."""
    num_answered: int
    requests: tuple[RequestSeen, ...]


@dataclass(eq=False, slots=True, kw_only=True)
class _Client:
    client_id: str
    session: int
    robot: str
    """The name that it gives itself."""
    heard_ns: int
    idle_ns: int
    """When it counts as idle, if it makes no request before."""
    answers: OpenAnswers
    pictures: KeptPictures = field(default_factory=KeptPictures)
    num_answered: int = 0
    """Requests of which all rows were sent."""
    is_muted: bool = False
    """It has sent too much: it was informed, is ignored, and is soon forgotten."""


class ServerSession:
    """All clients of one policy; owned and called by one thread."""

    def __init__(
        self,
        welcome: Welcome,
        *,
        policies: Collection[str] = (),
        expected_ns: Callable[[bytes, SamplerPart], int | None] = lambda peer, sampler: None,
    ) -> None:
        """
        policies: of the whole server, for robots that ask for another one.
        expected_ns: the duration of a sampler part for a peer [ns]; None if it is the policy's ordinary work.
        """
        self.ignored: Counter[str] = Counter()
        """Packets that changed nothing, by cause."""
        self._is_draining = False
        self._welcome = welcome
        self._readiness: Readiness | None = None
        self._policies = policies or (welcome.info.name,)
        self._expected_ns = expected_ns
        self._clients: dict[bytes, _Client] = {}
        self._newcomers: dict[bytes, int] = {}  # refused newcomers, and until when they keep their position
        self._queue = RequestQueue(self._tell)
        self.outcomes = self._queue.outcomes
        self._rates = PeerRates()
        self._outbox: list[tuple[bytes, Packet]] = []
        self._next_timer_ns: int | None = None

    @property
    def num_clients(self) -> int:
        return len(self._clients)

    @property
    def num_waiting(self) -> int:
        """Requests that have not started."""
        return self._queue.num_waiting

    def robots(self, now_ns: int) -> tuple[RobotSeen, ...]:
        """Return all robots that have greeted, with their requests."""
        jobs: dict[bytes, list[QueuedRequest]] = {}
        for job in self._queue.jobs():
            jobs.setdefault(job.peer, []).append(job)
        return tuple(
            RobotSeen(
                name=client.robot,
                silent_ns=now_ns - client.heard_ns,
                num_answered=client.num_answered,
                requests=tuple(
                    RequestSeen(
                        waited_ns=now_ns - job.received_ns,
                        left_ns=job.expires_ns - now_ns,
                        is_running=self._queue.is_running(job),
                    )
                    for job in jobs.get(peer, ())
                ),
            )
            for peer, client in self._clients.items()
        )

    @property
    def is_drained(self) -> bool:
        """Whether nothing waits, nothing runs, and nothing more is accepted."""
        return self._is_draining and not self._queue.jobs()

    def drain(self) -> None:
        """Accept no more requests; those in the server are answered."""
        self._is_draining = True

    def packets_to_send(self) -> list[tuple[bytes, Packet]]:
        """Return the packets to send and their peers, oldest first."""
        out, self._outbox = self._outbox, []
        return out

    def knows(self, peer: bytes) -> bool:
        """Whether that peer has greeted."""
        return peer in self._clients

    def forget(self, peer: bytes) -> None:
        """Drop a peer that has left, and its requests."""
        self._newcomers.pop(peer, None)
        if self._clients.pop(peer, None) is not None:
            self._queue.forget(peer)

    def is_ready_for(self, readiness: Readiness) -> None:
        """Inform all clients of what is warm, and newcomers too while something is left."""
        self._readiness = readiness if readiness.pieces_left else None
        for peer in self._clients:
            self._tell(peer, readiness)

    def close(self) -> None:
        """Say goodbye to all clients."""
        for peer in list(self._clients):
            self._dismiss(peer)

    # ---- arrivals --- ---------------------------------------------------------------------------------

    def lets_in(self, peer: bytes, num_bytes: int, now_ns: int) -> bool:
        """Return whether to read a packet of that peer; a peer that has sent too many loses its session."""
        client = self._clients.get(peer)
        is_muted = client is not None and client.is_muted
        if not is_muted and self._rates.take(peer, num_bytes, now_ns, is_known=client is not None):
            return True
        self.ignored["too fast"] += 1
        if client is not None and not is_muted:
            reason = f"more than {PACKETS_PER_S} packets a second: this session is over"
            self._tell(peer, ErrorReply(code=ErrorCode.TOO_FAST, message=reason))
            self._queue.forget(peer)
            client.is_muted = True
            client.heard_ns = now_ns - SILENCE_NS + _MUTED_NS
            self._wake_by(now_ns + _MUTED_NS)
        return False

    def receive(
        self, peer: bytes, received: Packet | ProtocolError, now_ns: int, *, key: str | None = None
    ) -> bool:
        """Handle an admitted packet; return whether it is a request that waits now.

        key: of a greeting, the robot's name by the peer's key; None without keys.
        """
        if isinstance(received, ProtocolError):
            self._receive_undecodable(peer, received)
            return False
        client = self._clients.get(peer)
        is_client = client is not None and (client.client_id, client.session) == (
            received.client_id,
            received.session,
        )
        handler = _HANDLERS.get((is_client, type(received.message)))
        if client is not None and is_client:
            client.heard_ns = now_ns
        if handler is not None:
            return bool(handler(self, peer, received, now_ns, key))
        if is_client:
            self.ignored["out of place"] += 1
        else:
            self.ignored["of a stranger"] += 1
            reason = "this server does not know your session: say Hello first"
            self._reply(peer, received, ErrorReply(code=ErrorCode.HELLO_FIRST, message=reason))
        return False

    def next_timer_ns(self) -> int | None:
        """Return when `handle_timer` has to be called; never later than the first thing that is due."""
        return self._next_timer_ns

    def handle_timer(self, now_ns: int) -> None:
        """Forget silent clients and drop requests past their deadline."""
        if self._next_timer_ns is None or now_ns < self._next_timer_ns:
            return
        for peer, client in list(self._clients.items()):
            if now_ns >= client.heard_ns + SILENCE_NS:
                self.forget(peer)
        for job in self._queue.jobs():
            if now_ns >= job.expires_ns:
                self._queue.end(job, DropReason.DEADLINE)
        times = [client.heard_ns + SILENCE_NS for client in self._clients.values()]
        times += [job.expires_ns for job in self._queue.jobs()]
        self._next_timer_ns = min(times, default=None)

    # ---- requests, for the owner --- ------------------------------------------------------------

    def startable(self) -> list[QueuedRequest]:
        """Return the requests that may start now, at most one of each client, most urgent first."""
        return self._queue.startable()

    def start(self, job: QueuedRequest) -> QueuedRequest | None:
        """Run a startable job; return it as the policy gets it, None if its plan is invalid."""
        return self._queue.start(job, self._clients[job.peer].answers.shown)

    def shed(self, job: QueuedRequest) -> None:
        """Drop a job that would be too late, or has run for too long, so that others are in time."""
        self._queue.end(job, DropReason.OVERLOADED)

    def is_wanted(self, job: QueuedRequest) -> bool:
        """Return False once a running job was cancelled, replaced, is too late, or its client is gone."""
        return self._queue.is_running(job)

    def rows_ready(self, job: QueuedRequest, part: ChunkPart) -> None:
        """Send final rows of a running job; they are dropped if they are no longer wanted."""
        if not self.is_wanted(job):
            return
        self._clients[job.peer].answers.add(job.request, part.rows)
        self._tell(job.peer, part)
        if part.is_last:
            self._clients[job.peer].num_answered += 1
            self._queue.answered(job)

    def job_failed(self, job: QueuedRequest, error: ErrorReply) -> None:
        """End a running job without the rest of its rows."""
        self._queue.end(job, error.code, error.message)

    # ---- handlers of messages -------------------------------------------------------------------

    def _welcome_again(self, peer: bytes, packet: Packet, now_ns: int, key: str | None) -> None:
        self._say_welcome(peer)

    def _say_welcome(self, peer: bytes) -> None:
        """Send what is warm first, so that a welcomed client knows it."""
        if self._readiness is not None:
            self._tell(peer, self._readiness)
        self._tell(peer, self._welcome)

    def _receive_hello(self, peer: bytes, packet: Packet, now_ns: int, key: str | None) -> None:
        hello = packet.message
        assert isinstance(hello, Hello)
        if peer in self._clients:
            self.forget(peer)
        refused = refusal(hello, self._welcome.info, policies=self._policies, key=key)
        if refused is None and not self._has_slot(peer, now_ns):
            reason = f"the server has {MAX_CLIENTS} clients already"
            refused = Refused(code=RefusalCode.FULL, reason=reason)
        if refused is not None:
            self.ignored[f"refused: {refused.code.value}"] += 1
            self._reply(peer, packet, refused)
            return
        self._clients[peer] = _Client(
            client_id=packet.client_id,
            session=packet.session,
            robot=hello.robot,
            heard_ns=now_ns,
            idle_ns=now_ns + NEW_NS,
            answers=OpenAnswers(self._welcome.info.action_spec),
        )
        self._wake_by(now_ns + SILENCE_NS)
        self._say_welcome(peer)

    def _receive_request(self, peer: bytes, packet: Packet, now_ns: int, key: str | None) -> bool:
        """Return whether the request waits now."""
        request, pictures = packet.message, packet.pictures
        assert isinstance(request, ChunkRequest)
        self._clients[peer].idle_ns = now_ns + IDLE_NS
        deadline_ns = min(request.deadline_ns, MAX_DEADLINE_NS)
        info, took_ns = self._welcome.info, self._expected_ns(peer, request.sampler)
        why = misfit(request, pictures, info, expected_ns=took_ns, useful_ns=deadline_ns)
        if why is not None:
            self._queue.refuse(peer, request, ErrorCode.BAD_REQUEST, why)
            return False
        if info.n_obs_steps > 1:
            pictures = self._clients[peer].pictures.resolved(pictures)
            if lost := [picture.key for picture in pictures if is_missing(picture)]:
                why = f"images {lost} are not here: send them again"
                self._queue.refuse(peer, request, ErrorCode.PICTURES_LOST, why)
                return False
            self._keep(peer, pictures)
        if self._is_draining:
            self._queue.refuse(peer, request, DropReason.CLOSING)
            return False
        expires_ns = now_ns + deadline_ns
        self._queue.put(
            QueuedRequest(
                peer=peer, request=request, received_ns=now_ns, expires_ns=expires_ns, pictures=pictures
            )
        )
        self._wake_by(expires_ns)
        return True

    def _receive_heartbeat(self, peer: bytes, packet: Packet, now_ns: int, key: str | None) -> None:
        self._tell(peer, packet.message)

    def _receive_cancel(self, peer: bytes, packet: Packet, now_ns: int, key: str | None) -> None:
        cancel = packet.message
        assert isinstance(cancel, Cancel)
        for job in self._queue.jobs():
            if job.peer == peer and job.identity == (cancel.request_id, cancel.epoch):
                self._queue.end(job, DropReason.CANCELLED)

    def _receive_goodbye(self, peer: bytes, packet: Packet, now_ns: int, key: str | None) -> None:
        self.forget(peer)

    def _receive_undecodable(self, peer: bytes, error: ProtocolError) -> None:
        self.ignored["not a message"] += 1
        reply: Message
        if error.their_version is not None:
            reason = f"{error} (this side is the server, the peer the robot)"[:MAX_REASON]
            reply = Refused(code=RefusalCode.VERSION, reason=reason)
        else:
            ids = {"request_id": error.request_id, "epoch": error.epoch}
            reply = ErrorReply(code=ErrorCode.PROTOCOL, message=str(error)[:MAX_REASON], **ids)
        self._outbox.append((peer, Packet(error.client_id, error.session, reply)))

    # ---- admission --- ---------------------------------------------------------------------

    def _has_slot(self, peer: bytes, now_ns: int) -> bool:
        """Return whether a newcomer gets a slot; an idle client may lose its own.

        Newcomers that were refused and ask again are served in the order of their first arrival.
        """
        self._newcomers = {
            p: until_ns for p, until_ns in self._newcomers.items() if p == peer or now_ns < until_ns
        }
        ahead = next((i for i, p in enumerate(self._newcomers) if p == peer), len(self._newcomers))
        idle = sorted((c.idle_ns, p) for p, c in self._clients.items() if now_ns >= c.idle_ns)
        if ahead >= MAX_CLIENTS - len(self._clients) + len(idle):
            self._newcomers[peer] = now_ns + LINE_NS
            return False
        self._newcomers.pop(peer, None)
        if len(self._clients) >= MAX_CLIENTS:
            self.ignored["gave its place to another"] += 1
            self._dismiss(idle[0][1])
        return True

    def _keep(self, peer: bytes, pictures: tuple[Picture, ...]) -> None:
        """Keep images for the client's next request; without room, the client that keeps most loses them."""
        self._clients[peer].pictures.keep(pictures)
        everyone = [client.pictures for client in self._clients.values()]
        while sum(each.num_bytes for each in everyone) > MAX_KEPT_BYTES:
            max(everyone, key=lambda each: each.num_bytes).forget()

    # ---- replies --- -----------------------------------------------------------------------------------

    def _dismiss(self, peer: bytes) -> None:
        self._tell(peer, Goodbye())
        self.forget(peer)

    def _tell(self, peer: bytes, message: Message) -> None:
        client = self._clients[peer]
        self._outbox.append((peer, Packet(client.client_id, client.session, message)))

    def _reply(self, peer: bytes, received: Packet, message: Message) -> None:
        self._outbox.append((peer, Packet(received.client_id, received.session, message)))

    def _wake_by(self, due_ns: int) -> None:
        self._next_timer_ns = due_ns if self._next_timer_ns is None else min(self._next_timer_ns, due_ns)


_HANDLERS: MappingProxyType[tuple[bool, type], Callable[..., Any]] = MappingProxyType(
    {
        (False, Hello): ServerSession._receive_hello,
        (True, Hello): ServerSession._welcome_again,
        (True, Heartbeat): ServerSession._receive_heartbeat,
        (True, ChunkRequest): ServerSession._receive_request,
        (True, Cancel): ServerSession._receive_cancel,
        (True, Goodbye): ServerSession._receive_goodbye,
    }
)
"""Whether it is of a session that has greeted, and its message, to the handler. Any other changes nothing but
`ignored`; an unknown peer gets `hello_first`."""
