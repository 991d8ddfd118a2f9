"""How results of a calibration are shown, and kept."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from rich.table import Table

from robot_runtime.cli.console import plain_console
from robot_runtime.errors import InvalidValueError


def pose_words(X: pin.SE3) -> str:
    """Place, and turn about x, y, z of the frame it is said in."""
    p, turn = 1e3 * X.translation, np.rad2deg(pin.rpy.matrixToRpy(X.rotation))
    place = ", ".join(f"{value:.1f}" for value in p)
    return f"({place}) mm, rolled, pitched, yawed by ({', '.join(f'{value:.2f}' for value in turn)}) degrees"


def sigma_words(covariance: np.ndarray) -> str:
    """Standard deviations of place and turn."""
    variance = np.diag(covariance)
    sigma_m, sigma_deg = np.sqrt(variance[:3].sum()), np.rad2deg(np.sqrt(variance[3:6].sum()))
    if not (sigma_m < 1.0 and sigma_deg < 90.0):
        return "an unknown amount: the views do not determine it"
    return f"{1e3 * sigma_m:.2f} mm, {sigma_deg:.3f} degrees"


_UNITS = {
    "_rad_s": (180.0 / math.pi, "degrees/s"),
    "_rad": (180.0 / math.pi, "degrees"),
    "_deg": (1.0, "degrees"),
    "_share": (100.0, "%"),
    "_px": (1.0, "px"),
    "_mm": (1.0, "mm"),
    "_m": (1e3, "mm"),
    "_s": (1e3, "ms"),
}
"""Ending of a figure's name in files -> what makes it what people read."""


_OTHERS = {
    "board_scale": ("board scale", 100.0, ".2f", "%"),
    "same_time_apart_m": ("same time apart, place", 1e3, ".3g", "mm"),
    "same_time_apart_rad": ("same time apart, turn", 180.0 / math.pi, ".3g", "degrees"),
    "board_scale_sigma": ("board scale, one sigma", 100.0, ".3g", "%"),
}
"""Figures whose names without an ending are another's, or have none."""


def figure_words(name: str, value: float) -> tuple[str, str]:
    """A figure of a file, `gravity_rad`, as people read it: ("gravity", "0.12 degrees")."""
    if name in _OTHERS:
        words, scale, digits, unit = _OTHERS[name]
        return words, f"{scale * value:{digits}} {unit}"
    for ending, (scale, unit) in _UNITS.items():
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " "), f"{scale * value:.3g} {unit}"
    return name.replace("_", " "), f"{value:.4g}"


def rows_of(found: Any, rows: Mapping[str, str]) -> list[tuple[str, str]]:
    """What is shown of a result: these rows, and its residuals as people read them."""
    return [*rows.items(), *(figure_words(name, value) for name, value in found.residuals.items())]


def keep(output: Path, found: Any, rows: Mapping[str, str], *, to_do: Sequence[str] = ()) -> int:
    """Print and write it; returns the exit code: 1 if it cannot be used.

    A result that cannot be used leaves a usable one of an earlier run as it is, and is written beside it; so
    is any whose file holds something else.
    """
    from calibration.store import save

    table = Table("what", "value", title=str(output), show_header=False)
    for name, value in rows_of(found, rows):
        table.add_row(name, value)
    plain_console().print(table)
    print(found.verdict)
    for line in to_do:
        print(f"next: {line}")
    place, why = _place(output, found)
    digest = save(place, found)
    if why:
        print(f"note: {output} stays as it was: {why}")
    print(f"{place}: {found.KIND}, sha256 {digest[:12]}")
    return 0 if found.verdict.ok and not why else 1


def _place(output: Path, found: Any) -> tuple[Path, str]:
    """Where a result goes, and why not where it should."""
    from calibration.store import kind_of, load_stored

    if not output.is_file() or not output.stat().st_size:
        return output, ""
    try:
        kind = kind_of(output)
    except InvalidValueError:
        return output.with_name(f"{output.name}.{found.KIND}.json"), "it is no file of a calibration"
    if kind != found.KIND:
        return output.with_name(f"{output.stem}.{found.KIND}.json"), f"it holds {kind}"
    if found.verdict.ok:
        return output, ""
    try:
        load_stored(output, type(found))
    except InvalidValueError:
        return output, ""  # of another version, changed by hand, or refused itself
    return output.with_name(f"{output.stem}.refused{output.suffix}"), "it can be used, this one cannot"
