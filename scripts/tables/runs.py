"""Tables of what is around a run: the cost of its log and page, its export, and a person who takes over."""

from collections.abc import Callable, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np

from robot_runtime.evaluation.statistics import wilson_interval
from scripts.tables.shared import of, share, table

_CASES = {"bare": "no camera, no log", "cameras": "two cameras", "log": "and a log", "page": "and a page"}


def log_cost(found: Mapping[str, Any]) -> str:
    """The control loop with and without: medians of rounds, and ratios within a round."""
    lines = []
    for rate, (case, what) in product(
        dict.fromkeys(row["rate_hz"] for row in found["rounds"]), _CASES.items()
    ):
        rounds = [row for row in found["rounds"] if row["rate_hz"] == rate]
        mine = [each for each in rounds if each["case"] == case]
        if not mine:
            continue
        ratios = [each["took_p99_ms"] / base for each, base in zip(mine, _bases(rounds), strict=True)]
        over = f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append(
            [
                f"{rate:g} Hz, {what}",
                f"{np.median([each['took_p50_ms'] for each in mine]):.2f}",
                f"{np.median([each['took_p99_ms'] for each in mine]):.2f}",
                over if case in ("log", "page") else "–",
                f"{sum(each['lost'] for each in mine)} of {sum(each['ticks'] for each in mine)}",
            ]
        )
    return table(["control loop", "tick p50 [ms]", "p99 [ms]", "p99 over two cameras", "lost"], lines)


def _bases(rounds: list[Mapping[str, float]]) -> list[float]:
    """Of each round, the p99 with cameras alone."""
    return [each["took_p99_ms"] for each in rounds if each["case"] == "cameras"]


def export(found: Mapping[str, Any]) -> str:
    """How long it takes, and what there is of each."""
    first, times = found["exports"][0], [each["took_s"] for each in found["exports"]]
    pictures = " and ".join(map(str, first["pictures"].values()))
    line = [f"{found['seconds']:g} s", str(first["frames"]), pictures, f"{np.median(times):.1f}"]
    return table(["run", "rows", "pictures", "exported in [s], median"], [line])


def takeover(found: Mapping[str, Any]) -> str:
    """Success without and with the scripted person."""
    rows = found["episodes"]
    lines = []
    for name, what in (("success_alone", "the bad policy alone"), ("success_helped", "with the person")):
        won = sum(row[name] for row in rows)
        lines.append([what, share(won / len(rows), wilson_interval(won, len(rows))), *_of_person(name, rows)])
    head = [
        f"`fetch`, {len(rows)} episodes",
        "success [%]",
        "takeovers an episode",
        "the person moved the robot [%]",
    ]
    return table(head, lines)


def _of_person(name: str, rows: list[Mapping[str, float]]) -> list[str]:
    if name == "success_alone":
        return ["–", "–"]
    means = [float(np.mean([row[each] for row in rows])) for each in ("takeovers", "human_share")]
    return [f"{means[0]:.1f}", f"{100 * means[1]:.0f}"]


TABLES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "log-cost": of("bench-log", log_cost),
        "export": of("bench-export", export),
        "takeover": of("takeover", takeover),
    }
)
