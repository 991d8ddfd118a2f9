"""A policy on an external openpi server: `OpenpiPolicy` requests every chunk over WebSocket.

    Observation ─► names ─► msgpack ═ WebSocket ═ openpi server ═► actions ─► rows

A folder with one file, `openpi.json`, declares its address and what its numbers mean:

    {"url": "ws://localhost:8000", "schema": {...}, "action_spec": {...}}  and names, tasks, api_key if needed

The author of the folder does not choose which machines this one connects to: the operator who serves it has
to name any other host (`serve --policy-host`).
"""

import ipaddress
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from policies.files import OPENPI, read_json, refuse_unknown, texts, value_of
from robot_runtime.core.method.sampler_parts import ConstantSchedule
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import CheckpointError, InvalidValueError, PolicyError, ServerUnavailableError
from robot_runtime.quiet import quiet_logger
from robot_runtime.server.gateways.key_map import KeyMap
from robot_runtime.server.gateways.openpi import pack, unpack

TIMEOUT_S = 30.0
"""Long, because the server may compile at its first inference."""
MAX_ANSWER = 16 * 2**20
"""Largest answer in bytes; 1,024 rows of 64 doubles are half a million."""
_PATH = re.compile(r"[\w./-]{0,256}")
_API_KEY = re.compile(r"[\x20-\x7e]{1,1024}")


class OpenpiPolicy:
    """Answers with whole chunks, as openpi does. A lost connection is opened again."""

    def __init__(
        self,
        url: str,
        *,
        schema: Schema,
        action_spec: ActionSpec,
        names: KeyMap | None = None,
        tasks: tuple[str, ...] = (),
        api_key: str | None = None,
    ) -> None:
        """
        action_spec: the server's actions after `names` has scaled them.
        names: keys of an observation's entries; those it leaves out are as in `KeyMap.of` the schema.
        ServerUnavailableError: no server answers at the url, or it is not an openpi server.
        """
        if names is None or names.hand_pose is None:  # it is sent only under a key
            schema = schema.without_hands()
        self.info = PolicyInfo(name=f"openpi {url}", action_spec=action_spec, schema=schema, tasks=tasks)
        self._url, self._names = url, (names or KeyMap()).over(KeyMap.of(schema))
        self._headers = {"Authorization": f"Api-Key {api_key}"} if api_key else None
        self._open = ExitStack()
        self._connection = self._connected()

    @classmethod
    def load(cls, folder: Path, *, hosts: tuple[str, ...] = ()) -> "OpenpiPolicy":
        """The policy of a folder with `openpi.json`; CheckpointError: that file is invalid.

        hosts: hosts that it may name besides this machine.
        """
        path = folder / OPENPI
        data = read_json(path)
        try:
            refuse_unknown(data, ("url", "schema", "action_spec", "names", "tasks", "api_key"))
            url, key = _checked_url(data["url"], hosts), _checked_key(data.get("api_key"))
            schema, spec = Schema.from_dict(data["schema"]), ActionSpec.from_dict(data["action_spec"])
            names = value_of(KeyMap, data["names"]) if "names" in data else KeyMap()
            names.refuse_misfit(schema, spec)
            tasks = texts(data, "tasks")
            names.over(KeyMap.of(schema)).refuse_undeclared(schema, spec, policy=url)
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path} does not describe an openpi server's policy: {error}") from error
        return cls(url, schema=schema, action_spec=spec, names=names, tasks=tasks, api_key=key)

    def infer(self, request: ChunkRequest) -> Iterator[Float[np.ndarray, "n D"]]:
        """As `Policy.infer`; all rows come at once, and the server draws the noise."""
        if not isinstance(request.sampler, ConstantSchedule) or request.inference_delay:
            raise InvalidValueError(
                f"policy {self.info.name!r} has its own sampler and takes no committed rows"
            )
        answer = self._answer(pack(self._names.sent(request.observation)))
        spec = self.info.action_spec
        if isinstance(answer, str):
            last_line = answer.strip().rpartition("\n")[2]
            raise PolicyError(f"the openpi server failed: {last_line:.500}")
        try:
            rows = self._names.rows(unpack(answer), spec)
        except (ValueError, TypeError) as error:
            raise PolicyError(f"the openpi server's answer is invalid: {error}") from error
        if len(rows) < spec.horizon:
            raise PolicyError(f"the openpi server gave {len(rows)} rows, expected {spec.horizon}")
        return iter([rows[: spec.horizon]])

    def _answer(self, message: bytes) -> str | bytes:
        """The answer to a message, sent once more on a new connection if the first is lost; PolicyError."""
        try:
            return self._ask(message)
        except ConnectionClosed as error:
            if error.sent is not None and error.sent.code == 1009:
                raise PolicyError(f"the openpi server's answer has more than {MAX_ANSWER} bytes") from error
        except TimeoutError:
            pass
        self._connection = self._connected()
        try:
            return self._ask(message)
        except (ConnectionClosed, TimeoutError) as error:
            raise PolicyError(f"the openpi server at {self._url} gives no answer: {error}") from error

    def _ask(self, message: bytes) -> str | bytes:
        try:
            self._connection.recv(timeout=0.0)
        except TimeoutError:
            pass
        else:  # a surplus answer: from here on each would belong to an older request
            self._connection = self._connected()
        self._connection.send(message)
        return self._connection.recv(timeout=TIMEOUT_S)

    def _connected(self) -> Connection:
        self._open.close()
        at = urlsplit(self._url)
        port = at.port or (443 if at.scheme == "wss" else 80)
        try:
            # A socket of our own cannot be sent elsewhere by a redirect or a proxy.
            to_it = self._open.enter_context(socket.create_connection((at.hostname, port), TIMEOUT_S))
            connection = self._open.enter_context(
                connect(
                    self._url,
                    sock=to_it,
                    compression=None,
                    max_size=MAX_ANSWER,
                    additional_headers=self._headers,
                    logger=quiet_logger(__name__),
                )
            )
            connection.recv(timeout=TIMEOUT_S)  # metadata, which is not reliable
        except (OSError, ValueError, InvalidURI, InvalidHandshake, ConnectionClosed) as error:
            raise ServerUnavailableError(f"no openpi server answers at {self._url}: {error}") from error
        return connection


def _checked_url(url: object, hosts: tuple[str, ...]) -> str:
    """The url; ValueError: it is not a WebSocket url, or names a host that the operator has not allowed."""
    at = urlsplit(url) if isinstance(url, str) else None
    if (
        at is None
        or at.scheme not in ("ws", "wss")
        or not at.hostname
        or at.username
        or at.query
        or at.fragment
    ):
        raise ValueError(f"url is ws://HOST:PORT/NAME, got {url!r:.200}")
    if at.port == 0 or not _PATH.fullmatch(at.path):  # a port out of range is a ValueError of its own
        raise ValueError(f"url is ws://HOST:PORT/NAME, got {url!r:.200}")
    if not _is_here(at.hostname) and at.hostname not in hosts:
        raise ValueError(
            f"it would ask {at.hostname}, another machine; to allow this, add --policy-host {at.hostname}"
        )
    return at.geturl()


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_key(key: object) -> str | None:
    if key is not None and (not isinstance(key, str) or not _API_KEY.fullmatch(key)):
        raise ValueError("an api_key is 1 to 1024 printable ASCII characters")
    return key
