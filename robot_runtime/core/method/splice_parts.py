"""Splice parts of a method: when a row is due, what becomes of old and new ones, what the robot adds.

`splice.py`, `blend.py` and `correction.py` do it.
"""

from dataclasses import dataclass

# ---- when a chunk's row 0 is due ----------------------------------------------------------------------


@dataclass(frozen=True)
class FromRowZero:
    """Row 0 is due when the chunk arrives: right for a robot that waited; others jump back."""


@dataclass(frozen=True)
class TimeAligned:
    """Row 0 is due when the observation was captured, so the rows that are already past drop out."""


@dataclass(frozen=True)
class NotBeforePlanned:
    """Row 0 is due at the planned start or, if the answer is later, when it arrives; no row drops out.

    VLASH's loop (run.py): a chunk that comes early waits, one that comes late is waited for.
    """


@dataclass(frozen=True, kw_only=True)
class StateMatched:
    """Goes on from the point of the chunk's path that is nearest to where the robot is (Mobile UMI).

    row     0 ... i_t - window ..... i_t ..... i_t + window ... H-1      i_t: the row that is due by time
                 [------- searched: never before row 0 -------]

    Minimises |x - w(u)|^2 / scale^2 + time_weight (u - i_t)^2 / row_scale^2 over the path w(u), segments
    included, where the robot is x. Never passes a change of the gripper that has not been commanded. A robot
    farther than `max_distance` from all of the path is aligned by time.
    """

    lead_s: float = 0.03
    """How far the arm runs behind its setpoint [s]: the setpoint goes on this much beyond the match."""
    window_rows: int = 4
    time_weight: float = 0.25
    """lambda; decides where the path stands still or crosses itself."""
    row_scale: float = 4.0
    joint_scale: float = 0.1
    """Of the distance of all joints together [rad]."""
    position_scale: float = 0.03
    """Of the hand [m]."""
    rotation_scale: float = 0.17
    """Of the hand and of the base's yaw [rad]."""
    base_scale: float = 0.05
    """Of the base's position [m]."""
    gripper_step: float = 0.01
    """What counts as a change of the gripper [m]."""
    max_distance: float = 4.0
    """Gate on |x - w(u)| / scale; 4 is about chi^2 at 99 % for six or seven numbers."""


SplicePart = FromRowZero | TimeAligned | NotBeforePlanned | StateMatched


# ---- what becomes of the rows that meet an old plan ----------------------------------------------------


@dataclass(frozen=True)
class Replace:
    """The new rows as they are."""


@dataclass(frozen=True, kw_only=True)
class WeightedAverage:
    """Every new row is averaged with what the plan says for its time: `old_weight` old + the rest new.

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
    """From the old plan to the new one over the first moments: the share of the new rises as a smoothstep.

    Rotations go on the geodesic; the gripper is the new chunk's at once.
    """

    duration_s: float = 0.15


Blend = Replace | WeightedAverage | TemporalEnsembling | CrossFade


# ---- what the robot adds to planned rows by itself -----------------------------------------------------


@dataclass(frozen=True)
class NoCorrection:
    """Rows run as the policy wrote them."""


@dataclass(frozen=True, kw_only=True)
class PerRowCorrection:
    """A small learned head on the robot corrects every row by the newest observation.

    A2C2, arXiv 2509.23224, which corrects at every step of its policy; a row is that step here. Bounds are on
    how far a row is moved; a correction beyond them is clipped and counted.
    """

    max_joint: float = 0.2
    """Of a joint [rad]."""
    max_gripper: float = 0.08
    """Of the gripper's width [m]; 0 leaves the gripper to the policy."""


Correction = NoCorrection | PerRowCorrection
