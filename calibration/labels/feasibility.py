"""Checks whether a given robot can execute a demonstration: `place_robot`, `feasibility`.

G  the virtual base (the person)     B  the robot's base: X_GB, the same in all demonstrations
X_WB = X_WG X_GB,  X_BE = X_GB^-1 X_GE        the hand in the room is unchanged
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pinocchio as pin

from calibration.labels.demonstration import in_base
from calibration.labels.smoothing import Pace
from calibration.labels.values import Labels
from calibration.trajectory import Trajectory
from calibration.verdict import Reason, Verdict
from robot_runtime.errors import InvalidValueError

OFFSETS_M = (np.arange(-0.4, 0.61, 0.1), np.arange(-0.3, 0.31, 0.1))
"""Candidate positions of the robot's base, forwards and to the left of the person [m]."""
_TRIED_POSES = 60
REACHED_M, REACHED_RAD = 0.005, np.deg2rad(1.0)
LEAST_REACHED = 0.98
"""Share of rows that must be reachable."""
MOST_SPEED = 1.05
"""Largest speed as a share of its limit."""
MOST_LATERAL = 0.15
"""Largest sideways share of the path of a base that cannot drive sideways."""


class Reach(Protocol):
    """Inverse kinematics of an arm: joints for an end-effector pose in its base, near given ones."""

    num_joints: int
    q_home: np.ndarray
    """Joints to begin with [rad]."""
    dq_max: np.ndarray
    """Speed limits of the joints [rad/s]."""

    def solve(self, X_BE: pin.SE3, q_start: np.ndarray) -> tuple[np.ndarray, bool]:
        """Joints (N,) [rad], and whether they reach the pose."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Feasibility:
    """The motion of a robot in one demonstration."""

    x_GB: np.ndarray
    """(3,) the robot's base in the virtual one: x, y [m], yaw [rad]."""
    x_WB: np.ndarray
    """(N, 3) path of the robot's base, in W."""
    X_BE: Trajectory
    """Its end effector in its base."""
    q: np.ndarray
    """(N, J) joints that reach it; where none do, the last ones that did. (N, 0) without an arm."""
    reached: np.ndarray
    """(N,) bool: whether the pose of a row is reached."""
    joint_share: float
    """Largest joint speed as a share of its limit."""
    speed_share: float
    """Largest speed or turning speed of the base as a share of its limit."""
    lateral_share: float
    """Sideways share of the base's path: 0 for a base that only drives ahead and turns."""
    is_fast: np.ndarray
    """(N,) bool: a joint or the base would have to move faster than its limit to reach the row."""
    is_sideways: np.ndarray
    """(N,) bool: the base would have to drive sideways, which it cannot."""
    verdict: Verdict

    @property
    def needed_slower(self) -> float:
        """Factor by which the motion has to take longer for joints and base to keep their limits."""
        return max(self.joint_share, self.speed_share)

    @property
    def reached_share(self) -> float:
        """Share of rows that are reached."""
        return float(self.reached.mean())


def place_robot(
    labels: Sequence[Labels],
    reach: Reach,
    *,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> np.ndarray:
    """Find X_GB (x, y, 0) of a robot that reaches most rows; of several, the one nearest to the middle.

    progress: called with (positions tried, total).
    InvalidValueError: no pose of any demonstration can be reached from any candidate.
    """
    poses = [each.X_GE[int(k)] for each in labels for k in _spread(each, max(2, _TRIED_POSES // len(labels)))]
    xs, ys = OFFSETS_M
    share = np.zeros((len(xs), len(ys)))
    for i, x in enumerate(xs):
        for j, y in enumerate(ys):
            share[i, j] = _share(poses, reach, float(x), float(y))
            progress(i * len(ys) + j + 1, share.size)
    best = float(share.max())
    if best == 0.0:
        raise InvalidValueError(
            "no hand pose of any demonstration can be reached from any position of the base: check the floor "
            "(--board-height-m, --chest-height-m) and X_HE"
        )
    there = np.argwhere(share >= best - 1e-9)
    middle = there.mean(axis=0)
    i, j = there[np.argmin(((there - middle) ** 2).sum(axis=1))]
    return np.array([xs[i], ys[j], 0.0])


def _spread(labels: Labels, num: int) -> np.ndarray:
    rows = np.flatnonzero(labels.is_valid)
    rows = np.arange(len(labels)) if not rows.size else rows
    return np.unique(rows[np.linspace(0, len(rows) - 1, num).astype(int)])


def _share(poses: Sequence[pin.SE3], reach: Reach, x: float, y: float) -> float:
    q, count = reach.q_home, 0
    back = pin.SE3(np.eye(3), np.array([-x, -y, 0.0]))
    for X_GE in poses:
        found, is_there = reach.solve(back * X_GE, q)
        q = found if is_there else reach.q_home
        count += is_there
    return count / len(poses)


def feasibility(
    labels: Labels,
    *,
    reach: Reach | None = None,
    x_GB: np.ndarray | None = None,
    pace: Pace | None = None,
    is_holonomic: bool = True,
    most_width_m: float | None = None,
    is_strict: bool = False,
) -> Feasibility:
    """Check whether a robot can execute a demonstration.

    reach: of its arm; None: not checked. x_GB: its base relative to the person's. pace: of its base.
    is_holonomic: whether it drives sideways. most_width_m: its gripper's opening; None: not checked.
    is_strict: refuse speeds above the limits at once, rather than warn of those that are slightly above.
    """
    offset, pace = np.zeros(3) if x_GB is None else np.asarray(x_GB, float), pace or Pace()
    x_WB = moved_base(labels.x_WG, offset)
    X_BE = in_base(x_WB, labels.X_WE)
    q, reached = _reached(X_BE, reach)
    v = np.gradient(x_WB, labels.period_s, axis=0)
    c, s = np.cos(x_WB[:, 2]), np.sin(x_WB[:, 2])
    ahead, sideways = c * v[:, 0] + s * v[:, 1], c * v[:, 1] - s * v[:, 0]
    speed = np.hypot(ahead, sideways)
    speed_share = max(float(speed.max()) / pace.speed, float(np.abs(v[:, 2]).max()) / pace.turn)
    lateral = float(np.abs(sideways).sum() / max(float(speed.sum()), 1e-9)) if speed.max() > 0.02 else 0.0
    is_fast = (speed > MOST_SPEED * pace.speed) | (np.abs(v[:, 2]) > MOST_SPEED * pace.turn)
    joint_share = 0.0
    if reach is not None and len(q) > 2:
        both = reached[1:] & reached[:-1]
        rate = (np.abs(np.diff(q, axis=0)) / labels.period_s / reach.dq_max).max(axis=1)
        joint_share = float(np.quantile(rate[both], 0.99)) if both.any() else 0.0
        is_fast[1:] |= both & (rate > 1.0)
    reasons = _reasons(reached, joint_share, speed_share, lateral, is_holonomic, is_strict, labels)
    reasons += _wider(np.asarray(labels.width, float), most_width_m)
    return Feasibility(
        x_GB=offset,
        x_WB=x_WB,
        X_BE=X_BE,
        q=q,
        reached=reached,
        joint_share=joint_share,
        speed_share=speed_share,
        lateral_share=lateral,
        is_fast=is_fast,
        is_sideways=(speed > 0.02) & (np.abs(sideways) > MOST_LATERAL * speed) & (not is_holonomic),
        verdict=Verdict.of(reasons),
    )


def _wider(width: np.ndarray, most_m: float | None) -> list[Reason]:
    """Check widths (N,) [m] against the opening of the robot's gripper."""
    widest = float(width[np.isfinite(width)].max(initial=0.0))
    if most_m is None or widest <= most_m:
        return []
    return [
        Reason(
            name="wider-than-gripper",
            what=f"Its fingers open to {1e3 * widest:.0f} mm; the robot's to {1e3 * most_m:.0f} mm at most.",
            do="It cannot grasp wider objects: demonstrate with a gripper that opens as far as the robot's.",
            is_fatal=False,
        )
    ]


def moved_base(x_WG: np.ndarray, x_GB: np.ndarray) -> np.ndarray:
    """(N, 3) x_WB = x_WG * x_GB, yaw without jumps."""
    c, s = np.cos(x_WG[:, 2]), np.sin(x_WG[:, 2])
    x = x_WG[:, 0] + c * x_GB[0] - s * x_GB[1]
    y = x_WG[:, 1] + s * x_GB[0] + c * x_GB[1]
    return np.column_stack([x, y, x_WG[:, 2] + x_GB[2]])


def _reached(X_BE: Trajectory, reach: Reach | None) -> tuple[np.ndarray, np.ndarray]:
    n = len(X_BE)
    if reach is None:
        return np.zeros((n, 0)), np.ones(n, bool)
    q, reached, held = np.zeros((n, reach.num_joints)), np.zeros(n, bool), reach.q_home
    for k in range(n):
        found, is_there = reach.solve(X_BE[k], held)
        if not is_there:  # the last joints may be in a local minimum
            found, is_there = reach.solve(X_BE[k], reach.q_home)
        held = found if is_there else held
        q[k], reached[k] = held, is_there
    if reached.any():
        q[: int(np.argmax(reached))] = q[int(np.argmax(reached))]
    return q, reached


def _reasons(
    reached: np.ndarray,
    joints: float,
    speed: float,
    lateral: float,
    is_holonomic: bool,
    is_strict: bool,
    labels: Labels,
) -> list[Reason]:
    out = []
    if (share := float(reached.mean())) < LEAST_REACHED:
        first = int(np.argmin(reached)) * labels.period_s
        out.append(
            Reason(
                name="out-of-reach",
                what=f"The arm reaches {100 * share:.0f} % of the rows; the first miss is at {first:.1f} s.",
                do="Work nearer to the body and at the robot's height, or use a robot that reaches further.",
            )
        )
    if joints > (MOST_SPEED if is_strict else 1.0):
        out.append(
            Reason(
                name="joints-too-fast",
                what=f"A joint would need {joints:.1f} times its speed limit.",
                do="Move the hand slower.",
                is_fatal=is_strict or joints > 2.0,
            )
        )
    if speed > MOST_SPEED:
        out.append(
            Reason(
                name="base-too-fast",
                what=f"The base would need {speed:.1f} times its speed limit.",
                do="Walk and turn slower.",
                is_fatal=is_strict or speed > 1.5,
            )
        )
    if not is_holonomic and lateral > MOST_LATERAL:
        out.append(
            Reason(
                name="sideways-way",
                what=f"{100 * lateral:.0f} % of the base's path is sideways, which this base cannot drive.",
                do="Walk where you look; do not step aside.",
            )
        )
    return out
