"""Tables of how exact calibration is: cameras, anchors, cameras on arms, joined clocks."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from scripts.tables.shared import of, table

Found = Mapping[str, Any]
"""Figures of a benchmark, as its result file holds them."""
LENSES, LOOKS = ("pinhole", "fisheye"), ("clean", "noisy")


def figures(data: Found) -> str:
    """Intrinsics: the worst; anchors: the 95th percentile."""
    lines = []
    for lens in LENSES:
        lines += [
            [f"{lens}: {what}", *_of(data["intrinsics"], LOOKS, name, scale, 3, lens=lens)]
            for what, name, scale in (
                ("corners, rms [px]", "corners_rms_px", 1.0),
                ("intrinsics, rms [px]", "rms_px", 1.0),
                ("focal length off by [%]", "focal_error", 100.0),
                ("it repeats within [%]", "focal_repeat_share", 100.0),
            )
        ]
    for kind, what in (("anchors", "anchor"), ("drawn_anchors", "anchor from drawn pictures")):
        lines += [
            [f"{what}: place, p95 [mm]", *_of(data[kind], LOOKS, "error_m_p95", 1e3, 2)],
            [f"{what}: turn, p95 [degrees]", *_of(data[kind], LOOKS, "error_rad_p95", 180 / np.pi, 3)],
            [f"{what}: held out, p95 [px]", *_of(data[kind], LOOKS, "held_out_px_p95", 1.0, 2)],
        ]
    lines += [
        [f"anchor, odometry walks: {what}", "–", *_of(data["anchors"], ["walking"], name, scale, digits)]
        for what, name, scale, digits in (
            ("place, p95 [mm]", "error_m_p95", 1e3, 2),
            ("turn, p95 [degrees]", "error_rad_p95", 180 / np.pi, 3),
            ("NEES over its four numbers", "nees", 1.0, 2),
        )
    ]
    lines.append(["anchor: NEES over its four numbers", *_of(data["anchors"], LOOKS, "nees", 1.0, 2)])
    return table(["what", *LOOKS], lines)


def faults(found: Found) -> str:
    """Every fault, and what it was caught by."""
    rows = found["faults"]
    return table(
        ["fault", "caught as"],
        [[r["fault"], ", ".join(f"`{n}`" for n in dict.fromkeys(r["caught"])) or "–"] for r in rows],
    )


def _of(
    rows: list[Mapping[str, Any]], looks: Sequence[str], name: str, scale: float, digits: int, **which: str
) -> list[str]:
    """Return a figure of each look; which: other values of the row."""
    found = []
    for look in looks:
        [row] = [row for row in rows if {**row, "look": look, **which} == row]
        found.append(f"{scale * row[name]:.{digits}f}")
    return found


_WORDS = {"hand-eye": "camera on the arm", "robot-world": "camera beside it"}


def hand_eye(found: Found) -> str:
    """Against the truth, by setup, noise and number of views."""
    lines = [
        [
            _WORDS[row["setup"]],
            row["case"],
            str(row["views"]),
            f"{row['median_mm']:.2f} / {row['p95_mm']:.2f}",
            f"{row['median_deg']:.3f} / {row['p95_deg']:.3f}",
            f"{row['nees']:.2f}",
            f"{row['usable']} of {row['seeds']}",
        ]
        for row in found["rows"]
    ]
    head = [
        "setup",
        "pictures",
        "views",
        "off [mm], median / p95",
        "off [°], median / p95",
        "NEES / 6",
        "usable",
    ]
    return table(head, lines)


def clocks(found: Found) -> str:
    """How far off one device's clock is by the other's, anywhere in a session."""
    lines = [
        [
            name,
            str(each["sessions"]),
            *(f"{each[key]:.2f}" for key in ("median_ms", "p95_ms", "max_ms")),
            f"{each['sigma_ms']:.2f}",
            f"{each['nees']:.2f}",
            f"{each['least_correlation']:.3f}",
        ]
        for name, each in found["cases"].items()
    ]
    head = ["simulated sessions", "number", "median [ms]", "p95 [ms]", "worst [ms]"]
    head += ["sigma [ms]", "NEES", "least correlation"]
    return table(head, lines)


def poses(found: Found) -> str:
    """Errors of poses from videos alone, and which clips have none."""
    lines = []
    for name, each in found["cases"].items():
        reasons = [f"{each['reasons'].count(why)} {why}" for why in dict.fromkeys(each["reasons"])]
        figures = [each.get(key) for key in ("median_mm", "p95_mm", "median_deg", "p95_deg")]
        lines.append(
            [
                name,
                str(each["clips"]),
                f"{100 * each['registered'] / each['clips']:.0f}",
                *(
                    "–" if figure is None else f"{figure:.{1 if i < 2 else 2}f}"
                    for i, figure in enumerate(figures)
                ),
                ", ".join(reasons) or "–",
                f"{each['cpu_s']:.0f}",
            ]
        )
    head = ["simulated videos", "clips", "registered [%]", "median [mm]", "p95 [mm]", "median [degrees]"]
    return table([*head, "p95 [degrees]", "why not", "CPU [s]"], lines)


TABLES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "calibration": of("calibration", figures),
        "calibration-faults": of("calibration", faults),
        "hand_eye": of("hand_eye", hand_eye),
        "capture-clocks": of("capture-clocks", clocks),
        "capture-poses": of("capture-poses", poses),
    }
)
