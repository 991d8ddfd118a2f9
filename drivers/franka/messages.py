"""Messages between the robot's process and a driver's own process."""

from dataclasses import asdict
from typing import Any

import numpy as np
from msgspec import Struct

from robot_runtime.core.plan.limits import JointLimits, MotionLimits, SpeedCurve

PlainLimits = dict[str, dict[str, list[float]] | list[float] | bool]

HOST_PORT = 1337
"""Port of FCI (TCP)."""
GRIPPER_PORT = 1338


class ArmConfig(Struct, frozen=True, kw_only=True):
    """The settings of an arm; see `FrankaArm`."""

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
    """The newest command to an arm; fields left out do not change."""

    number: int = 0
    """Increases with every command."""
    q: list[float] | None = None
    pose: tuple[list[float], list[float]] | None = None
    """p_BE [m], quat_BE wxyz, in the arm's mount."""
    recoveries: int = 0
    """Number of recoveries requested so far."""


class ArmReport(Struct, frozen=True, kw_only=True):
    """The newest state of an arm."""

    t_ns: int
    """This machine's monotonic clock, when the state came."""
    robot_time_ns: int
    q: list[float]
    dq: list[float]
    pose: list[float]
    """Pose of the end effector in the arm's mount: 4 x 4, by rows."""
    tau_ext: list[float]
    mode: str
    success_rate: float
    """Recent share of commands that reached the robot in time."""
    sent: list[float]
    """The last setpoint to the tracker; empty: none is running."""
    fault: str = ""
    recoveries: int = 0
    """Number of recoveries done; after a failed one there is a fault."""


class GripperConfig(Struct, frozen=True, kw_only=True):
    """The settings of a gripper; see `FrankaGripper`."""

    host: str
    speed: float
    force: float


class GripperOrder(Struct, frozen=True, kw_only=True):
    """The newest command to a gripper; None: stop."""

    width: float | None = None


class GripperReport(Struct, frozen=True, kw_only=True):
    """The newest state of a gripper."""

    t_ns: int
    width: float
    max_width: float
    is_moving: bool
    fault: str = ""


def limits_to_plain(limits: JointLimits) -> PlainLimits:
    """Convert limits to lists, for another process."""
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
    """Convert back the result of `limits_to_plain`."""
    kinds = {"dq_curve": SpeedCurve, "hand_translation": MotionLimits, "hand_rotation": MotionLimits}
    given: dict[str, Any] = {}
    for name, value in plain.items():
        if isinstance(value, dict):
            given[name] = kinds[name](**{key: np.array(each) for key, each in value.items()})
        else:
            given[name] = value if isinstance(value, bool) else np.array(value)
    return JointLimits(**given)
