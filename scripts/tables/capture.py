"""Tables of `docs/results/capture.md`: how far captures are from the truth, and what finds their faults."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from scripts.lab.captures import NETWORKS
from scripts.lab.household import SPLICES
from scripts.lab.scores import Row
from scripts.tables.shared import NOTHING, of, pooled, result, table

Found = Mapping[str, Any]
_ROWS = (
    ("clock offset over the session, p95 [ms]", "clock_p95_ms", "1", "3"),
    ("anchor at the board, p95 [mm]", "anchor_p95_mm", "1", "3"),
    ("anchor, p95 [deg]", "anchor_p95_deg", "0.1", "0.3"),
    ("held-out cross-device reprojection, p95 [px]", "held_out_p95_px", "0.5", "1"),
    ("hand in chest within 2 m of way, p95 [mm]", "near_p95_mm", "2", "10"),
    ("the same [deg]", "near_p95_deg", "0.2", "0.7"),
    ("hand in chest at 8 to 12 m, re-anchored and with tags, p95 [mm]", "far_p95_mm", "5", "15"),
    ("the same [deg]", "far_p95_deg", "0.3", "1.0"),
    ("base, rms [mm]", "base_rms_mm", "10", "30"),
    ("base, rms [deg]", "base_rms_deg", "0.5", "1.5"),
    ("recomposition, worst [m]", "recomposition_m", "1e-6", "1e-6"),
    ("NEES over degrees of freedom", "nees", "0.5 to 2", "0.5 to 2"),
)


def figures(of_noise: Found) -> str:
    """Every stage against the hidden truth."""
    found = of_noise["figures"]
    lines = [
        [what, f"{found['clean'][name]:.2g}", clean, f"{found['noisy'][name]:.2g}", noisy]
        for what, name, clean, noisy in _ROWS
    ]
    clean, noisy = (
        f"{values['sessions_refused']:.0f} of {values['sessions']:.0f}" for values in found.values()
    )
    lines.append(["sessions refused", clean, NOTHING, noisy, NOTHING])
    return table(["what", "clean", "wanted", "noisy", "wanted"], lines)


def faults(found: Found) -> str:
    """Which gate found which fault."""
    rows = found["faults"]
    lines = []
    for name, group in groupby(rows, key=lambda row: row["fault"]):
        each = list(group)
        by = sorted({word for row in each for word in row["by"]})
        warned = sorted({word for row in each for word in row["warned"]} - set(by))
        lines.append(
            [
                _in_words(name),
                f"{sum(row['is_caught'] for row in each)} of {len(each)}",
                _list(by),
                _list(warned),
            ]
        )
    return table(["fault", "refused", "by", "warned of"], lines)


def drawn(found: Found) -> str:
    """Anchors from drawn videos."""
    lines = [
        [
            row["noise"],
            f"{row['mm']:.1f}",
            f"{row['deg']:.2f}",
            f"{row['held_out_px']:.2f}",
            _list(row["reasons"]),
        ]
        for row in found["drawn"]
    ]
    return table(["noise", "at the board [mm]", "[deg]", "held out [px]", "said of it"], lines)


SOURCES = {
    "decoupled": "captured, hand and base apart",
    "chest": "captured, hand as the chest has it",
    "world": "captured, both in the world",
    "truth": "what the person meant",
    "expert": "scripted expert on the robot",
    "expert-hand": "scripted expert on the robot, without joints",
}


_POLICIES = {
    "capture-policies": "",
    "capture-policies-no-retries": ", no retries",
    "capture-policies-longer": ", no retries, 10500 steps",
    "capture-policies-diffusion": ", 12000 steps",
}
"""Result files of policies, and notes on those in them."""


def policies() -> str:
    """Success by what was learned from, over tasks and splices; then over all tasks, where all ran."""
    found = {}
    for name, more in _POLICIES.items():
        for row in map(Row.from_dict, result(name)["rows"]):
            network, source, splice = row.method.split()
            found[row.task, network, source + more, splice] = row
    ran = [splice for splice in SPLICES if any(key[3] == splice for key in found)]
    tasks = sorted({key[0] for key in found})
    lines = []
    for network, source in sorted({(key[1], key[2]) for key in found}, key=_place):
        have = [task for task in tasks if any(key[:3] == (task, network, source) for key in found)]
        for task in have:
            cells = [found.get((task, network, source, splice)) for splice in ran]
            lines.append([task, network, _source(source), *(_share_of([cell]) for cell in cells)])
        if have == tasks and len(tasks) > 1:
            by_splice = ([found.get((task, network, source, splice)) for task in tasks] for splice in ran)
            lines.append(["all", network, _source(source), *map(_share_of, by_splice)])
    return table(["task", "network", "learned from", *(f"`{splice}`" for splice in ran)], lines)


def _place(pair: tuple[str, str]) -> tuple[int, int, int]:
    """Of a network and a source in the table."""
    source, comma, more = pair[1].partition(", ")
    file = [*_POLICIES.values()].index(comma + more)
    return file, NETWORKS.index(pair[0]), [*SOURCES].index(source.partition("-x")[0])


def _source(name: str) -> str:
    """`decoupled-x1.5, 8000 steps` -> `captured, hand and base apart, 1.5 times slower, 8000 steps`."""
    name, comma, more = name.partition(", ")
    source, _, slower = name.partition("-x")
    return SOURCES[source] + (f", {slower} times slower" if slower else "") + comma + more


def _share_of(rows: Sequence[Row | None]) -> str:
    """Over all episodes; a dash if one of them was not run."""
    known = [row for row in rows if row is not None]
    return NOTHING if len(known) < len(rows) else pooled(known)


def _list(words: Iterable[str]) -> str:
    return ", ".join(words) or NOTHING


def _in_words(name: str) -> str:
    """`ClockShift ms=30.0 role=hand` -> `clock shift, ms 30, role hand`."""
    kind, _, values = name.partition(" ")
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).lower()
    pairs = (each.partition("=") for each in values.split())
    numbers = [f"{key} {value.removesuffix('.0')}" for key, _, value in pairs]
    return ", ".join([words, *numbers])


TABLES: Mapping[str, Callable[[], str]] = {
    "capture": of("capture", figures),
    "capture-faults": of("capture", faults),
    "capture-drawn": of("capture", drawn),
    "capture-policies": policies,
}
