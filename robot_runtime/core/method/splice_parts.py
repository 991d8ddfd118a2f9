"""Splice parts of a method: when rows are due, how they blend with old ones, how the robot corrects them.

`splice.py`, `blend.py` and `correction.py` implement them.
"""

from dataclasses import dataclass

# ---- when a chunk's row 0 is due ----------------------------------------------------------------------


@dataclass(frozen=True)
class FromRowZero:
    """Row 0 is due when the chunk arrives: right for a robot that waited; a moving one jumps back."""


@dataclass(frozen=True)
class TimeAligned:
    """Row 0 is due when the observation was captured, so rows that are already past are dropped."""


@dataclass(frozen=True)
class NotBeforePlanned:
    """Row 0 is due at the planned start or, if the answer is later, when it arrives; no row is dropped.

    VLASH's loop (run.py): a chunk that comes early waits; for one that comes late the robot waits.
    """


@dataclass(frozen=True, kw_only=True)
class StateMatched:
    """The plan continues from the point of the chunk's path that is nearest to the robot (Mobile UMI).

    row     0 ... i_t - window ..... i_t ..... i_t + window ... H-1      i_t: the row that is due by time
                 [------- searched: never before row 0 -------]

    Minimises |x - w(u)|^2 / scale^2 + time_weight (u - i_t)^2 / row_scale^2 over the path w(u), segments
    included, where x is the robot's state. It never skips a gripper change that was not commanded yet. If the
    robot is farther than `max_distance` from all of the path, the chunk is aligned by time.
    """

    lead_s: float = 0.03
    """How far the arm lags its setpoint [s]: the setpoint continues this much beyond the match."""
    window_rows: int = 4
    time_weight: float = 0.25
    """lambda; resolves the match where the path is stationary or crosses itself."""
    row_scale: float = 4.0
    joint_scale: float = 0.1
    """Scale of the distance of all joints together [rad]."""
    position_scale: float = 0.03
    """Scale of the end effector's position [m]."""
    rotation_scale: float = 0.17
    """Scale of the end effector's rotation and of the base's yaw [rad]."""
    base_scale: float = 0.05
    """Scale of the base's position [m]."""
    gripper_step: float = 0.01
    """Smallest difference of widths that counts as a gripper change [m]."""
    max_distance: float = 4.0
    """Largest |x - w(u)| / scale of a match; 4 is about chi^2 at 99 % for six or seven numbers."""


SplicePart = FromRowZero | TimeAligned | NotBeforePlanned | StateMatched


# ---- how rows blend with an old plan -------------------------------------------------------------------


@dataclass(frozen=True)
class Replace:
    """The new rows replace the old ones unchanged."""


@dataclass(frozen=True, kw_only=True)
class WeightedAverage:
    """Every new row is averaged with the plan at its time: `old_weight` old + the rest new.

    LeRobot's async client: 0.3 is its weighted_average, 0 latest_only, 0.5 average, 0.7 conservative.
    """

    old_weight: float = 0.3


@dataclass(frozen=True, kw_only=True)
class TemporalEnsembling:
    """Every row is the average of all chunks that cover its time, w_i = exp(-m i), i = 0 the oldest.

    ACT, arXiv 2304.13705, algorithm 2.
    """

    m: float = 0.01


@dataclass(frozen=True, kw_only=True)
class CrossFade:
    """The old plan fades into the new one: the share of the new rises as a smoothstep over `duration_s`.

    Rotations follow the geodesic; the gripper takes the new chunk's width at once.
    """

    duration_s: float = 0.15


Blend = Replace | WeightedAverage | TemporalEnsembling | CrossFade


# ---- how the robot corrects planned rows ---------------------------------------------------------------


@dataclass(frozen=True)
class NoCorrection:
    """Rows run as the policy wrote them."""


@dataclass(frozen=True, kw_only=True)
class PerRowCorrection:
    """A small learned head on the robot corrects every row by the newest observation.

    A2C2, arXiv 2509.23224, which corrects at every step of its policy; a row is that step here. The bounds
    limit how far a row is moved; a correction beyond them is clipped and counted.
    """

    max_joint: float = 0.2
    """Largest correction of a joint [rad]."""
    max_gripper: float = 0.08
    """Largest correction of the gripper's width [m]; 0 leaves the gripper to the policy."""


Correction = NoCorrection | PerRowCorrection
