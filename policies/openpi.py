"""A policy on somebody else's openpi server: `OpenpiPolicy` asks it over WebSocket for every chunk.

    Observation ─► names ─► msgpack ═ WebSocket ═ openpi server ═► actions ─► rows

A folder with one file, `openpi.json`, says where it is and what its numbers mean:

    {"url": "ws://gpu:8000", "schema": {...}, "action_spec": {...}}     and names, tasks, api_key if needed
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import numpy as np
from jaxtyping import Float
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import ClientConnection, connect

from policies.loading import OPENPI
from robot_runtime.core.action import ActionSpec
from robot_runtime.core.sampler_parts import ConstantSchedule, SamplerPart
from robot_runtime.core.schema import Schema
from robot_runtime.core.state import Observation
from robot_runtime.errors import CheckpointError, InvalidValueError, ServerUnavailableError
from robot_runtime.server.gateways.names import Names
from robot_runtime.server.gateways.openpi import pack, unpack

TIMEOUT_S = 30.0
"""A first inference over there may compile."""


class OpenpiPolicy:
    """Answers with whole chunks, as openpi does. A connection that was lost is opened again."""

    samplers: tuple[type[SamplerPart], ...] = (ConstantSchedule,)
    max_inference_delay = 0
    recipe = ""
    roll_forward = None
    execution_horizon = None

    def __init__(
        self,
        url: str,
        *,
        schema: Schema,
        action_spec: ActionSpec,
        names: Names | None = None,
        tasks: tuple[str, ...] = (),
        api_key: str | None = None,
    ) -> None:
        """
        action_spec: what the server's actions are once `names` has scaled them.
        names: which entry of an observation is what; None takes `Names.of` the schema.
        ServerUnavailableError: nobody answers at the url, or not as openpi does.
        """
        self.name = f"openpi {url}"
        self.schema, self.action_spec, self.tasks = schema, action_spec, tasks
        self._url, self._names = url, names or Names.of(schema)
        self._headers = {"Authorization": f"Api-Key {api_key}"} if api_key else None
        self._open = ExitStack()
        self._connection = self._connected()

    @classmethod
    def load(cls, folder: Path) -> "OpenpiPolicy":
        """From a folder with `openpi.json`; CheckpointError says what is wrong with that."""
        path = folder / OPENPI
        try:
            data = json.loads(path.read_text())
            schema = Schema.from_dict(data["schema"])
            arguments = {
                "schema": schema,
                "action_spec": ActionSpec.from_dict(data["action_spec"]),
                "names": msgspec.convert(data["names"], Names) if "names" in data else None,
                "tasks": tuple(data.get("tasks", ())),
                "api_key": data.get("api_key"),
            }
            url = str(data["url"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path} does not describe an openpi server's policy: {error}") from error
        return cls(url, **arguments)

    def infer(
        self,
        observation: Observation,
        *,
        prev_action_chunk: Float[np.ndarray, "n D"] | None = None,
        inference_delay: int = 0,
        sampler: SamplerPart,
        seed: int,
    ) -> Iterator[Float[np.ndarray, "n D"]]:
        """As `Policy.infer`; all rows come at once, and the noise is theirs to draw."""
        if not isinstance(sampler, ConstantSchedule) or inference_delay:
            raise InvalidValueError(f"policy {self.name!r} samples by itself and knows no committed rows")
        message = pack(self._names.sent(observation))
        try:
            answer = self._ask(message)
        except (ConnectionClosed, TimeoutError):
            self._connection = self._connected()
            answer = self._ask(message)
        if isinstance(answer, str):
            raise RuntimeError(f"the openpi server failed: {answer}")
        rows = self._names.rows(unpack(answer), self.action_spec)
        spec = self.action_spec
        if len(rows) < spec.horizon or rows.shape[1] != spec.dim:
            raise RuntimeError(
                f"the openpi server gave actions of shape {rows.shape}, expected {(spec.horizon, spec.dim)}"
            )
        return iter([rows[: spec.horizon]])

    def _ask(self, message: bytes) -> str | bytes:
        self._connection.send(message)
        return self._connection.recv(timeout=TIMEOUT_S)

    def _connected(self) -> ClientConnection:
        self._open.close()
        try:
            connection = self._open.enter_context(
                connect(self._url, compression=None, max_size=None, additional_headers=self._headers)
            )
            connection.recv(timeout=TIMEOUT_S)  # metadata, which says nothing that can be relied on
        except (OSError, TimeoutError, InvalidURI, InvalidHandshake, ConnectionClosed) as error:
            raise ServerUnavailableError(f"no openpi server answers at {self._url}: {error}") from error
        return connection
