"""LeRobot's asynchronous inference over gRPC, so that its stock robot client works with our server.

    client                          gateway
      Ready                     ─►
      SendPolicyInstructions    ─►  what its robot's state and cameras are called
      SendObservations          ─►  the newest one is kept, as ours
      GetActions                ─►  request ─► server, batched with everybody else's
                                ◄─  timed actions, or a status that says what is wrong

Their messages are pickles, which can run any code: they are read as plain data (`pickle_format`). The
checkpoint that a client names is not loaded: a policy of ours answers. Numbers and pictures are matched by
name. A client that goes on after the server has started anew sends no instructions: its observations say the
same.
"""

import logging
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
from robot_runtime.core.action import GripperWidth, JointPosition
from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Observation
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.keys import RobotKeys
from robot_runtime.server.gateways.asking import MAX_MESSAGE, Asker, Served, refuse_for_all
from robot_runtime.server.gateways.lerobot_messages import (
    Instructions,
    actions_message,
    data_of_setup,
    joined,
    read_instructions,
    read_seen,
    written_actions,
)
from robot_runtime.server.gateways.names import Entry, Names
from robot_runtime.server.gateways.values import listed
from robot_runtime.transport.address import OpenAddressError, is_local
from robot_runtime.transport.sockets import HANDSHAKE_MS

logger = logging.getLogger(__name__)
SERVICE = "transport.AsyncInference"
STATE, PICTURES = "observation.state", "observation.images."
PATIENCE_S = 2.0
"""How long a client that asks for actions waits for its own observation, as with LeRobot's server."""
MAX_ROBOTS = 64
MAX_WAITING, MAX_SENDING = 32, 12
"""Clients that wait for actions, and that send something, at a time."""
SENDING_S = 5.0
"""A message that takes longer is given up."""
MAX_WORDS = 1000
GONE_S = 10.0
"""A client asks for actions all the time: one that has not for so long gives way to another."""


class NoPlaceError(Exception):
    """Says for a client what there is too much of."""


@dataclass(eq=False)
class _Robot:
    """What is known of one of LeRobot's, and what it has seen."""

    policy: Served | None = None
    names: Names = field(default_factory=Names)
    columns: Sequence[int] = ()
    """Of our rows, in the order in which the robot names them."""
    num_actions: int | None = None
    newest: tuple[float, int, Observation] | None = None
    """When it was made, in the time of the client [s], and the number of its step."""
    came: Condition = field(default_factory=Condition)
    sending: Lock = field(default_factory=Lock)
    waiting: Lock = field(default_factory=Lock)
    heard_s: float = field(default_factory=monotonic)


class LeRobotGateway:
    """Listens for LeRobot's robot clients, in threads of its own. A context manager."""

    def __init__(
        self,
        policies: Mapping[str, Served],
        *,
        server: str,
        address: str,
        names: Names | None = None,
        tls: tuple[Path, Path] | None = None,
        keys: RobotKeys | None = None,
    ) -> None:
        """
        policies: by name. server: where they are served. keys: for a server that asks for them.
        address: HOST:PORT; beyond this machine only with TLS.
        names: which of the robot's names are what; what it leaves out is as `names_of` has it.
        tls: certificate and private key, PEM files.
        InvalidValueError: the address cannot be listened on, or the names are for none of the policies.
        """
        refuse_for_all(names, policies.values())
        if tls is None and not is_local(f"tcp://{address}"):
            raise OpenAddressError(address)
        self._policies, self._names = policies, names or Names()
        self._asker = Asker(server, robot="LeRobot client", keys=keys)
        self._robots: dict[str, _Robot] = {}
        self._lock = Lock()
        self._waiting, self._sending = BoundedSemaphore(MAX_WAITING), BoundedSemaphore(MAX_SENDING)
        self._is_closing = False
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

    # ---- what LeRobot's client calls -----------------------------------------------------------------

    def _handlers(self) -> grpc.GenericRpcHandler:
        """Without (de)serialisers: bytes come and go."""
        unary = grpc.unary_unary_rpc_method_handler
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Ready": unary(lambda request, context: b""),
                "SendPolicyInstructions": unary(self._said(self._take_instructions)),
                "SendObservations": grpc.stream_unary_rpc_method_handler(self._said(self._take_observation)),
                "GetActions": unary(self._said(self._actions)),
            },
        )

    def _said(self, work: Callable[[Any, grpc.ServicerContext], bytes]) -> Callable[..., bytes]:
        """What the work gives; what it raises becomes a status with a sentence."""

        def answered(request: Any, context: grpc.ServicerContext) -> bytes:
            try:
                return work(request, context)
            except ValueError as error:
                status, words = grpc.StatusCode.INVALID_ARGUMENT, str(error)
            except NoPlaceError as error:
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

    def _take_instructions(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        robot = self._robot(context.peer())
        with _place(robot.sending, self._sending, "send"):
            instructions = read_instructions(data_of_setup(request))
        policy = self._policies.get(instructions.policy)
        if policy is None and len(self._policies) > 1:
            raise ValueError(
                f"there is no policy {listed([instructions.policy])!r}; there are {', '.join(self._policies)}"
            )
        state_names, cameras = names_told(instructions)
        self._match(robot, policy or next(iter(self._policies.values())), state_names, cameras)
        robot.num_actions = instructions.num_actions
        return b""

    def _take_observation(self, pieces: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        robot = self._robot(context.peer())
        with _place(robot.sending, self._sending, "send"), _at_most(SENDING_S, context):
            seen = read_seen(joined(pieces, MAX_MESSAGE))
            if robot.policy is None:
                self._infer(robot, seen.raw)
            assert robot.policy is not None
            sizes, now_ns = robot.policy.schema.cameras, MonotonicClock().now_ns()
            observation = robot.names.observation(seen.raw, now_ns=now_ns, sizes=sizes)
        with robot.came:
            robot.newest = seen.timestamp, seen.timestep, observation
            robot.came.notify()
        return b""

    def _actions(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        robot = self._robot(context.peer())
        with _place(robot.waiting, self._waiting, "wait for actions"):
            newest = self._newest(robot, context)
            if newest is None:
                return b""  # as LeRobot's server: ask again
            assert robot.policy is not None
            timestamp, timestep, observation = newest
            rows = self._asker.ask(robot.policy, observation).rows
        spec = robot.policy.sent_spec
        theirs = robot.names.sent_actions(rows, spec)[: robot.num_actions, robot.columns]
        pickled = written_actions(theirs, timestamp=timestamp, timestep=timestep, dt_s=spec.dt_s)
        return actions_message(pickled)

    # ---- robots --------------------------------------------------------------------------------------

    def _newest(self, robot: _Robot, context: grpc.ServicerContext) -> tuple[float, int, Observation] | None:
        """What it has seen and nobody has asked about; None after a while, or if the client has gone."""
        context.add_callback(lambda: _wake(robot))
        with robot.came:
            robot.came.wait_for(
                lambda: robot.newest is not None or not context.is_active() or self._is_closing, PATIENCE_S
            )
            newest, robot.newest = robot.newest, None
        if context.is_active():
            robot.heard_s = monotonic()
            return newest
        with self._lock:
            self._robots.pop(context.peer(), None)
        return None

    def _robot(self, peer: str) -> _Robot:
        """The one at the other end of that connection, who has just been heard."""
        with self._lock:
            robot = self._robots.get(peer)
            if robot is None:
                long_ago_s = monotonic() - GONE_S
                if len(self._robots) >= MAX_ROBOTS:
                    self._robots = {p: r for p, r in self._robots.items() if r.heard_s > long_ago_s}
                if len(self._robots) >= MAX_ROBOTS:
                    raise NoPlaceError(f"there are {MAX_ROBOTS} LeRobot clients already")
                robot = self._robots[peer] = _Robot()
            robot.heard_s = monotonic()
            return robot

    def _infer(self, robot: _Robot, raw: Mapping[str, Any]) -> None:
        """Of a client whose instructions went to a server before this one, what they said."""
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
        self, robot: _Robot, policy: Served, state_names: tuple[str, ...], cameras: Mapping[str, str]
    ) -> None:
        """Find what the policy needs among the names of a robot; ValueError says what is not there.

        cameras: the policy's name -> the robot's.
        """
        names = self._names.over(names_of(policy.schema, state_names, cameras))
        robot.columns = order_of_columns(policy, names, state_names)
        seen = names.cameras or {}
        known = set(cameras.values())
        if missing := [name for name in policy.schema.cameras if seen.get(name) not in known]:
            raise ValueError(
                f"policy {policy.name!r} needs the cameras {missing}; the robot has {listed(cameras)}"
            )
        robot.names, robot.policy = names, policy


def names_of(schema: Schema, state_names: Sequence[str], cameras: Mapping[str, str]) -> Names:
    """Where a robot has what the policy needs, as far as it calls it as our recordings do, or with `.pos`."""
    known = set(state_names)

    def found(*ours: str) -> str | None:
        return next((n for name in ours for n in (name, f"{name}.pos") if n in known), None)

    joints = [found(f"joint_{i}") for i in range(schema.num_joints)]
    has_joints = joints and None not in joints
    gripper = found("gripper_width", "gripper") if schema.has_gripper else None
    return Names(
        q=Entry(names=tuple(filter(None, joints))) if has_joints else None,
        gripper_width=None if gripper is None else Entry(names=(gripper,)),
        cameras={name: cameras[name] for name in schema.cameras if name in cameras},
        task="task",
        fit="pad",
    )


def names_told(told_by: Instructions) -> tuple[tuple[str, ...], dict[str, str]]:
    """Of the state, and for each camera of the policy the robot's name."""
    features, renamed = told_by.features, told_by.renamed
    state = features.get(STATE)
    told = state.get("names") if isinstance(state, dict) else None
    if not isinstance(told, list | tuple) or not all(isinstance(name, str) for name in told):
        raise ValueError(f"lerobot_features has no {STATE!r} with names, but {listed(features)}")
    if other := [key for it in renamed.items() for key in it if not key.startswith(PICTURES)]:
        raise ValueError(f"rename_map is followed for pictures only, here are {listed(other)}")
    keys = [str(key) for key in features if str(key).startswith(PICTURES)]
    return tuple(told), {
        renamed.get(key, key).removeprefix(PICTURES): key.removeprefix(PICTURES) for key in keys
    }


def order_of_columns(policy: Served, names: Names, state_names: Sequence[str]) -> list[int]:
    """Ours in the robot's order, which is that of its state: LeRobot has actions by it. ValueError."""
    called: list[str] = []
    for f in policy.action_spec.fields:
        match f:
            case JointPosition():
                called += names.q.names if names.q else ()
            case GripperWidth():
                called += names.gripper_width.names if names.gripper_width else ()
            case _:
                raise ValueError(f"policy {policy.name!r} moves more than joints and a gripper")
    wanted = [*called, *(names.q.names if names.q else ())]
    if len(called) != policy.action_spec.dim or (missing := set(wanted) - set(state_names)):
        lacks = f", and lacks {listed(sorted(missing))}" if len(called) == policy.action_spec.dim else ""
        raise ValueError(
            f"policy {policy.name!r} moves {policy.action_spec.dim} numbers by name; the robot's are "
            f"{listed(state_names)}{lacks}: say which is which in the file of --names, "
            '{"q": {"names": [...]}, "gripper_width": {"names": [...]}}'
        )
    if len(set(called)) != len(called):
        raise ValueError("the file of --names gives one of the robot's names two meanings")
    return sorted(range(len(called)), key=lambda i: state_names.index(called[i]))


@contextmanager
def _place(own: Lock, shared: BoundedSemaphore, what: str) -> Iterator[None]:
    """One of the places that all share, at most one for each client; NoPlaceError."""
    if not own.acquire(blocking=False):
        raise NoPlaceError(f"a client can {what} once at a time")
    try:
        if not shared.acquire(blocking=False):
            raise NoPlaceError(f"too many clients {what} at a time: try again")
        try:
            yield
        finally:
            shared.release()
    finally:
        own.release()


def _wake(robot: _Robot) -> None:
    with robot.came:
        robot.came.notify_all()


@contextmanager
def _at_most(seconds: float, context: grpc.ServicerContext) -> Iterator[None]:
    """A client that takes longer is hung up on."""
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
