"""Anchors as ties of the labels' pose graph, and how far they disagree: `Tie`, `closure_reasons`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pinocchio as pin

from calibration.labels.values import LabelConfig
from calibration.trajectory import Trajectory
from calibration.verdict import Reason
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class Tie:
    """An anchor in the pose graph: both devices saw the same board."""

    chest_ns: int
    hand_ns: int
    """Mean times of the views of each device, on the chest's clock [ns]."""
    X_WcWh: pin.SE3
    """The hand's world in the chest's by these views."""
    X_WcB: pin.SE3
    """The board in the chest's world, by its own odometry at the time."""
    covariance: np.ndarray
    """Covariance (6, 6) of X_WcWh: (p, rotation vector) perturbed on the left, about the board's position."""

    def __post_init__(self) -> None:
        """Check the covariance; InvalidValueError: it is not one."""
        P = np.asarray(self.covariance)
        if P.shape != (6, 6) or not np.isfinite(P).all() or np.linalg.eigvalsh(0.5 * (P + P.T))[0] < -1e-9:
            raise InvalidValueError(f"expected an anchor's covariance (6, 6), finite and positive, got {P}")

    @property
    def tilt(self) -> float:
        """Angle between the verticals of both worlds [rad]; 0 for gravity-aligned odometries."""
        return float(np.arccos(np.clip(self.X_WcWh.rotation[2, 2], -1.0, 1.0)))

    @property
    def level(self) -> pin.SE3:
        """X_WcWh without its tilt about the board: both worlds are gravity-aligned."""
        R = self.X_WcWh.rotation
        yaw = np.arctan2(R[1, 0] - R[0, 1], R[0, 0] + R[1, 1])
        turn = pin.utils.rotate("z", float(yaw))
        b = self.X_WcB.translation
        return pin.SE3(turn, b - turn @ self.X_WcWh.actInv(b))


def board_off(first: Tie, tie: Tie) -> np.ndarray:
    """Position of the board in the chest's odometry relative to the first tie."""
    X = tie.X_WcB * first.X_WcB.inverse()
    return np.concatenate([tie.X_WcB.translation - first.X_WcB.translation, pin.log3(X.rotation)])


MOST_TILT = float(np.deg2rad(5.0))
"""Largest angle between the verticals of two gravity-aligned odometries [rad]."""


def closure(first: Tie, last: Tie) -> tuple[float, float]:
    """Difference of two anchors at the board: (metres, radians)."""
    E = last.X_WcWh * first.X_WcWh.inverse()
    b = last.X_WcB.translation
    off = b - E.actInv(b)
    return float(np.linalg.norm(off)), float(np.linalg.norm(pin.log3(E.rotation)))


def closure_reasons(
    ties: Sequence[Tie], config: LabelConfig, chest: Trajectory, hand: Trajectory
) -> list[Reason]:
    """Reasons from anchors that contradict the first, or from the lack of further anchors."""
    if len(ties) < 2:
        return [
            note(
                "one-anchor",
                "One anchor only: drift between the devices goes undetected.",
                "Show the board to both cameras again at the end of the session.",
            )
        ]
    out = []
    for tie in ties[1:]:
        far_m, far_rad = closure(ties[0], tie)
        gone = sum(_path_length(path, ties[0].chest_ns, tie.chest_ns) for path in (chest, hand))
        walk = max(config.chest_drift.walk_m, config.hand_drift.walk_m)
        turn = max(config.chest_drift.walk_rad, config.hand_drift.walk_rad)
        arm = 0.5 * np.sqrt(gone) * turn * 2.0
        usual_m = np.sqrt(3.0 * walk**2 * gone + 0.01**2 + (turn * np.sqrt(gone) * arm) ** 2)
        usual_rad = np.sqrt(turn**2 * gone + np.deg2rad(0.5) ** 2)
        if far_m > 4.0 * usual_m or far_rad > 4.0 * usual_rad:
            out.append(
                note(
                    "closure",
                    f"Two anchors disagree by {1e3 * far_m:.0f} mm and {np.rad2deg(far_rad):.1f} degrees "
                    f"after {gone:.0f} m of path; odometry alone explains {1e3 * usual_m:.0f} mm and "
                    f"{np.rad2deg(usual_rad):.1f} degrees.",
                    "The board was moved, or a device lost its map: record again, the board fixed.",
                    is_fatal=True,
                )
            )
    return out


def anchor_reasons(ties: Sequence[Tie], chest: Trajectory, hand: Trajectory) -> list[Reason]:
    """Reasons for anchors that cannot be of these recordings; hand: on the chest's clock."""
    out = []
    for i, tie in enumerate(ties):
        for name, path, t_ns in (("chest", chest, tie.chest_ns), ("hand", hand, tie.hand_ns)):
            off_s = max(int(path.t_ns[0]) - t_ns, t_ns - int(path.t_ns[-1])) / NS_PER_S
            if off_s > 0.0:
                out.append(
                    note(
                        "anchor-elsewhere",
                        f"Anchor {i} was seen {off_s:.1f} s outside the recording of the {name}'s device.",
                        "It belongs to another capture with other worlds: give this capture's own.",
                        is_fatal=True,
                    )
                )
                break
        if tie.tilt > MOST_TILT:
            out.append(
                note(
                    "anchor-tilted",
                    f"Anchor {i} has both worlds' verticals {np.rad2deg(tie.tilt):.1f} degrees apart.",
                    "One of the worlds does not have z up, or the board's pose is wrong: anchor again.",
                    is_fatal=True,
                )
            )
    return out


def _path_length(path: Trajectory, start_ns: int, stop_ns: int) -> float:
    """Length of the path between two times, without tremor [m]."""
    grid = np.arange(max(start_ns, path.t_ns[0]), min(stop_ns, path.t_ns[-1]), NS_PER_S // 5)
    if len(grid) < 2:
        return 0.0
    return float(np.linalg.norm(np.diff(path.sampled(grid).p, axis=0), axis=1).sum())


def note(name: str, what: str, do: str, *, is_fatal: bool = False) -> Reason:
    """A reason; a warning unless `is_fatal`."""
    return Reason(name=name, what=what, do=do, is_fatal=is_fatal)
