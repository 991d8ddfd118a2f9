"""How both odometries drifted, from all that ties the two devices together: `correct`.

    chest   c0 ── c1 ── c2 ── c3 ── ... ── cK      along: odometry, worse with every metre; gravity
             ║           |                 ║
    hand    h0 ── h1 ── h2 ── h3 ── ... ── hK
           anchor      tags              anchor    ║ both saw the board, | the chest saw the gripper

A node is how far odometry is off at a time: (dp, dr) with p_true = p + dp, R_true = Exp(dr) R, all in W. What
an anchor at the end contradicts is spread over the path by that: more where a device went far, nothing where
it stood. A jump of an odometry, or tracking that was lost, is a link that hardly holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pinocchio as pin
from scipy.spatial.transform import Rotation

from calibration.labels.chain import Chain
from calibration.labels.sightings import TagSights
from calibration.labels.values import Drift
from calibration.trajectory import LIMITED, LOST, Trajectory
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.shapes import Float
from robot_runtime.errors import InvalidValueError

BROKEN_M, BROKEN_RAD = 0.5, np.deg2rad(10.0)
"""How far an odometry may have moved its world by a jump, or while it was lost."""
LIMITED_TIMES = 3.0
"""How much faster it drifts while tracking is limited."""
_LEAST_JUMP_M, _LEAST_JUMP_RAD = 0.012, np.deg2rad(2.0)
_ROUNDS, _FAR_ROUNDS = 12, 5
"""Steps of Gauss and Newton; in the first, no tag is taken for a wrong one."""
_DONE = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Tie:
    """An anchor, as the graph sees it: where both saw the same board."""

    chest_ns: int
    hand_ns: int
    """When, in the middle of the views of each, on the chest's clock [ns]."""
    X_WcWh: pin.SE3
    """The hand's world in the chest's, by these views."""
    X_WcB: pin.SE3
    """The board in the chest's world, by its own odometry at the time."""
    covariance: np.ndarray
    """(6, 6) of X_WcWh: (p, rotation vector) perturbed on the left, about the board's place."""

    def __post_init__(self) -> None:
        """InvalidValueError: no covariance."""
        P = np.asarray(self.covariance)
        if P.shape != (6, 6) or not np.isfinite(P).all() or np.linalg.eigvalsh(0.5 * (P + P.T))[0] < -1e-9:
            raise InvalidValueError(f"an anchor's covariance is (6, 6), finite and positive, got {P}")

    @property
    def tilt(self) -> float:
        """Between the verticals of both worlds [rad]; 0 for odometries that know what is up."""
        return float(np.arccos(np.clip(self.X_WcWh.rotation[2, 2], -1.0, 1.0)))

    @property
    def level(self) -> pin.SE3:
        """X_WcWh without its tilt, the board where it is: both worlds know what is up."""
        R = self.X_WcWh.rotation
        yaw = np.arctan2(R[1, 0] - R[0, 1], R[0, 0] + R[1, 1])
        turn = pin.utils.rotate("z", float(yaw))
        b = self.X_WcB.translation
        return pin.SE3(turn, b - turn @ self.X_WcWh.actInv(b))


@dataclass(frozen=True, kw_only=True, eq=False)
class Correction:
    """What is to be added to one device's odometry over time."""

    t_ns: np.ndarray
    """(K,) rising."""
    p: np.ndarray
    """(K, 3) of the nodes, by odometry [m]."""
    dp: np.ndarray
    """(K, 3) [m]."""
    dr: np.ndarray
    """(K, 3) rotation vectors in W [rad]."""

    def of(self, said: Trajectory) -> Trajectory:
        """The corrected path; between two nodes each corrects as for a rigid world, mixed by time."""
        k, s = self.between(said.t_ns)
        moved = np.zeros((len(k), 3))
        for node, share in ((k, 1.0 - s), (k + 1, s)):
            arm = said.p - self.p[node]
            turned = Rotation.from_rotvec(self.dr[node]).apply(arm) - arm
            moved += share[:, None] * (self.dp[node] + turned)
        dr = (1.0 - s)[:, None] * self.dr[k] + s[:, None] * self.dr[k + 1]
        q = (Rotation.from_rotvec(dr) * Rotation.from_quat(said.q, scalar_first=True)).as_quat(
            scalar_first=True
        )
        q *= np.where((q * said.q).sum(axis=1, keepdims=True) < 0.0, -1.0, 1.0)
        return Trajectory(t_ns=said.t_ns, p=said.p + moved, q=q, tracking=said.tracking)

    def between(self, t_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The node before each time, and how far on to the next it is, 0 to 1."""
        k = np.clip(np.searchsorted(self.t_ns, t_ns, side="right") - 1, 0, len(self.t_ns) - 2)
        s = (t_ns - self.t_ns[k]) / (self.t_ns[k + 1] - self.t_ns[k])
        return k, np.clip(s, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Corrected:
    """What the graph found."""

    chest: Correction
    hand: Correction
    dt_s: float
    """The hand's clock against the chest's, beyond what the clocks' join said [s]."""
    dt_sigma_s: float
    nodes: np.ndarray
    """(K, 12, 12) covariance of (chest dp, dr, hand dp, dr) of each node."""
    following: np.ndarray
    """(K-1, 12, 12) of each node with the next."""
    with_dt: np.ndarray
    """(K, 12) of each node with dt."""
    bridge: np.ndarray
    """(K-1, 12) what odometry may have wandered from node to node, as variances."""
    num_tags: int
    num_refused_tags: int
    tag_px: float
    """Root mean square of what is left of the tags' corners [pixels]; NaN without any."""

    def covariance(self, t_ns: np.ndarray) -> tuple[Float[np.ndarray, "N 12 12"], Float[np.ndarray, "N 12"]]:
        """At these times: of both devices' errors, and of these with dt."""
        k, s = self.chest.between(t_ns)
        a, b = (1.0 - s)[:, None, None], s[:, None, None]
        crossed = self.following[k]
        P = a * a * self.nodes[k] + b * b * self.nodes[k + 1]
        P = P + a * b * (crossed + crossed.transpose(0, 2, 1))
        P[:, range(12), range(12)] += (s * (1.0 - s))[:, None] * self.bridge[k]
        return P, a[:, :, 0] * self.with_dt[k] + b[:, :, 0] * self.with_dt[k + 1]


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
    """Both in one world as the first tie has it, on one clock.

    drifts: of chest and hand. clock_sigma_s: how well the clocks are joined.
    InvalidValueError: no tie, or the two were never on at the same time.
    """
    if not ties:
        raise InvalidValueError("the two odometries are tied by at least one anchor, got none")
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


def jumps(said: Trajectory) -> np.ndarray:
    """(N-1,) bool: from which samples to the next the odometry moved its world, not the device."""
    n = len(said)
    if n < 6:
        return np.zeros(max(n - 1, 0), bool)
    dt = np.diff(said.t_ns)[:, None] / NS_PER_S
    turns = (
        Rotation.from_quat(said.q[1:], scalar_first=True)
        * Rotation.from_quat(said.q[:-1], scalar_first=True).inv()
    )
    out = np.zeros(n - 1, bool)
    for rate, least in (
        (np.diff(said.p, axis=0) / dt, _LEAST_JUMP_M),
        (turns.as_rotvec() / dt, _LEAST_JUMP_RAD),
    ):
        padded = np.pad(rate, ((2, 2), (0, 0)), mode="edge")
        around = np.median(np.stack([padded[:-4], padded[1:-3], padded[3:-1], padded[4:]]), axis=0)
        off = np.linalg.norm((rate - around) * dt, axis=1)
        usual = 1.48 * np.median(off)
        out |= off > max(least, 10.0 * usual)
    return out


@dataclass(frozen=True, kw_only=True, eq=False)
class _Problem:
    """What the factors between nodes are made of; two devices, chest and hand."""

    t_ns: np.ndarray
    p: tuple[np.ndarray, np.ndarray]
    said: tuple[Trajectory, Trajectory]
    wander: np.ndarray
    """(K-1, 12) variances of a step."""
    keep: np.ndarray
    """(K-1, 12) what of a node goes on in the next: 1, or less of a tilt."""
    ties: Sequence[Tie]
    at_chest: np.ndarray
    at_hand: np.ndarray
    """Nodes of the ties."""
    tilt_rad: tuple[float, float]
    X0: pin.SE3
    """The hand's world in the chest's by the first tie, as it is said here."""

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
        for said in (chest, hand):
            broken = jumps(said)
            extra += [said.t_ns[:-1][broken], said.t_ns[1:][broken]]
        t_ns = np.unique(np.clip(np.concatenate([grid, *extra]), start, stop)).astype(np.int64)
        wander, keep = [], []
        for said, drift in zip((chest, hand), drifts, strict=True):
            w, a = _wander(said, t_ns, drift)
            wander.append(w)
            keep.append(a)
        return cls(
            t_ns=t_ns,
            p=(chest.sampled(t_ns).p, hand.sampled(t_ns).p),
            said=(chest, hand),
            wander=np.hstack(wander),
            keep=np.hstack(keep),
            ties=ties,
            at_chest=np.searchsorted(t_ns, np.clip([tie.chest_ns for tie in ties], start, stop)),
            at_hand=np.searchsorted(t_ns, np.clip([tie.hand_ns for tie in ties], start, stop)),
            tilt_rad=(drifts[0].tilt_rad, drifts[1].tilt_rad),
            X0=ties[0].level,
        )

    def guess(self, x: np.ndarray, clock_sigma_s: float) -> np.ndarray:
        """By the anchors alone, so that tags are refused against something near."""
        shared = np.zeros(7)
        for _ in range(3):
            step, step_shared = self.chain(x, shared, clock_sigma_s).solve()
            x, shared = x + step, shared + step_shared
        return x

    def chain(self, x: np.ndarray, shared: np.ndarray, clock_sigma_s: float) -> Chain:
        """All but the tags."""
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
        """x_k+1 = keep x_k + what a turned world moves the step by + wander."""
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
        """Tilt of the first nodes; and W: the chest's world where the first tie saw it."""
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
        """Both devices' worlds, each as corrected at that time, have the board in one place."""
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
        if len(self.ties) > 1:  # the board stood still: its place, known as well as the tie is
            off = _board_off(self.ties[0], tie)
            J = np.zeros((1, 6, 12))
            J[0, :, :6] = root @ _lever(b_c - self.p[0][c])
            J_shared = np.zeros((1, 6, 7))
            J_shared[0, :, 1:] = -root
            there = np.concatenate([_moved(x[c, :6], b_c, self.p[0][c]) - b_c, x[c, 3:6]])
            chain.add(np.array([c]), (root @ (there + off - shared[1:]))[None], J, None, J_shared)

    def _add_far(self, chain: Chain, r: np.ndarray, Jc: np.ndarray, Jh: np.ndarray, c: int, h: int) -> None:
        """A factor of two nodes that need not be neighbours: the chest's at c, told at h.

        Where they are not, the chest's correction is carried from c to h by what odometry says in between,
        and what it may have wandered is added to the noise: a chain knows neighbours only.
        """
        if c == h:
            chain.add(np.array([c]), r[None], (Jc + Jh)[None])
            return
        a, b = min(c, h), max(c, h)
        wandered = np.zeros(12)
        wandered[:6] = self.wander[a:b, :6].sum(axis=0)
        total = np.eye(6) + Jc @ np.diag(wandered) @ Jc.T
        root = np.linalg.inv(np.linalg.cholesky(total))
        chain.add(np.array([h]), (root @ r)[None], (root @ (Jc + Jh))[None])


def _wander(said: Trajectory, t_ns: np.ndarray, drift: Drift) -> tuple[np.ndarray, np.ndarray]:
    """Variances of a step of one device, (K-1, 6), and what goes on."""
    middles = t_ns[:-1] + np.diff(t_ns) // 2
    p, mid = said.sampled(t_ns).p, said.sampled(middles).p
    length = np.linalg.norm(mid - p[:-1], axis=1) + np.linalg.norm(p[1:] - mid, axis=1)
    dt = np.diff(t_ns) / NS_PER_S
    worst = _worst_tracking(said, t_ns)
    times = np.where(worst == LIMITED, LIMITED_TIMES, 1.0)
    goes = np.exp(-dt / drift.tilt_s)
    is_broken = (worst == LOST) | _any_between(said.t_ns[:-1][jumps(said)], t_ns)
    p_var = times**2 * drift.walk_m**2 * length + drift.still_m**2 * dt + is_broken * BROKEN_M**2
    yaw_var = times**2 * drift.walk_rad**2 * length + 1e-10 * dt + is_broken * BROKEN_RAD**2
    tilt_var = drift.tilt_rad**2 * (1.0 - goes**2) + 1e-12
    out = np.stack([p_var, p_var, p_var, tilt_var, tilt_var, yaw_var], axis=1)
    keep = np.stack([np.ones_like(goes)] * 3 + [goes, goes, np.ones_like(goes)], axis=1)
    return out, keep


def _worst_tracking(said: Trajectory, t_ns: np.ndarray) -> np.ndarray:
    """Between each two times."""
    order = np.clip(np.searchsorted(said.t_ns, t_ns), 0, len(said) - 1)
    return np.array([said.tracking[a : b + 1].min() for a, b in pairwise(order)])


def _any_between(events_ns: np.ndarray, t_ns: np.ndarray) -> np.ndarray:
    """(K-1,) bool: whether one lies in [t_k, t_k+1)."""
    out: np.ndarray = np.diff(np.searchsorted(events_ns, t_ns)) > 0
    return out


def _moved(x: np.ndarray, point: np.ndarray, about: np.ndarray) -> np.ndarray:
    """Where a point of an odometry's world truly is, by its correction at a device."""
    out: np.ndarray = about + x[:3] + pin.exp3(x[3:]) @ (point - about)
    return out


def _lever(arm: np.ndarray) -> np.ndarray:
    """(6, 6): what (dp, dr) at a device does to a pose that far away."""
    out = np.eye(6)
    out[:3, 3:] = -pin.skew(arm)
    return out


def _board_off(first: Tie, tie: Tie) -> np.ndarray:
    """Where the chest's odometry has the board, less where it had it first."""
    X = tie.X_WcB * first.X_WcB.inverse()
    return np.concatenate([tie.X_WcB.translation - first.X_WcB.translation, pin.log3(X.rotation)])


def _root_of_inverse(P: np.ndarray) -> np.ndarray:
    """W with W^T W = P^-1."""
    floor = np.diag([1e-8] * 3 + [1e-8] * 3)  # 0.1 mm, 0.1 mrad: nothing is known better
    out: np.ndarray = np.linalg.inv(np.linalg.cholesky(np.asarray(P, float) + floor))
    return out
