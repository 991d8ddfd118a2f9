"""Printing and saving of calibration results."""

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
    """Return position, and rotation about x, y, z of the parent frame, as text."""
    p, turn = 1e3 * X.translation, np.rad2deg(pin.rpy.matrixToRpy(X.rotation))
    position = ", ".join(f"{value:.1f}" for value in p)
    return (
        f"({position}) mm, rolled, pitched, yawed by ({', '.join(f'{value:.2f}' for value in turn)}) degrees"
    )


def sigma_words(covariance: np.ndarray) -> str:
    """Return the standard deviations of position and rotation as text."""
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
"""Ending of a figure's name in files -> how it is printed."""


_OTHERS = {
    "board_scale": ("board scale", 100.0, ".2f", "%"),
    "same_time_apart_m": ("same time apart, position", 1e3, ".3g", "mm"),
    "same_time_apart_rad": ("same time apart, rotation", 180.0 / math.pi, ".3g", "degrees"),
    "board_scale_sigma": ("board scale, one sigma", 100.0, ".3g", "%"),
}
"""Figures whose names without an ending are ambiguous, or that have no ending."""


def figure_words(name: str, value: float) -> tuple[str, str]:
    """Return a figure of a file, such as `gravity_rad`, as it is printed: ("gravity", "0.12 degrees")."""
    if name in _OTHERS:
        words, scale, digits, unit = _OTHERS[name]
        return words, f"{scale * value:{digits}} {unit}"
    for ending, (scale, unit) in _UNITS.items():
        if name.endswith(ending):
            return name.removesuffix(ending).replace("_", " "), f"{scale * value:.3g} {unit}"
    return name.replace("_", " "), f"{value:.4g}"


def rows_of(found: Any, rows: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the printed rows of a result: these rows, and its residuals."""
    return [*rows.items(), *(figure_words(name, value) for name, value in found.residuals.items())]


def keep(output: Path, found: Any, rows: Mapping[str, str], *, to_do: Sequence[str] = ()) -> int:
    """Print and write a result; return the exit code, 1 if it is not usable.

    A result that is not usable does not overwrite a usable one of an earlier run but is written beside it; so
    is a result whose file holds something else.
    """
    table = Table("what", "value", title=str(output), show_header=False)
    for name, value in rows_of(found, rows):
        table.add_row(name, value)
    plain_console().print(table)
    print(found.verdict)
    for line in to_do:
        print(f"next: {line}")
    return write(output, found)


def write(output: Path, found: Any) -> int:
    """Write a result as `keep` does, without printing it; return the exit code."""
    from calibration.store import save

    target, why = _target(output, found)
    digest = save(target, found)
    if why:
        print(f"note: {output} stays unchanged: {why}")
    print(f"{target}: {found.KIND}, sha256 {digest[:12]}")
    return 0 if found.verdict.ok and not why else 1


def _target(output: Path, found: Any) -> tuple[Path, str]:
    """Return the file of a result, and why it is not `output`."""
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
    return output.with_name(
        f"{output.stem}.refused{output.suffix}"
    ), "it is usable, and the new result is not"
