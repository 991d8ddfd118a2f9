"""Isaac GR00T's inference protocol over ZeroMQ, so that its clients talk to our server: `GrootGateway`.

    REQ  {"endpoint": "get_action", "data": {"observation": {"video": ..., "state": ..., "language": ...}}}
    REP  [{"joint_position": (1, H, n), "gripper_position": (1, H, 1)}, {"infer_ms": ..., "queue_ms": ...}]

That is N1.6 and N1.7. N1.5 has flat keys, no batch, and no "observation" around them:

    REQ  {"endpoint": "get_action", "data": {"video.NAME": (T, h, w, 3), "state.NAME": (T, n),
                                             "annotation.human.action.task_description": ["..."]}}
    REP  {"action.joint_position": (H, n), "action.gripper_position": (H, 1)}

Messages are msgpack; an array is {"__ndarray_class__": True, "as_npy": its .npy file}. Arrays have a batch of
one and some frames in time, of which the last counts. Other endpoints: ping, reset, get_modality_config; none
ends the server. Clients are answered in parallel, one request each, MAX_ASKING in all; the token is checked
before the rest of a message is decoded.
"""

import hmac
import io
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any

import msgspec
import numpy as np
import zmq

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import (
    ActionField,
    ActionSpec,
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperFraction,
    GripperWidth,
    JointPosition,
    JointVelocity,
    Numbers,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, PartSchema, Schema
from robot_runtime.core.values.state import ARM, BASE, GRIPPER
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.keys import RobotKeys
from robot_runtime.mailbox import Doorbell
from robot_runtime.robot.counted_log import CountedLog
from robot_runtime.server.gateways.arrays import ArrayCodec, check_msgpack
from robot_runtime.server.gateways.key_map import Entry, KeyMap, has_named_parts
from robot_runtime.server.gateways.part_entries import PartEntries
from robot_runtime.server.gateways.plain_arrays import array_of_npy
from robot_runtime.server.gateways.policy_session import (
    MAX_ASKING,
    MAX_MESSAGE,
    Asker,
    refuse_for_all,
)
from robot_runtime.server.gateways.values import listed
from robot_runtime.transport.address import is_local, open_to_all
from robot_runtime.transport.sockets import HANDSHAKE_MS

logger = logging.getLogger(__name__)
_QUEUED = 2
"""Maximum number of a peer's unread messages; more wait in its own machine."""
_FLAT = {"video": 4, "state": 2, "annotation": 0}
"""Kinds of N1.5's keys, and the dimensions of an array without a batch."""
_MOST_FRAMES, _LONGEST = 4, 256
"""Maximum number of frames of a message, and size of one before the last [bytes]."""


class GrootGateway:
    """Listens for GR00T's clients, in threads of its own. A context manager."""

    def __init__(
        self,
        policy: PolicyInfo,
        *,
        server: str,
        address: str,
        names: KeyMap | None = None,
        token: str | None = None,
        keys: RobotKeys | None = None,
        is_open: bool = False,
    ) -> None:
        """
        policy: of the server that answers; their protocol names none.
        server: where it is served. keys: for a server that requires them.
        address: HOST:PORT; beyond this machine only with a token, or if it is declared open.
        names: which entry of an observation is what; what it leaves out is as in `names_of`.
        token: the api_token that clients must send.
        InvalidValueError: the address cannot be listened on, the meaning of a number is undeclared, or the
            names are for another policy.
        """
        refuse_for_all(names, [policy])
        if token is None and not is_open and not is_local(f"tcp://{address}"):
            raise open_to_all(address)
        self._policy, self._token = policy, token
        self._names = (names or KeyMap()).over(names_of(policy.schema))
        self._names.refuse_undeclared(policy.schema, policy.action_spec, policy=policy.name)
        self._asker = Asker(server, robot="GR00T client", keys=keys)
        self._notices = CountedLog.into(logger)
        self._asking: set[bytes] = set()
        self._answers: SimpleQueue[tuple[list[bytes], bytes]] = SimpleQueue()
        self._doorbell = Doorbell()
        self._is_closing = False
        self._context = zmq.Context()
        self._socket: zmq.Socket = self._context.socket(zmq.ROUTER)
        self._socket.set(zmq.LINGER, 200)
        self._socket.set(zmq.MAXMSGSIZE, MAX_MESSAGE)
        self._socket.set(zmq.RCVHWM, _QUEUED)
        self._socket.set(zmq.SNDHWM, _QUEUED)
        self._socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        try:
            self._socket.bind(f"tcp://{address}")
        except zmq.ZMQError as error:
            self._socket.close()
            self._context.term()
            raise InvalidValueError(f"cannot listen at {address!r}: {error}; expected HOST:PORT") from error
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).removeprefix("tcp://")
        """Where it listens, with the port that was chosen."""
        self._workers = ThreadPoolExecutor(MAX_ASKING, "groot")
        self._thread = Thread(target=self._run, name="groot", daemon=True)
        self._thread.start()

    def __enter__(self) -> "GrootGateway":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closing = True
        self._doorbell.ring()
        self._thread.join()
        self._workers.shutdown(wait=False, cancel_futures=True)
        self._asker.close()
        self._workers.shutdown()
        self._doorbell.close()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._doorbell.fileno(), zmq.POLLIN)
        while not self._is_closing:
            ready = dict(poller.poll())
            if self._doorbell.fileno() in ready:
                self._doorbell.clear()
            while not self._answers.empty():
                envelope, answer = self._answers.get()
                self._asking.discard(envelope[0])
                self._socket.send_multipart([*envelope, answer])
            if self._socket in ready:
                self._take()
        self._socket.close()
        self._context.term()

    def _take(self) -> None:
        """Receive one message, the last frame of a few; those before it go back with the answer: a REQ
        socket's empty one, and its number if it counts. A peer that does not wait for its answer loses the
        others."""
        frames: list[bytes] = []
        is_more = True
        while is_more:
            frame = self._socket.recv()
            is_more = bool(self._socket.getsockopt(zmq.RCVMORE))
            if len(frames) <= _MOST_FRAMES:
                frames.append(frame)
        *envelope, data = frames
        if not 1 <= len(envelope) < _MOST_FRAMES or max(map(len, envelope)) > _LONGEST:
            return
        if envelope[0] in self._asking:
            return
        if len(self._asking) >= MAX_ASKING:
            busy = f"{MAX_ASKING} clients are being answered already: ask again"
            self._socket.send_multipart([*envelope, pack({"error": busy})])
            return
        self._asking.add(envelope[0])
        self._workers.submit(self._work, envelope, data)

    def _work(self, envelope: list[bytes], data: bytes) -> None:
        try:
            answer = pack(self._answered(data))
        except ValueError as error:
            answer = pack({"error": str(error)})
        except RobotRuntimeError as error:
            logger.error("a GR00T client could not be served: %s", error)
            answer = pack({"error": "the policy server does not answer"})
        except Exception:
            logger.exception("a GR00T client could not be served")
            answer = pack({"error": "the gateway failed; its log says why"})
        self._answers.put((envelope, answer))
        self._doorbell.ring()

    def _answered(self, data: bytes) -> Any:
        request = request_of(data)
        given = request.api_token or ""
        if self._token is not None and not hmac.compare_digest(given.encode(), self._token.encode()):
            raise ValueError("this server asks for an api_token")
        match request.endpoint:
            case "ping":
                return {"status": "ok", "message": f"policy {self._policy.name}"}
            case "reset":
                return {}  # the server keeps nothing of a robot that asks for whole chunks
            case "get_modality_config":
                return self._modalities()
            case "get_action":
                return self._action(bytes(request.data))
            case other:
                valid = "get_action, get_modality_config, ping, reset"
                raise ValueError(f"there is no endpoint {listed([other])!r}; there are {valid}")

    def _action(self, data: bytes) -> Any:
        spec, now_ns, sizes = (
            self._policy.action_spec.absolute(),
            MonotonicClock().now_ns(),
            self._policy.schema.cameras,
        )
        sent, form = observation_of(data)
        refuse_unchosen(sent.get("language", {}), self._names.task or "")
        seen = self._names.observation(sent, now_ns=now_ns, sizes=sizes, notices=self._notices)
        rows, timing = self._asker.ask(self._policy, seen)
        return form.answer(_by_field(spec, self._names.sent_actions(rows, spec)), timing)

    def _modalities(self) -> dict[str, Any]:
        spec, names = self._policy.action_spec, self._names
        needed = ("q", "width", "pose", "twist")
        state = [e.key for own in names.entries.values() for name, e in own.entries() if name in needed]
        state += [e.key for e in (names.measured or {}).values()]
        state += [names.environment_state.key] if names.environment_state is not None else []
        keys = {
            "video": [key.removeprefix("video/") for key in (names.cameras or {}).values()],
            "state": [key.removeprefix("state/") for key in state],
            "action": [key_of(f) for f in spec.fields],
            "language": [(names.task or "").removeprefix("language/")],
        }
        deltas = {name: [0] for name in keys} | {"action": list(range(spec.horizon))}
        return {
            name: {
                "__ModalityConfig_class__": True,
                "as_json": {"delta_indices": deltas[name], "modality_keys": keys[name]},
            }
            for name in keys
        }


@dataclass(frozen=True, kw_only=True)
class Form:
    """GR00T's form in which a client asks, and is answered."""

    is_flat: bool
    """Whether keys have the form video.NAME: in N1.5, and in N1.6's wrapper for simulators."""
    is_bare: bool
    """Whether there is no "observation" around them: N1.5."""
    has_batch: bool

    def answer(self, actions: Mapping[str, np.ndarray], timing: Mapping[str, float]) -> Any:
        """actions: (1, H, n) by name."""
        prefix = "action." if self.is_flat else ""
        out = {f"{prefix}{name}": rows if self.has_batch else rows[0] for name, rows in actions.items()}
        return out if self.is_bare else [out, timing]


def observation_of(data: bytes) -> tuple[dict[str, Any], Form]:
    """The last frame of the only robot, and the first text, in the data of a get_action, and its form;
    ValueError."""
    message = {} if data == _NOTHING else unpack(data)
    observation = message.get("observation", message)
    kinds = {key: key.partition(".")[0] for key in observation} if isinstance(observation, dict) else {}
    is_flat = bool(kinds) and all("." in key and kind in _FLAT for key, kind in kinds.items())
    is_bare, has_batch = observation is message, True
    if is_flat:
        observation, has_batch = _nested(observation)
    elif is_bare or not isinstance(observation, dict):
        raise ValueError(
            'get_action needs data with an "observation", a dict, as GR00T N1.6 and N1.7 send it, or with '
            f"the flat keys of N1.5, video.NAME, state.NAME and annotation.NAME; it has {listed(message)}"
        )
    out: dict[str, Any] = {}
    for kind, entries in observation.items():
        if not isinstance(entries, dict):
            raise ValueError(f"{listed([kind])!r} of an observation is a dict, got {type(entries).__name__}")
        out[kind] = {name: _last(listed([f"{kind}/{name}"]), value) for name, value in entries.items()}
    texts = out.get("language", {})
    if len(texts) == 1:
        texts["task"] = next(iter(texts.values()))  # whatever it is called
    return out, Form(is_flat=is_flat, is_bare=is_bare, has_batch=has_batch)


def _nested(flat: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Convert it to N1.6's form; also whether it came as a batch."""
    out: dict[str, Any] = {}
    has_batch = False
    for key, value in flat.items():
        kind, _, name = key.partition(".")
        if isinstance(value, np.ndarray) and kind != "annotation":
            is_batch = value.ndim > _FLAT[kind]
            has_batch |= is_batch
            value = value if is_batch else value[None]
        if kind == "annotation":
            kind, name = "language", key
        out.setdefault(kind, {})[name] = value
    return out, has_batch


def refuse_unchosen(texts: Mapping[str, Any], key: str) -> None:
    """ValueError: there are several texts, and none has the key that is read."""
    if len(texts) > 1 and key.removeprefix("language/") not in texts:
        raise ValueError(
            f"an observation has the texts {listed(texts)}: declare the task with "
            '{"task": "language/NAME"} in the file of --names'
        )


def _last(key: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        if value.ndim < 3 or len(value) != 1 or value.shape[1] == 0:
            raise ValueError(f"expected {key!r} with a batch of one and frames first, got {value.shape}")
        return value[0, -1]
    while isinstance(value, list) and value:
        if len(value) > 1:
            raise ValueError(f"expected {key!r} with one batch and one frame, got a list of {len(value)}")
        value = value[0]
    return value


def _by_field(spec: ActionSpec, rows: np.ndarray) -> dict[str, np.ndarray]:
    batch = rows[None].astype(np.float32)
    return {key_of(field): batch[:, :, columns] for field, columns in spec.columns()}


def _form(value: Any) -> dict:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{type(value).__name__} does not travel here")
    file = io.BytesIO()
    np.save(file, value, allow_pickle=False)
    return {"__ndarray_class__": True, "as_npy": file.getvalue()}


def _array(form: dict) -> np.ndarray:
    return array_of_npy(form.get("as_npy"))


_NOTHING = b"\xc0"  # nil in msgpack


class _Request(msgspec.Struct):
    """The part of a request that is decoded first; its data stay bytes."""

    endpoint: str = "get_action"
    api_token: str | None = None
    data: msgspec.Raw = msgspec.Raw(_NOTHING)


_REQUEST = msgspec.msgpack.Decoder(_Request)


def request_of(data: bytes) -> _Request:
    """ValueError reports what is wrong with it."""
    try:
        check_msgpack(data)
        return _REQUEST.decode(data)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ValueError(f"this is not a message of GR00T's: {error}") from error


_CODEC = ArrayCodec("GR00T's", form=_form, arrays={"__ndarray_class__": _array})
pack, unpack = _CODEC.pack, _CODEC.unpack
"""Converts messages to and from bytes in GR00T's form."""


_KEYS = {
    JointPosition: "joint_position",
    JointVelocity: "joint_velocity",
    GripperWidth: "gripper_position",
    GripperFraction: "gripper_position",
    EndEffectorPose: "hand_pose",
    WorldEndEffectorPose: "hand_pose",
    BasePose: "base_pose",
    BaseTwist: "base_twist",
    Numbers: "numbers",
}


def key_of(field: ActionField) -> str:
    """Name of an action field: by what it is, or by the part if that has a name of its own."""
    return _KEYS[type(field)] if field.part in (ARM, GRIPPER, BASE) else field.part


def names_of(schema: Schema) -> KeyMap:
    """Names for a robot by what things are; those of a named part by its name."""
    common: dict[str, Any] = {
        "measured": {name: Entry(key=f"state/{name}") for name in schema.measured},
        "environment_state": Entry(key="state/environment_state") if schema.environment_state_dim else None,
        "cameras": {name: f"video/{name}" for name in schema.cameras},
        "task": "language/task",
    }
    if has_named_parts(schema):
        return KeyMap(parts={name: _entries(name, part) for name, part in schema.parts.items()}, **common)
    return KeyMap(
        q=Entry(key="state/joint_position"),
        dq=Entry(key="state/joint_velocity"),
        gripper_width=Entry(key="state/gripper_position") if schema.has_gripper else None,
        hand_pose=Entry(key="state/hand_pose"),
        **common,
    )


def _entries(name: str, part: PartSchema) -> PartEntries:
    key = f"state/{name}"
    match part:
        case ArmSchema():
            return PartEntries(
                q=Entry(key=key), dq=Entry(key=f"{key}_velocity"), hand_pose=Entry(key=f"{key}_hand_pose")
            )
        case GripperSchema():
            return PartEntries(width=Entry(key=key))
        case BaseSchema():
            return PartEntries(pose=Entry(key=f"{key}_pose"), twist=Entry(key=f"{key}_twist"))
