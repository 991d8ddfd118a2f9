"""Passes foreign clients' requests to our server: `Asker`, with a bounded number of connections.

Each request is complete by itself, so any connection may carry it: clients have no connections of their own,
and reconnecting takes none up.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition

import numpy as np

from robot_runtime.core.method.sampler_parts import PREFIXLESS, SamplerPart
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S, ActionChunk, ActionSpec
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.core.values.waypoints import Waypoints
from robot_runtime.errors import InvalidValueError, RobotRuntimeError, ServerUnavailableError
from robot_runtime.keys import RobotKeys
from robot_runtime.robot.client import PolicyClient
from robot_runtime.server.gateways.key_map import KeyMap

MAX_ASKING = 16
"""Maximum number of concurrent requests of one gateway."""
MAX_MESSAGE = 32 * 1024 * 1024
"""Maximum size of a foreign client's message [bytes]."""
DEADLINE_NS = 10 * NS_PER_S
_CONNECT_S = 5.0
_IDLE_S = 60.0


def whole_sampler(policy: PolicyInfo) -> SamplerPart:
    """The sampler with which it answers whole chunks to clients that know nothing about chunks.

    InvalidValueError: it only answers clients that report their chunks.
    """
    kind = next((kind for kind in policy.capabilities.samplers if kind in PREFIXLESS), None)
    if kind is None:
        raise InvalidValueError(f"policy {policy.name!r} cannot answer other projects' clients")
    return kind()


def sent_rows(rows: np.ndarray, spec: ActionSpec, seen: RobotState) -> np.ndarray:
    """A policy's rows (n, D), for what was seen, as clients get them: `spec.absolute()`.

    These projects' robots are commanded in absolute positions, whatever the policy's rows are relative to.
    ValueError: what was seen lacks that.
    """
    if (sent := spec.absolute()) == spec:
        return rows
    chunk = ActionChunk(spec=spec, rows=rows, anchor=seen, request_id=0, epoch=0)
    return Waypoints.from_chunk(chunk).encode(sent, seen)


def refuse_for_all(names: KeyMap | None, policies: Iterable[PolicyInfo]) -> None:
    """InvalidValueError: a file of --names fits none of the policies; reports why for each."""
    why = []
    for policy in policies:
        try:
            (names or KeyMap()).refuse_misfit(policy.schema, policy.action_spec)
        except InvalidValueError as error:
            why.append(f"policy {policy.name!r}: {error}")
        else:
            return
    raise InvalidValueError("the file of --names does not fit " + "; ".join(why))


@dataclass(eq=False)
class _Connection:
    policy: str
    client: PolicyClient
    used_s: float
    num_asked: int = 0


class Asker:
    """Connections to our server, opened when they are needed; any thread may ask."""

    def __init__(self, server: str, *, robot: str, keys: RobotKeys | None = None) -> None:
        """
        server: the address of ours. robot: name of its connections there.
        keys: for a server that requires them.
        """
        self._server, self._robot, self._keys = server, robot, keys
        self._free: list[_Connection] = []
        self._num_open = 0
        self._changed = Condition()
        self._is_closing = False

    def ask(self, policy: PolicyInfo, observation: Observation) -> tuple[np.ndarray, dict[str, float]]:
        """Wait for the whole chunk: its rows (H, D) as clients get them, and its queue and inference times
        [ms].

        ValueError reports in words for the client why there is none. RobotRuntimeError: no answer came.
        """
        with self._connection(policy) as connection:
            for _ in range(2):  # after a lost connection the server is asked once more
                answer = self._asked(connection, policy, observation)
                if answer is not None:
                    rows, timing = answer
                    return sent_rows(rows, policy.action_spec, observation.state), timing
                connection.client.wait_until_ready(_CONNECT_S)
        raise ServerUnavailableError("the policy server is gone")

    def close(self) -> None:
        """Fail requests in progress; waits a second for them."""
        with self._changed:
            self._is_closing = True
            leaving, self._free = self._free, []
            self._num_open -= len(leaving)
        for connection in leaving:
            connection.client.close()
        with self._changed:
            self._changed.wait_for(lambda: self._num_open == 0, 1.0)

    # ---- one request -----------------------------------------------------------------------------

    def _asked(
        self, connection: _Connection, policy: PolicyInfo, observation: Observation
    ) -> tuple[np.ndarray, dict[str, float]] | None:
        """None: the server was lost."""
        connection.num_asked += 1
        client, number = connection.client, connection.num_asked
        request = ChunkRequest(
            request_id=number,
            observation=observation,
            sampler=whole_sampler(policy),
            seed=number,
            deadline_ns=DEADLINE_NS,
        )
        try:
            events = list(client.parts(request, should_stop=lambda: self._is_closing))
        except ServerUnavailableError as error:
            if client.welcome is None:
                return None
            why = "the gateway ends" if self._is_closing else "the server could not answer in time"
            raise ValueError(why) from error
        last = events[-1].part
        timing = {"infer_ms": last.infer_ns / NS_PER_MS, "queue_ms": last.queue_ns / NS_PER_MS}
        return np.concatenate([event.part.rows for event in events]), timing

    # ---- connections -----------------------------------------------------------------------------

    @contextmanager
    def _connection(self, policy: PolicyInfo) -> Iterator[_Connection]:
        """A connection for exclusive use; ValueError if too many ask."""
        connection = self._taken(policy) or self._opened(policy)
        try:
            yield connection
        except ValueError:
            self._give_back(connection)
            raise
        except BaseException:
            self._drop(connection)
            raise
        else:
            self._give_back(connection)

    def _taken(self, policy: PolicyInfo) -> _Connection | None:
        """A free one of that policy; None: there is room for a new one."""
        with self._changed:
            if self._is_closing:
                raise ValueError("the gateway ends")
            mine = next((c for c in reversed(self._free) if c.policy == policy.name), None)
            if mine is not None:
                self._free.remove(mine)
                return mine
            other = self._free.pop(0) if self._free and self._num_open >= MAX_ASKING else None
            if other is None and self._num_open >= MAX_ASKING:
                raise ValueError(f"{MAX_ASKING} clients are being answered already: ask again")
            self._num_open += other is None
        if other is not None:
            other.client.close()
        return None

    def _opened(self, policy: PolicyInfo) -> _Connection:
        client = None
        try:
            client = PolicyClient(
                self._server,
                schema=policy.schema,
                robot=self._robot,
                policy=policy.name,
                keys=self._keys,
            )
            client.wait_until_ready(_CONNECT_S)
            return _Connection(policy.name, client, time.monotonic())
        except (RobotRuntimeError, OSError, RuntimeError):
            if client is not None:
                client.close()
            self._left()
            raise

    def _give_back(self, connection: _Connection) -> None:
        connection.used_s = time.monotonic()
        with self._changed:
            if not self._is_closing:
                self._free.append(connection)
                oldest_s = connection.used_s - _IDLE_S
                idle = [c for c in self._free if c.used_s < oldest_s]
                self._free = [c for c in self._free if c.used_s >= oldest_s]
            else:
                idle = [connection]
        for other in idle:
            self._drop(other)

    def _drop(self, connection: _Connection) -> None:
        connection.client.close()
        self._left()

    def _left(self) -> None:
        with self._changed:
            self._num_open -= 1
            self._changed.notify_all()
