"""The comparison as text: its JSON and its tables."""

import json
from collections.abc import Sequence
from pathlib import Path

from robot_runtime.errors import InvalidValueError
from robot_runtime.results import made_by
from scripts.lab.methods import EXPERT
from scripts.lab.scores import RESULTS_VERSION, Row, at_reference
from scripts.lab.style import Style
from sim.episodes.evaluation import EvaluationConfig

FIGURES = (
    ("starved ticks", "starved_ticks", 1),
    ("repeated rows", "repeated_rows", 1),
    ("skipped rows", "skipped_rows", 1),
    ("seam jump p50 [rad]", "seam_jump_p50", 3),
    ("jerk [rad/s³]", "jerk_mean", 0),
    ("requests/s", "requests_per_s", 2),
    ("NFE/s", "evaluations_per_s", 1),
)
"""(head, name, digits) of means over episodes; NFE: evaluations of the network, passes of one chunk."""
LADDER = ("naive", "time-aligned", "committed-prefix", "faster", "pipelined-prefix", "pipelined-faster")
"""From what costs least to the default, each with one thing more than one before it."""


def to_json(rows: Sequence[Row]) -> str:
    """Every row, summed up, and the command that made it; a row per line."""
    lines = ",\n".join("  " + json.dumps(row.as_dict()) for row in rows)
    made = json.dumps(made_by(seeds=_seeds(rows)))
    return f'{{\n "version": {RESULTS_VERSION},\n "made_by": {made},\n "rows": [\n{lines}\n ]\n}}\n'


def _seeds(rows: Sequence[Row]) -> range:
    """Of the episodes: every cell runs them from the first on, whatever its policy was trained from."""
    most = max((row.episodes // max(1, len(row.success_by_seed)) for row in rows), default=0)
    return range(EvaluationConfig.first_seed, EvaluationConfig.first_seed + most)


def read_json(path: Path) -> list[Row]:
    """What `to_json` gave; InvalidValueError if it is something else, or older than the code."""
    try:
        data = json.loads(path.read_text())
        version, rows = data["version"], [Row.from_dict(row) for row in data["rows"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidValueError(f"{path} holds no figures of the lab: {error}") from error
    if version != RESULTS_VERSION:
        raise InvalidValueError(
            f"{path} has figures of version {version}, and this code makes version {RESULTS_VERSION}: "
            "they cannot stand side by side"
        )
    return rows


def success_table(rows: Sequence[Row], task: str) -> list[list[str]]:
    """A task's methods and what their policies were trained with, head first: success under every trace."""
    here = [row for row in rows if row.task == task]
    traces = list(dict.fromkeys(row.trace for row in here))
    methods = list(dict.fromkeys(row.method for row in here))
    out = [["method", "policies", *traces]]
    for method in (*(m for m in methods if m == EXPERT), *Style(methods).methods):
        found = {row.trace: row for row in here if row.method == method}
        policies = sorted({recipe for row in found.values() for recipe in row.recipes})
        out.append([method, ", ".join(policies), *(_success(found.get(trace)) for trace in traces)])
    return out


def gain_table(rows: Sequence[Row]) -> list[list[str]]:
    """What evaluations buy at the reference delay, head first; a task per line, where it has a `naive` row.

    A cell is the success, the calls per second of robot time and, where these are a twentieth more than
    naive's, the percentage points gained over naive per ten calls more.
    """
    out = [["task", *LADDER]]
    for task in dict.fromkeys(row.task for row in rows):
        found = {row.method: row for row in at_reference(rows, task)}
        if (naive := found.get("naive")) is not None:
            cells = [_gain(found.get(method), naive) for method in LADDER]
            out.append([f"{task}, {naive.trace}", *cells])
    return out


def _gain(row: Row | None, naive: Row) -> str:
    if row is None:
        return "–"
    calls, fewest = (each.figures.get("evaluations_per_s") for each in (row, naive))
    if calls is None or fewest is None:
        return f"{row.success:.0%}"
    shown, more = f"{row.success:.0%}, {calls.mean:.0f} NFE/s", calls.mean - fewest.mean
    if more <= 0.05 * fewest.mean:
        return shown
    return f"{shown}: {1e3 * (row.success - naive.success) / more:+.0f}"


def _success(row: Row | None) -> str:
    if row is None:
        return "–"
    low, high = row.success_interval
    return f"{row.success:.0%} ({low:.0%}–{high:.0%})"
