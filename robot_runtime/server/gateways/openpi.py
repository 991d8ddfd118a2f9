"""openpi's WebSocket protocol, so that stock `openpi-client` talks to our server: `OpenpiGateway`.

    client                                      gateway
      connect, Authorization: Api-Key ...   ─►  one robot of ours, greeted with the policy's own schema
                                            ◄─  metadata
      observation, a dict of arrays         ─►  request ─► server, batched with everybody else's
                                            ◄─  {"actions": (H, D), "server_timing": {...}}, or text: an error

Messages are msgpack; an array is {b"__ndarray__": True, b"data", b"dtype", b"shape"}. A client has one
request under way at a time. An error never says more than a sentence, and the connection goes on.
"""

import hmac
import http
import logging
from collections.abc import Mapping
from threading import Thread
from types import TracebackType
from typing import Any
from uuid import UUID

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve

from policies.policy import Policy
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.action import NS_PER_S
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.keys import RobotKeys
from robot_runtime.server.gateways.arrays import ArrayCodec
from robot_runtime.server.gateways.asking import Guests
from robot_runtime.server.gateways.names import Names
from robot_runtime.transport.address import OpenAddressError, is_local
from robot_runtime.wire.frames import LIMITS

logger = logging.getLogger(__name__)
_GREETING_S = 2.0
_NUMBERS = "biuf"  # kinds of dtype that may come


class OpenpiGateway:
    """Listens for openpi clients, in threads of its own, and asks a server for them. A context manager."""

    def __init__(
        self,
        policies: Mapping[str, Policy],
        *,
        server: str,
        address: str,
        names: Names | None = None,
        token: str | None = None,
        keys: RobotKeys | None = None,
        is_open: bool = False,
    ) -> None:
        """
        policies: by name; ws://HOST:PORT/NAME is for that one, ws://HOST:PORT for the first.
        server: where they are served. keys: for a server that asks for them.
        address: HOST:PORT; beyond this machine only with a token, or if it is to be open.
        names: which entry of an observation is what; None takes `Names.of` the policy.
        token: what clients give as their api_key.
        InvalidValueError: the address cannot be listened on.
        """
        self._policies, self._names, self._token = policies, names, token
        self._guests = Guests[UUID, None](server, robot="openpi client", keys=keys)
        if token is None and not is_open and not is_local(f"tcp://{address}"):
            raise OpenAddressError(address)
        host, _, port = address.rpartition(":")
        try:
            self._listener: Server = serve(
                self._talk,
                host.strip("[]"),
                int(port),
                process_request=self._admit,
                compression=None,
                max_size=LIMITS.total,
                open_timeout=_GREETING_S,
                logger=_quiet_logger(),
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
        self._listener.shutdown()
        self._thread.join()
        self._guests.close()

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer what is not a client, and turn away those without the token; None lets one in."""
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

    def _policy_of(self, request: Request) -> Policy | None:
        name = request.path.strip("/")
        return self._policies.get(name) if name else next(iter(self._policies.values()))

    def _talk(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        policy = self._policy_of(connection.request)
        assert policy is not None
        try:
            self._guests.admit(connection.id, policy, None)
            connection.send(pack(_metadata(policy)))
            while True:
                self._answer(connection, policy)
        except ConnectionClosed:
            pass
        except ValueError as error:
            connection.close(1013, str(error))
        except RobotRuntimeError as error:
            logger.error("an openpi client could not be served: %s", error)
            connection.close(1011, "the policy server does not answer")
        finally:
            self._guests.leave(connection.id)

    def _answer(self, connection: ServerConnection, policy: Policy) -> None:
        message = connection.recv()
        guest = self._guests.find(connection.id) or self._guests.admit(connection.id, policy, None)
        names = self._names or Names.of(policy.schema)
        try:
            if isinstance(message, str):
                raise ValueError("an observation is a binary message, this is text")
            chunk = guest.ask(names.observation(unpack(message), now_ns=MonotonicClock().now_ns()))
            answer = {"actions": names.sent_actions(chunk.rows), "server_timing": chunk.timing}
            connection.send(pack(answer))
        except ValueError as error:
            connection.send(str(error))


def _quiet_logger() -> logging.Logger:
    """For the library, which has a line for everybody who comes and goes."""
    quiet = logging.getLogger(f"{__name__}.websockets")
    quiet.setLevel(logging.WARNING)
    return quiet


def _metadata(policy: Policy) -> dict[str, Any]:
    spec = policy.action_spec
    return {
        "policy": policy.name,
        "action_horizon": spec.horizon,
        "action_dim": spec.dim,
        "dt_s": spec.dt_ns / NS_PER_S,
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
    data, shape = form.get(b"data"), form.get(b"shape")
    dtype = np.dtype(form.get(b"dtype"))
    if dtype.kind not in _NUMBERS:
        raise ValueError(f"arrays of {dtype} do not travel here")
    if not isinstance(data, bytes) or not isinstance(shape, list):
        raise ValueError("an array has data and a shape")
    try:
        return np.frombuffer(data, dtype).reshape(shape)
    except (TypeError, ValueError) as error:
        raise ValueError(f"an array's {len(data)} bytes are not what its shape {shape} says") from error


_CODEC = ArrayCodec(
    "openpi's", form=_form, arrays={b"__ndarray__": _array, b"__npgeneric__": lambda form: form.get(b"data")}
)
pack, unpack = _CODEC.pack, _CODEC.unpack
"""A message to and from bytes, as openpi's `msgpack_numpy` has it."""
