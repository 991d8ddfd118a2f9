"""Tables of `docs/results/third_party.md`: methods on simulators that others wrote. Run as a script it draws
their picture."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from robot_runtime.cli.options import OutputFile
from scripts.harness import RESULTS, run_script
from scripts.tables.shared import NOTHING, commands, result, share, table

EXPERT = "delayed-expert"
WORDS = {"synchronous": "`synchronous`, whole chunks", "synchronous-4": "`synchronous`, 4 rows"}


def methods(name: str, *, figure: Callable[[Mapping[str, Any]], str]) -> str:
    """A row a method, a column a delay."""
    cells = result("third-party")[name]["cells"]
    delays = sorted({delay for of_method in cells.values() for delay in of_method}, key=int)
    lines = []
    for method in sorted(cells, key=order):
        shown = [figure(cells[method][d]) if d in cells[method] else NOTHING for d in delays]
        lines.append([WORDS.get(method, f"`{method}`"), *shown])
    return table(["method", *(f"{delay} ms" for delay in delays)], lines)


def order(method: str) -> tuple[int, str]:
    """The limit first, then what waits, then the others by what they need of a policy."""
    names = (
        EXPERT, "synchronous", "synchronous-4", "naive", "time-aligned", "pipelined-time-aligned",
        "cross-fade", "temporal-ensembling", "bid-4", "rtc", "committed-prefix", "pipelined-prefix", "faster",
        "pipelined-faster",
    )  # fmt: skip
    return (names.index(method) if method in names else len(names), method)


def success(cell: Mapping[str, Any]) -> str:
    return share(cell["successes"] / cell["episodes"], cell["success_interval_95"])


def seconds(cell: Mapping[str, Any]) -> str:
    """Of simulated time, median of those that succeeded."""
    return NOTHING if cell["completion_s_median"] is None else f"{cell['completion_s_median']:.2f}"


def policies() -> str:
    """What was trained, on what."""
    lines = []
    for name, found in result("third-party").items():
        training = found["training"]
        lines.append(
            [
                f"`{name}`",
                f"{found['control_hz']:g} Hz",
                f"{found['episode_s']:g} s",
                f"{training['episodes']}, {training['samples']} steps",
                f"{found['horizon']}",
                f"{training['steps']} of {training['batch_size']}",
                f"{training['width']}",
            ]
        )
    head = ["simulator", "steps", "limit", "demonstrations", "rows", "gradient steps", "width"]
    return table(head, lines)


def made_by() -> str:
    """The commands that ran the episodes."""
    return commands(e["made_by"]["command"] for e in result("third-party").values())


def tables() -> dict[str, Callable[[], str]]:
    """One of success and one of time for each simulator of the file."""
    out: dict[str, Callable[[], str]] = {"third-party-policies": policies, "third-party-commands": made_by}
    for name in result("third-party"):
        out[f"third-party-{name}"] = partial(methods, name, figure=success)
        out[f"third-party-{name}-s"] = partial(methods, name, figure=seconds)
    return out


TABLES: Mapping[str, Callable[[], str]] = tables()
SHOWN = {
    EXPERT: "#000000",
    "synchronous": "#999999",
    "synchronous-4": "#555555",
    "naive": "#e69f00",
    "time-aligned": "#d55e00",
    "rtc": "#009e73",
    "committed-prefix": "#cc79a7",
    "pipelined-prefix": "#56b4e9",
    "pipelined-faster": "#0072b2",
}


def draw(path: Path) -> None:
    """Success over delay, one panel a simulator; bars are 95 % intervals."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = result("third-party")
    fig, axes = plt.subplots(1, len(found), figsize=(4.2 * len(found), 4.1), sharey=True, squeeze=False)
    for ax, (name, of_env) in zip(axes.flat, found.items(), strict=True):
        for i, (method, colour) in enumerate(SHOWN.items()):
            cells = of_env["cells"].get(method, {})
            _line(ax, method, colour, cells, 6.0 * (i - len(SHOWN) / 2))
        ax.set(title=name, xlabel="delay [ms]", ylim=(0, 103))
    axes.flat[0].set_ylabel("success [%]")
    lines = dict(zip(*reversed(axes.flat[0].get_legend_handles_labels()), strict=True))
    fig.legend(lines.values(), lines, fontsize=7, loc="lower center", ncols=5)
    fig.tight_layout(rect=(0.0, 0.1, 1.0, 1.0))
    fig.savefig(path, dpi=110)


def _line(ax: Any, method: str, colour: str, cells: Mapping[str, Any], shift_ms: float) -> None:
    delays: Sequence[str] = sorted(cells, key=int)
    if not delays:
        return
    rates = [100.0 * cells[d]["successes"] / cells[d]["episodes"] for d in delays]
    ends = [[100.0 * x for x in cells[d]["success_interval_95"]] for d in delays]
    below = [max(0.0, rate - low) for rate, (low, _) in zip(rates, ends, strict=True)]
    above = [max(0.0, high - rate) for rate, (_, high) in zip(rates, ends, strict=True)]
    at = [int(d) + shift_ms for d in delays]
    ax.errorbar(
        at, rates, yerr=[below, above], label=method, color=colour, marker="o", markersize=4, linewidth=1.2,
        elinewidth=0.7,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Args:
    """Draw success over delay; the tables are written by docs_tables.py."""

    output: OutputFile = RESULTS / "third-party.png"


def main(args: Args) -> int:
    draw(args.output)
    return 0


if __name__ == "__main__":
    run_script(Args, main, description=__doc__)
