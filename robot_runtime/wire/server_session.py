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
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from robot_runtime.core.action import NS_PER_S, ChunkPart
from robot_runtime.core.request import ChunkRequest
from robot_runtime.core.schema import mismatches
from robot_runtime.wire.admission import Fit, RateLimit
from robot_runtime.wire.frames import ProtocolError, VersionMismatchError
from robot_runtime.wire.jobs import Job, Line
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
from robot_runtime.wire.order import follows
from robot_runtime.wire.sent_answers import SentAnswers

SILENCE_NS = 20 * NS_PER_S
"""A client that says nothing for so long is forgotten: over links of 2 s each way that lose packets, too."""
MAX_CLIENTS = 64
MAX_REASON = 2000
"""Characters of a refusal or error."""
PACKETS_PER_S = 5000
"""Of one client; a robot needs about 40 heartbeats and up to 30 requests a second."""
STRANGER_PACKETS_PER_S = 200
"""Of all unknown peers together; beyond that they are not even answered."""


@dataclass(eq=False, slots=True)
class _Client:
    client_id: str
    session: int
    heard_ns: int
    rate: RateLimit
    answers: SentAnswers


class ServerSession:
    """All clients of one policy; owned and called by one thread."""

    def __init__(self, welcome: Welcome, *, policies: Collection[str] = ()) -> None:
        """policies: of the whole server, for robots that ask for one that this is not."""
        self.ignored: Counter[str] = Counter()
        """Packets that changed nothing, by cause."""
        self.outcomes: Counter[str] = Counter()
        """Requests by how they ended: answered, a `DropReason`, an `ErrorCode`; none of robots that left."""
        self._is_draining = False
        self._welcome = welcome
        self._policies = policies or (welcome.policy,)
        self._fit = Fit(schema=welcome.schema, spec=welcome.action_spec)
        self._clients: dict[bytes, _Client] = {}
        self._line = Line()
        self._running: dict[bytes, tuple[Job, int]] = {}  # peer -> (job, time it waited)
        self._strangers = RateLimit(per_s=STRANGER_PACKETS_PER_S, burst=STRANGER_PACKETS_PER_S)
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

    def receive(
        self, peer: bytes, received: Packet | ProtocolError, now_ns: int, *, key: str | None = None
    ) -> bool:
        """Take what decoding one arrival of that peer gave; True if it is a request of a known client.

        key: of a greeting, the robot's name that the peer's key stands for; None without keys.
        """
        client = self._clients.get(peer)
        rate = self._strangers if client is None else client.rate
        if not rate.take(now_ns):
            self._receive_too_fast(peer, client)
        elif isinstance(received, ProtocolError):
            self._receive_undecodable(peer, received)
        elif isinstance(received.message, Hello):
            self._receive_hello(peer, received, received.message, now_ns, key=key)
        elif client is None or (client.client_id, client.session) != (received.client_id, received.session):
            reason = "this server does not know your session: say Hello first"
            self._reply(peer, received, ErrorReply(code=ErrorCode.HELLO_FIRST, message=reason))
        else:
            client.heard_ns = now_ns
            self._receive_known(peer, received, now_ns)
            return isinstance(received.message, ChunkRequest)
        return False

    def startable(self) -> list[Job]:
        """The requests that may start now, at most one of each client, most urgent first."""
        return self._line.heads(self._may_start)

    def start(self, job: Job, now_ns: int) -> Job | None:
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

    def shed(self, job: Job) -> None:
        """Give up a queued job that would be too late, so that others are not."""
        self._line.remove(job)
        self._tell_dropped(job, DropReason.OVERLOADED)

    def _may_start(self, job: Job) -> bool:
        running = self._running.get(job.peer)
        return running is None or not follows(job.request, running[0].request)

    def is_wanted(self, job: Job) -> bool:
        """False once a running job was cancelled, replaced, is too late, or its client is gone."""
        return job.peer in self._running and self._running[job.peer][0] is job

    def rows_ready(self, job: Job, *, first_row: int, rows: np.ndarray, is_last: bool, infer_ns: int) -> None:
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

    def job_failed(self, job: Job, code: ErrorCode, message: str) -> None:
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

    def _receive_known(self, peer: bytes, packet: Packet, now_ns: int) -> None:
        match packet.message:
            case Heartbeat(t_ns=t_ns):
                self._tell(peer, HeartbeatReply(t_ns=t_ns))
            case ChunkRequest() as request:
                self._receive_request(peer, request, now_ns)
            case Cancel(request_id=request_id, epoch=epoch):
                for job in self._open_jobs():
                    if job.peer == peer and job.identity == (request_id, epoch):
                        self._remove(job)
                        self._tell_dropped(job, DropReason.CANCELLED)
            case Goodbye():
                self.forget(peer)
            case _:
                self.ignored["out of place"] += 1

    def _receive_hello(
        self, peer: bytes, packet: Packet, hello: Hello, now_ns: int, *, key: str | None
    ) -> None:
        known = self._clients.get(peer)
        if known is not None and (known.client_id, known.session) == (packet.client_id, packet.session):
            known.heard_ns = now_ns
            self._tell(peer, self._welcome)
            return
        if known is not None:
            self.forget(peer)
        differences = mismatches(robot=hello.schema, policy=self._welcome.schema)
        if key is not None and hello.robot != key:
            reason = f"this is the key of robot {key!r}, not of {hello.robot!r}"[:MAX_REASON]
            self._reply(peer, packet, Refused(code=RefusalCode.KEY, reason=reason))
        elif hello.policy != self._welcome.policy and (hello.policy or len(self._policies) > 1):
            asked = f"no policy {hello.policy!r}" if hello.policy else "more than one policy: name yours"
            reason = f"this server has {asked}; it has {', '.join(self._policies)}"[:MAX_REASON]
            self._reply(peer, packet, Refused(code=RefusalCode.POLICY, reason=reason))
        elif differences:
            names = f"robot {hello.robot!r} does not fit policy {self._welcome.policy!r}: "
            reason = (names + "; ".join(differences))[:MAX_REASON]
            self._reply(peer, packet, Refused(code=RefusalCode.SCHEMA, reason=reason))
        elif len(self._clients) >= MAX_CLIENTS:
            reason = f"the server has {MAX_CLIENTS} clients already"
            self._reply(peer, packet, Refused(code=RefusalCode.FULL, reason=reason))
        else:
            rate = RateLimit(per_s=PACKETS_PER_S, burst=PACKETS_PER_S // 10)
            answers = SentAnswers(self._welcome.action_spec)
            self._clients[peer] = _Client(packet.client_id, packet.session, now_ns, rate, answers)
            self._wake_by(now_ns + SILENCE_NS)
            self._tell(peer, self._welcome)

    def _receive_request(self, peer: bytes, request: ChunkRequest, now_ns: int) -> None:
        reason = self._fit.misfit(request)
        if reason is not None:
            self._tell_error(peer, request, ErrorCode.BAD_REQUEST, reason)
            return
        expires_ns = now_ns + request.deadline_ns
        job = Job(peer=peer, request=request, received_ns=now_ns, expires_ns=expires_ns)
        if self._is_draining:
            self._tell_dropped(job, DropReason.CLOSING)
            return
        for older in self._line.put(job):
            self._tell_dropped(older, DropReason.SUPERSEDED)
        self._wake_by(expires_ns)

    def _receive_too_fast(self, peer: bytes, client: _Client | None) -> None:
        self.ignored["too fast"] += 1
        if client is not None and client.rate.is_first_refusal:
            reason = f"more than {PACKETS_PER_S} packets a second; the rest is dropped"
            self._tell(peer, ErrorReply(code=ErrorCode.TOO_FAST, message=reason))

    def _receive_undecodable(self, peer: bytes, error: ProtocolError) -> None:
        self.ignored["not a message"] += 1
        reply: Message
        if isinstance(error, VersionMismatchError):
            reason = f"{error} (this side is the server, the peer the robot)"[:MAX_REASON]
            reply = Refused(code=RefusalCode.VERSION, reason=reason)
        else:
            reply = ErrorReply(
                code=ErrorCode.PROTOCOL,
                message=str(error)[:MAX_REASON],
                request_id=error.request_id,
                epoch=error.epoch,
            )
        self._outbox.append((peer, Packet(error.client_id, error.session, reply)))

    def _wake_by(self, due_ns: int) -> None:
        self._next_timer_ns = due_ns if self._next_timer_ns is None else min(self._next_timer_ns, due_ns)

    def _open_jobs(self) -> list[Job]:
        return [*self._line.jobs(), *(job for job, _ in self._running.values())]

    def _remove(self, job: Job) -> None:
        self._line.remove(job)
        if self.is_wanted(job):
            del self._running[job.peer]

    def forget(self, peer: bytes) -> None:
        """A client has left, and all that it waits for with it."""
        del self._clients[peer]
        self._line.forget(peer)
        self._running.pop(peer, None)

    def _tell(self, peer: bytes, message: Message) -> None:
        client = self._clients[peer]
        self._outbox.append((peer, Packet(client.client_id, client.session, message)))

    def _tell_dropped(self, job: Job, reason: DropReason) -> None:
        self.outcomes[reason.value] += 1
        request_id, epoch = job.identity
        self._tell(job.peer, Dropped(request_id=request_id, epoch=epoch, reason=reason))

    def _tell_error(self, peer: bytes, request: ChunkRequest, code: ErrorCode, message: str) -> None:
        self.outcomes[code.value] += 1
        ids = {"request_id": request.request_id, "epoch": request.epoch}
        self._tell(peer, ErrorReply(code=code, message=message[:MAX_REASON], **ids))

    def _reply(self, peer: bytes, packet: Packet, message: Message) -> None:
        self._outbox.append((peer, Packet(packet.client_id, packet.session, message)))
