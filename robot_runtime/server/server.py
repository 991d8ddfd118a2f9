"""`PolicyServer`: the network thread of the inference server. Some policies, many robots.

    ROUTER ─► decode ─► Service of the policy that the robot has greeted
    ROUTER ◄─ encode ◄─┘

The thread sleeps until a message, a worker's bell, or a timer; inference never holds it up.
"""

import logging
from collections import deque
from collections.abc import Sequence
from types import TracebackType

from policies.policy import Policy
from robot_runtime.clock import Clock, MonotonicClock
from robot_runtime.core.action import NS_PER_MS, NS_PER_S
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.jpeg import decode_jpeg
from robot_runtime.keys import ServerKeys
from robot_runtime.mailbox import Doorbell
from robot_runtime.server.account import Account
from robot_runtime.server.delay import Delay
from robot_runtime.server.service import Service
from robot_runtime.transport.address import DEFAULT_ADDRESS
from robot_runtime.transport.server import ServerTransport
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.frames import Buffer, ProtocolError
from robot_runtime.wire.messages import Hello, Packet

logger = logging.getLogger(__name__)
HEARTBEAT_NS = 25 * NS_PER_MS
"""A dead server is noticed after at most 6 of these."""
MAX_BATCH = 32
LINGER_NS = 150 * NS_PER_MS
"""How long a stopping server stays to see its goodbyes off."""
DRAIN_NS = 5 * NS_PER_S
"""How long a server that is to end in order goes on for the requests that it has."""
_MAX_ARRIVALS = 64  # taken in one turn, so that a flood cannot keep the thread from its timers


class PolicyServer:
    """Serves policies on one address; warm once constructed. A context manager."""

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
        accounts: dict[str, Account] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Warms the policies up, one after the other, and only then opens the address.

        PortInUseError, OpenAddressError, InvalidValueError, or whatever a policy raises.

        policies: one, or several of different names.
        heartbeat_ns: how often clients ask for a sign of life; they give up after five are missing.
        max_batch: most robots that a `BatchPolicy` answers together.
        keys, is_open: see `listen`.
        accounts: gets what each policy's service has done, by the policy's name.
        """
        several = policies if isinstance(policies, Sequence) else [policies]
        names = [policy.name for policy in several]
        if not names or len(set(names)) < len(names):
            raise InvalidValueError(f"a server needs policies of different names, got {names}")
        self._clock: Clock = clock or MonotonicClock()
        self._is_stopping = self._is_draining = False
        self._orders: deque[tuple[str, Policy]] = deque()
        self._doorbell = Doorbell()
        self._accounts = {} if accounts is None else accounts
        self._services: dict[str, Service] = {}
        try:
            for policy in several:
                self._services[policy.name] = Service(
                    policy,
                    policies=names,
                    account=self._accounts.setdefault(policy.name, Account()),
                    clock=self._clock,
                    ring=self._doorbell.ring,
                    heartbeat_ns=heartbeat_ns,
                    max_batch=max_batch,
                    delay=delay or Delay(),
                )
            self._transport = ServerTransport(address, keys=keys, is_open=is_open, is_known=self._is_known)
        except RobotRuntimeError:
            for service in self._services.values():
                service.close()
            self._doorbell.close()
            raise
        for account in self._accounts.values():
            account.is_ready = True
        self.address = self._transport.address
        """Where it listens, with the port that was chosen."""

    def __enter__(self) -> "PolicyServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def serve_forever(self) -> None:
        """Serve until `stop`, or until `drain` has done its work, then tell the clients goodbye."""
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
        """As `stop`, after the requests that are there, at most DRAIN_NS; new ones are refused."""
        self._is_draining = True
        self._doorbell.ring()

    def replace(self, name: str, policy: Policy) -> None:
        """Let `policy` take over from the one of that name while robots run; any thread may call it.

        It warms up first. One that does not fit what robots were told is refused, which the log says.
        """
        self._orders.append((name, policy))
        self._doorbell.ring()

    def wakeup_fd(self) -> int:
        """For `signal.set_wakeup_fd`: else `stop` in a handler may have to wait."""
        return self._doorbell.ring_fileno()

    def close(self) -> None:
        """Give up address and threads; after `serve_forever` has returned."""
        for service in self._services.values():
            service.close()
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
        for peer in self._transport.doorman.departed():
            for service in self._services.values():
                if service.knows(peer):
                    service.forget(peer)
        for _ in range(_MAX_ARRIVALS):
            arrival = self._transport.receive()
            if arrival is None:
                break
            try:
                self._receive(*arrival)
            except Exception:
                logger.exception("a message that nothing was to be wrong with could not be taken")
        now_ns = self._clock.now_ns()
        for service in self._services.values():
            service.turn(now_ns)
        self._send()

    def _receive(self, peer: bytes, frames: list[Buffer]) -> None:
        received_ns = self._clock.now_ns()
        packet = _decoded(frames)
        service = self._service_of(peer, packet)
        service.account.bytes_received += sum(map(len, frames))
        is_greeting = isinstance(packet, Packet) and isinstance(packet.message, Hello)
        key = self._transport.doorman.name_of(peer) if is_greeting else None
        service.receive(peer, packet, received_ns, key=key)

    def _is_known(self, peer: bytes) -> bool:
        return any(service.knows(peer) for service in self._services.values())

    def _service_of(self, peer: bytes, received: Packet | ProtocolError) -> Service:
        """Whom an arrival is for: a greeting names its policy; what nobody knows the first refuses."""
        first = next(iter(self._services.values()))
        if len(self._services) == 1:
            return first
        knows = next((s for s in self._services.values() if s.knows(peer)), None)
        if isinstance(received, Packet) and isinstance(received.message, Hello):
            named = self._services.get(received.message.policy, first)
            if knows is not None and knows is not named:
                knows.forget(peer)
            return named
        return knows or first

    def _replace(self, name: str, policy: Policy) -> None:
        try:
            self._services[name].replace(policy)
        except RobotRuntimeError as error:
            logger.error("%s stays: %s", name, error)

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
                except ProtocolError:
                    logger.exception("a %s could not be sent", type(packet.message).__name__)
                    continue
                service.account.bytes_sent += sum(map(len, frames))
                self._transport.send(peer, frames)


def _decoded(frames: list[Buffer]) -> Packet | ProtocolError:
    try:
        return decode(frames, decode_jpeg=decode_jpeg)
    except ProtocolError as error:
        return error
