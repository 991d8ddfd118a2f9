"""What operators and Foxglove see of a run: messages by topic, made from the entries of a log.

/state /command /sent /policy_command    numbers by part and column, at most 50 times a second
/mode /timing                            as often, and at every change of mode
/chunk /plan                             asked, a part came, its rows run, dropped and why; where they lead
/log /fault                              lines (foxglove.Log), what should not have happened
/camera/NAME                             images (foxglove.CompressedImage)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from robot_runtime.core.journal import (
    Asked,
    Entry,
    PartCame,
    RequestLost,
    ServerLost,
    Stopped,
    Ticked,
    WasReset,
)
from robot_runtime.core.orders import EpisodeMark, TakenOrder
from robot_runtime.core.plan.answers import PartOutcome
from robot_runtime.core.safety import ENDS, Cause
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S, ActionSpec, Command
from robot_runtime.core.values.columns import command_numbers, state_numbers
from robot_runtime.core.values.schema import Schema
from robot_runtime.log.entries import Fault, Line, LogEntry, Sent, Timed
from robot_runtime.log.plans import Plans

PERIOD_NS = NS_PER_S // 50
"""Minimum time between two states or commands for people [ns]; the journal has all of them."""
FULLEST: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "/chunk": {
            "event": "", "request": 0, "captured_ns": 0, "rows": [], "is_last": True, "queue_ms": 0.0,
            "infer_ms": 0.0, "latency_ms": 0.0, "why": "", "row_0_due_ns": 0, "first_row": 0,
            "dropped_rows": 0, "jump": 0.0, "row": 0,
        },
    }
)  # fmt: skip
"""All fields that messages of a topic may have, for topics whose first message lacks some."""
_TAKEN = (PartOutcome.RUNS, PartOutcome.WAITS)


@dataclass(frozen=True)
class TopicMessage:
    """One message, to be written as JSON."""

    topic: str
    t_ns: int
    value: dict[str, Any]


class People:
    """Makes messages from entries; one thread owns it."""

    def __init__(self, schema: Schema, spec: ActionSpec) -> None:
        """spec: of the policy's rows."""
        self._schema, self._plans = schema, Plans(schema, spec)
        self._shown_ns: int | None = None
        self._mode: object = None
        self._is_shown = False
        self._stopped: Cause | None = None
        self._running: int | None = None
        self._asked_ns: dict[int, int] = {}
        self.now_ns = 0
        """Time of the newest tick [ns]."""

    def messages(self, entry: Entry | LogEntry) -> Iterator[TopicMessage]:
        """The messages that show an entry."""
        match entry:
            case Ticked(state=state, now_ns=now_ns, tick=tick):
                yield from self._of_tick(state, now_ns, tick)
            case Sent(command=command):
                if self._is_shown:
                    yield self._numbers("/sent", command)
            case Timed():
                if self._is_shown or entry.num_skipped:
                    late, took = entry.lateness_ns / NS_PER_MS, entry.took_ns / NS_PER_MS
                    figures = {"lateness_ms": late, "took_ms": took, "skipped": entry.num_skipped}
                    yield TopicMessage("/timing", entry.now_ns, figures)
            case Asked(observation=seen, request=request):
                self._asked_ns[request.request_id] = seen.t_obs_ns
                self._plans.asked(request)
                yield self._chunk("asked", request.request_id, captured_ns=seen.t_oldest_ns)
            case PartCame():
                yield from self._of_part(entry)
            case RequestLost(request_id=request_id):
                self._asked_ns.pop(request_id, None)
                yield self._chunk("lost", request_id, why="no answer will come")
            case ServerLost():
                self._asked_ns.clear()
                yield self._chunk("server lost", -1, why="the server is gone")
            case Stopped(cause=cause) if cause not in (self._stopped, *ENDS):
                self._stopped = cause
                yield TopicMessage("/fault", self.now_ns, {"text": f"stop: {cause.value}"})
            case WasReset(now_ns=now_ns):
                self.now_ns, self._stopped = now_ns, None
            case Fault(t_ns=t_ns, text=text):
                yield TopicMessage("/fault", t_ns, {"text": text})
            case TakenOrder(order=order):
                taken: dict[str, Any] = {
                    "order": type(order).__name__,
                    "by": entry.by,
                    "refused": entry.refused,
                }
                taken["what"] = msgspec.to_builtins(order)
                waited_ms = (entry.done_ns - entry.posted_ns) / NS_PER_MS
                yield TopicMessage(
                    "/order", entry.done_ns, {**taken, "waited_ms": waited_ms, "text": str(order)}
                )
            case EpisodeMark():
                length_s = (entry.end_ns - entry.start_ns) / NS_PER_S
                trial = {"outcome": entry.outcome.value, "keep": entry.keep, "length_s": length_s}
                yield TopicMessage("/episode", entry.end_ns, trial)
            case Line():
                pass  # has a schema of its own

    def _of_tick(self, state: Any, now_ns: int, tick: Tick) -> Iterator[TopicMessage]:
        self.now_ns = now_ns = tick.now_ns
        changes = (tick.mode, tick.cause) != self._mode
        due = self._shown_ns is None or now_ns - self._shown_ns >= PERIOD_NS
        self._is_shown = due or changes
        runs = None if tick.source is None else tick.source.request_id
        if runs is not None and runs != self._running:
            yield self._chunk("runs", runs, row=tick.row)
        self._running = runs if runs is not None else self._running
        if not self._is_shown:
            return
        self._shown_ns, self._mode = now_ns, (tick.mode, tick.cause)
        yield TopicMessage("/state", state.t_ns, nested(state_numbers(state, self._schema)))
        yield self._numbers("/command", tick.command)
        wanted = getattr(tick, "policy_command", None)
        if wanted is not None:
            yield self._numbers("/policy_command", wanted)
        age = None if tick.age_ns is None else tick.age_ns / NS_PER_MS
        yield TopicMessage(
            "/mode",
            now_ns,
            {
                "mode": tick.mode.name,
                "cause": tick.cause.value,
                "phase": tick.phase.value,
                "request": runs,
                "row": tick.row,
                "age_ms": age,
                "clipped": {part: vars(short) for part, short in tick.clip.parts.items()},
            },
        )
        authority = {part: who.value for part, who in tick.authority.items()}
        phases = {part: phase.value for part, phase in tick.phase_of.items()}
        yield TopicMessage("/authority", now_ns, {"authority": authority, "phase": phases})

    def _of_part(self, entry: PartCame) -> Iterator[TopicMessage]:
        part, splice, outcome = entry.part, entry.splice, entry.outcome
        asked_ns = self._asked_ns.get(part.request_id)
        figures = {
            "rows": [part.first_row, part.first_row + len(part.rows)],
            "is_last": part.is_last,
            "queue_ms": part.queue_ns / NS_PER_MS,
            "infer_ms": part.infer_ns / NS_PER_MS,
            "latency_ms": None if asked_ns is None else (entry.now_ns - asked_ns) / NS_PER_MS,
        }
        if outcome in _TAKEN:
            yield self._chunk("came", part.request_id, t_ns=entry.now_ns, **figures)
        else:
            yield self._chunk("dropped", part.request_id, t_ns=entry.now_ns, why=outcome.value, **figures)
        if splice is not None:
            yield self._chunk(
                "spliced",
                part.request_id,
                t_ns=splice.t_ns,
                row_0_due_ns=splice.t0_ns,
                first_row=splice.seam.first_row,
                dropped_rows=splice.seam.num_dropped,
                jump=splice.seam.jump,
            )
        if (plan := self._plans.of_part(entry)) is not None:
            yield TopicMessage("/plan", entry.now_ns, plan)
        if part.is_last:
            self._asked_ns.pop(part.request_id, None)

    def _chunk(self, what: str, request_id: int, *, t_ns: int | None = None, **more: Any) -> TopicMessage:
        t_ns = self.now_ns if t_ns is None else t_ns
        return TopicMessage("/chunk", t_ns, {"event": what, "request": request_id, **more})

    def _numbers(self, topic: str, command: Command) -> TopicMessage:
        return TopicMessage(topic, self.now_ns, nested(command_numbers(command, self._schema)))


def nested(numbers: dict[str, float]) -> dict[str, dict[str, float]]:
    """{"arm.joint_1": 0.1} as {"arm": {"joint_1": 0.1}}: so that Foxglove's paths are the columns' names."""
    out: dict[str, dict[str, float]] = {}
    for name, value in numbers.items():
        part, _, column = name.partition(".")
        out.setdefault(part, {})[column] = value
    return out


def json_schema(topic: str, example: Any) -> dict[str, Any]:
    """A topic's schema from its first message: names and types, for Foxglove's field pickers."""
    match example:
        case dict():
            properties = {key: json_schema(key, value) for key, value in example.items()}
            return {"title": topic.strip("/"), "type": "object", "properties": properties}
        case list():
            return {"type": "array", "items": {"type": "number"}}
        case bool():
            return {"type": "boolean"}
        case int() | float() | None:
            return {"type": "number"}
    return {"type": "string"}


def plain(value: Struct) -> dict[str, Any]:
    """The fields of an entry as JSON values."""
    out: dict[str, Any] = msgspec.to_builtins(value)
    return out
