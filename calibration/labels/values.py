"""What a capture says, demonstration by demonstration: `Labels`, and how they are made: `LabelConfig`.

W  the room: z up, z = 0 on the floor, else the chest's odometry at the first anchor
G  the virtual base: on the floor under the person, x forward
C  the chest camera    H  the camera on the hand    E  between the fingertips
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from calibration.labels.base import DEFAULT_PIVOT_G
from calibration.labels.smoothing import Smoothing
from calibration.trajectory import Trajectory
from calibration.verdict import Verdict
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import readonly
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class Drift:
    """How far a device's odometry is believed; standard deviations."""

    walk_m: float = 0.005
    """Of position, along each axis, per root of a metre of path [m]."""
    walk_rad: float = float(np.deg2rad(0.12))
    """Of yaw, per root of a metre of path [rad]."""
    still_m: float = 0.0005
    """Of position, per root of a second, of a device that stands [m]."""
    tilt_rad: float = float(np.deg2rad(0.1))
    """Of roll and pitch, which gravity holds [rad]."""
    tilt_s: float = 5.0
    """How long an error of roll and pitch lasts [s]."""
    noise_m: float = 0.001
    """Of one pose, per axis [m]."""
    noise_rad: float = float(np.deg2rad(0.05))
    """The same [rad]."""


@dataclass(frozen=True, kw_only=True)
class LabelConfig:
    """How labels are made. What is None is taken from the capture."""

    fps: int = 20
    """Rows a second; `train` wants those of its tasks, 20."""
    slower: float = 1.0
    """How many times as long as the person the robot takes: people are quicker than arms can follow."""
    board_height_m: float | None = None
    """Of the board's plane above the floor, if the board lies flat; the floor's place otherwise comes from
    `chest_height_m`."""
    chest_height_m: float | None = None
    """Of the chest camera above the floor, the person upright [m]."""
    smoothing: Smoothing = field(default_factory=Smoothing)
    pivot_G: tuple[float, float, float] = DEFAULT_PIVOT_G
    """Hips from the chest camera, for people without a lean clip, and where to begin with one [m]."""
    chest_drift: Drift = field(default_factory=Drift)
    hand_drift: Drift = field(default_factory=Drift)
    node_s: float = 0.2
    """Between two nodes of the pose graph [s]."""
    use_tags: bool = True
    """Whether sightings of the gripper's tags by the chest camera correct the drift."""
    use_end_anchor: bool = True
    """Whether anchors after the first do."""
    has_shared_clock: bool = False
    """Whether both devices were stamped by one clock already: no sync clip is needed."""
    clock_sigma_s: float = 0.001
    """How well the clocks are joined, as a standard deviation [s]."""

    def __post_init__(self) -> None:
        """InvalidValueError: numbers that are none of that kind."""
        if self.fps < 1:
            raise InvalidValueError(f"labels have at least one row a second, got {self.fps}")
        if not 0.2 <= self.slower <= 10.0:
            raise InvalidValueError(f"a robot takes 0.2 to 10 times as long as the person, got {self.slower}")
        if not 0.02 <= self.node_s <= 5.0:
            raise InvalidValueError(f"nodes are 0.02 to 5 s apart, got {self.node_s}")
        for name in ("board_height_m", "chest_height_m"):
            value = getattr(self, name)
            if value is not None and not -0.5 < value < 3.0:
                raise InvalidValueError(f"{name} is a height above the floor in metres, got {value}")

    @property
    def row_s(self) -> float:
        """What the person does from row to row takes her so long [s]; the robot 1 / fps."""
        return 1.0 / (self.fps * self.slower)


@dataclass(frozen=True, kw_only=True, eq=False)
class Glimpsed:
    """Where a thing was seen, in G at each row."""

    p_G: np.ndarray
    """(N, 3) [m]; where it is not in view, the newest place in W, seen from G as it is now."""
    seen: np.ndarray
    """(N,) bool: seen at that row, or less than a period ago."""
    known: np.ndarray
    """(N,) bool: seen at that row or before."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """One demonstration on a grid of times; X_WG * X_GE = X_WE exactly."""

    demonstration: int
    """Which of the capture, from 0."""
    task: str
    t_ns: np.ndarray
    """(N,) int64, of the chest's clock: when the person was there."""
    x_WG: np.ndarray
    """(N, 3) the virtual base: x, y [m], yaw [rad], without jumps of 2 pi."""
    X_WE: Trajectory
    """The hand in the room."""
    X_GE: Trajectory
    """The hand in the virtual base: what a robot on that base has to reach."""
    X_WC: Trajectory
    """The chest camera in the room."""
    X_CE: Trajectory
    """The hand in the chest camera, lean and sway in it."""
    X_GE_chest: Trajectory
    """What X_GE would be if the chest never leant nor swayed: raw, for comparison."""
    width: np.ndarray
    """(N,) of the gripper [m]; NaN where nothing measures it."""
    stands: np.ndarray
    """(N,) bool: the base is locked."""
    covariance: np.ndarray
    """(N, 6, 6) of X_CE: (dp [m], rotation vector [rad]) in the axes of C, X_true = (p + dp, Exp(dr) R)."""
    valid: Mapping[str, np.ndarray]
    """chest, hand, gripper, anchor -> (N,) bool."""
    yaw_spread: np.ndarray
    """(N,) between three ways to see the heading [rad]."""
    x_WP: np.ndarray
    """(N, 3) the person's own way on the floor, before it was smoothed."""
    glimpses: Mapping[str, Glimpsed] = field(default_factory=dict)
    picture_ns: Mapping[str, np.ndarray] = field(default_factory=dict)
    """By role, (N,) capture of the newest picture by then, on the chest's clock [ns]."""
    picture_index: Mapping[str, np.ndarray] = field(default_factory=dict)
    """By role, (N,) which picture of its video that is; -1: none yet."""
    slower: float = 1.0
    """How many times as long as the person the robot takes."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What was found on the way, by name with unit."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """Calibration by what it is: sha256."""
    verdict: Verdict = field(default_factory=Verdict)

    def __post_init__(self) -> None:
        n = len(self.t_ns)
        arrays = {"x_WG": (n, 3), "width": (n,), "stands": (n,), "covariance": (n, 6, 6), "x_WP": (n, 3)}
        for name, shape in {**arrays, "yaw_spread": (n,)}.items():
            value = np.asarray(getattr(self, name))
            if value.shape != shape:
                raise InvalidValueError(f"labels of {n} rows have {name} {shape}, got {value.shape}")
            object.__setattr__(self, name, readonly(value, dtype=value.dtype.type))
        for name in ("X_WE", "X_GE", "X_WC", "X_CE", "X_GE_chest"):
            if len(getattr(self, name)) != n:
                raise InvalidValueError(f"labels of {n} rows have {name} of {len(getattr(self, name))}")

    def __len__(self) -> int:
        return len(self.t_ns)

    @property
    def period_s(self) -> float:
        """From row to row, of the robot [s]."""
        return self.slower * float(np.median(np.diff(self.t_ns)) / NS_PER_S) if len(self) > 1 else 0.0

    @property
    def is_valid(self) -> np.ndarray:
        """(N,) bool: all that a policy learns from is known."""
        return np.logical_and.reduce([*self.valid.values()])

    def seen_from(self, name: str, x_WB: np.ndarray) -> np.ndarray:
        """(N, 3) where a thing is in a base at (x, y, yaw) in W (N, 3); NaN before it was first seen [m]."""
        seen = self.glimpses[name]
        c, s = np.cos(self.x_WG[:, 2]), np.sin(self.x_WG[:, 2])
        x = self.x_WG[:, 0] + c * seen.p_G[:, 0] - s * seen.p_G[:, 1] - x_WB[:, 0]
        y = self.x_WG[:, 1] + s * seen.p_G[:, 0] + c * seen.p_G[:, 1] - x_WB[:, 1]
        c, s = np.cos(x_WB[:, 2]), np.sin(x_WB[:, 2])
        p_B = np.column_stack([c * x + s * y, c * y - s * x, seen.p_G[:, 2]])
        return np.where(seen.known[:, None], p_B, np.nan)

    def base_twist(self) -> np.ndarray:
        """(N, 3) of the robot's base in its own axes: vx, vy [m/s], wz [rad/s]."""
        v = np.gradient(self.x_WG, self.period_s, axis=0)
        c, s = np.cos(self.x_WG[:, 2]), np.sin(self.x_WG[:, 2])
        return np.stack([c * v[:, 0] + s * v[:, 1], c * v[:, 1] - s * v[:, 0], v[:, 2]], axis=1)
