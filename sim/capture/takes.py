"""What a person does while the cameras run: `Take`, and several of them in one recording: `Recording`.

take 0      bridge     take 1           bridge     take 2          the devices run throughout, so
─────────┐  ┄┄┄┄┄┄┄  ┌──────────────┐   ┄┄┄┄┄┄   ┌─────────►       between takes the person walks on
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pinocchio as pin
from jaxtyping import Float
from scipy.ndimage import gaussian_filter1d

from calibration.trajectory import OK, Trajectory, slerp
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError
from sim.capture.performance import PERIOD_NS, Performance

DEMONSTRATION, ANCHOR, SYNC, LEAN, WALK = "demonstration", "anchor", "sync", "lean", "walk"
KINDS = (DEMONSTRATION, ANCHOR, SYNC, LEAN, WALK)
_SPEED, _TURN = 0.5, 1.0
"""Speeds of the person between takes [m/s, rad/s]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Take:
    """Ground truth of a demonstration or calibration clip; times start at 0, `PERIOD_NS` apart."""

    kind: str
    X_WC: Trajectory
    """Path of the chest camera's optical frame in the room."""
    X_WE: Trajectory
    """Path of the TCP."""
    x_WG: Float[np.ndarray, "N 3"]
    """Pose of the person on the floor, without gait: x, y [m], yaw [rad]."""
    width: Float[np.ndarray, " N"]
    """Gripper width [m]."""
    X_WB: pin.SE3 | None = None
    """Pose of the board, if any."""
    things: Mapping[str, Float[np.ndarray, "N 3"]] = field(default_factory=dict)
    """Positions of things [m]; (N, 3), or (1, 3) if they stay."""
    success: bool = True
    performance: Performance | None = None
    """Its source: images need the snapshots."""

    def __post_init__(self) -> None:
        n = len(self.X_WC)
        if self.kind not in KINDS:
            raise InvalidValueError(f"expected a take of kind {', '.join(KINDS)}; got {self.kind!r}")
        if len(self.X_WE) != n or self.x_WG.shape != (n, 3) or self.width.shape != (n,):
            raise InvalidValueError(
                f"expected {n} rows of X_WE, x_WG and width, as of X_WC; got {len(self.X_WE)}, "
                f"{self.x_WG.shape} and {self.width.shape}"
            )
        if not np.array_equal(self.X_WC.t_ns, np.arange(n) * PERIOD_NS):
            raise InvalidValueError(f"expected a take's times to be 0, {PERIOD_NS}, {2 * PERIOD_NS}, ... ns")

    @classmethod
    def of(cls, performance: Performance) -> Self:
        """The take of a performance."""
        t_ns = performance.t_ns - performance.t_ns[0]
        tracking = np.full(len(t_ns), OK)
        C, E = (
            Trajectory(t_ns=t_ns, p=path.p, q=path.q, tracking=tracking)
            for path in (performance.X_WC, performance.X_WE)
        )
        return cls(
            kind=performance.kind,
            X_WC=C,
            X_WE=E,
            x_WG=np.asarray(performance.x_WG),
            width=np.asarray(performance.width),
            X_WB=performance.board,
            things=performance.things,
            success=performance.success,
            performance=performance,
        )


@dataclass(frozen=True, kw_only=True)
class Span:
    """A take within a recording: [start, stop) of true time [ns]."""

    take: int
    kind: str
    start_ns: int
    stop_ns: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """Everything that happened while the cameras ran."""

    takes: tuple[Take, ...]
    spans: tuple[Span, ...]
    X_WC: Trajectory
    X_WE: Trajectory
    x_WG: Float[np.ndarray, "N 3"]
    width: Float[np.ndarray, " N"]

    def spans_of(self, kind: str) -> tuple[Span, ...]:
        return tuple(span for span in self.spans if span.kind == kind)

    def things(self, span: Span, t_ns: np.ndarray) -> dict[str, Float[np.ndarray, "M 3"]]:
        """Positions of things at true times within a span."""
        at = t_ns - span.start_ns
        positions = {}
        for name, path in self.takes[span.take].things.items():
            times = np.arange(len(path)) * PERIOD_NS
            positions[name] = np.column_stack([np.interp(at, times, path[:, i]) for i in range(3)])
        return positions


def record(takes: Sequence[Take], *, lead_ns: int = NS_PER_S) -> Recording:
    """Join takes one after the other, with paths between them; cameras run a while before and after.

    lead_ns: how long the person is stationary at the beginning and the end [ns].
    """
    if not takes:
        raise InvalidValueError("expected at least one take in a recording, got none")
    pieces = [_held(takes[0], 0, lead_ns)]
    spans: list[Span] = []
    for i, take in enumerate(takes):
        if i and not _is_next(takes[i - 1], take):
            pieces.append(_bridge(takes[i - 1], take))
        start = sum(len(piece[0]) for piece in pieces) * PERIOD_NS
        pieces.append((take.X_WC.p, take.X_WC.q, take.X_WE.p, take.X_WE.q, take.x_WG, take.width))
        spans.append(Span(take=i, kind=take.kind, start_ns=start, stop_ns=start + len(take.X_WC) * PERIOD_NS))
    pieces.append(_held(takes[-1], -1, lead_ns))
    p_C, q_C, p_E, q_E, x_WG, width = (np.concatenate(each) for each in zip(*pieces, strict=True))
    t_ns = np.arange(len(p_C), dtype=np.int64) * PERIOD_NS
    ok = np.full(len(t_ns), OK)
    return Recording(
        takes=tuple(takes),
        spans=tuple(spans),
        X_WC=Trajectory(t_ns=t_ns, p=p_C, q=q_C, tracking=ok),
        X_WE=Trajectory(t_ns=t_ns, p=p_E, q=q_E, tracking=ok),
        x_WG=x_WG,
        width=width,
    )


_Piece = tuple[np.ndarray, ...]
_NEAR_M, _NEAR_RAD = 0.02, 0.02


def _is_next(before: Take, after: Take) -> bool:
    """Whether a take begins where the one before ended."""
    return all(
        np.linalg.norm(b.p[0] - a.p[-1]) < _NEAR_M and _angle(a.q[-1], b.q[0]) < _NEAR_RAD
        for a, b in ((before.X_WC, after.X_WC), (before.X_WE, after.X_WE))
    )


def _held(take: Take, i: int, for_ns: int) -> _Piece:
    count = for_ns // PERIOD_NS
    rows = (take.X_WC.p, take.X_WC.q, take.X_WE.p, take.X_WE.q, take.x_WG, take.width)
    return tuple(np.repeat(row[[i]], count, axis=0) for row in rows)


def _bridge(before: Take, after: Take) -> _Piece:
    """The path from the end of one take to the start of the next, as fast as a person walks and turns."""
    far = max(
        np.linalg.norm(after.X_WC.p[0] - before.X_WC.p[-1]) / _SPEED,
        np.linalg.norm(after.X_WE.p[0] - before.X_WE.p[-1]) / _SPEED,
        *(_angle(a.q[0], b.q[-1]) / _TURN for a, b in ((after.X_WC, before.X_WC), (after.X_WE, before.X_WE))),
    )
    count = round((1.0 + 1.5 * float(far)) * NS_PER_S / PERIOD_NS)
    inside = np.clip((np.arange(count) - 0.15 * count) / (0.7 * count), 0.0, 1.0)
    u = gaussian_filter1d(inside, 0.05 * count, mode="nearest")
    u = (u - u[0]) / (u[-1] - u[0])
    turned = (after.x_WG[0, 2] - before.x_WG[-1, 2] + np.pi) % (2 * np.pi) - np.pi
    x_end = np.array([*after.x_WG[0, :2], before.x_WG[-1, 2] + turned])
    return (
        _blended(before.X_WC.p[-1], after.X_WC.p[0], u),
        slerp(*_both(before.X_WC.q[-1], after.X_WC.q[0], count), u),
        _blended(before.X_WE.p[-1], after.X_WE.p[0], u),
        slerp(*_both(before.X_WE.q[-1], after.X_WE.q[0], count), u),
        _blended(before.x_WG[-1], x_end, u),
        _blended(before.width[-1:], after.width[:1], u)[:, 0],
    )


def _blended(a: np.ndarray, b: np.ndarray, u: np.ndarray) -> np.ndarray:
    return a + u[:, None] * (b - a)


def _both(a: np.ndarray, b: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(a[None], count, axis=0), np.repeat(b[None], count, axis=0)


def _angle(a: np.ndarray, b: np.ndarray) -> float:
    return float(2.0 * np.arccos(np.clip(abs(a @ b), 0.0, 1.0)))
