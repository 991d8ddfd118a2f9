"""Draws which demonstrations a robot can follow: `draw_reach`.

One panel for each demonstration, the worst first, from above: the path of the robot's base in grey, where
it would have to drive sideways in another colour; and its end effector, each row in the colour of what stops
the robot there.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibration.labels.export_lerobot import Labelled
from calibration.labels.feasibility import Feasibility

MOST_PANELS = 12
REACHED, FAST, SIDEWAYS, OUT = "reached", "too fast", "sideways", "out of reach"
COLOURS = {REACHED: "#2a9d5c", FAST: "#e9a100", SIDEWAYS: "#7b5cd6", OUT: "#d1342f"}
_STEP_M = 0.4
"""Distance between two headings that are drawn."""


def rows_by_verdict(done: Feasibility) -> dict[str, np.ndarray]:
    """What stops the end effector at each row -> (N,) bool; each row has one of them."""
    out = ~done.reached
    fast = done.is_fast & ~out
    return {REACHED: ~(out | fast), FAST: fast, OUT: out}


def draw_reach(labelled: Sequence[Labelled], to: Path, *, format: str | None = None) -> None:
    """Draw the demonstrations on their robot, at most `MOST_PANELS` of them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = sorted((each for each in labelled if each.done is not None), key=_share)[:MOST_PANELS]
    columns = min(len(shown), 4)
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(3.6 * columns + 0.4, 3.7 * rows + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel, each in zip(panels, shown, strict=False):
        _panel(panel, each)
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    handles = [
        panels[0].plot([], [], "o", color=colour, label=f"{'base' if name == SIDEWAYS else 'hand'}: {name}")[
            0
        ]
        for name, colour in COLOURS.items()
    ]
    handles += panels[0].plot([], [], "-", color="0.45", label="base and its heading")
    across = {1: 2, 2: 3}.get(columns, len(handles))
    figure.legend(handles=handles, loc="outside lower center", ncols=across, frameon=False, fontsize=8)
    rest = f", the worst {len(shown)} of {len(labelled)}" if len(labelled) > len(shown) else ""
    slower = labelled[0].labels.slower
    pace = "at the person's pace" if slower == 1.0 else f"taking {slower:g} times as long as the person"
    figure.suptitle(f"{labelled[0].joined.capture.task}\nfrom above{rest}, {pace}"[:200], fontsize=9)
    figure.savefig(to, format=format, dpi=110)


def _share(each: Labelled) -> float:
    """Share of rows without a fault; refused demonstrations come first."""
    assert each.done is not None
    is_ok = each.labels.verdict.ok and each.done.verdict.ok
    return float(is_ok) + float((rows_by_verdict(each.done)[REACHED] & ~each.done.is_sideways).mean())


def _panel(panel: Any, each: Labelled) -> None:
    done = each.done
    assert done is not None
    start = done.x_WB[0]
    c, s = np.cos(start[2]), np.sin(start[2])

    def from_start(p_W: np.ndarray) -> np.ndarray:
        """Ahead and to the left of where the base begins; drawn with ahead upwards."""
        d = p_W[:, :2] - start[:2]
        return np.column_stack([c * d[:, 0] + s * d[:, 1], c * d[:, 1] - s * d[:, 0]])

    base, hand = from_start(done.x_WB), from_start(each.labels.X_WE.p)
    panel.plot(-base[:, 1], base[:, 0], "-", color="0.45", lw=1.5, zorder=1)
    way = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(base, axis=0), axis=1))])
    at = np.unique(np.searchsorted(way, np.arange(0.0, way[-1] + _STEP_M, _STEP_M)).clip(0, len(way) - 1))
    yaw = done.x_WB[at, 2] - start[2]
    panel.quiver(
        *(-base[at, 1], base[at, 0], -np.sin(yaw), np.cos(yaw)),
        color="0.45", angles="xy", scale_units="xy", scale=6.0, width=0.008, zorder=2,
    )  # fmt: skip
    panel.plot(
        -base[done.is_sideways, 1], base[done.is_sideways, 0], "o", ms=3, color=COLOURS[SIDEWAYS], zorder=2
    )
    for name, which in rows_by_verdict(done).items():
        panel.scatter(
            -hand[which, 1], hand[which, 0], s=5 if name == REACHED else 12, color=COLOURS[name], zorder=3
        )
    is_ok = each.labels.verdict.ok and done.verdict.ok
    reasons = [*each.labels.verdict.reasons, *done.verdict.reasons]
    why = ", ".join(dict.fromkeys(reason.name for reason in reasons if reason.is_fatal))
    panel.set_title(
        f"{each.joined.capture.path.name} {each.labels.demonstration}: {'usable' if is_ok else why}",
        fontsize=9,
        color="0.1" if is_ok else COLOURS[OUT],
    )
    panel.set_aspect("equal", adjustable="datalim")
    panel.tick_params(labelsize=7)
    panel.set_xlabel("to the right [m]", fontsize=8)
    panel.set_ylabel("ahead [m]", fontsize=8)
    panel.grid(color="0.92")
    panel.set_axisbelow(True)
