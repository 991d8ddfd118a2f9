"""`PolicyServer`: the network thread of the inference server. Several policies, many robots.

    ROUTER ─► admitted? ─► header ─► Service of the policy that the robot has greeted
    ROUTER ◄─ encode ◄──────────────┘

The thread sleeps until a message, a worker's bell, or a timer; neither inference nor any packet delays it:
what is expensive to decode is decoded by the worker, see `ServerSession`. Nothing that a peer sends ends the
thread.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from robot_runtime.clock import Clock, MonotonicClock
from robot_runtime.core.policy import Policy
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S
from robot_runtime.errors import InvalidValueError, RobotRuntimeError, UnknownNameError
from robot_runtime.keys import ServerKeys
from robot_runtime.mailbox import Doorbell
from robot_runtime.server.collector import Collector
from robot_runtime.server.door import checked_policy
from robot_runtime.server.engine import CLOSE_S, RateLimitedLog
from robot_runtime.server.server_metrics import ServerMetrics
from robot_runtime.server.service import Delay, Service
from robot_runtime.server.warming import OPEN_NS
from robot_runtime.transport.address import DEFAULT_ADDRESS
from robot_runtime.transport.server import ServerTransport
from robot_runtime.wire.admission import ONE_STRANGERS_PER_S, STRANGER_AT_ONCE_BYTES
from robot_runtime.wire.codec import encode, read
from robot_runtime.wire.frames import Buffer, ProtocolError
from robot_runtime.wire.messages import Hello, Packet

logger = logging.getLogger(__name__)
HEARTBEAT_NS = 25 * NS_PER_MS
MAX_BATCH = 32
LINGER_NS = 150 * NS_PER_MS
"""How long a stopping server stays to deliver its goodbyes."""
DRAIN_NS = NS_PER_S * 3 // 4
"""How long a draining server continues for the requests that it has; it is gone within 2 s."""
_MAX_ARRIVALS = 64  # processed in one turn, so that a flood cannot keep the thread from its timers


class PolicyServer:
    """Serves policies on one address; can answer once constructed. A context manager."""

    def __init__(
        self,
        policies: Policy | Sequence[Policy],
        address: str = DEFAULT_ADDRESS,
        *,
        delay: Delay | None = None,
        heartbeat_ns: int = HEARTBEAT_NS,
        max_batch: int = MAX_BATCH,
        keys: ServerKeys | None = None,
        is_open: bool = False,
        metrics: dict[str, ServerMetrics] | None = None,
        open_ns: int | None = OPEN_NS,
        say: Callable[[str], None] = logger.info,
        collector: Collector | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Warm the policies up, one after the other, and only then open the address.

        For each, the usual sampler part for one robot and what else fits in `open_ns`; the rest later,
        between requests (`Warming`).

        InvalidValueError, or whatever a policy raises.

        policies: one, or several with different names.
        heartbeat_ns: maximum interval of clients' heartbeats; see `wire/client_session.py`.
        max_batch: maximum number of robots that a `BatchPolicy` answers together.
        keys, is_open: see `listen`.
        metrics: receives the counters of each policy's service, by policy name.
        open_ns: how long to continue warming up once robots could be answered [ns]; None: until all is warm.
        say: receives a line for everything that gets warm after that.
        collector: its `look` is called before batches begin.
        """
        several = [checked_policy(p) for p in (policies if isinstance(policies, Sequence) else [policies])]
        names = [policy.info.name for policy in several]
        if not names or len(set(names)) < len(names):
            raise InvalidValueError(f"a server needs policies of different names, got {names}")
        self._clock: Clock = clock or MonotonicClock()
        self._is_stopping = self._is_draining = False
        self._orders: deque[tuple[str, Policy]] = deque()
        self._doorbell = Doorbell()
        self._complaints = RateLimitedLog(logger, self._clock)
        self._collector = collector
        self._metrics = {} if metrics is None else metrics
        self._services: dict[str, Service] = {}
        try:
            for policy in several:
                self._services[policy.info.name] = Service(
                    policy,
                    policies=names,
                    metrics=self._metrics.setdefault(policy.info.name, ServerMetrics()),
                    clock=self._clock,
                    ring=self._doorbell.ring,
                    heartbeat_ns=heartbeat_ns,
                    max_batch=max_batch,
                    delay=delay or Delay(),
                    open_ns=open_ns,
                    say=say,
                )
            self._transport = ServerTransport(
                address, keys=keys, is_open=is_open, is_known=self._is_known, ring=self._doorbell.ring
            )
        except RobotRuntimeError:
            for service in self._services.values():
                service.close()
            self._doorbell.close()
            raise
        self._metrics[names[0]].turned_away = self._transport.doorman.counts
        for each in self._metrics.values():
            each.is_ready = True
        self.address = self._transport.address
        """Where it listens, with the port that was chosen."""

    def __enter__(self) -> "PolicyServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def serve_forever(self) -> None:
        """Serve until `stop`, or until `drain` has done its work, then send the clients a goodbye."""
        drained_by_ns: int | None = None
        while not self._is_stopping:
            self._transport.wait(self._timeout_ns(drained_by_ns), self._doorbell)
            self._turn()
            if self._is_draining and drained_by_ns is None:
                drained_by_ns = self._clock.now_ns() + DRAIN_NS
                for service in self._services.values():
                    service.drain()
            if drained_by_ns is not None and self._is_drained(drained_by_ns):
                break
        for service in self._services.values():
            service.say_goodbye()
        self._send()
        self._linger()

    def stop(self) -> None:
        """Make `serve_forever` return; any thread or signal handler may call it."""
        self._is_stopping = True
        self._doorbell.ring()

    def drain(self) -> None:
        """As `stop`, after the requests in the queue, at most DRAIN_NS; new ones are refused."""
        self._is_draining = True
        self._doorbell.ring()

    def replace(self, name: str, policy: Policy) -> None:
        """Replace the policy of that name by `policy` while robots run; any thread may call it.

        It warms up first. One that does not match what robots were welcomed with is refused, which is logged.
        UnknownNameError: no policy has that name.
        """
        if name not in self._services:
            raise UnknownNameError("policy", name, self._services)
        self._orders.append((name, policy))
        self._doorbell.ring()

    def wakeup_fd(self) -> int:
        """For `signal.set_wakeup_fd`: otherwise `stop` in a handler may have to wait."""
        return self._doorbell.ring_fileno()

    def close(self) -> None:
        """Close address and threads; after `serve_forever` has returned."""
        for service in self._services.values():
            service.end()
        closed_ns = self._clock.now_ns() + round(CLOSE_S * NS_PER_S)
        for service in self._services.values():  # all of them together in that time
            service.close(max(0, closed_ns - self._clock.now_ns()) / NS_PER_S)
        self._transport.close()
        self._doorbell.close()

    def _timeout_ns(self, drained_by_ns: int | None) -> int | None:
        times = [service.next_timer_ns() for service in self._services.values()]
        next_ns = min((t for t in [*times, drained_by_ns] if t is not None), default=None)
        return None if next_ns is None else next_ns - self._clock.now_ns()

    def _is_drained(self, drained_by_ns: int) -> bool:
        drained = all(service.is_drained for service in self._services.values())
        return drained or self._clock.now_ns() >= drained_by_ns

    def _turn(self) -> None:
        # Only `wait` silences the bell, so a result that comes after this look keeps it ringing.
        while self._orders:
            self._replace(*self._orders.popleft())
        for service in self._services.values():
            service.take_results()
        self._send()
        self._collect()  # rows are out, and the next batch has not begun
        for peer in self._transport.doorman.departed():
            for service in self._services.values():
                service.forget(peer)
        for _ in range(_MAX_ARRIVALS):
            arrival = self._transport.receive()
            if arrival is None:
                break
            self._take(*arrival)
        now_ns = self._clock.now_ns()
        for service in self._services.values():
            service.turn(now_ns)
        self._send()

    def _collect(self) -> None:
        if self._collector is not None:
            services = self._services.values()
            self._collector.look(
                is_idle=all(service.is_idle for service in services),
                num_settled=sum(service.num_settled for service in services),
            )

    def _is_known(self, peer: bytes) -> bool:
        return any(service.knows(peer) for service in self._services.values())

    def _take(self, peer: bytes, frames: list[Buffer]) -> None:
        """Process one packet: only as far as its sender is admitted, and without any exception."""
        now_ns, num_bytes = self._clock.now_ns(), sum(map(len, frames))
        knows = self._service_that_knows(peer)
        knows.metrics.bytes_received += num_bytes
        try:
            if not knows.lets_in(peer, num_bytes, now_ns):
                if not knows.knows(peer):
                    self._complaints.say(
                        "stranger",
                        f"a packet of {num_bytes} bytes was dropped: its peer has not greeted, and may send "
                        f"{STRANGER_AT_ONCE_BYTES} bytes at once and {ONE_STRANGERS_PER_S} packets a second",
                        level=logging.WARNING,
                    )
                return
            received = read(frames)
            service = self._service_of(peer, knows, received)
            service.receive(peer, received, now_ns, key=self._key_of(peer, received))
        except Exception as error:
            # Worse than any known message: it ends a connection, not the server.
            self._complaints.say(str(type(error)), "a packet could not be handled", error)
            self._transport.doorman.end(peer)

    def _key_of(self, peer: bytes, received: Packet | ProtocolError) -> str | None:
        """The key of a peer that greets; None without keys."""
        is_greeting = isinstance(received, Packet) and isinstance(received.message, Hello)
        return self._transport.doorman.name_of(peer) if is_greeting else None

    def _service_that_knows(self, peer: bytes) -> Service:
        """The service that a peer has greeted, or the first, which refuses unauthenticated peers."""
        services = self._services.values()
        return next((s for s in services if s.knows(peer)), next(iter(services)))

    def _service_of(self, peer: bytes, knows: Service, received: Packet | ProtocolError) -> Service:
        """The service that a packet is for: a greeting names its policy."""
        if not isinstance(received, Packet) or not isinstance(received.message, Hello):
            return knows
        named = self._services.get(received.message.policy, next(iter(self._services.values())))
        if knows is not named and knows.knows(peer):
            knows.forget(peer)
        return named

    def _replace(self, name: str, policy: Policy) -> None:
        try:
            self._services[name].replace(policy)
        except RobotRuntimeError as error:
            logger.error("%s stays: %s", name, error)
        except Exception:  # whatever it is that has come in its place
            logger.exception("%s stays: what is to take over is no policy", name)

    def _linger(self) -> None:
        # A socket closed on unread data resets the connection, and the goodbye with it: read for a while.
        end_ns = self._clock.now_ns() + LINGER_NS
        while (remaining_ns := end_ns - self._clock.now_ns()) > 0:
            self._transport.wait(remaining_ns, self._doorbell)
            while self._transport.receive() is not None:
                pass

    def _send(self) -> None:
        for service in self._services.values():
            for peer, packet in service.packets_to_send():
                try:
                    frames = encode(packet)
                except ProtocolError as error:
                    self._complaints.say("encode", f"a {type(packet.message).__name__} is lost: {error}")
                    continue
                service.metrics.bytes_sent += sum(map(len, frames))
                self._transport.send(peer, frames)


def serve(
    policies: Policy | Sequence[Policy],
    address: str = DEFAULT_ADDRESS,
    *,
    say: Callable[[str], None] = print,
    **options: Any,
) -> None:
    """Serve until Ctrl-C, then send the robots a goodbye.

    options: of `PolicyServer`, which raises. say: receives the address once the policies are warm.
    """
    with PolicyServer(policies, address, **options) as server:
        say(f"ready: {server.address}")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            server.stop()
            server.serve_forever()  # only until its goodbyes are sent
