"""`PolicyServer`: the network thread of the inference server. One policy, many robots, served in turn.

    ROUTER ─► decode ─► ServerSession ─► Engine (worker thread)
    ROUTER ◄─ encode ◄─ DelayLine ◄─ ServerSession ◄─┘

The thread sleeps until a message, the worker's bell, or a timer; inference never holds it up. A running job
is given up at its next block when the session does not want it any more; a newer request alone does not do
that, since the worker takes it only when it is idle. Injected latency holds back what is said of a job that
is done: meanwhile the worker goes on with the next one, as if the network were slow.
"""

from types import TracebackType

from policies.policy import Policy, capabilities_of
from robot_runtime.clock import Clock, MonotonicClock
from robot_runtime.core.action import NS_PER_MS
from robot_runtime.errors import RobotRuntimeError
from robot_runtime.jpeg import decode_jpeg
from robot_runtime.mailbox import Doorbell
from robot_runtime.server.delay import Delay, DelayLine
from robot_runtime.server.engine import Block, Engine, Failure, Result, Stopped
from robot_runtime.transport import DEFAULT_ADDRESS, ZmqServerTransport
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.frames import Buffer, ProtocolError
from robot_runtime.wire.messages import Packet, Welcome
from robot_runtime.wire.server_session import ServerSession

HEARTBEAT_NS = 25 * NS_PER_MS
"""A dead server is noticed after at most 6 of these."""
LINGER_NS = 150 * NS_PER_MS
"""How long a stopping server stays to see its goodbyes off."""
_MAX_ARRIVALS = 64  # taken in one turn, so that a flood cannot keep the thread from its timers


class PolicyServer:
    """Serves one policy on one address; warm once constructed. A context manager."""

    def __init__(
        self,
        policy: Policy,
        address: str = DEFAULT_ADDRESS,
        *,
        delay: Delay | None = None,
        heartbeat_ns: int = HEARTBEAT_NS,
        clock: Clock | None = None,
    ) -> None:
        """Warms the policy up and only then opens the address. PortInUseError, or whatever the policy raises.

        heartbeat_ns: how often clients ask for a sign of life; they give up after five are missing.
        """
        self._clock: Clock = clock or MonotonicClock()
        self._is_stopping = False
        self._doorbell = Doorbell()
        self._engine = Engine(policy, clock=self._clock, ring=self._doorbell.ring)
        self._engine.warm_up()
        self._delay_line: DelayLine[tuple[bytes, Packet]] = DelayLine(delay or Delay())
        self._job_delay_ns = 0
        self._session = ServerSession(
            Welcome(
                policy=policy.name,
                schema=policy.schema,
                action_spec=policy.action_spec,
                tasks=policy.tasks,
                capabilities=capabilities_of(policy),
                heartbeat_ns=heartbeat_ns,
            )
        )
        try:
            self._transport = ZmqServerTransport(address)
        except RobotRuntimeError:
            self._engine.close()
            self._doorbell.close()
            raise
        self.address = self._transport.address
        """Where it listens, with the port that was chosen."""

    def __enter__(self) -> "PolicyServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def serve_forever(self) -> None:
        """Serve until `stop`, then tell the clients goodbye."""
        while not self._is_stopping:
            self._transport.wait(self._timeout_ns(), self._doorbell)
            self._turn()
        self._session.close()
        self._send()
        self._linger()

    def stop(self) -> None:
        """Make `serve_forever` return; any thread or signal handler may call it."""
        self._is_stopping = True
        self._doorbell.ring()

    def wakeup_fd(self) -> int:
        """For `signal.set_wakeup_fd`: else `stop` in a handler may have to wait."""
        return self._doorbell.ring_fileno()

    def close(self) -> None:
        """Give up address and threads; after `serve_forever` has returned."""
        self._engine.close()
        self._transport.close()
        self._doorbell.close()

    def _timeout_ns(self) -> int | None:
        times = (self._session.next_timer_ns(), self._delay_line.next_timer_ns())
        next_ns = min((t for t in times if t is not None), default=None)
        return None if next_ns is None else next_ns - self._clock.now_ns()

    def _turn(self) -> None:
        # Only `wait` silences the bell, so a result that comes after this look keeps it ringing.
        for result in self._engine.results():
            self._deliver(result)
        self._send(delay_ns=self._job_delay_ns)
        for _ in range(_MAX_ARRIVALS):
            arrival = self._transport.receive()
            if arrival is None:
                break
            received_ns = self._clock.now_ns()
            peer, frames = arrival
            self._session.receive(peer, _decoded(frames), received_ns)
        now_ns = self._clock.now_ns()
        for peer, packet in self._delay_line.take_due(now_ns):
            self._transport.send(peer, encode(packet))
        self._session.handle_timer(now_ns)
        self._feed_engine(now_ns)
        self._send()

    def _linger(self) -> None:
        # A socket closed on unread data resets the connection, and the goodbye with it: read for a while.
        end_ns = self._clock.now_ns() + LINGER_NS
        while (remaining_ns := end_ns - self._clock.now_ns()) > 0:
            self._transport.wait(remaining_ns, self._doorbell)
            while self._transport.receive() is not None:
                pass

    def _deliver(self, result: Result) -> None:
        match result:
            case Block():
                self._session.rows_ready(
                    result.job,
                    first_row=result.first_row,
                    rows=result.rows,
                    is_last=result.is_last,
                    infer_ns=result.infer_ns,
                )
            case Failure():
                self._session.job_failed(result.job, result.code, result.message)
            case Stopped():
                pass

    def _feed_engine(self, now_ns: int) -> None:
        running = self._engine.running
        if running is not None and not self._session.is_wanted(running):
            self._engine.stop()
        if self._engine.is_idle and (job := self._session.next_job(now_ns)) is not None:
            self._job_delay_ns = self._delay_line.draw_ns()
            self._engine.start(job)

    def _send(self, *, delay_ns: int = 0) -> None:
        """Send what the session has to say, so much later."""
        due_ns = self._clock.now_ns() + delay_ns if delay_ns else 0
        for peer, packet in self._session.packets_to_send():
            if delay_ns:
                self._delay_line.put(due_ns, (peer, packet))
            else:
                self._transport.send(peer, encode(packet))


def _decoded(frames: list[Buffer]) -> Packet | ProtocolError:
    try:
        return decode(frames, decode_jpeg=decode_jpeg)
    except ProtocolError as error:
        return error
