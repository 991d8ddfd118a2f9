r"""Turns the path of a person into one that a robot's base can follow: `smooth_path`.

    person    ~~~/\/\/\~~~~~~____~~~/\/\/\~~~~      with steps and sway, at 1 and 2 Hz
    base      ----------------====---------------    the same path without them; ==== exactly stationary

Least squares with a penalty on jerk (Whittaker's smoother of third order), which causes no delay. While the
person does not walk, all samples share one unknown, so the base does not creep. Alternating projections
(ADMM) keep the robot's limits: one factorisation, then a short loop.
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
    """Limits of a base's motion along the floor and about the vertical."""

    speed: float = 0.8
    """[m/s]"""
    acceleration: float = 1.0
    """[m/s²]"""
    turn: float = 1.6
    """[rad/s]"""
    turn_acceleration: float = 2.5
    """[rad/s²]"""

    def __post_init__(self) -> None:
        """Check the limits; InvalidValueError: one is not above 0."""
        for name in ("speed", "acceleration", "turn", "turn_acceleration"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) > 0.0):
                raise InvalidValueError(f"expected {name} of a pace above 0, got {getattr(self, name)}")

    def times(self, factor: float) -> "Pace":
        """The limits of a motion `factor` times as fast."""
        return Pace(
            speed=factor * self.speed,
            acceleration=factor**2 * self.acceleration,
            turn=factor * self.turn,
            turn_acceleration=factor**2 * self.turn_acceleration,
        )


@dataclass(frozen=True, kw_only=True)
class Smoothing:
    """Parameters that turn a person's path into a base's."""

    cut_off_hz: float = 0.6
    """Highest frequency at which the base moves to and fro."""
    stands_below: float = 0.05
    """Speed below which a person counts as standing, if it lasts [m/s]; turning, 3 times that in rad/s."""
    stands_s: float = 0.3
    pace: Pace | None = Pace()
    """Limits of the base; None: those of the person's motion."""

    def __post_init__(self) -> None:
        """Check the parameters; InvalidValueError: one is out of range."""
        if not 0.05 <= self.cut_off_hz <= 5.0:
            raise InvalidValueError(f"expected cut_off_hz from 0.05 to 5, got {self.cut_off_hz}")
        if self.stands_below < 0.0 or self.stands_s < 0.0:
            raise InvalidValueError("expected stands_below and stands_s of at least 0")

    def of_person(self, slower: float) -> "Smoothing":
        """The parameters with the limits of the person, if the base takes `slower` times as long."""
        return self if self.pace is None else replace(self, pace=self.pace.times(slower))


def smooth_path(
    x_WG: Float[np.ndarray, "N 3"], period_s: float, smoothing: Smoothing
) -> tuple[Float[np.ndarray, "N 3"], np.ndarray]:
    """The base's path for a person's, both (x, y, yaw) without yaw jumps, and where the base is stationary.

    period_s: between two rows [s]. The path keeps the limits within 0.1 % and is the nearest that does.
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
    """Mask of samples at which a person neither walks nor turns, apart from sway, for long enough."""
    sigma = max(0.5 / (2.0 * np.pi * smoothing.cut_off_hz) / period_s, 1e-3)
    calm = gaussian_filter1d(x_WG, sigma, axis=0, mode="nearest")
    v = np.gradient(calm, period_s, axis=0)
    is_slow = np.hypot(v[:, 0], v[:, 1]) < smoothing.stands_below
    is_slow &= np.abs(v[:, 2]) < 3.0 * smoothing.stands_below
    least = max(1, round(smoothing.stands_s / period_s))
    rolls = round(0.5 / (2.0 * np.pi * smoothing.cut_off_hz) / period_s)  # decay of smoothing
    reach = least + 2 * rolls
    padded = np.pad(is_slow, reach, mode="edge")  # standing at the ends counts as lasting
    lasts = binary_opening(padded, np.ones(least + 2 * rolls, bool))
    still: np.ndarray = binary_erosion(lasts, np.ones(2 * rolls + 1, bool))[reach:-reach]
    return still


def _merged(stands: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """Map unknowns to samples: S (N, M) with one column per stationary span; weights (N,)."""
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
    """Solve the least squares; columns share their limits (a speed is that of all columns together)."""
    n = len(y)
    D1, D2, D3 = (_differences(n, order, period_s) @ merge for order in (1, 2, 3))
    rough = merge.T @ sp.diags_array(weights) @ merge + penalty * (D3.T @ D3)
    target = merge.T @ (weights[:, None] * y)
    x = np.asarray(splu(rough.tocsc()).solve(target))
    if limits is None or _is_within(D1 @ x, D2 @ x, limits):
        return np.asarray(merge @ x)
    # rho near the curvature of the objective where the limits are active: near one speed, near one turn
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
