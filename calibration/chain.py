"""A camera, a board, and an arm between them: fits the mounting poses of both to all corners.

    camera on the arm       A --X_AE--> E --X_EC--> C --X_CB--> B <--X_AB-- A
    camera beside the arm   A --X_AC--> C --X_CB--> B <--X_EB-- E <--X_AE-- A

Both are one equation, `X_CB = X^-1 Y^-1 Z`: Y is measured at every view, X (the camera's) and Z (the board's)
are unknown. A closed form gives the initial guess, then all corners of all views are fitted at once.

A: reference frame of the arm's driver (its mount, or the robot's base). E: its end effector. C: camera.
B: board.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.board_pose import pose_of
from calibration.camera import CameraModel
from calibration.detection import Corners
from robot_runtime.core.values.shapes import Float

HUBER_PX = 1.0
"""Huber threshold of corners [pixels]."""
OUTLIER = 4.0
"""A view whose corners are off by more than this many medians of all views is left out,"""
OUTLIER_PX = 1.0
"""if that is more than this [pixels],"""
MOST_OUTLIERS = 0.25
"""and at most this share of the views is left out."""
MISFIT_PX = 20.0
"""Errors of corners beyond which they belong to other poses, and estimated variances are meaningless."""
FOCAL_SIGMA, CENTRE_SIGMA_PX, RADIAL_SIGMA = 0.002, 1.0, 0.01
"""Prior standard deviations of a camera's focal length, as a share, its principal point [pixels] and its
radial distortion (k1 of Brown and Conrady); corrections are estimated with the rest."""
_FEW, _UNKNOWN = 5, 1e6
_SAME_LENS = np.zeros(4)
_SAME_LENS.flags.writeable = False
_N = 12 + len(_SAME_LENS)
"""Numbers that are estimated: X, Z and the lens; the board's size is one more."""
_FAR = 1e3
_ROUNDS, _STEP, _LEAST_SHARE = 25, 0.1, 1e-9
_LEAST_PX, _LEAST_M, _LEAST_RAD = 0.02, 1e-5, 1e-5


@dataclass(frozen=True, kw_only=True, eq=False)
class ArmView:
    """One image of the board, with the pose of the arm's end effector."""

    X_AE: pin.SE3
    p_B: Float[np.ndarray, "N 3"]
    """Positions of the seen corners on the board [m]."""
    uv: Float[np.ndarray, "N 2"]
    """Their positions in the image [pixels]."""
    X_CB: pin.SE3
    """Pose of the board by this image alone."""
    other_X_CB: pin.SE3 | None = None
    """The second pose in which a flat board looks nearly the same; None: there is none."""
    is_ambiguous: bool = False
    """Whether this image does not distinguish the two."""
    name: str = ""
    """Name of the image, for people."""


def arm_view(
    board: Board, corners: Corners, camera: CameraModel, X_AE: pin.SE3, *, name: str = ""
) -> ArmView:
    """View from an image in which the board was found. InvalidValueError: as `pose_of`."""
    seen = pose_of(board, corners, camera)
    return ArmView(
        X_AE=X_AE,
        p_B=board.corners_B[corners.ids],
        uv=corners.uv,
        X_CB=seen.X_CB,
        other_X_CB=seen.other_X_CB,
        is_ambiguous=seen.is_ambiguous,
        name=name,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Excitation:
    """How far the end effector was rotated about three directions, the largest first."""

    degrees: Float[np.ndarray, "3"]
    """Standard deviation about each."""
    axes_E: Float[np.ndarray, "3 3"]
    """Rows: those directions in the end effector's frame."""

    @classmethod
    def of(cls, poses: Sequence[pin.SE3]) -> "Excitation":
        """Excitation of poses X_AE about their mean orientation."""
        rotations = np.array([X.rotation for X in poses])
        mean = nearest_rotation(rotations.sum(axis=0))
        turns = np.array([pin.log3(mean.T @ R) for R in rotations])
        turns = turns - turns.mean(axis=0)
        _, sizes, axes = np.linalg.svd(turns, full_matrices=True)
        found = np.zeros(3)
        found[: len(sizes)] = sizes
        return cls(degrees=np.rad2deg(found / np.sqrt(len(poses))), axes_E=axes)


@dataclass(frozen=True, kw_only=True, eq=False)
class ChainFit:
    """X and Z that fit all corners best."""

    X: pin.SE3
    Z: pin.SE3
    covariance: Float[np.ndarray, "12 12"]
    """Covariance of X then Z, each its position [m] and a rotation vector [rad] about its own position,
    both in its parent frame. Errors of corners and arm are as estimated from the views."""
    used: tuple[int, ...]
    """Indices of the views that were fitted; the others were too far off."""
    view_px: Float[np.ndarray, " V"]
    """RMS error of each view's corners, for all views [pixels]."""
    rms_px: float
    held_out_px: float
    """RMS error of views predicted from all others [pixels]."""
    repeat_m: float
    """RMS distance of each view's own board from its predicted position [m]."""
    repeat_rad: float
    corner_px: float
    """Estimated standard deviations of a corner's coordinate [pixels],"""
    hand_m: float
    """of each coordinate of the arm's reported end-effector position [m],"""
    hand_rad: float
    """and of its orientation [rad]."""
    focal_share: float = 0.0
    """Relative correction of the focal length that fits the views better."""
    centre_px: float = 0.0
    """Correction of the principal point that fits the views best [pixels]."""
    radial: float = 0.0
    """Correction of the radial distortion k1 that fits the views best."""
    scale_share: float = 0.0
    """Relative correction of the board's size that fits the arm's motions better,"""
    scale_sigma: float = np.inf
    """and its standard deviation."""


class Chain:
    """The views of one camera."""

    def __init__(
        self,
        views: Sequence[ArmView],
        camera: CameraModel,
        *,
        is_on_arm: bool,
        held: Float[np.ndarray, "12 K"] | None = None,
    ) -> None:
        """
        is_on_arm: of the camera; otherwise it is beside the arm, and the board is on the end effector.
        held: columns of directions in which X and Z, as in `ChainFit.covariance`, are fixed.
        """
        free = np.eye(12) if held is None else _complement(held)
        self._free = free
        columns = free.shape[1]
        self._free_lens = np.zeros((_N, columns + _N - 12))
        self._free_lens[:12, :columns], self._free_lens[12:, columns:] = free, np.eye(_N - 12)
        self.views, self.camera, self.is_on_arm = list(views), camera, is_on_arm
        self.Y = [view.X_AE if is_on_arm else view.X_AE.inverse() for view in views]
        self._R_AE = np.array([view.X_AE.rotation for view in views])
        self._p_AE = np.array([view.X_AE.translation for view in views])

    def X_CB(self, X: pin.SE3, Z: pin.SE3, i: int) -> pin.SE3:
        """Predicted pose of the board in a view."""
        return X.inverse() * self.Y[i].inverse() * Z

    def with_boards(self, X: pin.SE3, Z: pin.SE3) -> list[pin.SE3]:
        """Of the two poses of each board, the one nearer to its predicted pose."""
        out = []
        for i, view in enumerate(self.views):
            there = self.X_CB(X, Z, i)
            candidates = [view.X_CB] + ([] if view.other_X_CB is None else [view.other_X_CB])
            out.append(min(candidates, key=lambda pose: angle_between(pose.rotation, there.rotation)))
        return out

    def view_px(
        self, X: pin.SE3, Z: pin.SE3, lens: Float[np.ndarray, "4"] = _SAME_LENS
    ) -> Float[np.ndarray, " V"]:
        """RMS error of each view's corners [pixels]."""
        none = np.zeros((len(self.views), 6))
        return np.array([rms(self._off(X, Z, none, [i], lens)) for i in range(len(self.views))])

    def fit(self, X: pin.SE3, Z: pin.SE3) -> ChainFit:
        """Fit X and Z from an initial guess."""
        used = list(range(len(self.views)))
        X, Z = self._roughly(X, Z, used)
        view_px = self.view_px(X, Z)
        off = view_px > max(OUTLIER * float(np.median(view_px)), OUTLIER_PX)
        if off.any() and off.mean() <= MOST_OUTLIERS and (~off).sum() >= _FEW:
            used = [i for i, is_off in enumerate(off) if not is_off]
            X, Z = self._roughly(X, Z, used)
            view_px = self.view_px(X, Z)
        if float(np.median(view_px)) > MISFIT_PX:
            found = _Likeliest(
                X, Z, _SAME_LENS, _UNKNOWN * np.eye(12), float(np.median(view_px)), 0.0, 0.0, np.nan
            )
        else:
            found = self._likeliest(X, Z, used)
        X, Z = found.X, found.Z
        view_px = self.view_px(X, Z, found.lens)
        boards = self.with_boards(X, Z)
        turned = [angle_between(boards[i].rotation, self.X_CB(X, Z, i).rotation) for i in used]
        counts = np.array([len(self.views[i].uv) for i in used])
        return ChainFit(
            X=X,
            Z=Z,
            covariance=found.covariance,
            used=tuple(used),
            view_px=view_px,
            rms_px=float(np.sqrt((counts * view_px[list(used)] ** 2).sum() / counts.sum())),
            held_out_px=found.held_out_px,
            repeat_m=rms(self._centre_gap(X, Z, used, boards)),
            repeat_rad=float(np.sqrt(np.mean(np.square(turned)))),
            corner_px=found.s_px,
            hand_m=found.s_m,
            hand_rad=found.s_rad,
            focal_share=float(found.lens[0]),
            centre_px=float(np.linalg.norm(found.lens[1:3])),
            radial=float(found.lens[3]),
            scale_share=found.scale,
            scale_sigma=found.scale_sigma,
        )

    def _centre_gap(
        self, X: pin.SE3, Z: pin.SE3, used: Sequence[int], boards: Sequence[pin.SE3]
    ) -> np.ndarray:
        """Vector from the predicted middle of each view's corners to that by the view alone [m]."""
        middles = [self.views[i].p_B.mean(axis=0) for i in used]
        return np.array(
            [boards[i].act(m) - self.X_CB(X, Z, i).act(m) for i, m in zip(used, middles, strict=True)]
        )

    def _off(
        self,
        X: pin.SE3,
        Z: pin.SE3,
        e: np.ndarray,
        used: Sequence[int],
        lens: np.ndarray = _SAME_LENS,
        scale: float = 0.0,
    ) -> np.ndarray:
        """Errors of the corners of some views, (M, 2) [pixels].

        e (V, 6): error of each reported end-effector pose: translation [m] and rotation [rad], in E.
        lens (4,): corrections of the focal length, as a share, the principal point [pixels], and k1.
        scale: relative correction of the board's size.
        """
        p_B, uv, view = self._stacked(used)
        R = np.array([self._R_AE[i] @ pin.exp3(e[i, 3:]) for i in range(len(self.views))])
        p_AE = self._p_AE + np.einsum("vij,vj->vi", self._R_AE, e[:, :3])
        p = (1.0 + scale) * p_B @ Z.rotation.T + Z.translation
        if self.is_on_arm:
            p = np.einsum("nji,nj->ni", R[view], p - p_AE[view])
        else:
            p = np.einsum("nij,nj->ni", R[view], p) + p_AE[view]
        middle = np.array([self.camera.cx, self.camera.cy])
        seen = self.camera.project((p - X.translation) @ X.rotation)
        square = np.square((seen - middle) / self.camera.fx).sum(axis=1, keepdims=True)
        off = middle + (1.0 + lens[0] + lens[3] * square) * (seen - middle) + lens[1:3] - uv
        return np.nan_to_num(off, nan=_FAR, posinf=_FAR, neginf=-_FAR)

    def _stacked(self, used: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        views = [self.views[i] for i in used]
        view = np.repeat(used, [len(each.uv) for each in views])
        return np.concatenate([v.p_B for v in views]), np.concatenate([v.uv for v in views]), view

    def _roughly(self, X: pin.SE3, Z: pin.SE3, used: Sequence[int]) -> tuple[pin.SE3, pin.SE3]:
        """Robust fit that takes the arm's poses as exact, against outliers of corners and views."""
        none = np.zeros((len(self.views), 6))
        damping, least = 1e-3, float("inf")
        for _ in range(_ROUNDS):
            J, _, r = self._jacobian(X, Z, none, used)
            J = J[:, :12]
            w = np.minimum(1.0, HUBER_PX / np.maximum(np.abs(r), 1e-12))
            least = min(least, _huber(r))
            J = J @ self._free
            H, g = J.T @ (w[:, None] * J), J.T @ (w * r)
            while damping < 1e8:
                x = -self._free @ np.linalg.solve(H + damping * np.diag(np.diag(H) + 1e-9), g)
                X_new, Z_new = moved(X, x[:6]), moved(Z, x[6:])
                if _huber(self._off(X_new, Z_new, none, used).ravel()) < least:
                    X, Z, damping = X_new, Z_new, max(damping / 10, 1e-9)
                    break
                damping *= 10
            if damping >= 1e8 or np.abs(x).max() < 1e-6:
                break
        return X, Z

    def _likeliest(self, X: pin.SE3, Z: pin.SE3, used: Sequence[int]) -> "_Likeliest":
        """Fit that estimates the unknown variances of corners and arm together with X and Z (expectation
        maximisation; a view's own error is eliminated by its Schur complement)."""
        e = np.zeros((len(self.views), 6))
        lens: np.ndarray = np.zeros(len(_SAME_LENS))
        sigmas = np.array([FOCAL_SIGMA, CENTRE_SIGMA_PX, CENTRE_SIGMA_PX, RADIAL_SIGMA])
        prior_lens = np.diag(1.0 / sigmas**2)
        s_px, s_m, s_rad = 0.3, 5e-4, 1e-3
        for _ in range(_ROUNDS):
            J, J_e, r = self._jacobian(X, Z, e, used, lens)
            _, _, view = self._stacked(used)
            rows = np.repeat(view, 2)
            w = np.minimum(1.0, 3.0 * s_px / np.maximum(np.abs(r), 1e-12)) / s_px**2
            prior = np.diag(1.0 / np.repeat([s_m, s_rad], 3) ** 2)
            H_all, g_all = np.zeros((_N + 1, _N + 1)), np.zeros(_N + 1)
            H_all[12:_N, 12:_N], g_all[12:_N] = prior_lens, prior_lens @ lens
            parts = []
            for i in used:
                J_i, E_i, r_i, w_i = J[rows == i], J_e[rows == i], r[rows == i], w[rows == i]
                A = np.linalg.inv(E_i.T @ (w_i[:, None] * E_i) + prior)
                C, b = E_i.T @ (w_i[:, None] * J_i), E_i.T @ (w_i * r_i) + prior @ e[i]
                H_i = J_i.T @ (w_i[:, None] * J_i) - C.T @ A @ C
                g_i = J_i.T @ (w_i * r_i) - C.T @ A @ b
                H_all, g_all = H_all + H_i, g_all + g_i
                parts.append((H_i[:_N, :_N], g_i[:_N], A, C[:, :_N], b))
            H, g = H_all[:_N, :_N], g_all[:_N]
            covariance = self._covariance(H)
            x = -covariance @ g
            x *= min(1.0, _STEP / float(np.abs(x[:12]).max()))
            squares, freedom = np.zeros(6), len(r) - float(self._free.shape[1])
            for i, (_, _, A, C, b) in zip(used, parts, strict=True):
                e[i] -= A @ (b + C @ x)
                P = A + A @ C @ covariance @ C.T @ A
                squares += e[i] ** 2 + np.diag(P)
                freedom -= 6.0 - np.trace(prior @ P)
            X, Z, lens = moved(X, x[:6]), moved(Z, x[6:12]), lens + x[12:]
            was = s_px, s_m, s_rad
            s_m = max(float(np.sqrt(squares[:3].mean() / len(used))), _LEAST_M)
            s_rad = max(float(np.sqrt(squares[3:].mean() / len(used))), _LEAST_RAD)
            r = self._off(X, Z, e, used, lens).ravel()
            s_px = max(float(np.sqrt((w * s_px**2 * r**2).sum() / max(freedom, 1.0))), _LEAST_PX)
            if np.allclose(was, (s_px, s_m, s_rad), rtol=0.01) and np.abs(x[:12]).max() < 1e-6:
                break
        held_out_px = self._held_out_px(X, Z, lens, used, H, parts)
        # The board's size is judged, not fitted: the print was measured.
        F = np.zeros((_N + 1, self._free_lens.shape[1] + 1))
        F[:_N, :-1], F[_N, -1] = self._free_lens, 1.0
        of_scale = _inverse(F.T @ H_all @ F)[-1]
        return _Likeliest(
            X,
            Z,
            lens,
            covariance[:12, :12],
            s_px,
            s_m,
            s_rad,
            held_out_px,
            scale=-float(of_scale @ F.T @ g_all),
            scale_sigma=float(np.sqrt(of_scale[-1])),
        )

    def _covariance(self, H: np.ndarray) -> np.ndarray:
        F = self._free_lens
        return np.asarray(F @ _inverse(F.T @ H @ F) @ F.T)

    def _held_out_px(
        self,
        X: pin.SE3,
        Z: pin.SE3,
        lens: np.ndarray,
        used: Sequence[int],
        H: np.ndarray,
        parts: Sequence[tuple[np.ndarray, ...]],
    ) -> float:
        """RMS of each view predicted from all others, to first order; NaN if those are too few."""
        if len(used) < _FEW:
            return float("nan")
        none = np.zeros((len(self.views), 6))
        off = []
        for i, (H_i, g_i, *_) in zip(used, parts, strict=True):
            x = self._covariance(H - H_i) @ g_i
            off.append(self._off(moved(X, x[:6]), moved(Z, x[6:12]), none, [i], lens + x[12:]))
        return rms(np.concatenate(off))

    def _jacobian(
        self, X: pin.SE3, Z: pin.SE3, e: np.ndarray, used: Sequence[int], lens: np.ndarray = _SAME_LENS
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of the corners by X, Z, the lens and the board's size (M, 17), by each view's own error (M, 6), and
        the corners' errors (M,)."""
        d, columns = 1e-7, []
        here = self._off(X, Z, e, used, lens).ravel()
        for x in d * np.eye(_N + 7):
            Xx, Zx = moved(X, x[:6]), moved(Z, x[6:12])
            off = self._off(Xx, Zx, e + x[_N + 1 :], used, lens + x[12:_N], float(x[_N]))
            columns.append((off.ravel() - here) / d)
        J = np.array(columns).T
        return J[:, : _N + 1], J[:, _N + 1 :], here


@dataclass(frozen=True, eq=False)
class _Likeliest:
    X: pin.SE3
    Z: pin.SE3
    lens: np.ndarray
    covariance: np.ndarray
    s_px: float
    s_m: float
    s_rad: float
    held_out_px: float
    scale: float = 0.0
    scale_sigma: float = np.inf


def moved(X: pin.SE3, x: Float[np.ndarray, "6"]) -> pin.SE3:
    """A pose translated by x[:3] [m] and rotated about its own position by the rotation vector x[3:] [rad],
    both in its parent frame."""
    return pin.SE3(pin.exp3(x[3:]) @ X.rotation, X.translation + x[:3])


def angle_between(R: Float[np.ndarray, "3 3"], S: Float[np.ndarray, "3 3"]) -> float:
    """[rad]"""
    return float(np.linalg.norm(pin.log3(R.T @ S)))


def nearest_rotation(M: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "3 3"]:
    """The rotation nearest to a matrix."""
    U, _, Vt = np.linalg.svd(M)
    return np.asarray(U @ np.diag([1.0, 1.0, np.linalg.det(U @ Vt)]) @ Vt)


def mean_pose(poses: Sequence[pin.SE3]) -> pin.SE3:
    """Mean position, and the rotation nearest to the mean matrix."""
    R = nearest_rotation(np.sum([X.rotation for X in poses], axis=0))
    return pin.SE3(R, np.mean([X.translation for X in poses], axis=0))


def _complement(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the complement of the columns."""
    U, _, _ = np.linalg.svd(columns, full_matrices=True)
    return np.asarray(U[:, columns.shape[1] :])


def _inverse(H: np.ndarray) -> np.ndarray:
    """Inverse of a matrix that should be positive; undetermined directions get a very large variance."""
    scale = 1.0 / np.sqrt(np.maximum(np.diag(H), 1e-300))
    values, vectors = np.linalg.eigh(scale[:, None] * H * scale)
    return np.asarray(scale[:, None] * (vectors / np.maximum(values, _LEAST_SHARE)) @ vectors.T * scale)


def _huber(r: np.ndarray) -> float:
    """Huber cost: squares of small, distances of large residuals."""
    far = np.abs(r)
    return float(np.where(far < HUBER_PX, 0.5 * far**2, HUBER_PX * (far - 0.5 * HUBER_PX)).sum())


def rms(off: np.ndarray) -> float:
    """Root mean square of distances."""
    return float(np.sqrt((off**2).sum(axis=-1).mean()))
