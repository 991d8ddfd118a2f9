"""RUN, HOLD, STOP: what the robot does when something is late, wrong or gone.

    RUN    follows its plan
    HOLD   comes to rest and is stationary; resumes by itself as soon as a fresh chunk comes
    STOP   comes to rest and is stationary until the operator resets it

A plan that has ended comes to rest at its last row. For every other cause the robot brakes from the last
command, as hard as its limits allow.

The table below defines all transitions; a pair that is not in it leaves the mode as it is. A robot that is
not armed (`core/arming.py`) stays in HOLD where it would run.
"""

from enum import Enum
from types import MappingProxyType


class Mode(Enum):
    """What the robot is doing."""

    RUN = "run"
    HOLD = "hold"
    STOP = "stop"


class Cause(Enum):
    """What can change the mode; the value is the text that users read."""

    FRESH_CHUNK = "a fresh chunk arrived"
    NOT_STARTED = "the robot has not been started"
    NOT_ARMED = "the robot is not armed"
    ARMED = "the robot was armed"
    PLAN_ENDED = "the plan ended before the next chunk came"
    HANDED_BACK = "a person handed back: a fresh chunk is asked for"
    STATE_STALE = "the robot's state is too old"
    STATE_INVALID = "the robot's state holds NaN or infinite numbers"
    CLOCKS_DISAGREE = "parts were measured too far apart in time: a clock is wrong, or one of them is late"
    CLOCK_WENT_BACK = "the clock went back: the plan and all open answers count from times still to come"
    ODOMETRY_JUMPED = "odometry jumped: the plan and all open answers count from where the base never was"
    ODOMETRY_FROZEN = "odometry does not change while the base is driven: frozen, or the base is stuck"
    TRACKING_LOST = "the arm is too far from its setpoint"
    BASE_LOST = "the base is too far from its setpoint"
    STOP_REQUESTED = "a stop was asked for"
    TIME_OVER = "the time of the run is over"
    TASK_OVER = "the task is over"
    CANNOT_GO_ON = "the run cannot go on"
    RELEASED = "hold-to-run was let go"
    SWITCH_LOST = "hold-to-run gives no sign: unplugged, or not read any more"
    RESET = "the robot was reset"


ENDS = (Cause.STOP_REQUESTED, Cause.TIME_OVER, Cause.TASK_OVER, Cause.CANNOT_GO_ON)
"""Causes that end a run without a fault on the robot."""

TRANSITIONS = MappingProxyType(
    {
        (Mode.RUN, Cause.PLAN_ENDED): Mode.HOLD,
        (Mode.RUN, Cause.HANDED_BACK): Mode.HOLD,
        (Mode.RUN, Cause.STATE_STALE): Mode.HOLD,
        (Mode.RUN, Cause.CLOCKS_DISAGREE): Mode.HOLD,
        (Mode.RUN, Cause.CLOCK_WENT_BACK): Mode.HOLD,
        (Mode.RUN, Cause.ODOMETRY_JUMPED): Mode.HOLD,
        (Mode.RUN, Cause.STATE_INVALID): Mode.STOP,
        (Mode.RUN, Cause.ODOMETRY_FROZEN): Mode.STOP,
        (Mode.RUN, Cause.TRACKING_LOST): Mode.STOP,
        (Mode.RUN, Cause.BASE_LOST): Mode.STOP,
        **{(Mode.RUN, cause): Mode.STOP for cause in ENDS},
        (Mode.RUN, Cause.RELEASED): Mode.STOP,
        (Mode.RUN, Cause.SWITCH_LOST): Mode.STOP,
        (Mode.RUN, Cause.RESET): Mode.HOLD,
        (Mode.HOLD, Cause.FRESH_CHUNK): Mode.RUN,
        (Mode.HOLD, Cause.STATE_INVALID): Mode.STOP,
        (Mode.HOLD, Cause.ODOMETRY_FROZEN): Mode.STOP,
        (Mode.HOLD, Cause.TRACKING_LOST): Mode.STOP,
        (Mode.HOLD, Cause.BASE_LOST): Mode.STOP,
        **{(Mode.HOLD, cause): Mode.STOP for cause in ENDS},
        (Mode.HOLD, Cause.RELEASED): Mode.STOP,
        (Mode.HOLD, Cause.SWITCH_LOST): Mode.STOP,
        (Mode.STOP, Cause.RESET): Mode.HOLD,
    }
)


def next_mode(mode: Mode, cause: Cause, *, is_armed: bool = True) -> Mode:
    """The mode after a cause; never RUN without being armed."""
    after = TRANSITIONS.get((mode, cause), mode)
    return Mode.HOLD if after is Mode.RUN and not is_armed else after
