"""Tables of `docs/results/methods*.md`: every method on every table task under every delay."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial

from scripts.harness import RESULTS
from scripts.lab.page import FIGURES, gain_table, read_json
from scripts.lab.scores import Estimate, Row
from scripts.tables.shared import NOTHING, commands, plain, share, table

TASKS = ("pick_place", "track", "strike", "conveyor")
EXPERT = "delayed-expert"
HEADLINE = (EXPERT, "pipelined-faster", "committed-prefix", "time-aligned", "synchronous")
LEROBOT = (
    "lerobot-defaults",
    "lerobot-best-wide",
    "lerobot-best-narrow",
    "lerobot-replace",
    "pipelined-faster",
)
SYNCHRONOUS = ("synchronous", "synchronous-4", "time-aligned", "pipelined-faster")
"""Whole chunks, as few rows of each as the others, and two of those."""
REFERENCE = "400ms"
"""Where `cost` looks closer."""


@cache
def _rows(name: str = "lab") -> dict[tuple[str, str, str], Row]:
    return {row.place: row for row in read_json(RESULTS / f"{name}.json")}


def _methods(task: str) -> list[str]:
    return list(dict.fromkeys(method for at, method, _ in _rows() if at == task))


def _success(row: Row | None) -> str:
    return NOTHING if row is None else share(row.success, row.success_interval)


def success_of(task: str, method: str, trace: str) -> str:
    return _success(_rows().get((task, method, trace)))


def number(task: str, method: str, trace: str, figure: str = "success") -> str:
    """For a sentence: success in per cent, `done` in seconds, an error in millimetres."""
    row = _rows()[task, method, trace]
    if figure == "success":
        return f"{100 * row.success:.0f}"
    if figure == "done":
        return _mean(row.completion, 1)
    return f"{1e3 * row.figures[figure].mean:.{1 if 'mean' in figure else 0}f}"


def _compared(
    methods: Iterable[str], traces: Iterable[str], tasks: Iterable[str] = TASKS, results: str = "lab"
) -> str:
    """A line for each task and delay, a column for each method."""
    methods, found = tuple(methods), _rows(results)
    lines = [
        [task, trace, *(_success(found.get((task, method, trace))) for method in methods)]
        for task in tasks
        for trace in traces
    ]
    return table(["task", "delay", *(f"`{method}`" for method in methods)], lines)


def success(task: str) -> str:
    """A line for each method, a column for each delay."""
    found, traces = _rows(), list(dict.fromkeys(trace for at, _, trace in _rows() if at == task))
    lines = [
        [f"`{method}`", *(_success(found.get((task, method, trace))) for trace in traces)]
        for method in _methods(task)
    ]
    return table(["method", *traces], lines)


def cost(task: str) -> str:
    """What each method takes at the reference delay."""
    lines = []
    for method in _methods(task):
        row = _rows().get((task, method, REFERENCE))
        if row is not None:
            lines.append(
                [f"`{method}`", _recipe(row), _mean(row.completion, 1), *_reaction(row), *_figures(row)]
            )
    reaction = "reaction, mean / bound [s]"
    return table(["method", "recipe", "done [s]", reaction, "p95", *(name for name, _, _ in FIGURES)], lines)


def _recipe(row: Row) -> str:
    return ", ".join(sorted({name.rpartition("-")[0] for name in row.recipes}))


def _mean(value: Estimate | None, digits: int) -> str:
    return NOTHING if value is None else f"{value.mean:.{digits}f}"


def _reaction(row: Row) -> list[str]:
    if row.reaction is None:
        return [NOTHING, NOTHING]
    bounds = (None, None) if row.bound is None else (row.bound.mean_s, row.bound.p95_s)
    pairs = zip((row.reaction.mean_s, row.reaction.p95_s), bounds, strict=True)
    return [f"{time:.2f} / {NOTHING if bound is None else f'{bound:.2f}'}" for time, bound in pairs]


def _figures(row: Row) -> list[str]:
    return [_mean(row.figures.get(key), digits) for _, key, digits in FIGURES]


def gain() -> str:
    """What evaluations of the network buy, over `naive`."""
    head, *body = plain(gain_table(list(_rows().values())))
    return table(head, body)


def how() -> str:
    return commands(row.command for row in _rows().values())


TABLES: Mapping[str, Callable[[], str]] = {
    "methods": partial(_compared, HEADLINE, ("0ms", "200ms", "400ms", "spikes")),
    "methods-lerobot": partial(_compared, LEROBOT, ("400ms", "spikes")),
    "methods-synchronous": partial(_compared, SYNCHRONOUS, ("0ms", "400ms"), results="synchronous"),
    "methods-gain": gain,
    "methods-commands": how,
    "experts": partial(_compared, (EXPERT,), ("0ms", "200ms", "400ms")),
    **{f"methods-success-{task}": partial(success, task) for task in TASKS},
    **{f"methods-cost-{task}": partial(cost, task) for task in TASKS},
}
