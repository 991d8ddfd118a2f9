"""LeRobot's asynchronous inference over gRPC, so that its stock robot client works with our server.

    client                          gateway
      Ready                     ─►
      SendPolicyInstructions    ─►  names of its robot's state and cameras
      SendObservations          ─►  the newest one is kept, as ours, and the policy's history
      GetActions                ─►  request ─► server, batched with those of all others
                                ◄─  timed actions, or a status that reports what is wrong

Their messages are pickles, which can run any code: they are read as plain data (`pickle_format`). The
checkpoint that a client names is not loaded: if it is served, it answers; otherwise the only policy does,
which is logged. Numbers and images are matched by name. A client that goes on after the server has restarted
sends no instructions: its observations declare the same.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore, Condition, Lock, Timer
from time import monotonic
from types import TracebackType
from typing import Any

import grpc
import numpy as np

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.history import ObservationHistory
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.state import Observation
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.keys import RobotKeys
from robot_runtime.robot.counted_log import CountedLog
from robot_runtime.server.gateways.key_map import KeyMap
from robot_runtime.server.gateways.lerobot_messages import (
    Checkpoint,
    Instructions,
    actions_message,
    data_of_setup,
    joined,
    read_instructions,
    read_observation,
    written_actions,
)
from robot_runtime.server.gateways.lerobot_names import (
    MOVED,
    declared_names_given,
    names_of,
    order_of_columns,
    refuse_unknown_unit,
)
from robot_runtime.server.gateways.policy_session import MAX_MESSAGE, Asker, refuse_for_all
from robot_runtime.server.gateways.values import listed
from robot_runtime.transport.address import is_local, open_to_all
from robot_runtime.transport.sockets import HANDSHAKE_MS

logger = logging.getLogger(__name__)
SERVICE = "transport.AsyncInference"
PATIENCE_S = 2.0
"""How long a client that asks for actions waits for its own observation, as with LeRobot's server."""
MAX_ROBOTS = 64
MAX_WAITING, MAX_SENDING = 32, 12
"""Maximum number of clients that wait for actions, and that send something, at a time."""
SENDING_S = 5.0
"""A message that takes longer is abandoned."""
MAX_WORDS = 1000
GONE_S = 10.0
"""Clients ask for actions all the time: one that has not for this long gives up its slot to another."""


SHARED = (
    "two robot clients share one connection, and would get each other's actions: gRPC has one for all that "
    "a process talks to one server with, so run each robot in a process of its own"
)


class RowRate:
    """The rate at which one client runs its rows, by its own timestamps. Not thread-safe.

    observation       step 0            step 20           step 41
                      10.000 s          10.668 s          11.367 s      30 rows a second

    A window in which the client waited for rows is slow whatever its rate, so the fastest of several counts.
    """

    def __init__(self, dt_s: float) -> None:
        """dt_s: intended spacing of rows."""
        self._dt_s = dt_s
        self._since: tuple[float, int] | None = None
        self._rates: list[float] = []

    def take(self, timestamp: float, timestep: int) -> float | None:
        """Note an observation made at this time [s], after this many steps. Returns the rate in rows per
        second, once, if it is not the intended one."""
        since_s, since_step = self._since or (timestamp, timestep)
        if timestamp < since_s or timestep < since_step:
            since_s, since_step = timestamp, timestep
        self._since = since_s, since_step
        if len(self._rates) >= _WINDOWS or timestep < since_step + _STEPS or timestamp == since_s:
            return None
        self._since = timestamp, timestep
        self._rates.append((timestep - since_step) / (timestamp - since_s))
        if len(self._rates) < _WINDOWS or _SLOWEST <= max(self._rates) * self._dt_s <= _FASTEST:
            return None
        return max(self._rates)


class _NoPlaceError(Exception):
    """Too many of something, in words for a client."""


@dataclass(eq=False)
class _Turn:
    """A kind of call that a client makes once at a time."""

    lock: Lock = field(default_factory=Lock)
    holder: grpc.ServicerContext | None = None


@dataclass(eq=False)
class _Robot:
    """A LeRobot robot, and what it has seen."""

    policy: PolicyInfo | None = None
    names: KeyMap = field(default_factory=KeyMap)
    columns: Sequence[int] = ()
    """Our columns, in the order in which the robot names them."""
    num_actions: int | None = None
    newest: tuple[float, int, Observation] | None = None
    """When it was made, in the client's time [s], and the number of its step."""
    history: ObservationHistory | None = None
    """Earlier observations, for a policy with history: a client sends one observation at a time."""
    came: Condition = field(default_factory=Condition)
    sending: _Turn = field(default_factory=_Turn)
    waiting: _Turn = field(default_factory=_Turn)
    heard_s: float = field(default_factory=monotonic)
    is_shared: bool = False
    """Whether two clients share its connection, and would get each other's actions."""
    rate: RowRate | None = None


class LeRobotGateway:
    """Listens for LeRobot's robot clients, in threads of its own. A context manager."""

    def __init__(
        self,
        policies: Mapping[str, PolicyInfo],
        *,
        server: str,
        address: str,
        names: KeyMap | None = None,
        checkpoints: Mapping[str, Checkpoint] | None = None,
        tls: tuple[Path, Path] | None = None,
        keys: RobotKeys | None = None,
    ) -> None:
        """
        policies: by name. server: where they are served. keys: for a server that requires them.
        address: HOST:PORT; beyond this machine only with TLS.
        names: which of the robot's names are what; what it leaves out is as in `names_of`.
        checkpoints: of the policies that are LeRobot's, by name: a client may ask for them as such.
        tls: certificate and private key, PEM files.
        InvalidValueError: the address cannot be listened on, the meaning of a number is undeclared, or the
            names are for none of the policies.
        """
        refuse_for_all(names, policies.values())
        if tls is None and not is_local(f"tcp://{address}"):
            raise open_to_all(address)
        self._policies, self._names, self._checkpoints = policies, names or KeyMap(), checkpoints or {}
        for name, policy in policies.items():
            if all(isinstance(f, MOVED) for f in policy.action_spec.fields):
                self._names.refuse_undeclared(policy.schema, policy.action_spec, policy=name)
        self._asker = Asker(server, robot="LeRobot client", keys=keys)
        self._robots: dict[str, _Robot] = {}
        self._lock = Lock()
        self._waiting, self._sending = BoundedSemaphore(MAX_WAITING), BoundedSemaphore(MAX_SENDING)
        self._is_closing = False
        self._notices = CountedLog.into(logger)
        self._grpc = grpc.server(
            ThreadPoolExecutor(MAX_WAITING + MAX_SENDING + 4, "lerobot"),
            handlers=(self._handlers(),),
            maximum_concurrent_rpcs=2 * (MAX_WAITING + MAX_SENDING),
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
                ("grpc.max_concurrent_streams", 8),
            ],
        )
        host = address.rpartition(":")[0]
        try:
            port = (
                self._grpc.add_insecure_port(address)
                if tls is None
                else self._grpc.add_secure_port(address, _credentials(*tls))
            )
        except (RuntimeError, OSError) as error:
            raise InvalidValueError(f"cannot listen at {address!r}: {error}; expected HOST:PORT") from error
        self.address = f"{host}:{port}"
        """Where it listens, with the port that was chosen."""
        self._grpc.start()

    def __enter__(self) -> "LeRobotGateway":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closing = True
        stopped = self._grpc.stop(0.3)
        self._asker.close()
        stopped.wait(1.0)

    # ---- calls of LeRobot's client -------------------------------------------------------------------

    def _handlers(self) -> grpc.GenericRpcHandler:
        """Handlers of bytes, without (de)serialisers."""
        unary = grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Ready": unary(self._with_status(self._begin)),
                "SendPolicyInstructions": unary(self._with_status(self._take_instructions)),
                "SendObservations": grpc.stream_unary_rpc_method_handler(
                    self._with_status(self._take_observation)
                ),
                "GetActions": unary(self._with_status(self._actions)),
            },
        )

    def _with_status(self, work: Callable[[Any, grpc.ServicerContext], bytes]) -> Callable[..., bytes]:
        """The result of the work; an exception becomes a status with a sentence."""

        def answered(request: Any, context: grpc.ServicerContext) -> bytes:
            try:
                return work(request, context)
            except ValueError as error:
                status, words = grpc.StatusCode.INVALID_ARGUMENT, str(error)
            except _NoPlaceError as error:
                status, words = grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
            except RobotRuntimeError as error:
                logger.error("a LeRobot client could not be served: %s", error)
                status, words = grpc.StatusCode.FAILED_PRECONDITION, "the policy server does not answer"
            except Exception:
                if not context.is_active():
                    return b""
                logger.exception("a LeRobot client could not be served")
                status, words = grpc.StatusCode.INTERNAL, "the gateway failed; its log says why"
            context.abort(status, words[:MAX_WORDS])
            raise AssertionError("abort raises")

        return answered

    def _begin(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Start with a client: forget what one before it has seen."""
        with self._lock:
            robot = self._robots.get(context.peer())
        if robot is not None:
            with robot.came:
                robot.newest, robot.is_shared = None, _is_held(robot.waiting)
                if robot.history is not None:
                    robot.history.forget()
                robot.came.notify_all()
        return b""

    def _take_instructions(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        robot = self._robot(context.peer())
        with _place(robot, robot.sending, self._sending, "send", context):
            instructions = read_instructions(data_of_setup(request))
        policy = self._asked_for(instructions)
        state_names, cameras = declared_names_given(instructions)
        self._match(robot, policy, state_names, cameras)
        robot.num_actions = instructions.num_actions
        return b""

    def _asked_for(self, instructions: Instructions) -> PolicyInfo:
        """The policy of our name or of its checkpoint's; the only one answers for any other, which is logged
        once. ValueError: there are several."""
        asked, found = instructions.policy, self._policies.get(instructions.policy)
        for name, checkpoint in self._checkpoints.items():
            if found is None and asked in checkpoint.called:
                found = self._policies[name]
        if found is None and len(self._policies) > 1:
            raise ValueError(f"there is no policy {listed([asked])!r}; there are {', '.join(self._policies)}")
        answers = found or next(iter(self._policies.values()))
        kind = self._checkpoints.get(answers.name, Checkpoint()).kind
        if found is None or kind not in ("", instructions.kind):
            wanted = f"{listed([instructions.kind])} {listed([asked])!r}"
            text = (
                f"a LeRobot client asks for {wanted}, and is answered by policy {answers.name!r}"
                f"{kind and f', {kind}'}: this server loads no policy that a client names"
            )
            self._notices.counted(text, 1, text)
        return answers

    def _take_observation(self, pieces: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        robot = self._robot(context.peer())
        with (
            _place(robot, robot.sending, self._sending, "send", context),
            _at_most(SENDING_S, context),
        ):
            timestamp, timestep, raw = read_observation(joined(pieces, MAX_MESSAGE))
            if robot.policy is None:
                self._infer(robot, raw)
            assert robot.policy is not None
            sizes, now_ns = robot.policy.schema.cameras, MonotonicClock().now_ns()
            observation = robot.names.observation(raw, now_ns=now_ns, sizes=sizes, notices=self._notices)
        self._look_at_rate(robot, timestamp, timestep)
        with robot.came:
            robot.newest = timestamp, timestep, observation
            if robot.history is not None and robot.history.is_due(observation.t_obs_ns):
                robot.history.note(observation)
            robot.came.notify()
        return b""

    def _actions(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        robot = self._robot(context.peer())
        with _place(robot, robot.waiting, self._waiting, "wait for actions", context):
            newest = self._newest(robot, context)
            if newest is None:
                return b""  # as LeRobot's server: ask again
            assert robot.policy is not None
            timestamp, timestep, observation = newest
            rows, _ = self._asker.ask(robot.policy, observation)
        spec = robot.policy.action_spec.absolute()
        theirs = robot.names.sent_actions(rows, spec)[: robot.num_actions, robot.columns]
        pickled = written_actions(theirs, timestamp=timestamp, timestep=timestep, dt_s=spec.dt_s)
        return actions_message(pickled)

    def _look_at_rate(self, robot: _Robot, timestamp: float, timestep: int) -> None:
        """Warn if the client runs rows faster or slower than intended: only its own option can be wrong, as
        the protocol does not send it the policy's rate."""
        assert robot.policy is not None
        assert robot.rate is not None
        rate = robot.rate.take(timestamp, timestep)
        if rate is not None:
            meant, name = 1.0 / robot.policy.action_spec.dt_s, robot.policy.name
            self._notices.note(
                f"a LeRobot client runs {rate:.0f} rows a second of policy {name!r}",
                f"a LeRobot client runs {rate:.1f} rows a second, those of policy {name!r} are "
                f"meant for {meant:.1f}: start it with --fps {meant:.0f}, or its robot moves "
                f"{rate / meant:.2g} times as fast",
            )

    # ---- robots --------------------------------------------------------------------------------------

    def _newest(self, robot: _Robot, context: grpc.ServicerContext) -> tuple[float, int, Observation] | None:
        """Its newest observation that was not used yet; None after a while, or if no call waits for it now.

        A client that has hung up may ask again under its name, but its slot is free for others.
        """
        context.add_callback(lambda: _wake(robot))
        with robot.came:
            robot.came.wait_for(
                lambda: (
                    robot.newest is not None or robot.is_shared or not context.is_active() or self._is_closing
                ),
                PATIENCE_S,
            )
            if not context.is_active():
                robot.heard_s = -math.inf
                return None
            newest, robot.newest = robot.newest, None
            if newest is not None and robot.history is not None:
                newest = (*newest[:2], robot.history.asked(newest[2]))
        robot.heard_s = monotonic()
        return newest

    def _robot(self, peer: str) -> _Robot:
        """The robot at the other end of that connection, which was just heard."""
        with self._lock:
            robot = self._robots.get(peer)
            if robot is None:
                long_ago_s = monotonic() - GONE_S
                if len(self._robots) >= MAX_ROBOTS:
                    self._robots = {p: r for p, r in self._robots.items() if r.heard_s > long_ago_s}
                if len(self._robots) >= MAX_ROBOTS:
                    raise _NoPlaceError(f"there are {MAX_ROBOTS} LeRobot clients already")
                robot = self._robots[peer] = _Robot()
            robot.heard_s = monotonic()
            return robot

    def _infer(self, robot: _Robot, raw: Mapping[str, Any]) -> None:
        """Set up a client whose instructions went to a server before this one, from its observation."""
        if len(self._policies) > 1:
            raise ValueError(
                "send policy instructions first: there are the policies " + ", ".join(self._policies)
            )
        numbers = tuple(name for name, value in raw.items() if type(value) in (int, float))
        cameras = {name: name for name, value in raw.items() if isinstance(value, np.ndarray)}
        policy = next(iter(self._policies.values()))
        self._match(robot, policy, numbers, cameras)
        logger.info("a LeRobot client that sent no instructions is answered by %s", policy.name)

    def _match(
        self, robot: _Robot, policy: PolicyInfo, state_names: tuple[str, ...], cameras: Mapping[str, str]
    ) -> None:
        """Find what the policy needs among the names of a robot; ValueError reports what is missing.

        cameras: the policy's name -> the robot's.
        """
        names = self._names.over(names_of(policy.schema, state_names, cameras))
        columns = order_of_columns(policy, names, state_names)
        refuse_unknown_unit(names)
        seen = names.cameras or {}
        known = set(cameras.values())
        if missing := [name for name in policy.schema.cameras if seen.get(name) not in known]:
            raise ValueError(
                f"policy {policy.name!r} needs the cameras {missing}; the robot has {listed(cameras)}"
            )
        robot.names, robot.policy, robot.columns = names, policy, columns
        robot.rate, robot.history = RowRate(policy.action_spec.dt_s), ObservationHistory.of(policy)


@contextmanager
def _place(
    robot: _Robot, own: _Turn, shared: BoundedSemaphore, what: str, context: grpc.ServicerContext
) -> Iterator[None]:
    """One of the shared slots, at most one for each client; _NoPlaceError.

    A client makes one call of a kind at a time: two at a time are two clients that cannot be distinguished.
    """
    if not own.lock.acquire(blocking=False):
        if not _is_held(own):
            raise _NoPlaceError(f"what this client asked for before is still worked on: {what} again")
        robot.is_shared = True
        _wake(robot)
        raise _NoPlaceError(SHARED)
    own.holder = context
    try:
        if not shared.acquire(blocking=False):
            raise _NoPlaceError(f"too many clients {what} at a time: try again")
        try:
            _refuse_shared(robot)
            yield
            _refuse_shared(robot)
        finally:
            shared.release()
    finally:
        own.holder = None
        own.lock.release()


def _is_held(turn: _Turn) -> bool:
    return turn.holder is not None and turn.holder.is_active()


def _refuse_shared(robot: _Robot) -> None:
    if robot.is_shared:
        raise _NoPlaceError(SHARED)


def _wake(robot: _Robot) -> None:
    with robot.came:
        robot.came.notify_all()


@contextmanager
def _at_most(seconds: float, context: grpc.ServicerContext) -> Iterator[None]:
    """Cut off a client that takes longer."""
    timer = Timer(seconds, context.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _credentials(certificate: Path, key: Path) -> grpc.ServerCredentials:
    try:
        return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
    except OSError as error:
        raise InvalidValueError(f"cannot read certificate and key: {error}") from error


_STEPS, _WINDOWS = 16, 4
"""Minimum number of steps of a window, and number of windows."""
_FASTEST, _SLOWEST = 1.2, 0.7
"""A rate beyond these shares of the intended one is wrong."""
