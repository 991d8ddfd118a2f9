"""Robot that labels are made for: its arm's reach and its base's speeds, from a task or robot.toml."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pinocchio as pin

from robot_runtime.cli.progress import advance, counted
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from calibration.labels.columns import Scene
    from calibration.labels.export_lerobot import Labelled
    from calibration.labels.feasibility import Reach
    from calibration.labels.smoothing import Pace
    from calibration.labels.values import Labels
    from robot_runtime.core.plan.limits import JointLimits, Limits
    from robot_runtime.core.plan.predict import HandPose

_STEP, _ROUNDS = 0.4, 60
_LOOK, _NEARER = 8, 0.85
"""Rounds between two checks of the solver, and the share to which the error must fall in between."""
WIDTH_ERR_M = 0.005
"""Error of a width sensor, or of tags: a width this far beyond the robot's opening is clipped [m]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """Robot that labels are made for."""

    name: str
    reach: "Reach"
    pace: "Pace | None" = None
    """Speeds of its base; None: undeclared, or it has no base."""
    is_holonomic: bool = True
    """Whether its base can drive sideways."""
    most_width_m: float | None = None
    """Opening of its gripper; None: unknown."""
    scene: "Scene | None" = None
    """Scene state of its policies, from the glimpses; None: positions of all objects."""
    place: "Callable[[Sequence[Labels]], np.ndarray] | None" = None
    """Function that returns its base's pose (x, y, yaw) in the person's; None: where its arm reaches most."""
    is_strict: bool = False
    """Whether speeds above its limits are refused at once: the pace was chosen to keep them."""


class FileReach:
    """Reach of an arm of a robot's file, from its URDF and limits, by damped least squares."""

    def __init__(self, hand_pose: "HandPose", limits: "JointLimits") -> None:
        from robot_runtime.teleop.hand_kinematics import ForwardKinematics

        self._kinematics, self._limits = ForwardKinematics(hand_pose), limits
        self.num_joints = len(limits.q_min)
        self.q_home = 0.5 * (np.maximum(limits.q_min, -np.pi) + np.minimum(limits.q_max, np.pi))
        self.dq_max = limits.dq_max

    def solve(self, X_BE: pin.SE3, q_start: np.ndarray) -> tuple[np.ndarray, bool]:
        """Return joints (N,) [rad], and whether the end effector reaches the pose."""
        from robot_runtime.teleop.hand_kinematics import pose_error

        q, before = np.array(q_start, dtype=float), np.inf
        for i in range(_ROUNDS):
            X = self._kinematics.forward(q)
            if is_there(X, X_BE, share=0.2):
                return q, True
            e, J = pose_error(X, X_BE), self._kinematics.jacobian(q)
            if i % _LOOK == 0:
                if (off := float(np.linalg.norm(e))) > _NEARER * before:
                    break
                before = off
            damping = 1e-2 * min(1.0, float(e @ e)) + 1e-6
            step = J.T @ np.linalg.solve(J @ J.T + damping * np.eye(6), e)
            q = np.clip(q + np.clip(step, -_STEP, _STEP), self._limits.q_min, self._limits.q_max)
        return q, is_there(self._kinematics.forward(q), X_BE)


def is_there(X_BE: pin.SE3, wanted: pin.SE3, *, share: float = 1.0) -> bool:
    """Return whether an end effector is at a pose, within the tolerance of labels, or a share of it."""
    from calibration.labels.feasibility import REACHED_M, REACHED_RAD

    off = float(np.linalg.norm(X_BE.translation - wanted.translation))
    turned = float(np.linalg.norm(pin.log3(X_BE.rotation.T @ wanted.rotation)))
    return off < share * REACHED_M and turned < share * REACHED_RAD


def on_robot(labelled: "list[Labelled]", target: "Target") -> "list[Labelled]":
    """Add joints and a verdict for a robot, whose base has the same pose relative to all of them."""
    from calibration.labels.feasibility import feasibility, place_robot

    if not labelled:
        return labelled
    if target.most_width_m is not None:
        widths = [within_gripper(np.asarray(each.labels.width), target.most_width_m) for each in labelled]
        labelled = [
            replace(each, labels=replace(each.labels, width=width))
            for each, width in zip(labelled, widths, strict=True)
        ]
    labels = [each.labels for each in labelled]
    with counted(stays=False) as progress:
        if target.place is None:
            bar = progress.add_task("find the base's pose", total=None)
            x_GB = place_robot(labels, target.reach, progress=advance(progress, bar))
        else:
            x_GB = target.place(labels)
        bar = progress.add_task("reach", total=len(labelled))
        out = []
        for each in labelled:
            done = feasibility(
                each.labels,
                reach=target.reach,
                x_GB=x_GB,
                pace=target.pace,
                is_holonomic=target.is_holonomic,
                most_width_m=target.most_width_m,
                is_strict=target.is_strict,
            )
            out.append(replace(each, done=done))
            progress.advance(bar)
    return out


_PACE_STEP, _MOST_TRIES = 0.05, 6
_SLACK = 1.02
"""Share of a limit up to which a speed counts as kept."""


def at_least_pace(
    at_pace: "Callable[[float], list[Labelled]]", target: "Target", bound: float
) -> "tuple[list[Labelled], Target, float]":
    """Find the smallest pace, in steps of 0.05 up to the bound, at which joints and base keep their limits in
    every demonstration that can; those that would need more are refused.

    at_pace: labels of all demonstrations for a robot that takes so many times as long. Returns the labels on
    the robot, the robot with its base's pose fixed, and the pace.
    """
    slower, tried = 1.0, 0
    labelled = on_robot(at_pace(slower), target)
    if labelled:
        done = [each.done for each in labelled if each.done is not None]
        x_GB = done[0].x_GB
        target = replace(target, place=lambda labels: x_GB, is_strict=True)
    while labelled and tried < _MOST_TRIES:
        needed = [n for each in labelled if (n := slower * _needed(each)) <= bound * _SLACK]
        steps = np.ceil(max([1.0, *needed]) / _PACE_STEP - 1e-6)
        wanted = round(min(bound, _PACE_STEP * float(steps)), 2)
        if tried and wanted <= slower:
            break
        slower, tried = wanted, tried + 1
        labelled = on_robot(at_pace(slower), target)
    return labelled, target, slower


def _needed(each: "Labelled") -> float:
    """Factor by which a demonstration has to take longer still; 1: it keeps all limits."""
    from calibration.labels.demonstration import MOST_OFF_M

    assert each.done is not None
    lag = each.labels.figures["base_off_person_m"] / MOST_OFF_M
    return max(each.done.needed_slower / _SLACK, min(lag, 1.1) if lag > 1.0 else 0.0)


def within_gripper(width: np.ndarray, most_m: float) -> np.ndarray:
    """Clip widths (N,) [m] that were measured slightly beyond the opening of the robot's gripper."""
    return np.where((width > most_m) & (width <= most_m + WIDTH_ERR_M), most_m, width)


def of_file(path: Path, *, is_holonomic: bool = True) -> Target:
    """Read the one arm with kinematics from a robot's file, and the limits of base and gripper, without
    opening a device.

    is_holonomic: whether its base drives sideways; if not, the second number of its limits is ignored.
    InvalidValueError: none or several arms have [parts.NAME.kinematics], or its limits are missing.
    """
    from robot_runtime.robot_file import RobotFile
    from robot_runtime.robot_file.declared import declared_limits
    from robot_runtime.robot_file.kinematics import hand_pose_of

    file = RobotFile.load(path)
    tables: Mapping[str, Any] = file.table.get("parts", {})
    arms = [name for name, table in tables.items() if "kinematics" in table]
    if len(arms) != 1:
        raise InvalidValueError(
            f"{path}: one arm with [parts.NAME.kinematics] (urdf, frame) is needed to compute the "
            f"robot's reach, got {', '.join(arms) or 'none'}"
        )
    [arm] = arms
    table = tables[arm]["kinematics"]
    joints = table.get("joints") or _joints_of(path.parent / str(table.get("urdf")))
    limits = declared_limits(path, {arm: tuple(joints)})
    sized = _Sized(len(joints))
    forward = hand_pose_of(f"parts.{arm}.kinematics", table, sized, path.parent)
    widths = [high for _, high in limits.gripper_ranges.values()]
    return Target(
        name=path.stem,
        reach=FileReach(forward, limits.arm(arm)),
        pace=_pace(limits, is_holonomic=is_holonomic),
        is_holonomic=is_holonomic,
        most_width_m=widths[0] if len(widths) == 1 else None,
    )


@dataclass(frozen=True)
class _Sized:
    num_joints: int


def _joints_of(urdf: Path) -> list[str]:
    try:
        return list(pin.buildModelFromUrdf(str(urdf)).names)[1:]
    except Exception as error:  # its parser raises any error
        raise InvalidValueError(f"{urdf} is no URDF: {error}") from None


def _pace(limits: "Limits", *, is_holonomic: bool) -> "Pace | None":
    """Return the speeds of the file's base."""
    from calibration.labels.smoothing import Pace
    from robot_runtime.core.plan.limits import BaseLimits

    driven = slice(0, 2 if is_holonomic else 1)
    for each in limits.parts.values():
        if isinstance(each, BaseLimits):
            speed, acceleration = np.asarray(each.motion.speed), np.asarray(each.motion.acceleration)
            return Pace(
                speed=float(speed[driven].min()),
                acceleration=float(acceleration[driven].min()),
                turn=float(speed[2]),
                turn_acceleration=float(acceleration[2]),
            )
    return None
