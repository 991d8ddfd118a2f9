"""Tables of how exact calibration is."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from tables import result, table

LENSES, LOOKS = ("pinhole", "fisheye"), ("clean", "noisy")


def figures() -> str:
    """Intrinsics: the worst; anchors: the 95th percentile."""
    data = result("calibration")
    lines = []
    for lens in LENSES:
        of = [[r for r in data["intrinsics"] if (r["lens"], r["look"]) == (lens, look)] for look in LOOKS]
        lines += [
            [f"{lens}: corners, rms [px]", *(_most(rows, "corners_rms_px", 1, 3) for rows in of)],
            [f"{lens}: intrinsics, rms [px]", *(_most(rows, "rms_px", 1, 3) for rows in of)],
            [f"{lens}: focal length off by [%]", *(_most(rows, "focal_error", 100, 3) for rows in of)],
            [f"{lens}: it repeats within [%]", *(_most(rows, "focal_repeat_share", 100, 3) for rows in of)],
        ]
    for name, what in (("anchors", "anchor"), ("drawn_anchors", "anchor from drawn pictures")):
        of = [[r for r in data[name] if r["look"] == look] for look in LOOKS]
        lines += [
            [f"{what}: place, p95 [mm]", *(_p95(rows, "error_m", 1e3, 2) for rows in of)],
            [f"{what}: turn, p95 [degrees]", *(_p95(rows, "error_rad", 180 / np.pi, 3) for rows in of)],
            [f"{what}: held out, p95 [px]", *(_p95(rows, "held_out_px", 1, 2) for rows in of)],
        ]
    walking = [r for r in data["anchors"] if r["look"] == "walking"]
    lines += [
        ["anchor, odometry walks: place, p95 [mm]", "–", _p95(walking, "error_m", 1e3, 2)],
        ["anchor, odometry walks: turn, p95 [degrees]", "–", _p95(walking, "error_rad", 180 / np.pi, 3)],
        ["anchor, odometry walks: NEES over its four numbers", "–", _nees(walking)],
    ]
    of = [[r for r in data["anchors"] if r["look"] == look] for look in LOOKS]
    lines.append(["anchor: NEES over its four numbers", *map(_nees, of)])
    return table(["what", *LOOKS], lines)


def faults() -> str:
    """Every fault, and what it was caught by."""
    rows = result("calibration")["faults"]
    return table(
        ["fault", "caught as"],
        [[r["fault"], ", ".join(f"`{n}`" for n in dict.fromkeys(r["caught"])) or "–"] for r in rows],
    )


def _nees(rows: list[Mapping[str, float]]) -> str:
    return f"{np.mean([r['nees'] for r in rows]):.2f}"


def _most(rows: list[Mapping[str, float]], name: str, scale: float, digits: int) -> str:
    return f"{scale * max(r[name] for r in rows):.{digits}f}"


def _p95(rows: list[Mapping[str, float]], name: str, scale: float, digits: int) -> str:
    return f"{scale * np.quantile([r[name] for r in rows], 0.95):.{digits}f}"


TABLES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {"calibration": figures, "calibration-faults": faults}
)
