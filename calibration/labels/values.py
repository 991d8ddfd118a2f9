"""Labels of a capture's demonstrations: `Labels`, and their parameters: `LabelConfig`.

W  the room: z up, z = 0 on the floor, otherwise the chest's odometry at the first anchor
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
    """Error model of a device's odometry; standard deviations."""

    walk_m: float = 0.005
    """Position along each axis, per square root of a metre of path [m]."""
    walk_rad: float = float(np.deg2rad(0.12))
    """Yaw, per square root of a metre of path [rad]."""
    still_m: float = 0.0005
    """Position, per square root of a second, of a stationary device [m]."""
    tilt_rad: float = float(np.deg2rad(0.1))
    """Roll and pitch, which gravity bounds [rad]."""
    tilt_s: float = 5.0
    """Correlation time of errors of roll and pitch [s]."""
    noise_m: float = 0.001
    """Noise of a single pose, per axis [m]."""
    noise_rad: float = float(np.deg2rad(0.05))
    """Noise of a single pose, per axis [rad]."""


@dataclass(frozen=True, kw_only=True)
class LabelConfig:
    """Parameters of labels. Fields that are None are taken from the capture."""

    fps: int = 20
    """Rows a second; `train` expects 20, as its tasks have."""
    slower: float = 1.0
    """Time the robot takes relative to the person: people are quicker than arms can follow."""
    board_height_m: float | None = None
    """Height of the flat board above the floor; None: the floor comes from `chest_height_m`."""
    chest_height_m: float | None = None
    """Height of the chest camera above the floor, the person upright [m]."""
    smoothing: Smoothing = field(default_factory=Smoothing)
    pivot_G: tuple[float, float, float] = DEFAULT_PIVOT_G
    """Hips from the chest camera: used without a lean clip, and as initial guess with one [m]."""
    chest_drift: Drift = field(default_factory=Drift)
    hand_drift: Drift = field(default_factory=Drift)
    node_s: float = 0.2
    """Time between two nodes of the pose graph [s]."""
    use_tags: bool = True
    """Whether sightings of the gripper's tags by the chest camera correct the drift."""
    use_end_anchor: bool = True
    """Whether anchors after the first correct the drift."""
    has_shared_clock: bool = False
    """Whether one clock stamped both devices, so that no sync clip is needed."""
    clock_sigma_s: float = 0.001
    """Standard deviation of the joined clocks [s]."""

    def __post_init__(self) -> None:
        """Check the parameters; InvalidValueError: one is out of range."""
        if self.fps < 1:
            raise InvalidValueError(f"expected an fps of labels of at least 1, got {self.fps}")
        if not 0.2 <= self.slower <= 10.0:
            raise InvalidValueError(f"a robot takes 0.2 to 10 times as long as the person, got {self.slower}")
        if not 0.02 <= self.node_s <= 5.0:
            raise InvalidValueError(f"expected node_s from 0.02 to 5, got {self.node_s}")
        for name in ("board_height_m", "chest_height_m"):
            value = getattr(self, name)
            if value is not None and not -0.5 < value < 3.0:
                raise InvalidValueError(f"expected {name} as a height above the floor in metres, got {value}")

    @property
    def row_s(self) -> float:
        """Time between rows for the person [s]; 1 / fps for the robot."""
        return 1.0 / (self.fps * self.slower)


@dataclass(frozen=True, kw_only=True, eq=False)
class Glimpsed:
    """Positions of a thing in G at each row."""

    p_G: np.ndarray
    """(N, 3) [m]; while out of view, the newest position in W, expressed in the current G."""
    seen: np.ndarray
    """(N,) bool: seen within a period before that row."""
    known: np.ndarray
    """(N,) bool: seen at that row or before."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """One demonstration on a grid of times; X_WG * X_GE = X_WE exactly."""

    demonstration: int
    """Number of the demonstration in the capture, from 0."""
    task: str
    t_ns: np.ndarray
    """(N,) int64, chest's clock: times of the person's motion."""
    x_WG: np.ndarray
    """(N, 3) the virtual base: x, y [m], yaw [rad], without jumps of 2 pi."""
    X_WE: Trajectory
    """The hand in the room."""
    X_GE: Trajectory
    """The hand in the virtual base: the poses that a robot on that base must reach."""
    X_WC: Trajectory
    """The chest camera in the room."""
    X_CE: Trajectory
    """The hand in the chest camera, lean and sway in it."""
    X_GE_chest: Trajectory
    """X_GE if the chest neither leant nor swayed: raw, for comparison."""
    width: np.ndarray
    """(N,) gripper width [m]; NaN where it is not measured."""
    stands: np.ndarray
    """(N,) bool: the base is stationary."""
    covariance: np.ndarray
    """(N, 6, 6) of X_CE: (dp [m], rotation vector dr [rad]) in axes of C, X_true = (p + dp, Exp(dr) R)."""
    valid: Mapping[str, np.ndarray]
    """chest, hand, gripper, anchor -> (N,) bool."""
    yaw_spread: np.ndarray
    """(N,) spread of three estimates of the heading [rad]."""
    x_WP: np.ndarray
    """(N, 3) the person's path on the floor before smoothing."""
    glimpses: Mapping[str, Glimpsed] = field(default_factory=dict)
    picture_ns: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Role -> (N,) capture time of the newest image by then, on the chest's clock [ns]."""
    picture_index: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Role -> (N,) index of that image in the video; -1: none yet."""
    slower: float = 1.0
    """Time the robot takes relative to the person."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Figures of the computation, by name with unit."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """Kind of calibration -> SHA-256."""
    verdict: Verdict = field(default_factory=Verdict)

    def __post_init__(self) -> None:
        n = len(self.t_ns)
        arrays = {"x_WG": (n, 3), "width": (n,), "stands": (n,), "covariance": (n, 6, 6), "x_WP": (n, 3)}
        for name, shape in {**arrays, "yaw_spread": (n,)}.items():
            value = np.asarray(getattr(self, name))
            if value.shape != shape:
                raise InvalidValueError(f"expected {name} {shape} in labels of {n} rows, got {value.shape}")
            object.__setattr__(self, name, readonly(value, dtype=value.dtype.type))
        for name in ("X_WE", "X_GE", "X_WC", "X_CE", "X_GE_chest"):
            if len(getattr(self, name)) != n:
                raise InvalidValueError(
                    f"expected {name} of {n} rows in labels, got {len(getattr(self, name))}"
                )

    def __len__(self) -> int:
        return len(self.t_ns)

    @property
    def period_s(self) -> float:
        """Time between rows for the robot [s]."""
        return self.slower * float(np.median(np.diff(self.t_ns)) / NS_PER_S) if len(self) > 1 else 0.0

    @property
    def is_valid(self) -> np.ndarray:
        """(N,) bool: everything that a policy learns from is known."""
        return np.logical_and.reduce([*self.valid.values()])

    def seen_from(self, name: str, x_WB: np.ndarray) -> np.ndarray:
        """Positions (N, 3) of a thing in a base at x_WB (N, 3); NaN before its first sighting [m]."""
        seen = self.glimpses[name]
        c, s = np.cos(self.x_WG[:, 2]), np.sin(self.x_WG[:, 2])
        x = self.x_WG[:, 0] + c * seen.p_G[:, 0] - s * seen.p_G[:, 1] - x_WB[:, 0]
        y = self.x_WG[:, 1] + s * seen.p_G[:, 0] + c * seen.p_G[:, 1] - x_WB[:, 1]
        c, s = np.cos(x_WB[:, 2]), np.sin(x_WB[:, 2])
        p_B = np.column_stack([c * x + s * y, c * y - s * x, seen.p_G[:, 2]])
        return np.where(seen.known[:, None], p_B, np.nan)

    def base_twist(self) -> np.ndarray:
        """Twist (N, 3) of the robot's base in its own axes: vx, vy [m/s], wz [rad/s]."""
        v = np.gradient(self.x_WG, self.period_s, axis=0)
        c, s = np.cos(self.x_WG[:, 2]), np.sin(self.x_WG[:, 2])
        return np.stack([c * v[:, 0] + s * v[:, 1], c * v[:, 1] - s * v[:, 0], v[:, 2]], axis=1)


@dataclass(frozen=True, kw_only=True)
class HandClock:
    """Converts the hand's time to the chest's: t_hand + offset + skew (t_hand - reference)."""

    offset_ns: int = 0
    skew_ppm: float = 0.0
    reference_ns: int = 0
    sigma_s: float = 0.001
    """Standard deviation of the conversion [s]."""

    def __call__(self, t_hand_ns: np.ndarray) -> np.ndarray:
        """Convert to the chest's clock, (N,) int64."""
        t = np.asarray(t_hand_ns, dtype=np.int64)
        skewed = np.rint((t - self.reference_ns) * (1e-6 * self.skew_ppm)).astype(np.int64)
        return t + self.offset_ns + skewed

    def back(self, t_chest_ns: np.ndarray) -> np.ndarray:
        """Convert the chest's times to the hand's clock, (N,) int64."""
        since = np.asarray(t_chest_ns, dtype=np.int64) - self.offset_ns - self.reference_ns
        share = 1e-6 * self.skew_ppm / (1.0 + 1e-6 * self.skew_ppm)
        return self.reference_ns + since - np.rint(share * since).astype(np.int64)

    def moved(self, own: Trajectory) -> Trajectory:
        """The hand's poses with times on the chest's clock."""
        return Trajectory(t_ns=self(own.t_ns), p=own.p, q=own.q, tracking=own.tracking)
