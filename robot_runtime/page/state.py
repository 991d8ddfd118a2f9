"""What a page knows of a run: `PageState`, built from the messages of its log, live or recorded. Pure.

    message (topic, time, bytes) ─► PageState.take ─► numbers, mode, chunks, lines ─► view.py, hands.py

It keeps the newest value of each quantity, and the last seconds of what is drawn over time. Messages that
are unknown or unreadable change nothing.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.log.config import RunInfo
from robot_runtime.log.foxglove import INFO, jpeg_of
from robot_runtime.log.publish import END
from robot_runtime.page.chunks import Chunks

TOPICS = (
    "/state", "/command", "/mode", "/timing", "/authority", "/chunk", "/plan", "/log", "/fault", "/order",
    "/episode", "/camera/", END,
)  # fmt: skip
"""Topics that a page subscribes to."""
WINDOW_S = 10.0
"""How long data that is drawn over time is kept."""
MAX_LINES = 200
MAX_ORDERS = 20
TRAIL_S = 2.0
"""How long the past path of the end effectors is drawn."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A log line, or an operator command with its result; `n` counts them."""

    n: int
    t_s: float
    text: str
    is_loud: bool = False
    by: str = ""
    refused: str = ""
    after_s: float = 0.0
    """From posting to execution."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """Rows of one answer: when each is due, and its numbers by column."""

    request: int
    due_s: np.ndarray
    """(H,) since the start of the run [s]"""
    columns: Mapping[str, np.ndarray]
    """(H,) each."""
    first_row: int
    """Rows before it were settled when the answer arrived: they never run."""


class Spans:
    """The values of one thing over time: pairs of start time and value, oldest first."""

    def __init__(self) -> None:
        self.pairs: deque[tuple[float, str]] = deque()

    def add(self, t_s: float, value: str) -> None:
        if not self.pairs or self.pairs[-1][1] != value:
            self.pairs.append((t_s, value))
        while len(self.pairs) > 1 and self.pairs[1][0] < t_s - WINDOW_S:
            self.pairs.popleft()


class PageState:
    """The state of one run; one thread owns it."""

    def __init__(self) -> None:
        self.info: RunInfo | None = None
        self.num_messages = 0
        self.t_s = 0.0
        """Time of the newest message."""
        self.state: dict[str, float] = {}
        """Measured numbers by column, `arm.joint_1`."""
        self.command: dict[str, float] = {}
        self.mode = self.cause = self.task = ""
        self.age_ms: float | None = None
        """Age of the observation that the robot acts on."""
        self.modes, self.authority = Spans(), dict[str, Spans]()
        self.phases: dict[str, str] = {}
        self.chunks = Chunks()
        self.plan: Plan | None = None
        self.lines: deque[Shown] = deque(maxlen=MAX_LINES)
        self.orders: deque[Shown] = deque(maxlen=MAX_ORDERS)
        self.num_stops = 0
        self.pictures: dict[str, tuple[float, bytes]] = {}
        """The newest image of each camera: capture time [s], JPEG."""
        self.late_ms: deque[tuple[float, float]] = deque()
        self.num_skipped = 0
        self.clips: deque[tuple[float, Mapping[str, Any]]] = deque()
        self.trail: deque[tuple[float, dict[str, float]]] = deque()
        self.episode = ""
        self.fault = ""
        self.end: Mapping[str, Any] | None = None
        """The result of the run, and the `files` of its log; None: it goes on, or no result has arrived."""
        self._num_shown = 0
        self._on: dict[str, Callable[[float, Any], None]] = {
            "/state": self._on_state,
            "/command": self._on_command,
            "/mode": self._on_mode,
            "/timing": self._on_timing,
            "/authority": self._on_authority,
            "/chunk": self.chunks.take,
            "/plan": self._on_plan,
            "/log": self._on_line,
            "/fault": self._on_fault,
            "/order": self._on_order,
            "/episode": self._on_episode,
            END: self._on_end,
        }

    def take(self, topic: str, log_ns: int, data: bytes) -> None:
        """Process a message of the run's log. log_ns: calendar time, as in the log."""
        if self.info is None:
            return
        t_s = (log_ns - self.info.offset_ns - self.info.started_ns) / NS_PER_S
        try:
            if topic.startswith("/camera/"):
                self.pictures[topic.removeprefix("/camera/")] = t_s, jpeg_of(data)
            elif (take := self._on.get(topic)) is not None:
                take(t_s, msgspec.json.decode(data))
            else:
                return
        except (msgspec.DecodeError, AttributeError, KeyError, TypeError, ValueError):
            return
        self.num_messages += 1
        self.t_s = max(self.t_s, t_s)

    def begin(self, info: RunInfo) -> None:
        """Take over what the run reports about itself."""
        self.info = info
        self.chunks.begin(info)
        self.task = info.task

    def refuse(self, what: str, why: str) -> None:
        """Note a request from the page that never reached the run."""
        self.orders.append(Shown(n=self._count(), t_s=self.t_s, text=what, by="page", refused=why))

    # ---- messages by topic -----------------------------------------------------------------------

    def _on_state(self, t_s: float, message: Any) -> None:
        self.state = flat(message)
        self.trail.append((t_s, self.state))
        _forget(self.trail, t_s - TRAIL_S)

    def _on_command(self, t_s: float, message: Any) -> None:
        self.command = flat(message)

    def _on_mode(self, t_s: float, message: Any) -> None:
        self.mode, self.cause = message["mode"], message["cause"]
        self.age_ms = message.get("age_ms")
        self.modes.add(t_s, self.mode)
        clipped = message.get("clipped") or {}
        self.clips.append((t_s, clipped))
        _forget(self.clips, t_s - WINDOW_S)
        self.chunks.goes_on(message.get("request"), t_s)

    def _on_timing(self, t_s: float, message: Any) -> None:
        self.late_ms.append((t_s, message["lateness_ms"]))
        _forget(self.late_ms, t_s - WINDOW_S)
        self.num_skipped += message.get("skipped", 0)

    def _on_authority(self, t_s: float, message: Any) -> None:
        for part, who in message["authority"].items():
            self.authority.setdefault(part, Spans()).add(t_s, who.upper())
        self.phases = {part: phase.upper() for part, phase in message["phase"].items()}

    def _on_episode(self, t_s: float, message: Any) -> None:
        self.episode = message.get("outcome") or message.get("event") or ""

    def _on_end(self, t_s: float, message: Any) -> None:
        self.end = dict(message)

    def _on_line(self, t_s: float, message: Any) -> None:
        self._line(t_s, message["message"], is_loud=message.get("level", INFO) > INFO)

    def _on_fault(self, t_s: float, message: Any) -> None:
        self.fault = message["text"]

    def _on_order(self, t_s: float, message: Any) -> None:
        order, refused = message["what"], message.get("refused", "")
        shown = Shown(
            n=self._count(),
            t_s=t_s,
            text=order_words(order),
            by=message["by"],
            refused=refused,
            after_s=message["waited_ms"] / 1e3,
        )
        self.orders.append(shown)
        self.num_stops += order.get("order") == "Stop" and not refused
        if order.get("order") == "SetTask" and not refused:
            self.task = order["task"]

    def _line(self, t_s: float, text: str, *, is_loud: bool) -> None:
        self.lines.append(Shown(n=self._count(), t_s=t_s, text=text, is_loud=is_loud))

    def _count(self) -> int:
        self._num_shown += 1
        return self._num_shown

    def _on_plan(self, t_s: float, message: Any) -> None:
        assert self.info is not None
        due = (np.array(message["due_ns"], np.int64) - self.info.started_ns) / NS_PER_S
        columns = {name: np.array(values, float) for name, values in message["columns"].items()}
        self.plan = Plan(
            request=message["request"], due_s=due, columns=columns, first_row=message["first_row"]
        )


def flat(message: Mapping[str, Any]) -> dict[str, float]:
    """{"arm": {"joint_1": 0.1}} as {"arm.joint_1": 0.1}; values that are not numbers are left out."""
    return {
        f"{part}.{name}": float(value)
        for part, numbers in message.items()
        if isinstance(numbers, Mapping)
        for name, value in numbers.items()
        if isinstance(value, int | float)
    }


def order_words(order: Mapping[str, Any]) -> str:
    """An order in words: {"order": "TakeOver", "parts": ["arm"]} is "TakeOver arm"."""
    more = [value for name, value in order.items() if name != "order" and value not in (None, True, [], ())]
    words = [" ".join(map(str, each)) if isinstance(each, list) else str(each) for each in more]
    return " ".join([str(order.get("order", "order")), *words])


def _forget(times: deque[Any], before_s: float) -> None:
    while times and times[0][0] < before_s:
        times.popleft()
