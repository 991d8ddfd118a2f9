"""Exports the numbers of a log for other programs: a row for each control tick, as CSV or JSON."""

import csv
import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from robot_runtime.core.values.action import NS_PER_MS
from robot_runtime.core.values.columns import command_numbers, state_numbers
from robot_runtime.core.values.command import Command
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.people import plain
from robot_runtime.log.reader import LoggedTick, RunLog


def export(log: RunLog, path: Path, *, on_row: Callable[[], None] = lambda: None) -> int:
    """Write a file whose name ends in .csv or .json; returns the number of its rows.

    InvalidValueError: another ending, or no control tick in the log.
    """
    if path.suffix not in (".csv", ".json"):
        raise InvalidValueError(f"numbers are exported to a file that ends in .csv or .json, got {path}")
    rows = _counted(numbers(log), on_row)
    first = next(rows, None)
    if first is None:
        raise InvalidValueError(f"{log.path} has no control tick in it")
    return _to_csv(path, first, rows) if path.suffix == ".csv" else _to_json(log, path, [first, *rows])


def numbers(log: RunLog) -> Iterator[dict[str, Any]]:
    """One row per control tick: t_ns, state.NAME, command.NAME, sent.NAME, policy_command.NAME, and the state
    of the runtime."""
    for row in log.ticks():
        yield _row(log, row)


def _row(log: RunLog, row: LoggedTick) -> dict[str, Any]:
    tick, schema = row.tick, log.info.schema
    out: dict[str, Any] = {"t_ns": tick.now_ns, "state_t_ns": row.state.t_ns}
    out |= {f"state.{name}": value for name, value in state_numbers(row.state, schema).items()}
    commands: dict[str, Command | None] = {
        "command": tick.command,
        "sent": tick.sent,
        "policy_command": getattr(tick, "policy_command", None),
    }
    for what, command in commands.items():
        if command is not None:
            out |= {f"{what}.{name}": value for name, value in command_numbers(command, schema).items()}
    out |= {
        "mode": tick.mode.name,
        "cause": tick.cause.value,
        "phase": tick.phase.value,
        "request": None if tick.source is None else tick.source.request_id,
        "row": tick.row,
        "age_ms": None if tick.age_ns is None else tick.age_ns / NS_PER_MS,
    }
    out |= {f"authority.{part}": who.value for part, who in (getattr(tick, "authority", None) or {}).items()}
    if row.timed is not None:
        out["lateness_ms"] = row.timed.lateness_ns / NS_PER_MS
        out["took_ms"] = row.timed.took_ns / NS_PER_MS
    return out


def _to_csv(path: Path, first: dict[str, Any], rows: Iterator[dict[str, Any]]) -> int:
    count = 0
    with path.open("w", newline="") as file:
        # The columns are the first row's: later ones only are in the JSON.
        writer = csv.DictWriter(file, list(first), extrasaction="ignore")
        writer.writeheader()
        for row in chain([first], rows):
            writer.writerow(row)
            count += 1
    return count


def _to_json(log: RunLog, path: Path, rows: list[dict[str, Any]]) -> int:
    about = json.loads(log.info.to_json())
    whole = {
        "run": about,
        "end": log.end,
        "ticks": rows,
        "chunks": [{"t_ns": t_ns, **chunk} for t_ns, chunk in log.shown("/chunk")],
        "orders": [plain(order) for order in log.orders()],
        "episodes": [plain(mark) for mark in log.episodes()],
        "lines": [plain(line) for line in log.lines()],
    }
    path.write_text(json.dumps(whole))
    return len(rows)


def _counted(rows: Iterator[dict[str, Any]], on_row: Callable[[], None]) -> Iterator[dict[str, Any]]:
    for row in rows:
        on_row()
        yield row
