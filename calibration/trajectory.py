"""Poses over time of one moving frame in one fixed world: `Trajectory`.

t_ns         t0      t1            t2   t3
samples      ●───────●─────────────●────●        between them: positions by lerp, rotations by slerp
at(t)             ↑ X_WC(t)    ↑                  outside [t0, t3]: refused, nothing is extrapolated
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pinocchio as pin
from scipy.spatial.transform import Rotation

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.pose_rows import rotations_from_quaternions
from robot_runtime.core.values.shapes import Float
from robot_runtime.core.values.state import readonly
from robot_runtime.core.values.transforms import quaternion_from_rotation
from robot_runtime.errors import InvalidValueError

LOST, LIMITED, OK = 0, 1, 2
"""Values of `Trajectory.tracking`."""
LONGEST_GAP_NS = NS_PER_S // 10
"""Longest gap between two samples; interpolation over more counts as lost."""
_OFF_UNIT = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory:
    """X_WC at N times, as a device's visual-inertial odometry reports it.

    InvalidValueError: times that do not rise, shapes that do not fit, numbers that are not finite, or
    quaternions that are not unit.
    """

    t_ns: np.ndarray
    """(N,) int64, rising, of one clock; N >= 1."""
    p: np.ndarray
    """(N, 3) [m] positions in W."""
    q: np.ndarray
    """(N, 4) unit quaternions, wxyz; signs as given."""
    tracking: np.ndarray
    """(N,) uint8: `LOST` (the numbers mean nothing), `LIMITED` or `OK`."""

    def __post_init__(self) -> None:
        t_ns = _whole(self.t_ns)
        n = len(t_ns)
        p, q, tracking = np.asarray(self.p, float), np.asarray(self.q, float), np.asarray(self.tracking)
        if n == 0 or p.shape != (n, 3) or q.shape != (n, 4) or tracking.shape != (n,):
            raise InvalidValueError(
                f"a trajectory of N >= 1 poses has t_ns (N,), p (N, 3), q (N, 4) and tracking (N,); got "
                f"{t_ns.shape}, {p.shape}, {q.shape} and {tracking.shape}"
            )
        if (falls := np.flatnonzero(np.diff(t_ns) <= 0)).size:
            i = int(falls[0]) + 1
            raise InvalidValueError(
                f"times have to rise, but pose {i} is of {t_ns[i]} ns, after one of {t_ns[i - 1]} ns: the "
                "clock jumped back, or rows are out of order"
            )
        if not (np.isfinite(p).all() and np.isfinite(q).all()):
            i = int(np.flatnonzero(~np.isfinite(np.hstack([p, q])).all(axis=1))[0])
            raise InvalidValueError(f"pose {i} is not finite: p {p[i]}, q {q[i]}")
        norms = np.linalg.norm(q, axis=1)
        if (wrong := np.flatnonzero(np.abs(norms - 1.0) > _OFF_UNIT)).size:
            i = int(wrong[0])
            raise InvalidValueError(f"quaternion {i} is {q[i]}, of length {norms[i]:.4g}: expected 1")
        if not np.isin(tracking, (LOST, LIMITED, OK)).all():
            raise InvalidValueError(f"tracking is 0 lost, 1 limited or 2 ok; got {np.unique(tracking)}")
        for name, value in (("t_ns", t_ns), ("p", p), ("q", q / norms[:, None])):
            object.__setattr__(self, name, readonly(value, dtype=value.dtype.type))
        object.__setattr__(self, "tracking", readonly(tracking, dtype=np.uint8))

    @classmethod
    def of(cls, t_ns: object, poses: Sequence[pin.SE3], tracking: object = None) -> Self:
        """Trajectory from one pose per time; tracking: OK throughout, if not given."""
        q = np.array([quaternion_from_rotation(X.rotation) for X in poses]).reshape(-1, 4)
        p = np.array([X.translation for X in poses]).reshape(-1, 3)
        state = np.full(len(p), OK) if tracking is None else np.asarray(tracking)
        return cls(t_ns=np.asarray(t_ns), p=p, q=q, tracking=state)

    def __len__(self) -> int:
        return len(self.t_ns)

    def __getitem__(self, i: int) -> pin.SE3:
        """Pose i, one of the N."""
        return pin.SE3(rotations_from_quaternions(self.q[[i]])[0], self.p[i].copy())

    @property
    def R(self) -> np.ndarray:
        """(N, 3, 3) rotations."""
        return rotations_from_quaternions(self.q)

    def at(self, t_ns: int) -> pin.SE3:
        """The pose at a time; InvalidValueError: before the first or after the last."""
        return self.sampled(np.array([t_ns], dtype=np.int64))[0]

    def sampled(self, t_ns: object) -> "Trajectory":
        """The poses at these rising times; `tracking` is the worse of both neighbours', and lost where they
        lie further apart than `LONGEST_GAP_NS`. InvalidValueError: some lie outside."""
        at = _whole(t_ns)
        if at.size and (at[0] < self.t_ns[0] or at[-1] > self.t_ns[-1]):
            raise InvalidValueError(
                f"poses are known from {self.t_ns[0]} to {self.t_ns[-1]} ns; asked for {at[0]} to {at[-1]} ns"
            )
        if len(self) == 1:
            return Trajectory(t_ns=at, p=self.p, q=self.q, tracking=self.tracking)
        i = np.clip(np.searchsorted(self.t_ns, at, side="right") - 1, 0, len(self) - 2)
        gap_ns = self.t_ns[i + 1] - self.t_ns[i]
        u = ((at - self.t_ns[i]) / gap_ns)[:, None]
        worse = np.minimum(self.tracking[i], self.tracking[i + 1])
        exact = np.where(
            u[:, 0] == 0.0, self.tracking[i], np.where(u[:, 0] == 1.0, self.tracking[i + 1], worse)
        )
        is_gap = (gap_ns > LONGEST_GAP_NS) & (u[:, 0] > 0.0) & (u[:, 0] < 1.0)
        return Trajectory(
            t_ns=at,
            p=(1.0 - u) * self.p[i] + u * self.p[i + 1],
            q=slerp(self.q[i], self.q[i + 1], u[:, 0]),
            tracking=np.where(is_gap, LOST, exact),
        )

    def between(self, start_ns: int, stop_ns: int) -> "Trajectory":
        """The samples in [start, stop); InvalidValueError: there is none."""
        a, b = np.searchsorted(self.t_ns, (start_ns, stop_ns))
        if a == b:
            raise InvalidValueError(
                f"no pose in [{start_ns}, {stop_ns}) ns: they run from {self.t_ns[0]} to {self.t_ns[-1]} ns"
            )
        return self.taken(slice(int(a), int(b)))

    def taken(self, rows: slice | np.ndarray) -> "Trajectory":
        """These samples, at least one: a slice, (N,) of bool, or rising numbers."""
        return Trajectory(t_ns=self.t_ns[rows], p=self.p[rows], q=self.q[rows], tracking=self.tracking[rows])

    def then(self, X_CD: pin.SE3) -> "Trajectory":
        """X_WD = X_WC * X_CD, of a frame D that is fixed in the moving one."""
        p = self.p + self.R @ X_CD.translation
        return self._with(p, multiplied(self.q, quaternion_from_rotation(X_CD.rotation)[None]))

    def before(self, X_VW: pin.SE3) -> "Trajectory":
        """X_VC = X_VW * X_WC, seen from another fixed frame V."""
        p = self.p @ X_VW.rotation.T + X_VW.translation
        return self._with(p, multiplied(quaternion_from_rotation(X_VW.rotation)[None], self.q))

    def shifted(self, by_ns: int) -> "Trajectory":
        """The same poses, that much later."""
        return Trajectory(t_ns=self.t_ns + int(by_ns), p=self.p, q=self.q, tracking=self.tracking)

    def angular_speed(self) -> tuple[np.ndarray, np.ndarray]:
        """Between neighbours: (middles (N-1,) int64 [ns], speeds (N-1,) [rad/s]); the same in every frame."""
        turned = (_rotations(self.q[:-1]).inv() * _rotations(self.q[1:])).magnitude()
        dt_ns = np.diff(self.t_ns)
        return self.t_ns[:-1] + dt_ns // 2, turned / (dt_ns / NS_PER_S)

    def speed(self) -> tuple[np.ndarray, np.ndarray]:
        """Between neighbours: (middles (N-1,) int64 [ns], speeds (N-1,) [m/s])."""
        dt_ns = np.diff(self.t_ns)
        moved = np.linalg.norm(np.diff(self.p, axis=0), axis=1)
        return self.t_ns[:-1] + dt_ns // 2, moved / (dt_ns / NS_PER_S)

    def path_m(self) -> np.ndarray:
        """(N,) [m] path length since the first sample."""
        return np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(self.p, axis=0), axis=1))])

    def _with(self, p: np.ndarray, q: np.ndarray) -> "Trajectory":
        return Trajectory(t_ns=self.t_ns, p=p, q=q, tracking=self.tracking)


def multiplied(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quaternion products a * b, row by row; wxyz."""
    product: np.ndarray = (_rotations(a) * _rotations(b)).as_quat(scalar_first=True)
    return product


def slerp(
    a: Float[np.ndarray, "N 4"], b: Float[np.ndarray, "N 4"], u: Float[np.ndarray, " N"]
) -> Float[np.ndarray, "N 4"]:
    """Interpolate from a to b along the shorter arc, u in [0, 1]."""
    first = _rotations(a)
    turn = (first.inv() * _rotations(b)).as_rotvec()
    between: np.ndarray = (first * Rotation.from_rotvec(u[:, None] * turn)).as_quat(scalar_first=True)
    return between


def _rotations(q_wxyz: np.ndarray) -> Rotation:
    return Rotation.from_quat(q_wxyz, scalar_first=True)


def _whole(t_ns: object) -> np.ndarray:
    out = np.asarray(t_ns)
    if out.ndim != 1 or not (np.issubdtype(out.dtype, np.integer) or out.size == 0):
        raise InvalidValueError(
            f"times are whole nanoseconds, (N,) of integers; got {out.dtype} of shape {out.shape}"
        )
    return out.astype(np.int64)
