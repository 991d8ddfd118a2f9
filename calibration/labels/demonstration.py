"""Computes labels of one demonstration: `labels_of`.

t_k = begin + k row_s          on the chest's clock; poses are interpolated, images are the newest by then
x_WG   the person's hips on the floor, smoothed, stationary while the person does not walk
X_GE = X_WG^-1 X_WE            computed after smoothing, so that both give the hand in the room exactly
"""

import math
from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from scipy.spatial.transform import Rotation

from calibration.capture.raw import Demonstration
from calibration.capture.values import Glimpses
from calibration.labels.base import heading
from calibration.labels.closure import note
from calibration.labels.joined import CHEST, Joined
from calibration.labels.smoothing import smooth_path
from calibration.labels.values import Glimpsed, Labels
from calibration.trajectory import LOST, Trajectory, multiplied
from calibration.verdict import Reason, Verdict
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.pose_rows import turns_about_vertical
from robot_runtime.errors import InvalidValueError

SHORTEST_S = 1.0
MOST_INVALID = 0.05
"""Share of rows without poses of both devices above which a demonstration is refused."""
UNSURE_M, UNKNOWN_M = 0.030, 0.100
"""Standard deviations of the hand in the chest along the worst axis that cause a warning, and a refusal
because they exceed the objects that hands hold [m]."""
MOST_OFF_M = 0.25
"""Largest distance of the smoothed base from the person; above it the person walked faster than it drives."""
OLDEST_WIDTH_NS = NS_PER_S // 5
OLDEST_PICTURE_NS = NS_PER_S // 2


def labels_of(joined: Joined, demonstration: Demonstration, *, t_ns: np.ndarray | None = None) -> Labels:
    """Labels of one demonstration; InvalidValueError: the devices have no poses in it.

    t_ns: times of the rows, within both devices' recordings; None: all of the demonstration.
    """
    config = joined.config
    grid_ns, cut_s = _grid(joined, demonstration)
    t_ns = grid_ns if t_ns is None else t_ns
    chest, camera = joined.poses(CHEST, t_ns), joined.poses(joined.hand_role, t_ns)
    hand = camera.then(joined.X_HE)
    yaw, spread = heading(chest.R)
    pivot = joined.pivot.places(chest.p, chest.R)
    x_WP = np.column_stack([pivot[:, :2], yaw])
    x_WG, stands = smooth_path(x_WP, config.row_s, config.smoothing.of_person(config.slower))
    X_GE, X_CE = in_base(x_WG, hand), in_frame(chest, hand)
    X_GC = in_base(x_WG, chest)
    neutral = pin.SE3(joined.R_GC, np.median(X_GC.p, axis=0))
    width, gripper_ok = _width(joined, t_ns)
    valid = {
        "chest": (chest.tracking != LOST) & ~joined.is_near_jump(CHEST, t_ns),
        "hand": (camera.tracking != LOST) & ~joined.is_near_jump(joined.hand_role, t_ns),
        "gripper": gripper_ok,
        "anchor": np.full(len(t_ns), True),
    }
    covariance = covariance_of(joined, t_ns, chest, hand, camera)
    cameras = [role for role in (CHEST, joined.hand_role) if len(joined.device(role).frames)]
    shown = {role: _pictures(joined, role, t_ns) for role in cameras}
    glimpses = (
        {} if joined.capture.glimpses is None else _glimpses(joined, joined.capture.glimpses, t_ns, x_WG)
    )
    figures = _figures(joined, t_ns, x_WG, x_WP, spread, covariance)
    reasons = [*joined.reasons, *_reasons(joined, valid, figures, len(t_ns), cut_s)]
    return Labels(
        demonstration=demonstration.number,
        task=joined.capture.task,
        t_ns=t_ns,
        x_WG=x_WG,
        X_WE=hand,
        X_GE=X_GE,
        X_WC=chest,
        X_CE=X_CE,
        X_GE_chest=X_CE.before(neutral),
        width=width,
        stands=stands,
        covariance=covariance,
        valid=valid,
        yaw_spread=spread,
        x_WP=x_WP,
        glimpses=glimpses,
        picture_ns={role: each.t_ns for role, each in shown.items()},
        picture_index={role: each.index for role, each in shown.items()},
        slower=config.slower,
        figures=figures,
        hashes=joined.hashes,
        verdict=Verdict.of(reasons),
    )


def in_frame(moving: Trajectory, seen: Trajectory) -> Trajectory:
    """X_AB(t) = X_WA(t)^-1 X_WB(t), row by row at the same times."""
    back = moving.q * np.array([1.0, -1.0, -1.0, -1.0])
    p = np.einsum("nji,nj->ni", moving.R, seen.p - moving.p)
    return Trajectory(
        t_ns=seen.t_ns,
        p=p,
        q=_continuous(multiplied(back, seen.q)),
        tracking=np.minimum(moving.tracking, seen.tracking),
    )


def in_base(x_WG: np.ndarray, seen: Trajectory) -> Trajectory:
    """X_GE(t) = X_WG(t)^-1 X_WE(t) of a base at (x, y, yaw), row by row."""
    half = 0.5 * x_WG[:, 2]
    zero = np.zeros(len(half))
    back = np.column_stack([np.cos(half), zero, zero, -np.sin(half)])
    off = seen.p - np.column_stack([x_WG[:, :2], zero])
    p = np.einsum("nji,nj->ni", turns_about_vertical(x_WG[:, 2]), off)
    return Trajectory(t_ns=seen.t_ns, p=p, q=_continuous(multiplied(back, seen.q)), tracking=seen.tracking)


def from_base(x_WG: np.ndarray, X_GE: Trajectory) -> Trajectory:
    """X_WE = X_WG * X_GE: the motion of a robot that follows both."""
    half = 0.5 * x_WG[:, 2]
    zero = np.zeros(len(half))
    turn = np.column_stack([np.cos(half), zero, zero, np.sin(half)])
    p = np.einsum("nij,nj->ni", turns_about_vertical(x_WG[:, 2]), X_GE.p)
    p = p + np.column_stack([x_WG[:, :2], zero])
    return Trajectory(t_ns=X_GE.t_ns, p=p, q=_continuous(multiplied(turn, X_GE.q)), tracking=X_GE.tracking)


def recomposition_error(labels: Labels) -> tuple[float, float]:
    """Largest difference between X_WG * X_GE and X_WE: (metres, radians)."""
    again = from_base(labels.x_WG, labels.X_GE)
    same = np.abs((again.q * labels.X_WE.q).sum(axis=1))
    off = np.linalg.norm(again.p - labels.X_WE.p, axis=1)
    return float(off.max()), float(2.0 * np.arccos(np.clip(same, 0.0, 1.0)).max())


def covariance_of(
    joined: Joined, t_ns: np.ndarray, chest: Trajectory, hand: Trajectory, camera: Trajectory
) -> np.ndarray:
    """Covariance (N, 6, 6) of X_CE, see `Labels.covariance`. hand: X_WE, camera: X_WH."""
    P, with_dt = joined.corrected.covariance(t_ns)
    chest_drift, hand_drift = joined.config.chest_drift, joined.config.hand_drift
    jitter = np.array(
        [
            *[chest_drift.noise_m**2] * 3,
            *[chest_drift.noise_rad**2] * 3,
            *[hand_drift.noise_m**2] * 3,
            *[hand_drift.noise_rad**2] * 3,
        ]
    )
    P[:, range(12), range(12)] += jitter
    n = len(t_ns)
    J = np.zeros((n, 6, 12))
    eye = np.eye(3)
    J[:, 0:3, 0:3], J[:, 0:3, 6:9] = -eye, eye
    J[:, 0:3, 3:6] = _skew(hand.p - chest.p)
    J[:, 0:3, 9:12] = -_skew(hand.p - camera.p)
    J[:, 3:6, 3:6], J[:, 3:6, 9:12] = -eye, eye
    J_dt = _velocities(hand)
    JP = J @ P @ J.transpose(0, 2, 1)
    crossed = (J @ with_dt[:, :, None])[:, :, 0][:, :, None] * J_dt[:, None, :]
    var_dt = joined.corrected.dt_sigma_s**2
    JP += crossed + crossed.transpose(0, 2, 1) + var_dt * J_dt[:, :, None] * J_dt[:, None, :]
    back = np.zeros((n, 6, 6))
    back[:, :3, :3] = back[:, 3:, 3:] = chest.R.transpose(0, 2, 1)
    out = back @ JP @ back.transpose(0, 2, 1)
    symmetric: np.ndarray = 0.5 * (out + out.transpose(0, 2, 1))
    return symmetric


def _velocities(path: Trajectory) -> np.ndarray:
    """Velocities (N, 6) along a path, in the axes of W [m/s, rad/s]."""
    t_s = (path.t_ns - path.t_ns[0]) / NS_PER_S
    turns = Rotation.from_quat(path.q, scalar_first=True)
    w = (turns[1:] * turns[:-1].inv()).as_rotvec() / np.diff(t_s)[:, None]
    return np.hstack([np.gradient(path.p, t_s, axis=0), np.vstack([w, w[-1:]])])


def _skew(v: np.ndarray) -> np.ndarray:
    out = np.zeros((len(v), 3, 3))
    out[:, 0, 1], out[:, 0, 2], out[:, 1, 2] = -v[:, 2], v[:, 1], -v[:, 0]
    out[:, 1, 0], out[:, 2, 0], out[:, 2, 1] = v[:, 2], -v[:, 1], v[:, 0]
    return out


def _continuous(q: np.ndarray) -> np.ndarray:
    """The same rotations without sign flips between neighbours; the first with w >= 0."""
    if not len(q):
        return q
    flips = np.where((q[1:] * q[:-1]).sum(axis=1) < 0.0, -1.0, 1.0)
    signs = np.concatenate([[-1.0 if q[0, 0] < 0.0 else 1.0], flips])
    out: np.ndarray = q * np.cumprod(signs)[:, None]
    return out


def _grid(joined: Joined, demonstration: Demonstration) -> tuple[np.ndarray, float]:
    """Times of the rows, and the time of the demonstration outside both devices' recordings [s]."""
    low, high = joined.span_ns
    begin, end = max(demonstration.begin_ns, low), min(demonstration.end_ns, high + 1)
    for role in (CHEST, joined.hand_role):
        frames = joined.device(role).frames
        if len(frames):
            stamps = joined.on_chest_clock(role, frames.t_ns)
            after = stamps[stamps >= begin]
            if after.size and after[0] - begin < OLDEST_PICTURE_NS:
                begin = max(begin, int(after[0]))
    count = max(0, math.ceil((end - begin) / (joined.config.row_s * NS_PER_S)))
    if count < 2:
        raise InvalidValueError(
            f"demonstration {demonstration.number} has fewer than two rows with poses of chest and hand: the "
            "capture was cut there, or the clocks are not joined"
        )
    t_ns = begin + np.rint(np.arange(count) * joined.config.row_s * NS_PER_S).astype(np.int64)
    wanted = demonstration.end_ns - demonstration.begin_ns
    return t_ns, max(0.0, (wanted - (end - begin)) / NS_PER_S)


def _width(joined: Joined, t_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Interpolated gripper width, and whether it is known."""
    found = joined.device(joined.hand_role).gripper
    if found is None or len(found) < 2:
        return np.full(len(t_ns), np.nan), np.zeros(len(t_ns), bool)
    at = joined.clock(found.t_ns)
    width = np.interp(t_ns, at, found.width_m)
    after = np.clip(np.searchsorted(at, t_ns), 1, len(at) - 1)
    near = np.minimum(np.abs(at[after] - t_ns), np.abs(at[after - 1] - t_ns))
    return width, (near < OLDEST_WIDTH_NS) & np.isfinite(width)


@dataclass(frozen=True, eq=False)
class _Shown:
    t_ns: np.ndarray
    index: np.ndarray


def _pictures(joined: Joined, role: str, t_ns: np.ndarray) -> _Shown:
    """The newest image by each time."""
    frames = joined.device(role).frames
    stamps = joined.on_chest_clock(role, frames.t_ns)
    i = np.searchsorted(stamps, t_ns, side="right") - 1
    shown = np.maximum(i, 0)
    return _Shown(stamps[shown], np.where(i >= 0, frames.index[shown], -1))


def _glimpses(joined: Joined, found: Glimpses, t_ns: np.ndarray, x_WG: np.ndarray) -> dict[str, Glimpsed]:
    """Things by name: the newest glimpse by each row, its position in W then, expressed in G now."""
    low, high = joined.span_ns
    period_ns = round(joined.config.row_s * NS_PER_S)
    out = {}
    for name in dict.fromkeys(found.name.tolist()):
        times, places = [], []
        for role in (CHEST, joined.hand_role):
            rows = np.flatnonzero((found.name == name) & (found.role == role))
            at = joined.on_chest_clock(role, found.t_ns[rows])
            rows, at = rows[(at >= low) & (at <= high)], at[(at >= low) & (at <= high)]
            if not rows.size:
                continue
            unique, back = np.unique(at, return_inverse=True)
            pose = joined.poses(role, unique)
            places.append(pose.p[back] + np.einsum("nij,nj->ni", pose.R[back], found.p[rows]))
            times.append(at)
        if not times:
            continue
        at, p_W = np.concatenate(times), np.concatenate(places)
        order = np.argsort(at, kind="stable")
        at, p_W = at[order], p_W[order]
        i = np.searchsorted(at, t_ns, side="right") - 1
        newest = np.maximum(i, 0)
        off = p_W[newest] - np.column_stack([x_WG[:, :2], np.zeros(len(t_ns))])
        p_G = np.einsum("nji,nj->ni", turns_about_vertical(x_WG[:, 2]), off)
        age = t_ns - at[newest]
        out[name] = Glimpsed(p_G=p_G, seen=(i >= 0) & (age < 2 * period_ns), known=i >= 0)
    return out


def _figures(
    joined: Joined,
    t_ns: np.ndarray,
    x_WG: np.ndarray,
    x_WP: np.ndarray,
    spread: np.ndarray,
    covariance: np.ndarray,
) -> dict[str, float]:
    sigma = np.sqrt(np.linalg.eigvalsh(covariance[:, :3, :3])[:, -1])
    sigma_r = np.sqrt(np.linalg.eigvalsh(covariance[:, 3:, 3:])[:, -1])
    off = np.linalg.norm(x_WG[:, :2] - x_WP[:, :2], axis=1)
    found = joined.corrected
    return {
        "duration_s": len(t_ns) * joined.config.row_s,
        "base_path_m": float(np.linalg.norm(np.diff(x_WG[:, :2], axis=0), axis=1).sum()),
        "base_off_person_m": float(off.max()),
        "yaw_spread_rad": float(np.quantile(spread, 0.95)),
        "hand_sigma_m": float(np.quantile(sigma, 0.95)),
        "hand_sigma_rad": float(np.quantile(sigma_r, 0.95)),
        "pivot_rms_m": joined.pivot.rms_m,
        "pivot_condition": joined.pivot.condition if joined.pivot.is_measured else float("nan"),
        "clock_offset_s": joined.clock.offset_ns / NS_PER_S,
        "clock_skew_ppm": joined.clock.skew_ppm,
        "clock_correction_s": found.dt_s,
        "num_tags": float(found.num_tags),
        "num_refused_tags": float(found.num_refused_tags),
    }


def _reasons(
    joined: Joined, valid: dict[str, np.ndarray], figures: dict[str, float], num: int, cut_s: float
) -> list[Reason]:
    out = []
    if figures["duration_s"] < SHORTEST_S:
        out.append(
            note(
                "short",
                f"It lasts {figures['duration_s']:.2f} s.",
                "Demonstrate the whole task.",
                is_fatal=True,
            )
        )
    if cut_s > 0.5:
        out.append(
            note(
                "cut",
                f"One of the devices has no poses for {cut_s:.1f} s of it.",
                "A battery was empty, or a recording was stopped early: record it again.",
                is_fatal=True,
            )
        )
    out += _lost(joined, valid, num)
    if not valid["gripper"].any():
        out.append(
            note(
                "no-width",
                "The gripper width is not measured.",
                "Labels have no gripper: film its tags.",
            )
        )
    if figures["hand_sigma_m"] > UNSURE_M:
        out.append(
            note(
                "unsure",
                f"The hand's pose in the chest is known to {1e3 * figures['hand_sigma_m']:.0f} mm only.",
                "Anchor again at the end, or put tags on the gripper: drift grows with the path, and "
                "odometry that was lost, jumped or gave no poses for a moment may be anywhere until the next "
                "anchor.",
                is_fatal=figures["hand_sigma_m"] > UNKNOWN_M,
            )
        )
    if figures["base_off_person_m"] > MOST_OFF_M:
        out.append(
            note(
                "too-fast",
                f"The base cannot keep up: it is up to {figures['base_off_person_m']:.2f} m from the person.",
                "Walk no faster than the robot drives.",
            )
        )
    if figures["yaw_spread_rad"] > np.deg2rad(20.0):
        out.append(
            note(
                "sideways",
                f"Estimates of the heading differ by {np.rad2deg(figures['yaw_spread_rad']):.0f} degrees.",
                "Wear the camera upright on the chest, and lean less to the side.",
            )
        )
    return out


def _lost(joined: Joined, valid: dict[str, np.ndarray], num: int) -> list[Reason]:
    """Check that chest and hand have odometry throughout."""
    out = []
    for role, name in ((CHEST, "chest"), (joined.hand_role, "hand")):
        share = 1.0 - float(valid[name].mean())
        if share > MOST_INVALID:
            out.append(
                note(
                    f"{name}-lost",
                    f"The odometry of {role} was lost, or jumped, for {100 * share:.0f} % of it.",
                    "Move slower, keep the camera uncovered with texture in view, and record it again.",
                    is_fatal=True,
                )
            )
        elif share > 0.0:
            out.append(
                note(
                    f"{name}-gaps",
                    f"Rows without odometry of {role}: {round(share * num)}.",
                    "They are marked.",
                )
            )
    return out
