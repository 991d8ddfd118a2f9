"""`PolicyClient`: the robot's network thread, and the interface that the control thread uses.

    control thread                     network thread (owns the socket and the ClientSession)
    submit(request) ── Mailbox ──────► the newest and those it follows ─► session ─► encode, JPEG ─► socket
    cancel(...)     ── deque ────────►
    events()        ◄─ deque ───────── session ◄─ decode ◄───────────────────── socket

The control thread never waits: it leaves a request, rings the doorbell, and collects events later.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType

import numpy as np

from robot_runtime.clock import Clock, MonotonicClock
from robot_runtime.core.method.sampler_parts import PREFIXLESS, SamplerPart
from robot_runtime.core.method.table import Method, method_named
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S, ActionChunk, ActionSpec
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import InvalidValueError, SchemaMismatchError, ServerUnavailableError
from robot_runtime.keys import RobotKeys
from robot_runtime.mailbox import Doorbell, Mailbox
from robot_runtime.transport.address import DEFAULT_ADDRESS, name_trouble, server_and_name
from robot_runtime.transport.client import ClientTransport
from robot_runtime.wire.client_session import ClientSession
from robot_runtime.wire.codec import encode, read
from robot_runtime.wire.events import Event, PartReceived, RequestFailed, ServerLost
from robot_runtime.wire.frames import Buffer, EncodeJpeg
from robot_runtime.wire.messages import Dropped, DropReason, Hello, Readiness, RefusalCode, Refused, Welcome

logger = logging.getLogger(__name__)
MAX_TIMEOUT_S = 1e6
_PAUSE_S = 0.1
_LOOK_S = 0.1
_MAX_ARRIVALS = 64  # handled in one turn, so that a flood cannot starve the thread's timers


def _session_ids() -> Iterator[int]:
    while True:
        yield int.from_bytes(os.urandom(8)) >> 1


class PolicyClient:
    """One robot's connection to a policy server; keeps itself connected until closed.

    A context manager. Except for `close`, only the control thread calls its methods.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        schema: Schema,
        robot: str = "robot",
        policy: str = "",
        jpeg_quality: int | None = None,
        keys: RobotKeys | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Start connecting.

        address: tcp://HOST:PORT, or tcp://HOST:PORT/NAME of one of its policies.
        robot: its name on the server; with keys, the name of the keys is used.
        schema: what this robot offers; the server refuses if the policy needs something else.
        jpeg_quality: send images as JPEG of that quality in [1, 100]; None sends them raw.
        policy: which of the server's policies, in place of NAME; empty for the only one.
        keys: for a server that requires them.
        """
        self.welcome: Welcome | None = None
        """What the server declared about its policy; None while there is no server."""
        self.readiness: Readiness | None = None
        """Which parts of its policy are warm; None once all are."""
        self.schema = schema
        """What this robot offers."""
        address, named = server_and_name(address)
        self._address = address
        self._clock: Clock = clock or MonotonicClock()
        self._encode_jpeg: EncodeJpeg | None = None
        if jpeg_quality is not None:
            from robot_runtime.jpeg import jpeg_encoder  # most robots send raw images

            self._encode_jpeg = jpeg_encoder(jpeg_quality)
        self._transport = ClientTransport(address, keys=keys)
        name = robot if keys is None else keys.name
        self._session = ClientSession(
            client_id=f"{name}-{os.urandom(6).hex()}",
            robot=name,
            schema=schema,
            policy=policy or named,
            session_ids=_session_ids(),
        )
        self._epochs = count(1)
        self._doorbell = Doorbell()
        self._requests: Mailbox[tuple[ChunkRequest, ...]] = Mailbox()
        self._cancels: deque[tuple[int, int]] = deque()
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._seen: list[Event] = []  # by wait_for_events; the control thread's
        self._outbox: deque[list[Buffer]] = deque()
        self._timer_ns: int | None = None
        self._refusal: Refused | None = None
        self._trouble: str | None = None
        self._open_session = 0
        self._is_closing = False
        self._thread = Thread(target=self._run, name="policy-client", daemon=True)
        self._thread.start()

    def __enter__(self) -> "PolicyClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- control thread ------------------------------------------------------------------------------

    def submit(self, request: ChunkRequest) -> None:
        """Ask for a chunk; never blocks.

        It replaces requests that have not been sent yet, unless it follows them.
        """
        # The network thread has not seen what is taken back here, and only this thread puts requests.
        kept = []
        for unseen in self._requests.take() or ():
            if request.follows(unseen):
                kept.append(unseen)
            else:
                ids = {"request_id": unseen.request_id, "epoch": unseen.epoch}
                self._events.put(Dropped(**ids, reason=DropReason.SUPERSEDED))
        self._requests.put((*kept, request))
        self._doorbell.ring()

    def cancel(self, *, request_id: int, epoch: int) -> None:
        """Cancel a request; never blocks. It ends in Dropped unless it is over already."""
        self._cancels.append((request_id, epoch))
        self._doorbell.ring()

    def events(self) -> list[Event]:
        """Return what happened since the last call, oldest first; never blocks, and raises nothing."""
        events, self._seen = self._seen, []
        while not self._events.empty():  # no other thread takes any
            events.append(self._events.get_nowait())
        return events

    def wait_for_events(self, timeout_s: float) -> bool:
        """Sleep until there are events; False after the timeout. For callers that have nothing else to do."""
        if not self._seen:
            try:
                self._seen.append(self._events.get(timeout=timeout_s))
            except Empty:
                return False
        return True

    def infer(
        self,
        observation: Observation,
        *,
        sampler: SamplerPart | None = None,
        seed: int = 0,
        timeout_s: float = 10.0,
    ) -> ActionChunk:
        """Ask for a whole chunk and wait for it; for callers that have nothing else to do.

        sampler: None takes the policy's first sampler that needs no previous chunk. Rows count from the
        observation. ServerUnavailableError: no answer in time. SchemaMismatchError: robot and policy do not
        fit. InvalidValueError: the policy cannot answer that observation, or only with a previous chunk.
        """
        info = self.wait_until_ready(timeout_s).info
        kinds = [kind for kind in info.capabilities.samplers if kind in PREFIXLESS]
        if sampler is None and not kinds:
            raise InvalidValueError(
                f"policy {info.name!r} goes on from a previous chunk: give a sampler, submit"
            )
        request = ChunkRequest(
            observation=observation,
            sampler=sampler or kinds[0](),
            seed=seed,
            epoch=self.new_epochs(),
            deadline_ns=int(timeout_s * NS_PER_S),
        )
        rows = np.concatenate([event.part.rows for event in self.parts(request)])
        return ActionChunk(
            spec=info.action_spec, rows=rows, anchor=observation.state, request_id=0, epoch=request.epoch
        )

    def parts(
        self, request: ChunkRequest, *, should_stop: Callable[[], bool] = lambda: False
    ) -> Iterator[PartReceived]:
        """Submit a request and yield its parts until the last row; other events are dropped.

        should_stop: checked while nothing comes. ServerUnavailableError: the rest does not come.
        InvalidValueError: the server or its policy refuses the request.
        """
        self.events()
        self.submit(request)
        asked, given_up_ns = (
            (request.request_id, request.epoch),
            self._clock.now_ns() + 2 * request.deadline_ns,
        )
        while self._clock.now_ns() < given_up_ns and not should_stop():
            self.wait_for_events(_LOOK_S)
            arrived = self.events()
            for event in arrived:
                match event:
                    case PartReceived(part=part) if (part.request_id, part.epoch) == asked:
                        yield event
                        if part.is_last:
                            return
                    case RequestFailed(reason=reason) if (event.request_id, event.epoch) == asked:
                        self.wait_for_events(_LOOK_S / 2)  # a loss is reported after what it ended
                        if self.welcome is None:
                            why = _why_lost([*arrived, *self.events()]) or reason
                            raise ServerUnavailableError(f"the server was lost: {why}")
                        raise InvalidValueError(reason)
                    case Dropped(reason=dropped) if (event.request_id, event.epoch) == asked:
                        why = f"dropped, {dropped.value}"
                        raise ServerUnavailableError(f"the server could not answer in time: {why}")
                    case ServerLost(reason=reason):
                        raise ServerUnavailableError(f"the server was lost: {reason}")
        raise ServerUnavailableError("the server could not answer in time")

    def wait_until_ready(self, timeout_s: float = 10.0) -> Welcome:
        """Block until the server takes requests; its events stay in `events`.

        ServerUnavailableError: no server answered in time, or the server was full all the time.
        SchemaMismatchError: robot and policy do not fit.
        InvalidValueError: the timeout is out of range.
        """
        if not 0.0 <= timeout_s <= MAX_TIMEOUT_S:
            raise InvalidValueError(
                f"waiting for a server takes a number of seconds from 0 to {MAX_TIMEOUT_S:g}, got {timeout_s}"
            )
        deadline_ns = self._clock.now_ns() + int(timeout_s * NS_PER_S)
        while self.welcome is None:
            is_late = self._clock.now_ns() >= deadline_ns
            refusal = self._refusal
            if refusal is not None and (is_late or refusal.code is not RefusalCode.FULL):
                raise self._refused_error(refusal)
            if is_late:
                hint = "start one with `robot-runtime serve`, or check address and firewall"
                trouble = self._trouble or name_trouble(self._address)
                raise ServerUnavailableError(
                    f"no policy server answered at {self._address} within {timeout_s:g} s; {trouble or hint}"
                )
            self._clock.sleep_until_ns(self._clock.now_ns() + NS_PER_S // 500)
        return self.welcome

    def close(self) -> None:
        """Say goodbye to the server and end the thread; open requests are dropped."""
        if self._is_closing:
            return
        self._is_closing = True
        self._doorbell.ring()
        self._thread.join()
        self._doorbell.close()

    def new_epochs(self) -> int:
        """Reserve 2**32 epochs that no request of this client has had; return the first."""
        return next(self._epochs) << 32

    @property
    def thread_id(self) -> int:
        """The network thread's id in the operating system."""
        assert self._thread.native_id is not None
        return self._thread.native_id

    def _refused_error(self, refusal: Refused) -> Exception:
        if refusal.code is RefusalCode.SCHEMA:
            return SchemaMismatchError(refusal.reason)
        if refusal.code is RefusalCode.POLICY:
            return ServerUnavailableError(f"{refusal.reason}: ask for one as {self._address}/NAME")
        return ServerUnavailableError(f"the server at {self._address} refused: {refusal.reason}")

    # ---- network thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        self._session.connect(self._clock.now_ns())
        self._open_session = self._session.session_id
        while not self._is_closing:
            try:
                self._turn()
            except Exception:
                # An unforeseen error ends the connection, not this thread.
                logger.exception("the policy client greets its server anew")
                reason = "something in this client failed; see its log"
                self._session.broken(reason, self._clock.now_ns())
                self._hand_over()
                time.sleep(_PAUSE_S)
        try:
            self._session.close()
            self._send()
        finally:
            self._transport.close()

    def _turn(self) -> None:
        # Only `_wait` resets the doorbell, so a request that comes after this look keeps it ringing.
        self._take_requests()
        self._send()
        if self._transport.is_taking():
            self._session.is_heard(self._clock.now_ns())
        self._take_arrivals()
        if self._transport.has_broken():
            self._session.broken("the connection has ended", self._clock.now_ns())
        if self._session.session_id != self._open_session:
            self._open_session = self._session.session_id
            self._outbox.clear()
            self._transport.reopen()
        self._send()
        self._hand_over()
        if self.welcome is None:
            self._trouble = self._transport.trouble()
        self._wait()

    def _wait(self) -> None:
        timer_ns = self._timer_ns = self._session.next_timer_ns()
        timeout_ns = None if timer_ns is None else timer_ns - self._clock.now_ns()
        self._transport.wait(timeout_ns, self._doorbell, to_send=bool(self._outbox))

    def _take_requests(self) -> None:
        now_ns = self._clock.now_ns()
        for request in self._requests.take() or ():
            self._session.submit(request, now_ns)
        while self._cancels:
            request_id, epoch = self._cancels.popleft()
            self._session.cancel(request_id=request_id, epoch=epoch, now_ns=now_ns)

    def _take_arrivals(self) -> None:
        for _ in range(_MAX_ARRIVALS):
            frames = self._transport.receive()
            if frames is None:
                break
            arrived_ns = self._clock.now_ns()
            self._session.receive(read(frames), arrived_ns)
            self._hand_over()
        now_ns = self._clock.now_ns()
        if self._timer_ns is not None and now_ns >= self._timer_ns:  # timers set since then are due later
            self._session.handle_timer(now_ns)

    def _send(self) -> None:
        for packet in self._session.packets_to_send():
            if self._outbox and isinstance(packet.message, Hello):
                continue  # one is waiting for the connection already
            try:
                self._outbox.append(encode(packet, encode_jpeg=self._encode_jpeg))
            except Exception as error:
                # A fault in the caller's arrays fails only that request.
                logger.warning("%s was not sent: %s", type(packet.message).__name__, error)
                if isinstance(packet.message, ChunkRequest):
                    reason = f"it could not be sent: {error}"
                    self._session.abandon(packet.message, reason, self._clock.now_ns())
        while self._outbox and self._transport.send(self._outbox[0]):
            self._outbox.popleft()

    def _hand_over(self) -> None:
        while (event := self._session.next_event()) is not None:
            match event:
                case Welcome():
                    self.welcome, self._refusal = event, None
                case Readiness():
                    self.readiness = event if event.pieces_left else None
                case ServerLost():
                    self.welcome = self.readiness = None
                case Refused():
                    self._refusal, self.readiness = event, None
            self._events.put(event)


def _why_lost(events: list[Event]) -> str:
    """Return the reason why the session ended, if one of the events has it."""
    return next((event.reason for event in events if isinstance(event, ServerLost)), "")


class NoPolicy:
    """Takes the place of a `PolicyClient` in a run without a policy: no thread, no socket, no event."""

    thread_id: int | None = None

    def __init__(self, schema: Schema) -> None:
        """schema: of the robot."""
        self.schema = schema

    def wait_until_ready(self, timeout_s: float = 0.0) -> Welcome:
        """Return a policy that would move every part with its usual commands, and use all cameras."""
        spec = ActionSpec(fields=self.schema.action_fields, horizon=2, dt_ns=50 * NS_PER_MS)
        info = PolicyInfo(name="no policy", action_spec=spec, schema=self.schema)
        return Welcome(info=info, heartbeat_ns=1)

    def new_epochs(self) -> int:
        return 1 << 32

    def events(self) -> list[Event]:
        return []

    def submit(self, request: ChunkRequest) -> None:
        raise RuntimeError("a run without a policy takes no requests")

    def close(self) -> None:
        """Do nothing: nothing was opened."""


def method_without_policy() -> Method:
    """Return the method with which an executor waits for chunks that never come."""
    return method_named("synchronous")
