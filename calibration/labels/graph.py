"""Estimates the drift of both odometries from all that ties the two devices together: `correct`.

    chest   c0 ── c1 ── c2 ── c3 ── ... ── cK      along: odometry, less certain with distance; gravity
             ║           |                 ║
    hand    h0 ── h1 ── h2 ── h3 ── ... ── hK
           anchor      tags              anchor    ║ both saw the board, | the chest saw the gripper

A node is the error of odometry at a time: (dp, dr) with p_true = p + dp, R_true = Exp(dr) R, all in W. The
discrepancy at an anchor at the end is distributed over the path: more where a device went far, none where it
was stationary. A jump of odometry, or lost tracking, is a link with large variance.

The variance of drift between two times is by path length, time, jumps and lost tracking.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pinocchio as pin
from scipy.spatial.transform import Rotation

from calibration.labels.chain import Chain
from calibration.labels.closure import Tie, board_off
from calibration.labels.sightings import TagSights
from calibration.labels.values import Drift
from calibration.trajectory import LIMITED, LOST, Trajectory
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

BROKEN_M, BROKEN_RAD = 0.5, np.deg2rad(10.0)
"""Standard deviations of the world's motion by a jump, or while tracking was lost."""
LIMITED_TIMES = 3.0
"""Factor of drift while tracking is limited."""
_LEAST_JUMP_M, _LEAST_JUMP_RAD = 0.012, np.deg2rad(2.0)


def jumps(path: Trajectory) -> np.ndarray:
    """(N-1,) bool: steps between samples in which odometry jumped, rather than the device moved."""
    n = len(path)
    if n < 6:
        return np.zeros(max(n - 1, 0), bool)
    dt = np.diff(path.t_ns)[:, None] / NS_PER_S
    turns = (
        Rotation.from_quat(path.q[1:], scalar_first=True)
        * Rotation.from_quat(path.q[:-1], scalar_first=True).inv()
    )
    out = np.zeros(n - 1, bool)
    for rate, least in (
        (np.diff(path.p, axis=0) / dt, _LEAST_JUMP_M),
        (turns.as_rotvec() / dt, _LEAST_JUMP_RAD),
    ):
        padded = np.pad(rate, ((2, 2), (0, 0)), mode="edge")
        around = np.median(np.stack([padded[:-4], padded[1:-3], padded[3:-1], padded[4:]]), axis=0)
        off = np.linalg.norm((rate - around) * dt, axis=1)
        usual = 1.48 * np.median(off)
        out |= off > max(least, 10.0 * usual)
    return out


def drifting(path: Trajectory, t_ns: np.ndarray, drift: Drift) -> tuple[np.ndarray, np.ndarray]:
    """Variances (K-1, 6) of the steps of one device, and the share of errors that persists."""
    middles = t_ns[:-1] + np.diff(t_ns) // 2
    p, mid = path.sampled(t_ns).p, path.sampled(middles).p
    length = np.linalg.norm(mid - p[:-1], axis=1) + np.linalg.norm(p[1:] - mid, axis=1)
    dt = np.diff(t_ns) / NS_PER_S
    worst = _worst_tracking(path, t_ns)
    times = np.where(worst == LIMITED, LIMITED_TIMES, 1.0)
    goes = np.exp(-dt / drift.tilt_s)
    is_broken = (worst == LOST) | _any_between(path.t_ns[:-1][jumps(path)], t_ns)
    p_var = times**2 * drift.walk_m**2 * length + drift.still_m**2 * dt + is_broken * BROKEN_M**2
    yaw_var = times**2 * drift.walk_rad**2 * length + 1e-10 * dt + is_broken * BROKEN_RAD**2
    tilt_var = drift.tilt_rad**2 * (1.0 - goes**2) + 1e-12
    out = np.stack([p_var, p_var, p_var, tilt_var, tilt_var, yaw_var], axis=1)
    keep = np.stack([np.ones_like(goes)] * 3 + [goes, goes, np.ones_like(goes)], axis=1)
    return out, keep


def _worst_tracking(path: Trajectory, t_ns: np.ndarray) -> np.ndarray:
    """The worst tracking state between neighbouring times."""
    order = np.clip(np.searchsorted(path.t_ns, t_ns), 0, len(path) - 1)
    return np.array([path.tracking[a : b + 1].min() for a, b in pairwise(order)])


def _any_between(events_ns: np.ndarray, t_ns: np.ndarray) -> np.ndarray:
    """(K-1,) bool: whether an event lies in [t_k, t_k+1)."""
    out: np.ndarray = np.diff(np.searchsorted(events_ns, t_ns)) > 0
    return out


@dataclass(frozen=True, kw_only=True, eq=False)
class Correction:
    """Correction of one device's odometry over time."""

    t_ns: np.ndarray
    """Times (K,) of the nodes, rising."""
    p: np.ndarray
    """(K, 3) positions of the nodes by odometry [m]."""
    dp: np.ndarray
    """(K, 3) translations [m]."""
    dr: np.ndarray
    """(K, 3) rotation vectors in W [rad]."""

    def of(self, odometry: Trajectory) -> Trajectory:
        """The corrected path: between two nodes, each one's rigid correction, interpolated by time."""
        k, s = self.between(odometry.t_ns)
        moved = np.zeros((len(k), 3))
        for node, share in ((k, 1.0 - s), (k + 1, s)):
            arm = odometry.p - self.p[node]
            turned = Rotation.from_rotvec(self.dr[node]).apply(arm) - arm
            moved += share[:, None] * (self.dp[node] + turned)
        dr = (1.0 - s)[:, None] * self.dr[k] + s[:, None] * self.dr[k + 1]
        q = (Rotation.from_rotvec(dr) * Rotation.from_quat(odometry.q, scalar_first=True)).as_quat(
            scalar_first=True
        )
        q *= np.where((q * odometry.q).sum(axis=1, keepdims=True) < 0.0, -1.0, 1.0)
        return Trajectory(t_ns=odometry.t_ns, p=odometry.p + moved, q=q, tracking=odometry.tracking)

    def between(self, t_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The node before each time, and the fraction of the interval to the next, 0 to 1."""
        k = np.clip(np.searchsorted(self.t_ns, t_ns, side="right") - 1, 0, len(self.t_ns) - 2)
        s = (t_ns - self.t_ns[k]) / (self.t_ns[k + 1] - self.t_ns[k])
        return k, np.clip(s, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Corrected:
    """The solution of the graph."""

    chest: Correction
    hand: Correction
    dt_s: float
    """Correction of the hand's clock against the chest's, on top of the joined clocks [s]."""
    dt_sigma_s: float
    nodes: np.ndarray
    """(K, 12, 12) covariance of (chest dp, dr, hand dp, dr) of each node."""
    following: np.ndarray
    """(K-1, 12, 12) covariance of each node with the next."""
    with_dt: np.ndarray
    """(K, 12) covariance of each node with dt."""
    bridge: np.ndarray
    """(K-1, 12) variances of the odometry drift from node to node."""
    num_tags: int
    num_refused_tags: int
    tag_px: float
    """RMS of the remaining errors of the tags' corners [pixels]; NaN without any."""

    def covariance(self, t_ns: np.ndarray) -> tuple[Float[np.ndarray, "N 12 12"], Float[np.ndarray, "N 12"]]:
        """Covariance of both devices' errors at these times, and of these with dt."""
        k, s = self.chest.between(t_ns)
        a, b = (1.0 - s)[:, None, None], s[:, None, None]
        crossed = self.following[k]
        P = a * a * self.nodes[k] + b * b * self.nodes[k + 1]
        P = P + a * b * (crossed + crossed.transpose(0, 2, 1))
        P[:, range(12), range(12)] += (s * (1.0 - s))[:, None] * self.bridge[k]
        return P, a[:, :, 0] * self.with_dt[k] + b[:, :, 0] * self.with_dt[k + 1]


_ROUNDS, _FAR_ROUNDS = 12, 5
"""Gauss-Newton steps; the first ones reject no tags."""
_DONE = 1e-6


def correct(
    chest: Trajectory,
    hand: Trajectory,
    ties: Sequence[Tie],
    tags: TagSights | None,
    *,
    drifts: tuple[Drift, Drift],
    node_s: float,
    clock_sigma_s: float,
) -> Corrected:
    """Correct both odometries in one world, defined by the first tie, on one clock.

    drifts: of chest and hand. clock_sigma_s: standard deviation of the joined clocks.
    InvalidValueError: no tie, or no time at which both recorded.
    """
    if not ties:
        raise InvalidValueError("expected at least one anchor between the two odometries, got none")
    problem = _Problem.of(chest, hand, ties, node_s, drifts)
    K = len(problem.t_ns)
    x, shared = np.zeros((K, 12)), np.zeros(7)  # dt [ms], board (dp, dr)
    sights = None if tags is None or not len(tags) else tags.inside(problem.t_ns[0], problem.t_ns[-1])
    if sights is not None and len(sights):
        x = problem.guess(x, clock_sigma_s)
    weights = None
    for i in range(_ROUNDS):
        chain = problem.chain(x, shared, clock_sigma_s)
        if sights is not None and len(sights):
            weights = sights.add(chain, problem, x, 1e-3 * shared[0], is_near=i >= _FAR_ROUNDS)
        step, step_shared = chain.solve()
        x, shared = x + step, shared + step_shared
        if i > _FAR_ROUNDS and np.abs(step).max() < _DONE:
            break
    nodes, following, with_shared = chain.covariances()
    dt_sigma = float(np.sqrt(chain.shared_covariance()[0, 0])) * 1e-3
    kept = np.zeros(0) if weights is None else weights
    rms = (
        float("nan")
        if sights is None or weights is None
        else sights.rms_px(problem, x, 1e-3 * shared[0], kept)
    )
    return Corrected(
        chest=Correction(t_ns=problem.t_ns, p=problem.p[0], dp=x[:, 0:3], dr=x[:, 3:6]),
        hand=Correction(t_ns=problem.t_ns, p=problem.p[1], dp=x[:, 6:9], dr=x[:, 9:12]),
        dt_s=float(shared[0]) * 1e-3,
        dt_sigma_s=dt_sigma,
        nodes=nodes,
        following=following,
        with_dt=with_shared[:, :, 0] * 1e-3,
        bridge=problem.wander,
        num_tags=int(kept.size),
        num_refused_tags=int((kept < 0.25).sum()),
        tag_px=rms,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Problem:
    """Data of the factors between nodes; two devices, chest and hand."""

    t_ns: np.ndarray
    p: tuple[np.ndarray, np.ndarray]
    odometry: tuple[Trajectory, Trajectory]
    wander: np.ndarray
    """(K-1, 12) variances of a step."""
    keep: np.ndarray
    """(K-1, 12) share of a node's error that persists in the next: 1, or less for tilt."""
    ties: Sequence[Tie]
    at_chest: np.ndarray
    at_hand: np.ndarray
    """Nodes of the ties."""
    tilt_rad: tuple[float, float]
    X0: pin.SE3
    """The hand's world in the chest's by the first tie, leveled."""

    @classmethod
    def of(
        cls,
        chest: Trajectory,
        hand: Trajectory,
        ties: Sequence[Tie],
        node_s: float,
        drifts: tuple[Drift, Drift],
    ) -> "_Problem":
        start, stop = max(chest.t_ns[0], hand.t_ns[0]), min(chest.t_ns[-1], hand.t_ns[-1])
        if stop - start < NS_PER_S // 2:
            raise InvalidValueError(
                "chest and hand have poses at the same time for less than half a second: clocks not joined?"
            )
        hand = hand.before(ties[0].level)
        grid = np.arange(start, stop, round(node_s * NS_PER_S))
        extra = [np.clip([t for tie in ties for t in (tie.chest_ns, tie.hand_ns)], start, stop), [stop]]
        for path in (chest, hand):
            broken = jumps(path)
            extra += [path.t_ns[:-1][broken], path.t_ns[1:][broken]]
        t_ns = np.unique(np.clip(np.concatenate([grid, *extra]), start, stop)).astype(np.int64)
        wander, keep = [], []
        for path, drift in zip((chest, hand), drifts, strict=True):
            w, a = drifting(path, t_ns, drift)
            wander.append(w)
            keep.append(a)
        return cls(
            t_ns=t_ns,
            p=(chest.sampled(t_ns).p, hand.sampled(t_ns).p),
            odometry=(chest, hand),
            wander=np.hstack(wander),
            keep=np.hstack(keep),
            ties=ties,
            at_chest=np.searchsorted(t_ns, np.clip([tie.chest_ns for tie in ties], start, stop)),
            at_hand=np.searchsorted(t_ns, np.clip([tie.hand_ns for tie in ties], start, stop)),
            tilt_rad=(drifts[0].tilt_rad, drifts[1].tilt_rad),
            X0=ties[0].level,
        )

    def guess(self, x: np.ndarray, clock_sigma_s: float) -> np.ndarray:
        """Initial estimate from the anchors alone, so that tags are rejected against a near solution."""
        shared = np.zeros(7)
        for _ in range(3):
            step, step_shared = self.chain(x, shared, clock_sigma_s).solve()
            x, shared = x + step, shared + step_shared
        return x

    def chain(self, x: np.ndarray, shared: np.ndarray, clock_sigma_s: float) -> Chain:
        """Normal equations of all factors except tags."""
        K = len(self.t_ns)
        chain = Chain(K, 12, 7)
        self._add_odometry(chain, x)
        self._add_priors(chain, x)
        for tie, c, h in zip(self.ties, self.at_chest, self.at_hand, strict=True):
            self._add_tie(chain, x, shared, tie, int(c), int(h))
        prior = np.zeros((7, 7))
        prior[0, 0] = 1.0 / max(1e3 * clock_sigma_s, 1e-6)
        prior[range(1, 7), range(1, 7)] = 1e-2
        chain.add_shared(prior @ shared, prior)
        return chain

    def _add_odometry(self, chain: Chain, x: np.ndarray) -> None:
        """Add odometry factors: x_k+1 = keep x_k + effect of a rotated world on the step + drift."""
        K = len(self.t_ns)
        sigma = np.sqrt(self.wander)
        r = x[1:] - self.keep * x[:-1]
        J, J_next = np.zeros((K - 1, 12, 12)), np.zeros((K - 1, 12, 12))
        J[:, range(12), range(12)] = -self.keep
        J_next[:, range(12), range(12)] = 1.0
        for first, p in zip((0, 6), self.p, strict=True):
            step = np.diff(p, axis=0)
            yaw, z = first + 5, np.array([0.0, 0.0, 1.0])
            angle = 0.5 * (x[:-1, yaw] + x[1:, yaw])
            turned = Rotation.from_rotvec(angle[:, None] * z).apply(step)
            r[:, first : first + 3] -= turned - step
            slope = 0.5 * np.cross(z, turned)
            J[:, first : first + 3, yaw] -= slope
            J_next[:, first : first + 3, yaw] -= slope
        s = sigma[:, :, None]
        chain.add(np.arange(K - 1), r / sigma, J / s, J_next / s)

    def _add_priors(self, chain: Chain, x: np.ndarray) -> None:
        """Add priors on the tilt of the first nodes, and on W: the chest's world at the first tie."""
        J = np.zeros((1, 4, 12))
        for row, (column, sigma) in enumerate(
            ((3, self.tilt_rad[0]), (4, self.tilt_rad[0]), (9, self.tilt_rad[1]), (10, self.tilt_rad[1]))
        ):
            J[0, row, column] = 1.0 / sigma
        chain.add(np.array([0]), (J @ x[0])[:, :], J)
        k, G = int(self.at_chest[0]), np.zeros((1, 4, 12))
        for row, (column, sigma) in enumerate(((0, 1e-4), (1, 1e-4), (2, 1e-4), (5, 1e-5))):
            G[0, row, column] = 1.0 / sigma
        chain.add(np.array([k]), (G @ x[k])[:, :], G)

    def _add_tie(self, chain: Chain, x: np.ndarray, shared: np.ndarray, tie: Tie, c: int, h: int) -> None:
        """Add a tie: both devices' worlds, each corrected at its time, agree on the board's pose."""
        E = tie.X_WcWh * self.X0.inverse()
        b_c = tie.X_WcB.translation
        b_h = E.actInv(b_c)
        turn = pin.log3(E.rotation)
        root = _root_of_inverse(tie.covariance)
        r_p = _moved(x[c, :6], b_c, self.p[0][c]) - _moved(x[h, 6:], b_h, self.p[1][h])
        r = np.concatenate([r_p, x[c, 3:6] + turn - x[h, 9:]])
        Jc, Jh = np.zeros((6, 12)), np.zeros((6, 12))
        Jc[:, :6] = _lever(b_c - self.p[0][c])
        Jh[:, 6:] = -_lever(b_h - self.p[1][h])
        self._add_far(chain, root @ r, root @ Jc, root @ Jh, c, h)
        if len(self.ties) > 1:  # the board is stationary: its pose has the tie's covariance
            off = board_off(self.ties[0], tie)
            J = np.zeros((1, 6, 12))
            J[0, :, :6] = root @ _lever(b_c - self.p[0][c])
            J_shared = np.zeros((1, 6, 7))
            J_shared[0, :, 1:] = -root
            there = np.concatenate([_moved(x[c, :6], b_c, self.p[0][c]) - b_c, x[c, 3:6]])
            chain.add(np.array([c]), (root @ (there + off - shared[1:]))[None], J, None, J_shared)

    def _add_far(self, chain: Chain, r: np.ndarray, Jc: np.ndarray, Jh: np.ndarray, c: int, h: int) -> None:
        """Add a factor of two nodes that need not be neighbours: the chest's at c, expressed at h.

        Where they are not, odometry carries the chest's correction from c to h, and its possible drift is
        added to the noise: a chain has factors between neighbours only.
        """
        if c == h:
            chain.add(np.array([c]), r[None], (Jc + Jh)[None])
            return
        a, b = min(c, h), max(c, h)
        drifted = np.zeros(12)
        drifted[:6] = self.wander[a:b, :6].sum(axis=0)
        total = np.eye(6) + Jc @ np.diag(drifted) @ Jc.T
        root = np.linalg.inv(np.linalg.cholesky(total))
        chain.add(np.array([h]), (root @ r)[None], (root @ (Jc + Jh))[None])


def _moved(x: np.ndarray, point: np.ndarray, about: np.ndarray) -> np.ndarray:
    """True position of a point in an odometry's world, by the correction at a device."""
    out: np.ndarray = about + x[:3] + pin.exp3(x[3:]) @ (point - about)
    return out


def _lever(arm: np.ndarray) -> np.ndarray:
    """Effect (6, 6) of (dp, dr) at a device on a pose that far away."""
    out = np.eye(6)
    out[:3, 3:] = -pin.skew(arm)
    return out


def _root_of_inverse(P: np.ndarray) -> np.ndarray:
    """The matrix W with W^T W = P^-1."""
    floor = np.diag([1e-8] * 3 + [1e-8] * 3)  # lower bound: 0.1 mm, 0.1 mrad
    out: np.ndarray = np.linalg.inv(np.linalg.cholesky(np.asarray(P, float) + floor))
    return out
