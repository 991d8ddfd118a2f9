"""Runs a log's journal through an executor again: `replay`. Same version, same inputs, same bits.

journal   Began   WasReset   Looked  Asked  PartCame ...  Ticked
            │         │         │      │       │            │
executor    ▼         ▼         ▼      ▼       ▼            ▼
          made anew                                       tick ─► compared with the one in the log
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from robot_runtime.core.configuration import Configuration, Foreign
from robot_runtime.core.executor import Executor
from robot_runtime.core.journal import (
    Armed,
    Asked,
    AskedSoon,
    Began,
    Corrected,
    Entry,
    EpochSet,
    HandedBack,
    Led,
    Looked,
    PartCame,
    PhaseSaid,
    RequestLost,
    ServerLost,
    Stopped,
    Ticked,
    TookOver,
    WasReset,
)
from robot_runtime.errors import InvalidValueError, NotArmedError
from robot_runtime.log.forms import Forms
from robot_runtime.log.reader import RunLog


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first result that differs from the log."""

    tick: int
    """Number of the control tick, from 0."""
    now_ns: int
    """Its time [ns]."""
    what: str
    """In words: where, what the log has, what the replay gave."""


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The result of a replay."""

    ticks: int
    """Control ticks that equal those of the log."""
    requests: int
    difference: Difference | None = None
    """None: everything is equal to the last bit."""


def executor_of(configuration: Configuration, *, robot: Any = None) -> Executor:
    """Make an executor like that of the log at its start.

    robot: provides what the log cannot hold, functions and objects of the user's.
    InvalidValueError: something is missing, and is named.
    """
    if robot is not None:
        lacking = [n for n in ("hand_pose", "whole_body") if _foreign_in(getattr(configuration, n))]
        configuration = replace(configuration, **{name: getattr(robot, name) for name in lacking})
    missing = {name: text for name, value in vars(configuration).items() if (text := _foreign_in(value))}
    if "correction_head" in missing:
        raise InvalidValueError(
            "this run was corrected by a head of your own, which a log cannot hold: "
            f"{missing['correction_head']}. Name it: --correction path/to/file.py:head"
        )
    if missing:
        what = "; ".join(f"{name} {text}" for name, text in missing.items())
        raise InvalidValueError(
            f"this log does not hold all of its robot: {what}. Name the robot that has it: "
            "--robot path/to/file.py:robot"
        )
    return Executor(configuration)


def replay_log(
    log: RunLog,
    *,
    robot: Any = None,
    correction_head: Any = None,
    on_tick: Callable[[], None] = lambda: None,
) -> Replayed:
    """`replay` a log up to its first gap, which `log.damage` reports.

    InvalidValueError: it begins in mid-run.
    """
    if log.info.is_part:
        raise InvalidValueError(
            f"{log.path} begins in mid-run, with an executor in an unknown state: only a log from the start "
            "of a run can be replayed (run --keep all)"
        )
    return replay(
        log.journal(is_unbroken=True), robot=robot, correction_head=correction_head, on_tick=on_tick
    )


def replay(
    journal: Iterable[Entry],
    *,
    robot: Any = None,
    correction_head: Any = None,
    on_tick: Callable[[], None] = lambda: None,
) -> Replayed:
    """Go through a run again, and stop at the first difference.

    robot, correction_head: what the log cannot hold, see `executor_of`.
    InvalidValueError: the journal does not begin with a configuration, or a part of it is missing.
    """
    executor: Executor | None = None
    forms, ticks, requests, now_ns = Forms(), 0, 0, 0
    for entry in journal:
        if isinstance(entry, Began):
            configuration = entry.configuration
            if correction_head is not None:
                configuration = replace(configuration, correction_head=correction_head)
            executor = executor_of(configuration, robot=robot)
            continue
        if executor is None:
            raise InvalidValueError("expected a journal that begins with its executor's configuration")
        expected, got = _done(executor, entry)
        if isinstance(entry, Looked | Ticked):
            now_ns = entry.now_ns
        if what := _difference(forms, expected, got):
            difference = Difference(tick=ticks, now_ns=now_ns, what=f"{type(entry).__name__}{what}")
            return Replayed(ticks=ticks, requests=requests, difference=difference)
        if isinstance(entry, Ticked):
            ticks += 1
            on_tick()
        requests += isinstance(entry, Asked)
    return Replayed(ticks=ticks, requests=requests)


def _done(executor: Executor, entry: Entry) -> tuple[Any, Any]:
    """The result in the log, and that of the replay; None where there is none."""
    match entry:
        case EpochSet(epoch=epoch):
            executor.set_epoch(epoch)
        case WasReset(state=state, now_ns=now_ns):
            with contextlib.suppress(ValueError):  # as then
                executor.reset(state, now_ns)
        case Looked(now_ns=now_ns, wants_request=wanted):
            return wanted, executor.wants_request(now_ns)
        case Asked(observation=seen, request=request):
            return request, executor.make_request(seen)
        case PartCame(part=part, now_ns=now_ns, outcome=outcome):
            return outcome, executor.on_part(part, now_ns)
        case RequestLost(request_id=request_id):
            executor.on_request_failed(request_id)
        case ServerLost():
            executor.on_server_lost()
        case Corrected(observation=seen, now_ns=now_ns):
            executor.correct(seen, now_ns)
        case Armed(now_ns=now_ns):
            with contextlib.suppress(NotArmedError):  # as then
                executor.arm(now_ns)
        case Stopped(cause=cause):
            executor.stop(cause)
        case AskedSoon():
            executor.ask_soon()
        case TookOver(parts=parts, now_ns=now_ns, by=by):
            with contextlib.suppress(NotArmedError, ValueError):  # as then
                executor.take_over(parts, now_ns, by=by)
        case Led(wishes=wishes, now_ns=now_ns):
            with contextlib.suppress(ValueError):  # as then
                executor.lead(wishes, now_ns)
        case PhaseSaid(parts=parts, phase=phase):
            with contextlib.suppress(ValueError):  # as then
                executor.say_phase(parts, phase)
        case HandedBack(parts=parts, now_ns=now_ns):
            executor.hand_back(parts, now_ns)
        case Ticked(state=state, now_ns=now_ns, tick=tick):
            return tick, executor.tick(state, now_ns)
    return None, None


def _difference(forms: Forms, expected: Any, got: Any) -> str:
    """Where two values differ in any bit, and what they are; empty: nowhere."""
    return "" if forms.encode(expected) == forms.encode(got) else _first_difference(expected, got)


def _first_difference(expected: Any, got: Any) -> str:
    if type(expected) is not type(got):
        return f": the log has {expected!r:.200}, now it is {got!r:.200}"
    if isinstance(expected, np.ndarray):
        return _array_difference(expected, got)
    names: Iterable[Any]
    if isinstance(expected, Mapping):
        if expected.keys() != got.keys():
            return f": the log has {list(expected)}, now there are {list(got)}"
        pairs = [(f"[{key}]", expected[key], got[key]) for key in expected]
    elif isinstance(expected, tuple):
        pairs = [(f"[{i}]", a, b) for i, (a, b) in enumerate(zip(expected, got, strict=False))]
    elif names := _names(expected):
        pairs = [(f".{name}", getattr(expected, name), getattr(got, name)) for name in names]
    else:
        return f": the log has {expected!r:.200}, now it is {got!r:.200}"
    forms = Forms()
    for name, a, b in pairs:
        if forms.encode(a) != forms.encode(b):
            return name + _first_difference(a, b)
    return f": the log has {expected!r:.200}, now it is {got!r:.200}"


def _array_difference(expected: np.ndarray, got: np.ndarray) -> str:
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return f": the log has {expected.shape} {expected.dtype}, now it is {got.shape} {got.dtype}"
    same = (expected == got) | (np.isnan(expected) & np.isnan(got))
    at = tuple(int(i) for i in np.argwhere(~same)[0]) if not same.all() else (0,) * expected.ndim
    return f"{list(at)}: the log has {expected[at]!r}, now it is {got[at]!r}"


def _names(value: Any) -> tuple[str, ...]:
    fields = getattr(value, "__dataclass_fields__", None) or getattr(value, "__struct_fields__", None)
    return tuple(fields or ())


def _foreign_in(value: Any) -> str:
    """The first object in a value that a log could not hold; empty: none."""
    match value:
        case Foreign(text=text):
            return text
        case Mapping():
            return next((text for each in value.values() if (text := _foreign_in(each))), "")
    return ""
