"""Estimates the drift of both odometries from all that ties the two devices together: `correct`.

    chest   c0 ── c1 ── c2 ── c3 ── ... ── cK      along: odometry, less certain with distance; gravity
             ║           |                 ║
    hand    h0 ── h1 ── h2 ── h3 ── ... ── hK
           anchor      tags              anchor    ║ both saw the board, | the chest saw the gripper

A node is the error of odometry at a time: (dp, dr) with p_true = p + dp, R_true = Exp(dr) R, all in W. The
discrepancy at an anchor at the end is distributed over the path: more where a device went far, none where it
was stationary. A jump of odometry, or lost tracking, is a link with large variance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from scipy.spatial.transform import Rotation

from calibration.labels.chain import Chain
from calibration.labels.correction import Corrected, Correction
from calibration.labels.sightings import TagSights
from calibration.labels.tie import Tie, board_off
from calibration.labels.values import Drift
from calibration.labels.wander import drifting, jumps
from calibration.trajectory import Trajectory
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError

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
