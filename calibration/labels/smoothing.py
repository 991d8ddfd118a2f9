r"""A path that a robot's base can go, out of the path that a person went: `smooth_path`.

    person    ~~~/\/\/\~~~~~~____~~~/\/\/\~~~~      steps and sway on it, at 1 and 2 Hz
    base      ----------------====---------------    the same way without them; ==== stands, exactly

Least squares with a penalty on jerk (Whittaker's smoother of third order), which shifts nothing in time.
Where the person stands, all samples are one unknown: the base does not creep. The robot's limits are kept by
alternating projections (ADMM): one factorisation, then a short loop.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.ndimage import binary_erosion, binary_opening, gaussian_filter1d, label
from scipy.sparse.linalg import splu

from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

_ROUNDS = 400
_PRECISE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast a base may go: along the floor and about the vertical."""

    speed: float = 0.8
    """[m/s]"""
    acceleration: float = 1.0
    """[m/s²]"""
    turn: float = 1.6
    """[rad/s]"""
    turn_acceleration: float = 2.5
    """[rad/s²]"""

    def __post_init__(self) -> None:
        """InvalidValueError: a limit that is none."""
        for name in ("speed", "acceleration", "turn", "turn_acceleration"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) > 0.0):
                raise InvalidValueError(f"{name} of a pace is above 0, got {getattr(self, name)}")

    def times(self, factor: float) -> "Pace":
        """So many times as fast."""
        return Pace(
            speed=factor * self.speed,
            acceleration=factor**2 * self.acceleration,
            turn=factor * self.turn,
            turn_acceleration=factor**2 * self.turn_acceleration,
        )


@dataclass(frozen=True, kw_only=True)
class Smoothing:
    """How a person's path becomes a base's."""

    cut_off_hz: float = 0.6
    """Faster than that the base does not move to and fro."""
    stands_below: float = 0.05
    """A person who is slower stands, if it lasts [m/s]; turning, 3 times that in rad/s."""
    stands_s: float = 0.3
    pace: Pace | None = Pace()
    """What the base may do; None: whatever the person did."""

    def __post_init__(self) -> None:
        """InvalidValueError: not a frequency, a speed or a time."""
        if not 0.05 <= self.cut_off_hz <= 5.0:
            raise InvalidValueError(f"cut_off_hz is from 0.05 to 5, got {self.cut_off_hz}")
        if self.stands_below < 0.0 or self.stands_s < 0.0:
            raise InvalidValueError("stands_below and stands_s are at least 0")

    def of_person(self, slower: float) -> "Smoothing":
        """The same where the base takes so many times as long as the person: what she may do."""
        return self if self.pace is None else replace(self, pace=self.pace.times(slower))


def smooth_path(
    x_WG: Float[np.ndarray, "N 3"], period_s: float, smoothing: Smoothing
) -> tuple[Float[np.ndarray, "N 3"], np.ndarray]:
    """The base's path of a person's, both (x, y, yaw) with yaw free of jumps; and where the base stands.

    period_s: between two rows [s]. The path keeps the pace to a per mille, and stays as near as that allows.
    """
    if len(x_WG) < 4:
        return x_WG.copy(), np.ones(len(x_WG), bool)
    stands = standing(x_WG, period_s, smoothing)
    merge, weights = _merged(stands)
    penalty = (1.0 / (2.0 * np.pi * smoothing.cut_off_hz)) ** 6
    pace = smoothing.pace
    xy = _solved(
        x_WG[:, :2],
        merge,
        weights,
        period_s,
        penalty,
        None if pace is None else (pace.speed, pace.acceleration),
    )
    yaw = _solved(
        x_WG[:, 2:],
        merge,
        weights,
        period_s,
        penalty,
        None if pace is None else (pace.turn, pace.turn_acceleration),
    )
    return np.hstack([xy, yaw]), stands


def standing(x_WG: Float[np.ndarray, "N 3"], period_s: float, smoothing: Smoothing) -> np.ndarray:
    """Where a person neither walks nor turns, sway left aside, for as long as it takes to be meant."""
    sigma = max(0.5 / (2.0 * np.pi * smoothing.cut_off_hz) / period_s, 1e-3)
    calm = gaussian_filter1d(x_WG, sigma, axis=0, mode="nearest")
    v = np.gradient(calm, period_s, axis=0)
    is_slow = np.hypot(v[:, 0], v[:, 1]) < smoothing.stands_below
    is_slow &= np.abs(v[:, 2]) < 3.0 * smoothing.stands_below
    least = max(1, round(smoothing.stands_s / period_s))
    rolls = round(0.5 / (2.0 * np.pi * smoothing.cut_off_hz) / period_s)  # out, and to a stop
    reach = least + 2 * rolls
    padded = np.pad(is_slow, reach, mode="edge")  # what begins or ends standing may go on so
    lasts = binary_opening(padded, np.ones(least + 2 * rolls, bool))
    still: np.ndarray = binary_erosion(lasts, np.ones(2 * rolls + 1, bool))[reach:-reach]
    return still


def _merged(stands: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """Samples as unknowns: S (N, M) with one column for each span that stands; weights (N,)."""
    spans, _ = label(stands)
    starts = np.concatenate([[True], (spans[1:] != spans[:-1]) | ~stands[1:]])
    column = np.cumsum(starts) - 1
    n = len(stands)
    merge = sp.csr_array((np.ones(n), (np.arange(n), column)), shape=(n, int(column[-1]) + 1))
    return merge, np.ones(n)


def _differences(n: int, order: int, period_s: float) -> sp.csr_array:
    rows = np.diff(np.eye(order + 1), n=order, axis=0)[0] / period_s**order
    return sp.csr_array(sp.diags_array(rows, offsets=range(order + 1), shape=(n - order, n)))


def _solved(
    y: np.ndarray,
    merge: sp.csr_array,
    weights: np.ndarray,
    period_s: float,
    penalty: float,
    limits: tuple[float, float] | None,
) -> np.ndarray:
    """Least squares; columns share their limits (a speed is that of all of them together)."""
    n = len(y)
    D1, D2, D3 = (_differences(n, order, period_s) @ merge for order in (1, 2, 3))
    rough = merge.T @ sp.diags_array(weights) @ merge + penalty * (D3.T @ D3)
    target = merge.T @ (weights[:, None] * y)
    x = np.asarray(splu(rough.tocsc()).solve(target))
    if limits is None or _is_within(D1 @ x, D2 @ x, limits):
        return np.asarray(merge @ x)
    # rho as large as the curvature of what is minimised where the limits bite: near one speed, near one turn
    rhos = (1.0 / (2.0 * np.pi * 0.3) ** 2, 1.0 / (2.0 * np.pi * 0.3) ** 4)
    solve = splu((rough + rhos[0] * (D1.T @ D1) + rhos[1] * (D2.T @ D2)).tocsc()).solve
    z = [_shortened(D @ x, limit) for D, limit in zip((D1, D2), limits, strict=True)]
    u = [np.zeros_like(each) for each in z]
    for _ in range(_ROUNDS):
        right = target + sum(
            rho * (D.T @ (each - dual)) for rho, D, each, dual in zip(rhos, (D1, D2), z, u, strict=True)
        )
        x = np.asarray(solve(right))
        if _is_within(D1 @ x, D2 @ x, limits):
            break
        for i, (D, limit) in enumerate(zip((D1, D2), limits, strict=True)):
            z[i] = _shortened(D @ x + u[i], limit)
            u[i] += D @ x - z[i]
    return np.asarray(merge @ x)


def _shortened(v: np.ndarray, limit: float) -> np.ndarray:
    length = np.linalg.norm(v, axis=1, keepdims=True)
    out: np.ndarray = v * np.minimum(1.0, limit / np.maximum(length, 1e-12))
    return out


def _is_within(v: np.ndarray, a: np.ndarray, limits: tuple[float, float]) -> bool:
    pairs = zip((v, a), limits, strict=True)
    return all(np.linalg.norm(each, axis=1).max() <= limit * (1.0 + _PRECISE) for each, limit in pairs)
