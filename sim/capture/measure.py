"""Errors of labels against the truth of a simulated session: `LabelErrors`, `errors_of`."""

from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from jaxtyping import Bool, Float
from scipy.spatial.transform import Rotation

from calibration.labels.values import Labels
from sim.capture.devices import CHEST, HAND
from sim.capture.truth import Truth


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelErrors:
    """Label errors of one demonstration's N rows."""

    valid: Bool[np.ndarray, " N"]
    path_m: Float[np.ndarray, " N"]
    """Path length of the chest camera since the first anchor [m]."""
    hand_m: Float[np.ndarray, " N"]
    """Position error of the TCP in the chest camera [m]."""
    hand_rad: Float[np.ndarray, " N"]
    nees: Float[np.ndarray, " N"]
    """Normalised squared error of the same pose, divided by its 6 degrees of freedom."""
    base_m: Float[np.ndarray, " N"]
    """Position error of the virtual base after the best alignment of the rooms [m]."""
    base_rad: Float[np.ndarray, " N"]
    recomposition_m: float
    """Largest distance of X_WG * X_GE from X_WE [m]."""


def errors_of(labels: Labels, truth: Truth) -> LabelErrors:
    """Compute errors row by row, in true time."""
    t_ns = truth.true_time(CHEST, labels.t_ns)
    p, R = truth.hand_in_chest(t_ns)
    estimated = labels.X_CE
    dp = p - estimated.p
    dr = Rotation.from_matrix(R @ estimated.R.transpose(0, 2, 1)).as_rotvec()
    e = np.hstack([dp, dr])
    nees = np.einsum("ni,ni->n", e, np.linalg.solve(labels.covariance, e[:, :, None])[:, :, 0]) / 6.0
    base_m, base_rad = _base_errors(np.asarray(labels.x_WG), truth.base(t_ns))
    return LabelErrors(
        valid=labels.is_valid,
        path_m=np.interp(t_ns, truth.t_ns, truth.X_WC.path_m()) - _path_at_anchor(truth),
        hand_m=np.linalg.norm(dp, axis=1),
        hand_rad=np.linalg.norm(dr, axis=1),
        nees=nees,
        base_m=base_m,
        base_rad=base_rad,
        recomposition_m=_recomposition(labels),
    )


def clock_error_ns(truth: Truth, t_hand_ns: np.ndarray, t_chest_ns: np.ndarray) -> Float[np.ndarray, " N"]:
    """Errors of wrist-device times converted to the chest's clock [ns]."""
    return t_chest_ns - truth.clocks[CHEST].at(truth.true_time(HAND, t_hand_ns)).astype(float)


def anchor_error(
    truth: Truth, anchor: int, X_WcWh: pin.SE3, chest_ns: int, hand_ns: int
) -> tuple[float, float]:
    """Errors of the anchor, at the board and in the middle of the views [m, rad].

    Poses that both odometries reported there are taken as given: the anchor has to fit them despite drift.
    """
    t_C, t_H = (
        int(truth.true_time(role, np.array([t]))[0]) for role, t in ((CHEST, chest_ns), (HAND, hand_ns))
    )
    X_VcW = _reported(truth, CHEST, t_C) * truth.X_WC.at(t_C).inverse()
    X_VhW = _reported(truth, HAND, t_H) * (truth.X_WE.at(t_H) * truth.X_EH).inverse()
    board = X_VcW.act(truth.boards[anchor].translation)
    off = X_WcWh * (X_VcW * X_VhW.inverse()).inverse()
    return float(np.linalg.norm(off.act(board) - board)), float(np.linalg.norm(pin.log3(off.rotation)))


def _reported(truth: Truth, role: str, t_ns: int) -> pin.SE3:
    return truth.X_VC[role].at(t_ns)


def _path_at_anchor(truth: Truth) -> float:
    ends = [span.stop_ns for span in truth.spans if span.kind == "anchor"]
    return float(np.interp(ends[0], truth.t_ns, truth.X_WC.path_m())) if ends else 0.0


def _base_errors(estimated: np.ndarray, true: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors of position and yaw after the best planar alignment."""
    turn = float(np.angle(np.exp(1j * (true[:, 2] - estimated[:, 2])).mean()))
    c, s = np.cos(turn), np.sin(turn)
    turned = estimated[:, :2] @ np.array([[c, s], [-s, c]])
    off = true[:, :2] - turned
    yaw = true[:, 2] - estimated[:, 2] - turn
    return np.linalg.norm(off - off.mean(axis=0), axis=1), np.abs((yaw + np.pi) % (2 * np.pi) - np.pi)


def _recomposition(labels: Labels) -> float:
    x = np.asarray(labels.x_WG)
    c, s = np.cos(x[:, 2]), np.sin(x[:, 2])
    p = labels.X_GE.p
    there = np.column_stack(
        [x[:, 0] + c * p[:, 0] - s * p[:, 1], x[:, 1] + s * p[:, 0] + c * p[:, 1], p[:, 2]]
    )
    return float(np.abs(there - labels.X_WE.p).max())
