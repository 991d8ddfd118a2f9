"""What the robot's process and a driver's own process tell each other."""

from dataclasses import asdict
from typing import Any

import numpy as np
from msgspec import Struct

from robot_runtime.core.plan.limits import JointLimits, MotionLimits, SpeedCurve

PlainLimits = dict[str, dict[str, list[float]] | list[float] | bool]

HOST_PORT = 1337
"""Where FCI answers (TCP)."""
GRIPPER_PORT = 1338


class ArmConfig(Struct, frozen=True, kw_only=True):
    """How an arm is set up; see `FrankaArm`."""

    host: str
    stiffness: list[float]
    damping: list[float] | None
    translational_stiffness: float
    rotational_stiffness: float
    torque_thresholds: list[float]
    force_thresholds: list[float]
    load: tuple[float, list[float], list[float]] | None
    """Mass [kg], centre in the flange [m], inertia by columns [kg m²]."""
    limits: PlainLimits
    period_s: float
    silence_s: float
    state_timeout_s: float
    needs_real_time: bool
    log_folder: str


class ArmOrder(Struct, frozen=True, kw_only=True):
    """The newest command to an arm; what is left out is left alone."""

    number: int = 0
    """A new one for every command."""
    q: list[float] | None = None
    pose: tuple[list[float], list[float]] | None = None
    """p_BE [m], quat_BE wxyz, in the arm's mount."""
    recoveries: int = 0
    """How often the operator has asked for a recovery so far."""


class ArmReport(Struct, frozen=True, kw_only=True):
    """The newest state of an arm."""

    t_ns: int
    """This machine's monotonic clock, when the state came."""
    robot_time_ns: int
    q: list[float]
    dq: list[float]
    pose: list[float]
    """Of the hand in the arm's mount: 4 x 4, by rows."""
    tau_ext: list[float]
    mode: str
    success_rate: float
    """Share of commands that reached the robot in time, of late."""
    sent: list[float]
    """The last setpoint to the tracker; empty: none is running."""
    fault: str = ""
    recoveries: int = 0
    """How many have been done, well or not: then there is a fault."""


class GripperConfig(Struct, frozen=True, kw_only=True):
    """How a hand is set up; see `FrankaGripper`."""

    host: str
    speed: float
    force: float


class GripperOrder(Struct, frozen=True, kw_only=True):
    """The newest command to a hand; None: stand."""

    width: float | None = None


class GripperReport(Struct, frozen=True, kw_only=True):
    """The newest state of a hand."""

    t_ns: int
    width: float
    max_width: float
    is_moving: bool
    fault: str = ""


def limits_to_plain(limits: JointLimits) -> PlainLimits:
    """Limits as lists, to go to another process."""
    out: PlainLimits = {}
    for name, value in vars(limits).items():
        if isinstance(value, np.ndarray):
            out[name] = value.tolist()
        elif isinstance(value, bool):
            out[name] = value
        elif value is not None:
            out[name] = {key: array.tolist() for key, array in asdict(value).items()}
    return out


def limits_from_plain(plain: PlainLimits) -> JointLimits:
    """What `limits_to_plain` was given."""
    kinds = {"dq_curve": SpeedCurve, "hand_translation": MotionLimits, "hand_rotation": MotionLimits}
    given: dict[str, Any] = {}
    for name, value in plain.items():
        if isinstance(value, dict):
            given[name] = kinds[name](**{key: np.array(each) for key, each in value.items()})
        else:
            given[name] = value if isinstance(value, bool) else np.array(value)
    return JointLimits(**given)
