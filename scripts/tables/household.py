"""Tables of `docs/results/household*.md`: policies, labels and splices on the mobile robot's tasks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial

from scripts.harness import RESULTS
from scripts.lab.household_page import averages, by_task, label_gains
from scripts.lab.page import read_json
from scripts.lab.scores import Row
from scripts.tables.shared import commands, plain, pooled, table

TASKS = ("clear", "drawer", "fetch", "wipe")
DEFAULT, VISION = "shipped base pipelined-prefix-4", "seeing base pipelined-prefix"
BESIDE = ("shipped base state-matching", "shipped base time-aligned", "shipped base naive")

WORDS = {"seeing": "vision", "labels": "frame", "shipped": "shipped, state-based"}


@cache
def _rows() -> list[Row]:
    return read_json(RESULTS / "mobile.json")


def _table(lines: Iterable[Sequence[str]]) -> str:
    head, *body = plain(lines, WORDS)
    return table(head, body)


def everything() -> str:
    """Success and backtracking over all tasks, a line for each way of running."""
    lines = averages(_rows())
    return _table([line[:9] for line in lines])


def shipped() -> str:
    """The shipped policies under their default, and beside it."""
    head = ["task", "default, 0 ms", "300 ms", "600 ms", *(f"`{m.split()[-1]}`, 300 ms" for m in BESIDE)]
    places = [*((DEFAULT, f"{ms}ms") for ms in (0, 300, 600)), *((m, "300ms") for m in BESIDE)]
    by_place = [_of(method, trace) for method, trace in places]
    lines = [[f"`{task}`", *(pooled([found[task]]) for found in by_place)] for task in TASKS]
    lines.append(["all four", *(pooled(list(found.values())) for found in by_place)])
    backtracking = [
        _mean(found.values(), lambda row: row.figures["led_backward_m"].mean, 2) for found in by_place
    ]
    took = [
        _mean(found.values(), lambda row: row.completion.mean if row.completion else None, 1)
        for found in by_place
    ]
    return table(head, [*lines, ["backtracking [m]", *backtracking], ["done after [s]", *took]])


def vision() -> str:
    """From pictures alone."""
    lines = [
        [delay, *(pooled([found[task]]) for task in TASKS), pooled(list(found.values()))]
        for delay, found in (("0 ms", _of(VISION, "0ms")), ("300 ms", _of(VISION, "300ms")))
    ]
    return table(["delay", *(f"`{task}`" for task in TASKS), "all four"], lines)


def number(task: str, trace: str, *method: str) -> str:
    """For a sentence: success in per cent; task: one of them, or all."""
    rows = [row for at, row in _of(" ".join(method), trace).items() if task in (at, "all")]
    return f"{100 * sum(row.successes for row in rows) / sum(row.episodes for row in rows):.0f}"


def success_of(method: str, trace: str) -> str:
    """Over all tasks."""
    return pooled(list(_of(method, trace).values()))


def _of(method: str, trace: str) -> dict[str, Row]:
    return {row.task: row for row in _rows() if row.method == method and row.trace == trace}


def _mean(rows: Iterable[Row], figure: Callable[[Row], float | None], digits: int) -> str:
    """Over tasks; a dash where one has none."""
    found = [figure(row) for row in rows]
    known = [value for value in found if value is not None]
    return "–" if len(known) < len(found) else f"{sum(known) / len(known):.{digits}f}"


def labels() -> str:
    return _table(label_gains(_rows()))


def of_task(task: str) -> str:
    return _table(by_task(_rows(), task))


def how() -> str:
    return commands(row.command for row in _rows())


TABLES: Mapping[str, Callable[[], str]] = {
    "household": everything,
    "household-shipped": shipped,
    "household-vision": vision,
    "household-labels": labels,
    "household-commands": how,
    **{f"household-{task}": partial(of_task, task) for task in TASKS},
}
