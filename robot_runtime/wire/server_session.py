"""The server's side of all conversations, without I/O.

Theory of operation
-------------------
One entry per client, keyed by the peer's address on the ROUTER socket. A client that reconnects comes from a
new address and stands beside its older self, which goes when its connection ends (`forget`) or falls silent:
nobody is put out by what another says. A peer that greets again in the same session is welcomed again and
keeps its requests. Everybody else gets `hello_first`, so that a client notices a restarted server at its next
heartbeat.

A request names the earlier ones of its client that it follows (`ChunkRequest.in_flight`); the others give way
to it. A client has one request running and those queued that the newest follows, first come, first served;
of several clients the most urgent comes first (`Line`). The policy is shown a request with the rows that the
answers it follows will have changed (`SentAnswers`), so it starts only when those have ended. Which of those
that may start do so, and together, is for the owner to choose.

    a request is   what happens                         next      the client is told
    (new)          request                              queued    queued ones that it does not name:
                                                                  Dropped(superseded)
    (new)          request that does not fit the policy over      ErrorReply(bad_request)
    (new)          request that takes longer than its   over      ErrorReply(bad_request)
                   answer is of use
    (new)          request that names pictures which    over      ErrorReply(pictures_lost): it sends it again
                   the one before has not shown
    queued         more waits than MAX_QUEUED_BYTES     over      Dropped(overloaded): the oldest of whoever
                                                                  holds most
    queued         start(), none running that it names  running
    queued         start(), unreadable plan             over      ErrorReply(bad_request)
    queued         shed()                               over      Dropped(overloaded)
    running        rows_ready()                         running   ChunkReply
    running        rows_ready(is_last)                  over      ChunkReply
    running        job_failed()                         over      ErrorReply
    (new)          request after drain()                over      Dropped(closing)
    queued|running handle_timer() after its deadline    over      Dropped(deadline)
    queued|running Cancel                               over      Dropped(cancelled)
    running        start() of its client, unnamed       over      Dropped(superseded)
    queued|running Goodbye, silence, greets again       over

The owner asks `is_wanted` to find out that a job it runs is over.

What a peer sends costs it before it costs the server: `lets_in` counts a packet before it is read, the
session is compared before the message is looked at, the header with the policy before the arrays, and images
stay as they came until the policy is to see them. Who sends more than PACKETS_PER_S is told so, and not
listened to until it is forgotten. Where all places are taken, a client that asks nothing gives its place to a
newcomer.
"""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from robot_runtime.core.method.sampler_parts import SamplerPart
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import NS_PER_S, ChunkPart
from robot_runtime.core.values.mismatches import mismatches
from robot_runtime.wire.admission import PACKETS_PER_S, Fit, PeerRates
from robot_runtime.wire.arrays import Picture
from robot_runtime.wire.codec import Sealed
from robot_runtime.wire.fields import MAX_REASON
from robot_runtime.wire.frames import ProtocolError, VersionMismatchError
from robot_runtime.wire.kept_pictures import KeptPictures, is_missing
from robot_runtime.wire.messages import (
    Cancel,
    ChunkReply,
    Dropped,
    DropReason,
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
from robot_runtime.wire.payloads import WireHello, WireRequest
from robot_runtime.wire.request_queue import QueuedRequest, RequestQueue
from robot_runtime.wire.sent_answers import SentAnswers

SILENCE_NS = 20 * NS_PER_S
"""A client that says nothing for so long is forgotten: over links of 2 s each way that lose packets, too."""
MAX_CLIENTS = 64
_MUTED_NS = NS_PER_S
IDLE_NS, NEW_NS = 10 * NS_PER_S, 2 * NS_PER_S
"""A client that has asked nothing for so long, or not once since it came, keeps its place only while nobody
else wants it."""
MAX_DEADLINE_NS = 60 * NS_PER_S
"""No request is kept for longer."""
MAX_QUEUED_BYTES = 512 * 1024 * 1024
"""Of all requests that wait, images and plans as they came."""
MAX_KEPT_BYTES = 256 * 1024 * 1024
"""Of all pictures that are kept for a policy that looks back."""


@dataclass(eq=False, slots=True)
class _Client:
    client_id: str
    session: int
    heard_ns: int
    idle_ns: int
    """When it may be called idle, if it does not ask before."""
    answers: SentAnswers
    pictures: KeptPictures
    is_muted: bool = False
    """It has sent too much: told so, not listened to, and soon forgotten."""

    @property
    def identity(self) -> tuple[str, int]:
        """Client id and session."""
        return self.client_id, self.session


class ServerSession:
    """All clients of one policy; owned and called by one thread."""

    def __init__(
        self,
        welcome: Welcome,
        *,
        policies: Collection[str] = (),
        expected_ns: Callable[[SamplerPart], int | None] = lambda sampler: None,
    ) -> None:
        """
        policies: of the whole server, for robots that ask for one that this is not.
        expected_ns: as for `Fit`.
        """
        self.ignored: Counter[str] = Counter()
        """Packets that changed nothing, by cause."""
        self.outcomes: Counter[str] = Counter()
        """Requests by how they ended: answered, a `DropReason`, an `ErrorCode`; none of robots that left."""
        self._is_draining = False
        self._welcome = welcome
        self._policies = policies or (welcome.info.name,)
        self._fit = Fit(
            schema=welcome.info.schema,
            spec=welcome.info.action_spec,
            expected_ns=expected_ns,
            tasks=welcome.info.tasks,
            n_obs_steps=welcome.info.n_obs_steps,
        )
        self._looks_back = welcome.info.n_obs_steps > 1
        self._clients: dict[bytes, _Client] = {}
        self._line = RequestQueue()
        self._running: dict[bytes, tuple[QueuedRequest, int]] = {}  # peer -> (job, time it waited)
        self._rates = PeerRates()
        self._outbox: list[tuple[bytes, Packet]] = []
        self._next_timer_ns: int | None = None

    @property
    def num_clients(self) -> int:
        return len(self._clients)

    @property
    def num_waiting(self) -> int:
        """Requests that have not started."""
        return len(self._line.jobs())

    @property
    def is_drained(self) -> bool:
        """Nothing waits, nothing runs, and nothing is taken any more."""
        return self._is_draining and not self._open_jobs()

    def drain(self) -> None:
        """Take no more requests; those that are there are answered."""
        self._is_draining = True

    def packets_to_send(self) -> list[tuple[bytes, Packet]]:
        """What has to go out and to which peer, oldest first."""
        out, self._outbox = self._outbox, []
        return out

    def knows(self, peer: bytes) -> bool:
        """Whether that peer has greeted."""
        return peer in self._clients

    def lets_in(self, peer: bytes, num_bytes: int, now_ns: int) -> bool:
        """Whether to read a packet of that peer; the session of one that has sent too many is over."""
        client = self._clients.get(peer)
        is_muted = client is not None and client.is_muted
        if not is_muted and self._rates.take(peer, num_bytes, now_ns, is_known=client is not None):
            return True
        self.ignored["too fast"] += 1
        if client is not None and not is_muted:
            reason = f"more than {PACKETS_PER_S} packets a second: this session is over"
            self._tell(peer, ErrorReply(code=ErrorCode.TOO_FAST, message=reason))
            self._drop_requests(peer)
            client.is_muted = True
            client.heard_ns = now_ns - SILENCE_NS + _MUTED_NS
            self._wake_by(now_ns + _MUTED_NS)
        return False

    def receive(
        self, peer: bytes, received: Sealed | ProtocolError, now_ns: int, *, key: str | None = None
    ) -> bool:
        """Take a packet that was let in; True if it is a request of a known client, and fits.

        key: of a greeting, the robot's name that the peer's key stands for; None without keys.
        """
        client = self._clients.get(peer)
        try:
            if isinstance(received, ProtocolError):
                raise received
            if isinstance(received.form, WireHello):
                self._receive_hello(peer, received, now_ns, key=key)
            elif client is None or client.identity != (received.client_id, received.session):
                self.ignored["of a stranger"] += 1
                reason = "this server does not know your session: say Hello first"
                self._reply(peer, received, ErrorReply(code=ErrorCode.HELLO_FIRST, message=reason))
            else:
                client.heard_ns = now_ns
                return self._receive_known(peer, client, received, now_ns)
        except ProtocolError as error:
            self._receive_undecodable(peer, error)
        return False

    def startable(self) -> list[QueuedRequest]:
        """The requests that may start now, at most one of each client, most urgent first."""
        return self._line.heads(self._may_start)

    def start(self, job: QueuedRequest, now_ns: int) -> QueuedRequest | None:
        """Run a startable job; returns it as the policy is to see it, None if it cannot be read."""
        peer = job.peer
        self._line.remove(job)
        if peer in self._running:
            self._tell_dropped(self._running.pop(peer)[0], DropReason.SUPERSEDED)
        try:
            request = self._clients[peer].answers.shown(job.request)
        except ValueError as error:
            self._tell_error(peer, job.request, ErrorCode.BAD_REQUEST, str(error))
            return None
        if request is not job.request:
            job = replace(job, request=request)
        self._running[peer] = (job, now_ns - job.received_ns)
        return job

    def shed(self, job: QueuedRequest) -> None:
        """Give up a queued job that would be too late, so that others are not."""
        self._line.remove(job)
        self._tell_dropped(job, DropReason.OVERLOADED)

    def _may_start(self, job: QueuedRequest) -> bool:
        running = self._running.get(job.peer)
        return running is None or not job.request.follows(running[0].request)

    def is_wanted(self, job: QueuedRequest) -> bool:
        """False once a running job was cancelled, replaced, is too late, or its client is gone."""
        return job.peer in self._running and self._running[job.peer][0] is job

    def rows_ready(
        self, job: QueuedRequest, *, first_row: int, rows: np.ndarray, is_last: bool, infer_ns: int
    ) -> None:
        """Rows of a running job are final; dropped if nobody wants them any more."""
        if not self.is_wanted(job):
            return
        _, queue_ns = self._running[job.peer]
        self._clients[job.peer].answers.add(job.request, rows)
        part = ChunkPart(
            request_id=job.request.request_id,
            epoch=job.request.epoch,
            t_obs_ns=job.request.observation.t_obs_ns,
            first_row=first_row,
            rows=rows,
            is_last=is_last,
        )
        self._tell(job.peer, ChunkReply(part=part, queue_ns=queue_ns, infer_ns=infer_ns))
        if is_last:
            del self._running[job.peer]
            self.outcomes["answered"] += 1

    def job_failed(self, job: QueuedRequest, code: ErrorCode, message: str) -> None:
        """A running job ends without the rest of its rows."""
        if self.is_wanted(job):
            del self._running[job.peer]
            self._tell_error(job.peer, job.request, code, message)

    def next_timer_ns(self) -> int | None:
        """When `handle_timer` wants to be called; never later than the first thing that is due."""
        return self._next_timer_ns

    def handle_timer(self, now_ns: int) -> None:
        """Forget silent clients and drop what is past its deadline."""
        if self._next_timer_ns is None or now_ns < self._next_timer_ns:
            return
        for peer, client in list(self._clients.items()):
            if now_ns >= client.heard_ns + SILENCE_NS:
                self.forget(peer)
        for job in self._open_jobs():
            if now_ns >= job.expires_ns:
                self._remove(job)
                self._tell_dropped(job, DropReason.DEADLINE)
        times = [client.heard_ns + SILENCE_NS for client in self._clients.values()]
        times += [job.expires_ns for job in self._open_jobs()]
        self._next_timer_ns = min(times, default=None)

    def close(self) -> None:
        """Say goodbye to everybody."""
        for peer in list(self._clients):
            self._tell(peer, Goodbye())
            self.forget(peer)

    def _receive_known(self, peer: bytes, client: _Client, received: Sealed, now_ns: int) -> bool:
        match received.form:
            case Heartbeat(t_ns=t_ns):
                self._tell(peer, HeartbeatReply(t_ns=t_ns))
            case WireRequest() as form:
                client.idle_ns = now_ns + IDLE_NS
                return self._receive_request(peer, received, form, now_ns)
            case Cancel(request_id=request_id, epoch=epoch):
                for job in self._open_jobs():
                    if job.peer == peer and job.identity == (request_id, epoch):
                        self._remove(job)
                        self._tell_dropped(job, DropReason.CANCELLED)
            case Goodbye():
                self.forget(peer)
            case _:
                self.ignored["out of place"] += 1
        return False

    def _receive_hello(self, peer: bytes, received: Sealed, now_ns: int, *, key: str | None) -> None:
        known = self._clients.get(peer)
        if known is not None and known.identity == (received.client_id, received.session):
            known.heard_ns = now_ns
            self._tell(peer, self._welcome)
            return
        if known is not None:
            self.forget(peer)
        hello, _ = received.message()
        assert isinstance(hello, Hello)
        refused = self._refusal(hello, key)
        if refused is None and not self._has_place(now_ns):
            reason = f"the server has {MAX_CLIENTS} clients already"
            refused = Refused(code=RefusalCode.FULL, reason=reason)
        if refused is not None:
            self.ignored[f"refused: {refused.code.value}"] += 1
            self._reply(peer, received, refused)
            return
        answers = SentAnswers(self._welcome.info.action_spec)
        idle_ns = now_ns + NEW_NS
        self._clients[peer] = _Client(
            received.client_id, received.session, now_ns, idle_ns, answers, KeptPictures()
        )
        self._wake_by(now_ns + SILENCE_NS)
        self._tell(peer, self._welcome)

    def _refusal(self, hello: Hello, key: str | None) -> Refused | None:
        """Why that robot will not be worked with; None if it fits."""
        if key is not None and hello.robot != key:
            reason = f"this is the key of robot {key!r}, not of {hello.robot!r}"
            return Refused(code=RefusalCode.KEY, reason=reason[:MAX_REASON])
        if hello.policy != self._welcome.info.name and (hello.policy or len(self._policies) > 1):
            asked = f"no policy {hello.policy!r}" if hello.policy else "more than one policy: name yours"
            reason = f"this server has {asked}; it has {', '.join(self._policies)}"
            return Refused(code=RefusalCode.POLICY, reason=reason[:MAX_REASON])
        differences = mismatches(robot=hello.schema, policy=self._welcome.info.schema)
        if not differences:
            return None
        names = f"robot {hello.robot!r} does not fit policy {self._welcome.info.name!r}: "
        return Refused(code=RefusalCode.SCHEMA, reason=(names + "; ".join(differences))[:MAX_REASON])

    def _has_place(self, now_ns: int) -> bool:
        """Whether one more client may come; the one that has asked nothing for longest may have to go."""
        if len(self._clients) < MAX_CLIENTS:
            return True
        peer, client = min(self._clients.items(), key=lambda item: item[1].idle_ns)
        if now_ns < client.idle_ns:
            return False
        self.ignored["gave its place to another"] += 1
        self._tell(peer, Goodbye())
        self.forget(peer)
        return True

    def _receive_request(self, peer: bytes, received: Sealed, form: WireRequest, now_ns: int) -> bool:
        deadline_ns = min(form.deadline_ns, MAX_DEADLINE_NS)
        misfit = self._fit.misfit(form)
        if misfit is not None:
            self._tell_error(peer, form, ErrorCode.BAD_REQUEST, misfit)
            return False
        request, pictures = received.message()
        assert isinstance(request, ChunkRequest)
        misfit = self._fit.misfit_of_rows(request.prev_action_chunk)
        misfit = misfit or self._fit.misfit_of_work(request.sampler, deadline_ns)
        if misfit is not None:
            self._tell_error(peer, form, ErrorCode.BAD_REQUEST, misfit)
            return False
        if self._looks_back:
            known = self._with_kept(peer, form, pictures)
            if known is None:
                return False
            pictures = known
        expires_ns = now_ns + deadline_ns
        job = QueuedRequest(
            peer=peer, request=request, received_ns=now_ns, expires_ns=expires_ns, pictures=pictures
        )
        if self._is_draining:
            self._tell_dropped(job, DropReason.CLOSING)
            return False
        for older in self._line.put(job):
            self._tell_dropped(older, DropReason.SUPERSEDED)
        while self._line.num_bytes > MAX_QUEUED_BYTES:
            self.shed(self._line.largest())
        self._wake_by(expires_ns)
        return True

    def _with_kept(
        self, peer: bytes, form: WireRequest, pictures: tuple[Picture, ...]
    ) -> tuple[Picture, ...] | None:
        """A request's pictures, those among them that the one before has shown; None if some are lost."""
        kept = self._clients[peer].pictures
        pictures = kept.resolved(pictures)
        if lost := [picture.form.key for picture in pictures if is_missing(picture)]:
            self.ignored["names lost pictures"] += 1
            reason = f"pictures {lost} are not here: send them again"[:MAX_REASON]
            ids = {"request_id": form.request_id, "epoch": form.epoch}
            self._tell(peer, ErrorReply(code=ErrorCode.PICTURES_LOST, message=reason, **ids))
            return None
        kept.keep(pictures)
        everyone = [client.pictures for client in self._clients.values()]
        while sum(each.num_bytes for each in everyone) > MAX_KEPT_BYTES:
            max(everyone, key=lambda each: each.num_bytes).forget()
        return pictures

    def _receive_undecodable(self, peer: bytes, error: ProtocolError) -> None:
        self.ignored["not a message"] += 1
        reply: Message
        if isinstance(error, VersionMismatchError):
            reason = f"{error} (this side is the server, the peer the robot)"[:MAX_REASON]
            reply = Refused(code=RefusalCode.VERSION, reason=reason)
        else:
            ids = {"request_id": error.request_id, "epoch": error.epoch}
            reply = ErrorReply(code=ErrorCode.PROTOCOL, message=str(error)[:MAX_REASON], **ids)
        self._outbox.append((peer, Packet(error.client_id, error.session, reply)))

    def _wake_by(self, due_ns: int) -> None:
        self._next_timer_ns = due_ns if self._next_timer_ns is None else min(self._next_timer_ns, due_ns)

    def _open_jobs(self) -> list[QueuedRequest]:
        return [*self._line.jobs(), *(job for job, _ in self._running.values())]

    def _remove(self, job: QueuedRequest) -> None:
        self._line.remove(job)
        if self.is_wanted(job):
            del self._running[job.peer]

    def forget(self, peer: bytes) -> None:
        """A client has left, and all that it waits for with it."""
        del self._clients[peer]
        self._drop_requests(peer)

    def _drop_requests(self, peer: bytes) -> None:
        self._line.forget(peer)
        self._running.pop(peer, None)

    def _tell(self, peer: bytes, message: Message) -> None:
        client = self._clients[peer]
        self._outbox.append((peer, Packet(client.client_id, client.session, message)))

    def _tell_dropped(self, job: QueuedRequest, reason: DropReason) -> None:
        self.outcomes[reason.value] += 1
        request_id, epoch = job.identity
        self._tell(job.peer, Dropped(request_id=request_id, epoch=epoch, reason=reason))

    def _tell_error(
        self, peer: bytes, request: ChunkRequest | WireRequest, code: ErrorCode, message: str
    ) -> None:
        self.outcomes[code.value] += 1
        ids = {"request_id": request.request_id, "epoch": request.epoch}
        self._tell(peer, ErrorReply(code=code, message=message[:MAX_REASON], **ids))

    def _reply(self, peer: bytes, received: Sealed, message: Message) -> None:
        self._outbox.append((peer, Packet(received.client_id, received.session, message)))
