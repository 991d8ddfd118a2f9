"""Exports a run's log as a trace for Perfetto (ui.perfetto.dev) and Chrome: `trace_events`.

The format is Chrome's JSON: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
Each stage from capture to command has a track; an arrow joins each capture with its command.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from robot_runtime.core.journal import Entry, PartCame, Ticked
from robot_runtime.core.plan.answers import PartOutcome
from robot_runtime.log.entries import Fault, Line, LogEntry, Timed
from robot_runtime.log.stages import Journey

ROBOT, SERVER = 1, 2
"""Processes."""
_TRACKS = (
    ("camera and state", ROBOT),
    ("request", ROBOT),
    ("network there", ROBOT),
    ("queue", SERVER),
    ("inference", SERVER),
    ("network back", ROBOT),
    ("waits for its tick", ROBOT),
    ("waits in the plan", ROBOT),
    ("tick", ROBOT),
)
_RUNS, _MODE, _CONTROL, _LINES = 901, 902, 903, 904
_LANES = 8
"""Lanes per track, for slices that overlap."""


def trace_events(journeys: Iterable[Journey], entries: Iterable[Entry | LogEntry]) -> dict[str, Any]:
    """The whole trace, ready for `json.dump`; entries are those of the log once more."""
    events = [*_of_journeys(journeys), *_of_entries(entries)]
    return {"traceEvents": [*_names(events), *events], "displayTimeUnit": "ms"}


def _of_journeys(journeys: Iterable[Journey]) -> Iterator[dict[str, Any]]:
    busy: dict[int, list[int]] = {}
    for of in journeys:
        moments = (
            of.captured_ns, of.asked_ns, of.sent_ns, of.queued_ns, of.started_ns,
            of.inferred_ns, of.arrived_ns, of.taken_ns, of.due_ns, of.command_ns,
        )  # fmt: skip
        last = len(_TRACKS) - 1
        for i, (name, process) in enumerate(_TRACKS):
            start_ns, end_ns = moments[i], moments[i + 1]
            track = 1 + i * _LANES + _lane(busy.setdefault(i, [0] * _LANES), start_ns, end_ns)
            slice_of = f"request {of.request_id}"
            yield _slice(slice_of, process, track, start_ns, end_ns, {"stage": name})
            arrow = {"ph": "s" if i == 0 else "f" if i == last else "t", "id": of.request_id, "cat": "answer"}
            binds = {"bp": "e"} if i == last else {}
            yield {**arrow, **binds, "name": "answer", "pid": process, "tid": track, "ts": start_ns / 1000}


def _lane(busy: list[int], start_ns: int, end_ns: int) -> int:
    """The first free one; slices of one track may not overlap."""
    lane = next((i for i, until_ns in enumerate(busy) if until_ns <= start_ns), _LANES - 1)
    busy[lane] = max(busy[lane], end_ns)
    return lane


def _of_entries(entries: Iterable[Entry | LogEntry]) -> Iterator[dict[str, Any]]:
    runs: tuple[int, int] | None = None
    mode: tuple[str, str, int] | None = None
    now_ns = 0
    for entry in entries:
        match entry:
            case Ticked(tick=tick):
                now_ns = tick.now_ns
                source = None if tick.source is None else tick.source.request_id
                if runs is not None and runs[0] != source:
                    yield _slice(f"rows of {runs[0]}", ROBOT, _RUNS, runs[1], now_ns)
                    runs = None
                if runs is None and source is not None:
                    runs = source, now_ns
                named = tick.mode.name, tick.cause.value
                if mode is not None and mode[:2] != named:
                    yield _slice(mode[0], ROBOT, _MODE, mode[2], now_ns, {"cause": mode[1]})
                if mode is None or mode[:2] != named:
                    mode = *named, now_ns
            case Timed():
                late = {"lateness_ms": entry.lateness_ns / 1e6, "skipped": entry.num_skipped}
                yield _slice("tick", ROBOT, _CONTROL, entry.now_ns, entry.now_ns + entry.took_ns, late)
            case PartCame(part=part, outcome=outcome) if outcome is not PartOutcome.RUNS:
                yield _instant(f"part of {part.request_id}: {outcome.value}", _LINES, entry.now_ns)
            case Line(t_ns=t_ns, text=text) | Fault(t_ns=t_ns, text=text):
                yield _instant(text, _LINES, t_ns)
    if runs is not None:
        yield _slice(f"rows of {runs[0]}", ROBOT, _RUNS, runs[1], now_ns)
    if mode is not None:
        yield _slice(mode[0], ROBOT, _MODE, mode[2], now_ns, {"cause": mode[1]})


def _slice(
    name: str, process: int, track: int, start_ns: int, end_ns: int, args: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": track,
        "ts": start_ns / 1000,
        "dur": max(end_ns - start_ns, 1) / 1000,
        "args": args or {},
    }


def _instant(name: str, track: int, t_ns: int) -> dict[str, Any]:
    return {"ph": "i", "s": "t", "name": name, "pid": ROBOT, "tid": track, "ts": t_ns / 1000}


def _names(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Names of the processes and the tracks in use, in the order of the stages."""
    own = {_RUNS: "rows that run", _MODE: "mode", _CONTROL: "control loop", _LINES: "log"}
    for process, name in ((ROBOT, "robot"), (SERVER, "server")):
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
    for process, track in sorted({(event["pid"], event["tid"]) for event in events}):
        stage, lane = divmod(track - 1, _LANES)
        name = own.get(track) or f"{stage + 1} {_TRACKS[stage][0]}" + (f" ({lane + 1})" if lane else "")
        at = {"pid": process, "tid": track}
        yield {"ph": "M", "name": "thread_name", **at, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", **at, "args": {"sort_index": track}}
