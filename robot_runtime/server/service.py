"""`Service`: one policy and all its robots. Without sockets; called by the server's network thread.

    packets ─► ServerSession ─► Batcher ─► Engine (worker thread)
    packets ◄─ later, if asked ─ ServerSession ◄──┘

A running batch is cancelled at its next step when the session no longer wants any of its jobs, or when others
wait and its rows are no longer useful; a newer request alone does not cancel it, since the worker takes that
only when it is idle. Injected latency delays the messages of a finished batch: meanwhile the worker runs the
next one, as if the network were slow.

Cold parts are warmed up between requests, see `Warming`; robots are informed of it (`Readiness`).

A policy can be replaced while robots run: the new one warms up completely on a worker of its own, and takes
the next batch after that. Waiting requests stay in the queue.
"""

import heapq
import itertools
import logging
import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from robot_runtime.clock import Clock
from robot_runtime.core.policy import ChunkRequest, Policy
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S, ChunkPart
from robot_runtime.errors import SchemaMismatchError
from robot_runtime.server.batcher import Batcher
from robot_runtime.server.door import checked_welcome
from robot_runtime.server.engine import CLOSE_S, Done, Engine, RateLimitedLog, Result
from robot_runtime.server.server_metrics import ServerMetrics
from robot_runtime.server.warming import IDLE_NS, OPEN_NS, QUIET_NS, Called, Piece, Warming
from robot_runtime.wire.frames import ProtocolError
from robot_runtime.wire.messages import ErrorCode, ErrorReply, Packet, Readiness
from robot_runtime.wire.request_queue import QueuedRequest
from robot_runtime.wire.server_session import ServerSession


@dataclass(frozen=True, kw_only=True)
class Delay:
    """Extra latency of each answer: `median_ms` times a lognormal factor of spread `sigma`."""

    median_ms: float = 0.0
    sigma: float = 0.0
    """Standard deviation of the factor's logarithm; 0 makes every answer equally late."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.median_ms < 0 or self.sigma < 0:
            raise ValueError(f"delay and spread must not be negative, got {self.median_ms} and {self.sigma}")

    def drawn_ns(self) -> Iterator[int]:
        """Latencies of successive answers [ns]."""
        rng = random.Random(self.seed)
        while True:
            factor = rng.lognormvariate(0.0, self.sigma) if self.median_ms else 0.0
            yield round(self.median_ms * factor * NS_PER_MS)


logger = logging.getLogger(__name__)


STUCK_NS = 10 * NS_PER_S
"""Time for a policy that is replaced to return from its call, or four times what that takes."""
SHOWN_NS = NS_PER_S // 5
"""Period at which connected robots are noted [ns]."""


class Service:
    """Owned and called by one thread, except `metrics`, which any thread may read."""

    def __init__(
        self,
        policy: Policy,
        *,
        policies: Collection[str],
        metrics: ServerMetrics,
        clock: Clock,
        ring: Callable[[], None],
        heartbeat_ns: int,
        max_batch: int,
        delay: Delay,
        open_ns: int | None = OPEN_NS,
        say: Callable[[str], None] = logger.info,
    ) -> None:
        """Warm the policy up; raises what it raises, or InvalidValueError if no robot could use it.

        policies: names of all policies of the server.
        ring: called from the worker thread whenever `turn` has something to do.
        open_ns: as for `warm_up`, if no robot waits for this policy.
        say: receives a line for everything that gets warm later. The others as for `PolicyServer`.
        """
        self.metrics = metrics
        self._shown_ns = 0
        self._clock, self._ring, self._max_batch = clock, ring, max_batch
        self._welcome = checked_welcome(policy, heartbeat_ns)
        self._say_warm, self._complaints = say, RateLimitedLog(logger, clock)
        self._engine = self._new_engine(policy, open_ns=open_ns)
        self._warming = self._engine.warm_up()
        self._batcher = Batcher(self._warming.times)
        self._opened_ns, self._asked_ns = clock.now_ns(), 0
        self._met_ns = 0
        """When a robot connected, or what it waited for got warm: it is about to ask."""
        self._warm_ns: int | None = None
        self._is_warmings_turn = True
        self.num_settled = 0
        """Counts how often all was warm at last, or a policy that was to take over did so or failed."""
        self._next: tuple[Policy, Engine] | None = None
        self._next_warming: Warming | Exception | None = None
        self._stuck_ns: int | None = None
        """When the next policy takes over from one that has not returned."""
        self._choose_ns: int | None = None
        self._of_use_until_ns = 0
        self._delays_ns = delay.drawn_ns()
        self._batch_delay_ns = 0
        self._held_back: list[tuple[int, int, tuple[bytes, Packet]]] = []  # a heap: due time, count, packet
        self._count = itertools.count()
        self._outbox: list[tuple[bytes, Packet]] = []
        self._session = ServerSession(
            self._welcome,
            policies=policies,
            expected_ns=lambda peer, part: self._batcher.unusual_ns(peer, part),
        )
        metrics.ignored, metrics.requests = self._session.ignored, self._session.outcomes
        self._tell_what_is_warm()

    @property
    def name(self) -> str:
        """Name of the policy."""
        return self._welcome.info.name

    def knows(self, peer: bytes) -> bool:
        """Whether that peer has greeted."""
        return self._session.knows(peer)

    def lets_in(self, peer: bytes, num_bytes: int, now_ns: int) -> bool:
        """As `ServerSession.lets_in`."""
        return self._session.lets_in(peer, num_bytes, now_ns)

    def receive(
        self, peer: bytes, received: Packet | ProtocolError, now_ns: int, *, key: str | None = None
    ) -> None:
        """Process a packet of that peer, which was admitted; `key` as for `ServerSession.receive`."""
        num_before = self._session.num_clients
        if self._session.receive(peer, received, now_ns, key=key):
            self._batcher.asked(peer, now_ns)
            assert isinstance(received, Packet)
            assert isinstance(received.message, ChunkRequest)
            if not self._warming.is_held(type(received.message.sampler)):
                self._asked_ns = now_ns
        if self._session.num_clients > num_before:
            self._met_ns = now_ns

    def forget(self, peer: bytes) -> None:
        """Forget a peer that has left, for another policy or for good."""
        self._session.forget(peer)

    def packets_to_send(self) -> list[tuple[bytes, Packet]]:
        """Packets to send now, each with its peer, oldest first."""
        out, self._outbox = self._outbox, []
        return out

    def next_timer_ns(self) -> int | None:
        """When to call `turn`, if nothing happens before."""
        due_ns = self._held_back[0][0] if self._held_back else None
        times = (self._session.next_timer_ns(), due_ns, self._choose_ns, self._warm_ns, self._stuck_ns)
        return min((t for t in times if t is not None), default=None)

    def take_results(self) -> None:
        """Pass the worker's results to the session."""
        for result in self._engine.results():
            self._deliver(result)
        self._say(self._batch_delay_ns)

    def turn(self, now_ns: int) -> None:
        """Do what is due, and keep the worker busy."""
        while self._held_back and self._held_back[0][0] <= now_ns:
            self._outbox.append(heapq.heappop(self._held_back)[2])
        self._session.handle_timer(now_ns)
        self._take_over(now_ns)
        self._feed_engine(now_ns)
        self._say()
        self.metrics.clients, self.metrics.waiting = self._session.num_clients, self._session.num_waiting
        if now_ns - self._shown_ns >= SHOWN_NS:
            self._shown_ns, self.metrics.robots = now_ns, self._session.robots(now_ns)

    def replace(self, policy: Policy) -> None:
        """Replace the policy, once the new one is warm and the running batch has ended.

        SchemaMismatchError: welcomed robots could not continue with it. PolicyError: no robot could.
        """
        came, here = checked_welcome(policy, self._welcome.heartbeat_ns), self._welcome
        if differences := replace(came.info, name=here.info.name).differences(here.info):
            names = f"{came.info.name!r} cannot take over from {here.info.name!r}: "
            raise SchemaMismatchError(names + "; ".join(differences))
        if self._next is not None:
            self._next[1].close()
            self._next_warming = self._stuck_ns = None
        engine = self._new_engine(policy, open_ns=None)  # robots run: they must not wait for it
        engine.start_warming()
        self._next = policy, engine

    def drain(self) -> None:
        """Accept no more requests; those in the queue are answered."""
        self.metrics.is_ready = False
        self._session.drain()

    @property
    def is_idle(self) -> bool:
        """Whether its policy is not running."""
        return self._engine.is_idle

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left to do after `drain`."""
        return self._session.is_drained and not self._held_back

    def say_goodbye(self) -> None:
        """Send a goodbye to every robot; nothing is left to do."""
        self.metrics.is_ready = False
        self._session.close()
        self._say()

    def end(self) -> None:
        """Ask the worker to end; `close` waits for that."""
        for engine in self._engines():
            engine.end()

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """End the worker, as `Engine.close`."""
        for engine in self._engines():
            engine.close(timeout_s)

    def _engines(self) -> list[Engine]:
        return [self._engine] if self._next is None else [self._engine, self._next[1]]

    def _new_engine(self, policy: Policy, *, open_ns: int | None) -> Engine:
        max_batch = self._max_batch
        return Engine(policy, clock=self._clock, ring=self._ring, max_batch=max_batch, open_ns=open_ns)

    def _deliver(self, result: Result) -> None:
        match result:
            case Called() as called:
                self._is_warmings_turn = False
                was_wanted = self._warming.is_wanted(called.piece)
                if (news := self._warming.called(called)) is not None:
                    self._say_warm(f"{self.name}: {news}")
                    self._tell_what_is_warm()
                    self._met_ns = self._clock.now_ns() if was_wanted else self._met_ns
                self.num_settled += not self._warming.num_left
            case (job, ChunkPart() as part):
                self.metrics.rows_final(part, is_wanted=self._session.is_wanted(job))
                self._session.rows_ready(job, part)
            case (job, ErrorReply() as error):
                self._batcher.failed(job.peer, self._clock.now_ns())
                self._session.job_failed(job, error)
            case Done(jobs=jobs, infer_ns=infer_ns, was_stopped=was_stopped):
                self.metrics.infer_s.add(infer_ns / NS_PER_S)
                self._is_warmings_turn = True
                self._batcher.ended(jobs, infer_ns, self._clock.now_ns(), was_stopped=was_stopped)

    def _take_over(self, now_ns: int) -> None:
        """Switch to the policy that replaces this one, if it is warm; or drop it, if it failed."""
        if self._next is None:
            return
        policy, engine = self._next
        self._next_warming = self._next_warming or engine.warmed()
        if self._next_warming is None:
            return
        if isinstance(self._next_warming, Exception):
            logger.error(
                "%s failed to warm up and replaces no policy",
                policy.info.name,
                exc_info=self._next_warming,
            )
            self._next, self._next_warming = None, None
            self.num_settled += 1
            engine.close()
            return
        if not self._engine.is_idle:
            self._stuck_ns = self._stuck_ns or now_ns + max(STUCK_NS, self._of_use_ns(self._max_batch))
            if now_ns < self._stuck_ns:
                return
            self._abandon_running()
        warming, self._next, self._next_warming, self._stuck_ns = self._next_warming, None, None, None
        self.num_settled += 1
        self._engine.close()
        self._engine = engine
        self._warming, self._batcher = warming, Batcher(warming.times)
        self._tell_what_is_warm()
        logger.info("%s goes on in place of %s", policy.info.name, self.name)

    def _abandon_running(self) -> None:
        """Abandon a policy that does not return from its call, so that its robots do not wait for it."""
        logger.error(
            "%s has not returned while the policy that takes over was warm: it is abandoned, and its thread "
            "ends with the server",
            self.name,
        )
        for job in self._engine.running:
            why = f"policy {self.name} did not return, and another takes over"
            self._session.job_failed(job, ErrorReply.to(job.request, ErrorCode.INTERNAL, why))

    def _feed_engine(self, now_ns: int) -> None:
        self._choose_ns = self._warm_ns = None
        if not self._engine.is_idle:
            if running := self._engine.running:
                self._look_at_running(running, now_ns)
            return
        waiting = self._startable()
        if self._warming.num_left and self._warm_next(now_ns, is_waiting=bool(waiting)):
            return
        late = self._batcher.too_late(waiting, now_ns)
        for job in late:
            self._session.shed(job)
        waiting = [job for job in waiting if job not in late]
        batch, self._choose_ns = self._batcher.choose(waiting, now_ns)
        if batch and len(batch) < len(waiting):
            self._want_more(batch, waiting)
        jobs = [shown for job in batch if (shown := self._session.start(job)) is not None]
        if jobs:
            self.metrics.batch_started([now_ns - job.received_ns for job in jobs])
            self._batch_delay_ns = next(self._delays_ns)
            self._of_use_until_ns = now_ns + self._of_use_ns(len(jobs))
            self._engine.start(jobs)
        elif batch:
            self._choose_ns = now_ns  # none of them could be decoded: others may be waiting

    def _of_use_ns(self, size: int) -> int:
        """How long a batch may hold the policy while others wait: as long as its rows are useful, or as any
        of its size takes."""
        spec = self._welcome.info.action_spec
        return max(spec.horizon * spec.dt_ns, self._batcher.times.most_ns(size))

    def _look_at_running(self, running: Sequence[QueuedRequest], now_ns: int) -> None:
        """Cancel a batch that no robot wants any more, or that has delayed others for too long."""
        peers = {job.peer for job in running}
        if now_ns < self._of_use_until_ns:
            self._choose_ns = self._of_use_until_ns
        elif any(job.peer not in peers for job in self._session.startable()):
            for job in running:
                self._session.shed(job)
        if not any(self._session.is_wanted(job) for job in running):
            self._engine.stop()

    def _startable(self) -> list[QueuedRequest]:
        """Requests that the policy can run now; what the others wait for is warmed up next."""
        waiting = self._session.startable()
        if not self._warming.num_left:
            return waiting
        held = {kind for job in waiting if self._warming.is_held(kind := type(job.request.sampler))}
        for kind in held:
            self._warming.want(kind)
            text = f"{self.name}: {kind.__name__} is asked for and is not warm: its requests wait"
            self._complaints.say(kind.__name__, text, level=logging.WARNING)
        return [job for job in waiting if type(job.request.sampler) not in held]

    def _want_more(self, batch: Sequence[QueuedRequest], waiting: Sequence[QueuedRequest]) -> None:
        """Request larger batches from some time on, if a larger size would help."""
        sampler = batch[0].request.sampler
        alike = sum(job.request.sampler == sampler for job in waiting)
        if alike > len(batch) == self._batcher.times.fitting(alike, sampler):
            self._warming.want(type(sampler), alike)

    def _warm_next(self, now_ns: int, *, is_waiting: bool) -> bool:
        """Start a piece of warming up if one is due; whether the worker runs one now."""
        piece = self._warming.next()
        if piece is None or not self.metrics.is_ready:
            return False
        due_ns = self._warming.due_ns(
            piece,
            now_ns,
            is_waiting=is_waiting,
            is_in_turn=self._is_warmings_turn,
            num_robots=self._session.num_clients,
            quiet_ns=self._quiet_ns(piece),
        )
        if due_ns is None or due_ns > now_ns:
            self._warm_ns = due_ns
            return False
        self._engine.warm(piece)
        return True

    def _quiet_ns(self, piece: Piece) -> int:
        """From when on a long piece delays no robot."""
        if self._warming.is_wanted(piece):
            return self._asked_ns + IDLE_NS if self._asked_ns else 0
        busy_ns = max(self._asked_ns, self._met_ns, self._opened_ns)
        return busy_ns + (IDLE_NS if self._session.num_clients else QUIET_NS)

    def _tell_what_is_warm(self) -> None:
        metrics, warming = self.metrics, self._warming
        metrics.warm = tuple(kind.__name__ for kind in warming.warm)
        metrics.max_batch, metrics.pieces_to_warm = warming.max_size, warming.num_left
        self._session.is_ready_for(
            Readiness(samplers=metrics.warm, max_batch=metrics.max_batch, pieces_left=metrics.pieces_to_warm)
        )

    def _say(self, delay_ns: int = 0) -> None:
        """Send the session's packets, after this delay."""
        due_ns = self._clock.now_ns() + delay_ns if delay_ns else 0
        for packet in self._session.packets_to_send():
            if delay_ns:
                heapq.heappush(self._held_back, (due_ns, next(self._count), packet))
            else:
                self._outbox.append(packet)
