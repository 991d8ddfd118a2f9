"""openpi's WebSocket protocol, so that stock `openpi-client` talks to our server: `OpenpiGateway`.

    client                                      gateway
      connect, Authorization: Api-Key ...   ─►  a slot of its own, for as long as it stays
                                            ◄─  metadata
      observation, a dict of arrays         ─►  request ─► server, batched with those of all others
                                            ◄─  {"actions": (H, D), "server_timing": {...}}, or text: an error

Messages are msgpack; an array is {b"__ndarray__": True, b"data", b"dtype", b"shape"}. A client has one
request under way at a time. An error is at most one sentence, and the connection goes on. Clients need no
heartbeat: a simulator may load for minutes. TCP notices when a client's machine is gone.
"""

import hmac
import http
import logging
import socket
from collections.abc import Mapping
from threading import Lock, Thread
from time import monotonic
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.sync.server import Server, ServerConnection, serve

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.keys import RobotKeys
from robot_runtime.quiet import quiet_logger
from robot_runtime.robot.counted_log import CountedLog
from robot_runtime.server.gateways.arrays import ArrayCodec
from robot_runtime.server.gateways.key_map import KeyMap
from robot_runtime.server.gateways.plain_arrays import array_of, dtype_of
from robot_runtime.server.gateways.policy_session import (
    MAX_ASKING,
    MAX_MESSAGE,
    Asker,
    refuse_for_all,
)
from robot_runtime.transport.address import is_local, open_to_all

logger = logging.getLogger(__name__)
MAX_GREETING = 64
"""Maximum number of connections that have not greeted yet; one more closes the oldest."""
SILENT_S = 120.0
"""When all slots are taken, a client that has been silent for this long loses its slot."""
_GREETING_S = 2.0
_NUMBERS = "biuf"  # accepted kinds of dtype
_GONE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))  # [s], [s], times


class OpenpiGateway:
    """Listens for openpi clients, in threads of its own, and passes their requests on. A context manager."""

    def __init__(
        self,
        policies: Mapping[str, PolicyInfo],
        *,
        server: str,
        address: str,
        names: KeyMap | None = None,
        token: str | None = None,
        keys: RobotKeys | None = None,
        is_open: bool = False,
    ) -> None:
        """
        policies: by name; ws://HOST:PORT/NAME is for that one, ws://HOST:PORT for the first.
        server: where they are served. keys: for a server that requires them.
        address: HOST:PORT; beyond this machine only with a token, or if it is declared open.
        names: which entry of an observation is what; what it leaves out is as in `KeyMap.of` the policy.
        token: the api_key that clients must send.
        InvalidValueError: the address cannot be listened on, the meaning of a number is undeclared, or the
            names are for none of the policies.
        """
        refuse_for_all(names, policies.values())
        self._policies, self._token = policies, token
        self._names = {
            name: (names or KeyMap()).over(KeyMap.of(policy.schema)) for name, policy in policies.items()
        }
        self._asker = Asker(server, robot="openpi client", keys=keys)
        self._notices = CountedLog.into(logger)
        self._heard_s: dict[ServerConnection, float] = {}
        self._greeting: dict[ServerConnection, None] = {}  # oldest first
        self._lock = Lock()
        if token is None and not is_open and not is_local(f"tcp://{address}"):
            raise open_to_all(address)
        for name, policy in policies.items():
            self._names[name].refuse_undeclared(policy.schema, policy.action_spec, policy=name)
        host, _, port = address.rpartition(":")
        try:
            self._listener: Server = serve(
                self._talk,
                host.strip("[]"),
                int(port),
                process_request=self._admit,
                create_connection=self._connected,  # type: ignore[arg-type]
                compression=None,
                max_size=MAX_MESSAGE,
                max_queue=1,
                open_timeout=_GREETING_S,
                close_timeout=0.5,
                ping_interval=None,
                logger=quiet_logger(__name__),
            )
        except (OSError, ValueError, OverflowError) as error:
            raise InvalidValueError(f"cannot listen at {address!r}: {error}; expected HOST:PORT") from error
        bound = self._listener.socket.getsockname()
        self.address = f"{bound[0]}:{bound[1]}"
        """Where it listens, with the port that was chosen."""
        self._thread = Thread(target=self._listener.serve_forever, name="openpi", daemon=True)
        self._thread.start()

    def __enter__(self) -> "OpenpiGateway":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._asker.close()
        self._listener.shutdown()
        self._thread.join()
        with self._lock:
            left = [*self._heard_s, *self._greeting]
        for (
            connection
        ) in left:  # websockets before 17 leaves them to their clients, and its threads with them
            connection.close_socket()

    def _connected(
        self, sock: socket.socket, protocol: ServerProtocol, *server: Any, **options: Any
    ) -> ServerConnection:
        """A connection that has yet to greet, within two seconds; many of these block no one.

        server: websockets passes it from 17 on.
        """
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _GONE:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        connection = ServerConnection(sock, protocol, *server, **options)
        with self._lock:
            oldest = next(iter(self._greeting)) if len(self._greeting) >= MAX_GREETING else None
            if oldest is not None:
                del self._greeting[oldest]
            self._greeting[connection] = None
        if oldest is not None:
            oldest.close_socket()
        return connection

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer other requests, and turn away those without the token; None lets a client in."""
        with self._lock:
            self._greeting.pop(connection, None)
        if request.path == "/healthz":
            return connection.respond(http.HTTPStatus.OK, "OK\n")
        if self._token is not None:
            given = request.headers.get("Authorization", "")
            if not hmac.compare_digest(given.encode(), f"Api-Key {self._token}".encode()):
                return connection.respond(http.HTTPStatus.UNAUTHORIZED, "this server asks for an api_key\n")
        if self._policy_of(request) is None:
            valid = ", ".join(self._policies)
            return connection.respond(http.HTTPStatus.NOT_FOUND, f"this server has the policies {valid}\n")
        return None

    def _policy_of(self, request: Request) -> PolicyInfo | None:
        name = unquote(request.path.partition("?")[0].strip("/"))
        return self._policies.get(name) if name else next(iter(self._policies.values()))

    def _talk(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        policy = self._policy_of(connection.request)
        assert policy is not None
        try:
            if not self._takes_place(connection):
                connection.close(1013, f"this server has {MAX_ASKING} clients already")
                return
            connection.send(pack(_metadata(policy)))
            while True:
                self._answer(connection, policy)
        except ConnectionClosed:
            pass
        finally:
            with self._lock:
                self._heard_s.pop(connection, None)

    def _takes_place(self, connection: ServerConnection) -> bool:
        """Whether there is room for one more, if need be the slot of one that has long been silent."""
        now_s = monotonic()
        leaving = None
        with self._lock:
            if len(self._heard_s) >= MAX_ASKING:
                leaving = min(self._heard_s, key=lambda it: self._heard_s[it])
                if self._heard_s[leaving] > now_s - SILENT_S:
                    return False
                del self._heard_s[leaving]
            self._heard_s[connection] = now_s
        if leaving is not None:
            leaving.close(1001, "others are waiting for this place")
        return True

    def _answer(self, connection: ServerConnection, policy: PolicyInfo) -> None:
        message = connection.recv()
        with self._lock:
            if connection in self._heard_s:
                self._heard_s[connection] = monotonic()
        connection.send(self._answered(message, policy))

    def _answered(self, message: bytes | str, policy: PolicyInfo) -> bytes | str:
        names = self._names[policy.name]
        try:
            if isinstance(message, str):
                raise ValueError("an observation is a binary message, this is text")
            now_ns = MonotonicClock().now_ns()
            sizes, sent = policy.schema.cameras, unpack(message)
            seen = names.observation(sent, now_ns=now_ns, sizes=sizes, notices=self._notices)
            rows, timing = self._asker.ask(policy, seen)
            actions = names.sent_actions(rows, policy.action_spec.absolute())
            return pack({"actions": actions, "server_timing": timing})
        except ValueError as error:
            return str(error)
        except RobotRuntimeError as error:
            logger.error("an openpi client could not be served: %s", error)
            return "the policy server does not answer"
        except Exception:
            logger.exception("an openpi client could not be served")
            return "the gateway failed; its log says why"


def _metadata(policy: PolicyInfo) -> dict[str, Any]:
    spec = policy.action_spec
    return {
        "policy": policy.name,
        "action_horizon": spec.horizon,
        "action_dim": spec.dim,
        "dt_s": spec.dt_s,
        "cameras": {name: list(size) for name, size in policy.schema.cameras.items()},
    }


def _form(value: Any) -> dict:
    if isinstance(value, np.ndarray) and value.dtype.kind in _NUMBERS:
        value = np.ascontiguousarray(value)
        return {
            b"__ndarray__": True,
            b"data": value.tobytes(),
            b"dtype": value.dtype.str,
            b"shape": value.shape,
        }
    if isinstance(value, np.generic) and value.dtype.kind in _NUMBERS:
        return {b"__npgeneric__": True, b"data": value.item(), b"dtype": value.dtype.str}
    raise TypeError(f"{type(value).__name__} does not travel here")


def _array(form: dict) -> np.ndarray:
    return array_of(dtype_of(form.get(b"dtype")), form.get(b"shape"), form.get(b"data"))


_CODEC = ArrayCodec(
    "openpi's", form=_form, arrays={b"__ndarray__": _array, b"__npgeneric__": lambda form: form.get(b"data")}
)
pack, unpack = _CODEC.pack, _CODEC.unpack
"""Converts messages to and from bytes in the form of openpi's `msgpack_numpy`."""
