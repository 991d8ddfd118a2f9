"""How results of a calibration are shown, and kept."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from rich.table import Table

from robot_runtime.cli.console import plain_console


def pose_words(X: pin.SE3) -> str:
    """Place, and turn about x, y, z of the frame it is said in."""
    p, turn = 1e3 * X.translation, np.rad2deg(pin.rpy.matrixToRpy(X.rotation))
    place = ", ".join(f"{value:.1f}" for value in p)
    return f"({place}) mm, rolled, pitched, yawed by ({', '.join(f'{value:.2f}' for value in turn)}) degrees"


def sigma_words(covariance: np.ndarray) -> str:
    """Standard deviations of place and turn."""
    variance = np.diag(covariance)
    return (
        f"{1e3 * np.sqrt(variance[:3].sum()):.2f} mm, {np.rad2deg(np.sqrt(variance[3:6].sum())):.3f} degrees"
    )


def keep(output: Path, found: Any, rows: Mapping[str, str], *, to_do: Sequence[str] = ()) -> int:
    """Print and write it; returns the exit code: 1 if it cannot be used."""
    from calibration.store import save

    table = Table("what", "value", title=str(output), show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    for name, value in found.residuals.items():
        table.add_row(name, f"{value:.3g}")
    plain_console().print(table)
    print(found.verdict)
    for line in to_do:
        print(f"next: {line}")
    digest = save(output, found)
    print(f"{output}: {found.KIND}, sha256 {digest[:12]}")
    return 0 if found.verdict.ok else 1
