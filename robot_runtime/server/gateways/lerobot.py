"""LeRobot's asynchronous inference over gRPC, so that its stock robot client works with our server.

    client                          gateway
      Ready                     ─►
      SendPolicyInstructions    ─►  what its robot's state and cameras are called; one robot of ours, greeted
      SendObservations          ─►  the newest one is kept
      GetActions                ─►  request ─► server, batched with everybody else's
                                ◄─  timed actions, or a status that says what is wrong

Their messages are pickles, which can run any code. What comes in is read by an unpickler that knows their two
messages, the description of a feature, and arrays. The checkpoint that a client names is not loaded: a policy
of ours of that name answers, else the first.
"""

import io
import logging
import pickle
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition
from types import MappingProxyType, TracebackType
from typing import Any

import cv2
import grpc
import numpy as np
import torch
from lerobot.async_inference.helpers import RemotePolicyConfig, TimedAction, TimedObservation
from lerobot.configs import FeatureType, PolicyFeature
from lerobot.transport import services_pb2, services_pb2_grpc

from policies.policy import Policy
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.action import NS_PER_S
from robot_runtime.core.schema import Schema
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.keys import RobotKeys
from robot_runtime.server.gateways.asking import MAX_GUESTS, Guest, Guests
from robot_runtime.server.gateways.names import Entry, Names
from robot_runtime.transport.address import OpenAddressError, is_local
from robot_runtime.transport.sockets import HANDSHAKE_MS
from robot_runtime.wire.frames import LIMITS

logger = logging.getLogger(__name__)
STATE, PICTURES = "observation.state", "observation.images."
PATIENCE_S = 2.0
"""How long a client that asks for actions waits for its own observation, as with LeRobot's server."""
_ALLOWED: Mapping[tuple[str, str], Any] = MappingProxyType(
    {
        (TimedObservation.__module__, "TimedObservation"): TimedObservation,
        (RemotePolicyConfig.__module__, "RemotePolicyConfig"): RemotePolicyConfig,
        (PolicyFeature.__module__, "PolicyFeature"): PolicyFeature,
        (FeatureType.__module__, "FeatureType"): FeatureType,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        **{
            (f"numpy.{core}.multiarray", name): getattr(np._core.multiarray, name)  # type: ignore[attr-defined]
            for core in ("core", "_core")
            for name in ("_reconstruct", "scalar")
        },
        ("numpy._core.numeric", "_frombuffer"): np._core.numeric._frombuffer,  # type: ignore[attr-defined]
    }
)


def unpickled(data: bytes, kind: type) -> Any:
    """An object of that kind, made of nothing but what is allowed; ValueError says what else came."""
    try:
        out = _Unpickler(io.BytesIO(data)).load()
    except Exception as error:  # what a pickle can raise has no end
        raise ValueError(f"this is not a {kind.__name__}: {error}") from error
    if not isinstance(out, kind):
        raise ValueError(f"expected a {kind.__name__}, got {type(out).__name__}")
    return out


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise ValueError(f"{module}.{name} is not allowed here") from None


@dataclass(eq=False)
class _Robot:
    """What one of LeRobot's has said of itself, and what it has seen."""

    names: Names
    state_names: tuple[str, ...]
    """What its robot calls the numbers of its state, in order."""
    cameras: tuple[str, ...]
    num_actions: int
    newest: TimedObservation | None = None
    came: Condition = field(default_factory=Condition)


class LeRobotGateway(services_pb2_grpc.AsyncInferenceServicer):
    """Listens for LeRobot's robot clients, in threads of its own. A context manager."""

    def __init__(
        self,
        policies: Mapping[str, Policy],
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
        names: which numbers of the state are what; None takes joints first, then the gripper.
        tls: certificate and private key, PEM files.
        InvalidValueError: the address cannot be listened on.
        """
        if tls is None and not is_local(f"tcp://{address}"):
            raise OpenAddressError(address)
        self._policies, self._names = policies, names
        self._guests = Guests[str, _Robot](server, robot="LeRobot client", keys=keys)
        options = [("grpc.so_reuseport", 0), ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS)]
        self._grpc = grpc.server(ThreadPoolExecutor(2 * MAX_GUESTS, "lerobot"), options=options)
        services_pb2_grpc.add_AsyncInferenceServicer_to_server(self, self._grpc)
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
        self._grpc.stop(0.5).wait()
        self._guests.close()

    # ---- what LeRobot's client calls; the names are its own ----------------------------------------

    def Ready(self, request: Any, context: grpc.ServicerContext) -> Any:
        return services_pb2.Empty()

    def SendPolicyInstructions(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._said(context, lambda: self._greet(context.peer(), unpickled(request.data, RemotePolicyConfig)))
        return services_pb2.Empty()

    def SendObservations(self, request_iterator: Iterator, context: grpc.ServicerContext) -> Any:
        robot = self._guest_of(context).told
        observation = self._said(context, lambda: unpickled(_joined(request_iterator), TimedObservation))
        with robot.came:
            robot.newest = observation
            robot.came.notify()
        return services_pb2.Empty()

    def GetActions(self, request: Any, context: grpc.ServicerContext) -> Any:
        guest = self._guest_of(context)
        robot = guest.told
        with robot.came:
            robot.came.wait_for(lambda: robot.newest is not None, PATIENCE_S)
            observation, robot.newest = robot.newest, None
        if observation is None:
            return services_pb2.Actions()  # as LeRobot's server: ask again
        actions = self._said(context, lambda: _answered(guest, observation))
        return services_pb2.Actions(data=pickle.dumps(actions))

    # ------------------------------------------------------------------------------------------------

    def _said[T](self, context: grpc.ServicerContext, work: Callable[[], T]) -> T:
        """What the work gives; a ValueError of its becomes a status with its words."""
        try:
            return work()
        except ValueError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except RobotRuntimeError as error:
            logger.error("a LeRobot client could not be served: %s", error)
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the policy server does not answer")
        raise AssertionError("abort raises")

    def _guest_of(self, context: grpc.ServicerContext) -> Guest[_Robot]:
        guest = self._guests.find(context.peer())
        if guest is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "send policy instructions first")
        assert guest is not None
        return guest

    def _greet(self, peer: str, wants: RemotePolicyConfig) -> None:
        policy = self._policies.get(wants.pretrained_name_or_path) or next(iter(self._policies.values()))
        state = wants.lerobot_features.get(STATE)
        if not isinstance(state, dict) or not isinstance(state.get("names"), list | tuple):
            raise ValueError(
                f"lerobot_features has no {STATE!r} with names, but {list(wants.lerobot_features)}"
            )
        cameras = [key.removeprefix(PICTURES) for key in wants.lerobot_features if key.startswith(PICTURES)]
        if missing := [name for name in policy.schema.cameras if name not in cameras]:
            raise ValueError(f"policy {policy.name!r} needs the cameras {missing}; the robot has {cameras}")
        robot = _Robot(
            names=self._names or names_of(policy.schema),
            state_names=tuple(state["names"]),
            cameras=tuple(policy.schema.cameras),
            num_actions=int(wants.actions_per_chunk),
        )
        self._guests.admit(peer, policy, robot)


def names_of(schema: Schema) -> Names:
    """LeRobot's own: joints first in the state, then the gripper; pictures under their camera's name."""
    n = schema.num_joints
    return Names(
        q=Entry(key=STATE, stop=n),
        gripper_width=Entry(key=STATE, start=n, stop=n + 1) if schema.has_gripper else None,
        cameras={name: PICTURES + name for name in schema.cameras},
        task="task",
    )


def _answered(guest: Guest[_Robot], timed: TimedObservation) -> list[TimedAction]:
    robot, policy, raw = guest.told, guest.policy, timed.observation
    if not isinstance(raw, dict):
        raise ValueError(f"an observation is a dict, got {type(raw).__name__}")
    missing = [name for name in (*robot.state_names, *robot.cameras) if name not in raw]
    if missing:
        raise ValueError(f"the observation lacks {missing}; it has {list(raw)}")
    sent = {STATE: [raw[name] for name in robot.state_names], "task": raw.get("task", "")}
    sizes = policy.schema.cameras
    sent |= {PICTURES + name: _resized(raw[name], sizes[name]) for name in robot.cameras}
    chunk = guest.ask(robot.names.observation(sent, now_ns=MonotonicClock().now_ns()))
    rows = robot.names.sent_actions(chunk.rows)[: robot.num_actions]
    dt_s = policy.action_spec.dt_ns / NS_PER_S
    return [
        TimedAction(
            timestamp=timed.timestamp + i * dt_s,
            timestep=timed.timestep + i,
            action=torch.tensor(row, dtype=torch.float32),
        )
        for i, row in enumerate(rows)
    ]


def _resized(pixels: Any, size: tuple[int, int]) -> np.ndarray:
    """As LeRobot's server does, to what the policy takes; not by torch, whose threads would crowd here."""
    pixels = np.asarray(pixels)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise ValueError(f"a picture is (h, w, 3) uint8, got {pixels.shape} {pixels.dtype}")
    if pixels.shape[:2] == size:
        return pixels
    return cv2.resize(pixels, (size[1], size[0]), interpolation=cv2.INTER_LINEAR)


def _joined(pieces: Iterator) -> bytes:
    out = bytearray()
    for piece in pieces:
        if piece.transfer_state == services_pb2.TRANSFER_BEGIN:
            out.clear()
        out += piece.data
        if len(out) > LIMITS.total:
            raise ValueError(f"an observation has at most {LIMITS.total} bytes")
        if piece.transfer_state == services_pb2.TRANSFER_END:
            break
    return bytes(out)


def _credentials(certificate: Path, key: Path) -> grpc.ServerCredentials:
    try:
        return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
    except OSError as error:
        raise InvalidValueError(f"cannot read certificate and key: {error}") from error
