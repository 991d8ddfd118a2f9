"""Commands of a gripper from the widths that a hand-held one measured: `commanded_width`."""

import math

import numpy as np
from jaxtyping import Bool, Float

SQUEEZE_M = 0.025
"""Difference between the measured width of a held thing and the commanded one [m]."""
_STALL_SPEED = 0.02
_LETS_GO, _STOPS_S = 0.006, 0.5
"""Width change that is more than noise [m]; time over which stopped fingers do not exceed it [s]."""


def opened_width(width: Float[np.ndarray, " N"]) -> float:
    """Width above which fingers are open, relative to the widest: grippers differ [m]."""
    known = width[np.isfinite(width)]
    return 0.9 * float(known.max()) if len(known) else math.inf


def commanded_width(width: Float[np.ndarray, " N"], period_s: float) -> Float[np.ndarray, " N"]:
    """Commands with which fingers do what measured ones did: fingers that a thing stops squeeze it.

    measured    open ──╲             ╱── open
                        ╲___________╱          stopped while closing, far from closed: a thing is held
    command     open ──╲             ╱──
                        ╲____       ╱
                             ╲─────╱           less by `SQUEEZE_M`

    Measured widths are noisy: fingers release once the width is `_LETS_GO` more than what they held, and
    hold again once they have closed by as much. Unknown rows stay unknown.
    """
    out = np.array(width, dtype=float)
    is_open, stops = opened_width(width), _stops(width, period_s)
    opened = False
    widest = 0.0  # since the last release
    held: float | None = None
    narrowest = 0.0  # during a hold
    for i, w in enumerate(width):
        if not np.isfinite(w):
            continue
        opened, widest = opened or w > is_open, max(widest, float(w))
        has_closed = opened and w <= min(is_open, widest - _LETS_GO)
        if held is not None and (w > min(is_open, held + _LETS_GO) or held > narrowest + _LETS_GO):
            held, widest = None, float(w)
        elif held is None and has_closed and stops[i]:
            held = narrowest = float(w)
        if held is not None:
            held += 0.2 * (float(w) - held)
            narrowest = min(narrowest, held)
            out[i] = max(0.0, w - SQUEEZE_M)
    return out


def _stops(width: Float[np.ndarray, " N"], period_s: float) -> Bool[np.ndarray, " N"]:
    """Whether fingers are stationary in a row, rather than closing slowly."""
    n = len(width)
    if n < 2:
        return np.zeros(n, dtype=bool)
    rows = max(1, round(_STOPS_S / period_s))
    padded = np.append(width, np.full(rows, np.inf))
    ahead = np.fmin.reduce([padded[i : i + n] for i in range(rows + 1)])
    return np.asarray((np.abs(np.gradient(width, period_s)) < _STALL_SPEED) & (width - ahead < _LETS_GO))
