"""Checks a robot before it is run: one sentence for each member that a driver lacks or gets wrong."""

import inspect
import math
import re
from collections.abc import Iterator, Mapping

import numpy as np

from robot_runtime.clock import Clock
from robot_runtime.core.plan.limits import BaseLimits, GripperLimits, JointLimits, Limits, NumbersLimits
from robot_runtime.core.plan.limits_within import beyond
from robot_runtime.core.robot import ArmState, BaseState, GripperState
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.fields import (
    BasePose,
    BaseTwist,
    EndEffectorPose,
    GripperFraction,
    GripperWidth,
    JointPosition,
    JointVelocity,
    Numbers,
    WorldEndEffectorPose,
)
from robot_runtime.core.values.state import BASE, RobotState
from robot_runtime.errors import DriverError
from robot_runtime.robot.robot import Robot, part_fault, sensor_fault

LACKS = re.compile(r"\bit has neither arm|\bit has no limits|\bits \w+ has no limits")
"""Matches the sentences about something that is missing altogether."""
BY_HAND = (
    "move it into its range by hand, give it the limits that it has, or let read() give radians and metres"
)
OUTSIDE = 0.05
"""How far beyond its limits a joint may be at the start [rad]."""
MAX_SILENCE_S = 1.0
"""Longest time without a command until a velocity-controlled part must have stopped by itself [s]."""
STRANGE_NS = NS_PER_S
"""A timestamp that is this far from the clock belongs to another clock [ns]."""
_STOP = "makes the device safe, and may be called twice"
_MEMBERS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "arm": {
        "num_joints": ("", "the number of its joints"),
        "read": ("()", "returns an ArmState, measured now"),
        "write": ("(command)", "sends a JointCommand, or a PoseCommand"),
        "stop": ("()", _STOP),
    },
    "gripper": {
        "read": ("()", "returns the distance between the fingers [m]"),
        "write": ("(command)", "sends a GripperCommand"),
        "stop": ("()", _STOP),
    },
    "base": {
        "read": ("()", "returns a BaseState, measured now"),
        "write": ("(command)", "sends a BaseTwistCommand, or a BasePoseCommand"),
        "stop": ("()", _STOP),
    },
    "sensor": {
        "num_values": ("", "how many numbers it reads"),
        "read": ("()", "returns those numbers, measured now"),
    },
    "camera": {
        "size": ("", "(height, width) of its pictures [pixels]"),
        "read": ("()", "waits for the next frame and returns an Image"),
        "close": ("()", "gives the device back"),
    },
}
"""Part -> member -> (its parameters, its purpose); members without parameters are values."""


def check_robot(robot: object, clock: Clock) -> RobotState:
    """Check its drivers against the protocols of `robot_runtime.core.robot`; return the first state.

    DriverError: one sentence for each thing that is missing or has the wrong shape.
    """
    if not isinstance(robot, Robot):
        raise DriverError(f"expected a robot_runtime.Robot, got a {type(robot).__name__}")
    wrong = [
        *_wrong_parts(robot),
        *_wrong_limits(robot),
        *_wrong_actions(robot),
        *_wrong_timeouts(robot),
    ]
    if not wrong:
        wrong = list(_wrong_reads(robot, clock))
    if wrong:
        raise DriverError("\n  ".join(["this robot cannot be run:", *wrong]))
    return robot.read()


def outside_limits(limits: Limits | None, state: RobotState) -> dict[str, list[str]]:
    """Part -> a sentence for each of its joints that is measured outside its limits; other parts are left
    out.

    Up to `OUTSIDE` beyond a limit still counts as inside: a joint at its limit is measured a little beyond.
    """
    declared = {} if limits is None else limits.parts
    out: dict[str, list[str]] = {}
    for name, part in state.parts.items():
        if isinstance(part, ArmState) and isinstance(allowed := declared.get(name), JointLimits):
            ranges = zip(part.q, allowed.q_min, allowed.q_max, strict=True)
            sentences = [
                f"joint {i + 1} of {name} is at {q:.3f} rad, outside its limits, {low:.3f} to {high:.3f}"
                for i, (q, low, high) in enumerate(ranges)
                if not low - OUTSIDE <= q <= high + OUTSIDE
            ]
            if sentences:
                out[name] = sentences
    return out


def _wrong_parts(robot: Robot) -> Iterator[str]:
    kinds = {name: robot.kind(name) for name in robot.parts}
    if not {"arm", "base"} & {*kinds.values()}:
        yield "it has neither arm nor mobile base: Robot(arm=...)"
    for name, part in robot.parts.items():
        if any(hasattr(part, member) for member in ("write", "stop", "num_joints")):
            yield from _wrong_members(name, part, _MEMBERS[kinds[name]])
        else:
            yield from _wrong_nothing(name, part, kinds[name])
    for name, sensor in robot.sensors.items():
        yield from _wrong_members(name, sensor, _MEMBERS["sensor"])
    for name, camera in robot.cameras.items():
        yield from _wrong_members(f"camera {name!r}", camera, _MEMBERS["camera"])


def _wrong_nothing(name: str, part: object, kind: str) -> Iterator[str]:
    """Report an object that has no member of a part: it may be meant as a sensor or a camera."""
    needs = ", ".join(f"{member}{takes}" for member, (takes, _) in _MEMBERS[kind].items())
    yield (
        f"{name} ({type(part).__name__}) is neither a part, which has {needs}, nor a sensor, which has "
        "num_values, read(), nor a camera, which has size, read(), close()"
    )


def _wrong_members(name: str, part: object, members: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    if isinstance(part, type):
        yield f"{name} is the class {part.__name__}, expected an object: {part.__name__}(...)"
        return
    kind = type(part).__name__
    for member, (takes, what) in members.items():
        if not hasattr(part, member):
            yield f"{name} ({kind}) has no {member}{takes}: {what}"
            continue
        value = getattr(part, member)
        if not takes:
            yield from _wrong_value(name, member, value)
        elif not callable(value):
            yield f"{name}.{member} is a {type(value).__name__}, expected a method {member}{takes}: {what}"
        elif not _takes(value, takes):
            has = f"{member}{inspect.signature(value)}"
            yield f"{name}.{member} has to be called as {member}{takes}, it is {has}"


def _wrong_value(name: str, member: str, value: object) -> Iterator[str]:
    match member:
        case "num_joints" | "num_values" if not _is_count(value):
            yield f"{name}.{member} is {value!r:.50}, expected a whole number above 0"
        case "size" if not _is_size(value):
            yield f"{name}.size is {value!r:.50}, expected (height, width) in pixels"


def _wrong_limits(robot: Robot) -> Iterator[str]:
    if robot.limits is None:
        yield (
            "it has no limits: Robot(limits=Limits(q_min=..., q_max=..., dq_max=..., ...)), or "
            "[parts.NAME.limits] in its file"
        )
        return
    for name, part in robot.parts.items():
        limits = robot.limits.parts.get(name)
        if robot.kind(name) == "arm" and _is_count(n := getattr(part, "num_joints", None)):
            if limits is None:
                named = ", ".join(robot.limits.parts) or "nothing"
                yield (
                    f"its {name} has no limits; they name {named}; in a file they are [parts.{name}.limits]"
                )
            elif not isinstance(limits, JointLimits) or len(limits.q_min) != n:
                has = len(limits.q_min) if isinstance(limits, JointLimits) else 0
                yield f"limits are for {has} joints, its {name} has {n}"
                continue
        if isinstance(limits, NumbersLimits) and not np.isfinite([limits.low, limits.high]).all():
            yield (
                f"limits of {name}: expected a finite range for its plain numbers, got {limits.low.tolist()} "
                f"to {limits.high.tolist()}; declare NumbersLimits(low=..., high=...) of the hardware"
            )
        hardware = getattr(part, "limits", None)
        if limits is not None and isinstance(hardware, JointLimits | GripperLimits | BaseLimits):
            for phrase in beyond(limits, hardware, whose=type(part).__name__):
                yield f"limits of {name}: {phrase}"


def _wrong_actions(robot: Robot) -> Iterator[str]:
    """Report what `Robot(actions=...)` names and the robot lacks."""
    for f in robot.actions:
        part = robot.parts.get(f.part)
        if part is None:
            has = ", ".join(robot.parts) or "none"
            yield f"actions name {f.part}, which is none of its parts: {has}"
            continue
        kind, what = robot.kind(f.part), type(f).__name__
        if isinstance(f, Numbers):
            continue  # any driver may take some
        takes = tuple(getattr(part, "takes", _TAKES[kind]))  # a driver may declare that it takes fewer
        is_position = isinstance(f, JointVelocity) and f.is_integrated and JointPosition in takes
        if not is_position and not isinstance(f, takes):
            names = ", ".join(each.__name__ for each in takes)
            could = isinstance(f, JointVelocity) and JointPosition in takes
            hint = "; JointVelocity(is_integrated=True) is sent as positions" if could else ""
            yield f"actions have {what} for {f.part}, which takes {names}{hint}"
        elif isinstance(f, JointPosition | JointVelocity) and f.dim != getattr(part, "num_joints", f.dim):
            yield f"actions have {f.dim} joints for {f.part}, it has {part.num_joints}"  # type: ignore[union-attr]


def _wrong_timeouts(robot: Robot) -> Iterator[str]:
    """Report velocity-controlled parts without a timeout: they would keep moving after this process has
    died."""
    declared = {f.part: f for f in robot.actions}
    for name, part in robot.parts.items():
        match declared.get(name):
            case None if robot.kind(name) == BASE:
                pass
            case BaseTwist() | JointVelocity(is_integrated=False):
                pass
            case _:
                continue
        silence_s = getattr(part, "silence_s", None)
        if isinstance(silence_s, int | float) and 0.0 < silence_s <= MAX_SILENCE_S:
            continue
        has = "has no silence_s" if silence_s is None else f"has silence_s = {silence_s!r:.50}"
        yield (
            f"{name} ({type(part).__name__}) is driven at a speed and {has}, expected the time after which "
            f"it stops by itself when commands end, up to {MAX_SILENCE_S:g} s: set silence_s if its "
            "controller has such a timeout, else run its driver in a process that outlives this one, "
            f"drivers.isolated.Isolated({type(part).__name__}, ...)"
        )


_TAKES: Mapping[str, tuple[type, ...]] = {
    "arm": (JointPosition, JointVelocity, EndEffectorPose, WorldEndEffectorPose),
    "gripper": (GripperWidth, GripperFraction),
    "base": (BasePose, BaseTwist),
}


def _wrong_reads(robot: Robot, clock: Clock) -> Iterator[str]:
    for name, driver in robot.parts.items():
        kind = robot.kind(name)
        try:
            state: object = driver.read()
        except ValueError as error:
            yield f"{name}.read() failed: {error}"
            continue
        if (fault := part_fault(kind, state, driver)) is not None:
            yield f"{name}.{fault}"
            continue
        match state:
            case ArmState():
                yield from _wrong_numbers(name, {"q": state.q, "dq": state.dq})
                yield from _wrong_stamp(name, state.t_ns, clock)
            case BaseState():
                yield from _wrong_numbers(name, {"x_WB": state.x_WB, "V_WB_B": state.V_WB_B})
                yield from _wrong_stamp(name, state.t_ns, clock)
            case GripperState(width=width):
                yield from _wrong_numbers(name, {"width": width})
            case width if np.asarray(width).shape != () or not _is_finite(width):
                yield f"{name}.read() returned {width!r:.50}, expected the distance between the fingers [m]"
    for name, sensor in robot.sensors.items():
        values = sensor.read()
        if (fault := sensor_fault(values, sensor)) is not None:
            yield f"{name}.{fault}"
        else:
            yield from _wrong_numbers(name, {"numbers": values})


def _wrong_numbers(name: str, arrays: Mapping[str, object]) -> Iterator[str]:
    for array, value in arrays.items():
        if not _is_finite(value):
            yield f"{name}.read() gave {array} = {value!r:.80}, expected finite numbers"


def _wrong_stamp(name: str, t_ns: object, clock: Clock) -> Iterator[str]:
    if not isinstance(t_ns, int | np.integer) or isinstance(t_ns, bool):
        yield f"{name}.read() gave t_ns = {t_ns!r:.50}, expected whole nanoseconds: time.monotonic_ns()"
    elif abs(int(t_ns) - (now_ns := clock.now_ns())) > STRANGE_NS:
        yield (
            f"{name}.read() is stamped {int(t_ns) / NS_PER_S:.3f} s and the robot's clock reads "
            f"{now_ns / NS_PER_S:.3f} s: stamps are times of this machine's time.monotonic_ns()"
        )


def _takes(method: object, takes: str) -> bool:
    try:
        signature = inspect.signature(method)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return True  # implemented in C: it has no signature
    try:
        signature.bind(*([None] * takes.count("command")))
    except TypeError:
        return False
    return True


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) > 0


def _is_size(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(map(_is_count, value))


def _is_finite(value: object) -> bool:
    try:
        numbers = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return False
    return all(map(math.isfinite, numbers.ravel().tolist()))
