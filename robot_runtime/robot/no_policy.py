"""A run without a policy: a person drives. `NoPolicy` takes the place of the policy client."""

from types import TracebackType
from typing import Self

from robot_runtime.core.method.table import Method, method_named
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_MS, ActionSpec
from robot_runtime.core.values.schema import Schema
from robot_runtime.wire.events import Event
from robot_runtime.wire.messages import Welcome

NAME = "no policy"
_DT_NS = 50 * NS_PER_MS


class NoPolicy:
    """The interface of a `PolicyClient` without a server: no thread, no socket, no event."""

    thread_id: int | None = None

    def __init__(self, schema: Schema) -> None:
        """schema: of the robot."""
        self.schema = schema

    def wait_until_ready(self, timeout_s: float = 0.0) -> Welcome:
        """Return a policy that would move every part with its usual commands, and use all cameras."""
        spec = ActionSpec(fields=self.schema.action_fields, horizon=2, dt_ns=_DT_NS)
        info = PolicyInfo(name=NAME, action_spec=spec, schema=self.schema)
        return Welcome(info=info, heartbeat_ns=1)

    def new_epochs(self) -> int:
        return 1 << 32

    def events(self) -> list[Event]:
        return []

    def submit(self, request: ChunkRequest) -> None:
        raise RuntimeError("a run without a policy takes no requests")

    def close(self) -> None:
        """Do nothing: nothing was opened."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def method_without_person() -> Method:
    """Return the method with which an executor waits for chunks that never come."""
    return method_named("synchronous")
