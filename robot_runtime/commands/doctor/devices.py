"""Checks of the robot's parts, sensors and cameras: rate, age and validity of their measurements."""

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from robot_runtime.clock import MonotonicClock
from robot_runtime.commands.doctor.finding import Finding, doubtful, fine, wrong
from robot_runtime.core.camera_watch import CameraFault, CameraLimits
from robot_runtime.core.plan.limits import GripperLimits, JointLimits, Limits
from robot_runtime.core.robot import Switch
from robot_runtime.core.state_watch import StateLimits, not_finite
from robot_runtime.core.values.state import ArmState, BaseState, GripperState, RobotState
from robot_runtime.errors import RobotBusyError
from robot_runtime.robot.cameras import camera_threads
from robot_runtime.robot.check import BY_HAND, LACKS, check_robot, outside_limits
from robot_runtime.robot.lease import Lease
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.watched_switch import check_hold_to_run, name_of, open_switch

_CAMERA = {
    CameraFault.SILENT: "is it plugged in, and free?",
    CameraFault.FAILED: "is it plugged in, and free?",
    CameraFault.FROZEN: "restart its stream; if its images have no noise, as in a simulator, set "
    "[camera_limits] has_noise = false",
    CameraFault.MISSHAPEN: "its driver's read() must return Image(t_ns=..., pixels=...) of the size in "
    "[cameras.{name}]",
    CameraFault.OLD: "check the connection, or [camera_limits]",
}
"""How to fix each fault."""
_LOOK_S = 0.001
"""Time between two reads of a part."""
_SLOW_S = 0.002
"""A longer read has waited for its device."""
_USUAL = 0.95
"""Quantile of the reads that counts: a busy machine delays single ones."""
_TURNS = 3.0
"""Turns to each side: more than a joint with a cable through it makes."""
_STOPS = "What stops it."
"""Beginning of the docstring's paragraph."""


def look_at_parts(
    robot: Robot, limits: StateLimits, *, seconds: float = 2.0, is_whole: bool = True
) -> Iterator[Finding]:
    """Check each part and sensor by itself; nothing is written to them.

    is_whole: False: parts that could not be made were reported already, and are not reported again.
    """
    state: RobotState | None = None
    trouble = ""
    try:
        state = check_robot(robot, MonotonicClock())
    except Exception as error:
        lines = str(error).splitlines()
        kept = [line for line in lines if is_whole or LACKS.search(line) is None]
        trouble = "\n".join(kept) if len(kept) > 1 or len(lines) == 1 else ""
    measured = [_measured(name, driver, limits, seconds) for name, driver in robot.parts.items()]
    count = "1 part" if len(robot.parts) == 1 else f"{len(robot.parts)} parts"
    yield fine("robot", f"{count}: {', '.join(robot.parts)}")
    if trouble and not any(trouble in each.found for each in measured):
        yield wrong("robot", trouble)
    yield _alone(robot)
    yield from measured
    for name, sensor in robot.sensors.items():
        try:
            yield fine(name, f"a sensor of {sensor.num_values} numbers: {np.round(sensor.read(), 3)}")
        except Exception as error:
            yield wrong(name, f"{type(error).__name__}: {error}")
    if state is not None:
        if bad := not_finite(state):
            yield wrong(
                "state", f"not finite: {bad}", "the robot would go to STOP at once: check that sensor"
            )
        yield from _where(state, robot.limits)
    yield from _stopped(robot.parts)


def _alone(robot: Robot) -> Finding:
    try:
        with Lease(robot) as lease:
            known = ", ".join(lease.keys) or "no driver declares its device"
            return fine("other controllers", f"none on this machine ({known})")
    except RobotBusyError as error:
        return wrong("other controllers", str(error))


def look_at_cameras(robot: Robot, limits: CameraLimits, *, seconds: float = 3.0) -> Iterator[Finding]:
    """Check the cameras, read all together as in a run."""
    if not robot.cameras:
        return
    clock = MonotonicClock()
    stamps: dict[str, list[tuple[int, int]]] = {name: [] for name in robot.cameras}
    with camera_threads(dict(robot.cameras), clock, limits) as cameras:
        cameras.await_first()
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            images, _ = cameras.newest(clock.now_ns())
            now_ns = clock.now_ns()
            for name, image in images.items():
                if not stamps[name] or stamps[name][-1][0] != image.t_ns:
                    stamps[name].append((image.t_ns, now_ns))
            time.sleep(_LOOK_S)
        _, faults = cameras.newest(clock.now_ns())
        refused = {name: cameras.said(name, fault) for name, fault, _ in cameras.newly_refused()}
        faulty = {name: cameras.said(name, fault) for name, fault in faults.items()}
    for name, camera in robot.cameras.items():
        size = "{} x {}".format(*camera.size)
        if name in faulty or not stamps[name]:
            fault = faults.get(name, CameraFault.SILENT)
            mend = _CAMERA.get(fault, "").format(name=name)
            yield wrong(f"camera {name}", faulty.get(name, "gives no image"), mend)
        elif name in refused:
            yield doubtful(f"camera {name}", f"{size}, {_rate(stamps[name])}; {refused[name]}")
        else:
            yield fine(f"camera {name}", f"{size}, {_rate(stamps[name])}")


def look_at_operator(options: Mapping[str, Any]) -> Iterator[Finding]:
    """Check that the operator's switches in the robot's file can be read, and report their state."""
    for name in ("arm", "hold_to_run"):
        switch: Switch | None = options.get(name)
        if switch is None:
            continue
        try:
            check_hold_to_run(switch if name == "hold_to_run" else None)
            open_switch(switch)
            try:
                state = "pressed" if switch.read() else "not pressed"
            finally:
                switch.close()
            yield fine(name, f"{name_of(switch)}, {state} now")
        except Exception as error:
            yield wrong(name, f"{name_of(switch)}: {error}")


def what_stops(driver: object) -> str | None:
    """Return the paragraph on what stops a driver, of its class, its module, or that module's package."""
    names = type(driver).__module__.split(".")
    modules = [sys.modules.get(".".join(names[:n])) for n in range(len(names), 0, -1)]
    for source in (type(driver), *modules):
        for paragraph in (getattr(source, "__doc__", None) or "").split("\n\n"):
            text = " ".join(paragraph.split())
            if text.startswith(_STOPS):
                return text.removeprefix(_STOPS).strip()
    return None


def _stopped(parts: Mapping[str, object]) -> Iterator[Finding]:
    """Report what stops the parts, those with the same text together."""
    together: dict[str, list[str]] = {}
    for name, driver in parts.items():
        if (text := what_stops(driver)) is None:
            yield doubtful(
                name,
                f"what stops it: {type(driver).__name__} does not document it",
                f'add a paragraph "{_STOPS} ..." to the docstring of the class, or of its file',
            )
        else:
            together.setdefault(text, []).append(name)
    for text, names in together.items():
        yield fine(", ".join(names), f"what stops {'it' if len(names) == 1 else 'them'}: {text}")


def _measured(name: str, driver: Any, limits: StateLimits, seconds: float) -> Finding:
    """Measure a part's rate, and the age of its state when it is read."""
    stamps: list[tuple[int, int]] = []
    end_s = time.monotonic() + seconds
    reads_s: list[float] = []
    while (now_s := time.monotonic()) < end_s:
        try:
            state = driver.read()
        except Exception as error:
            return wrong(name, f"{type(error).__name__}: {error}")
        reads_s.append(time.monotonic() - now_s)
        t_ns = getattr(state, "t_ns", None)
        if t_ns is None:
            return fine(name, "measures without a stamp of its own")
        if not stamps or t_ns != stamps[-1][0]:
            stamps.append((t_ns, time.monotonic_ns()))
        time.sleep(_LOOK_S)
    found = _rate(stamps)
    oldest_ns = max((seen - taken for taken, seen in stamps), default=0)
    if len(stamps) < 2 or oldest_ns > limits.timeout_ns:
        return wrong(
            name,
            found,
            f"a state older than {limits.timeout_ns / 1e6:g} ms makes the robot hold: check the "
            "connection, or [state_limits] timeout_s",
        )
    if (slow_s := float(np.quantile(reads_s, _USUAL))) > _SLOW_S:
        return doubtful(
            name,
            f"{found}; one read of {round(1 / (1 - _USUAL))} takes {1e3 * slow_s:.1f} ms or more",
            "read() should never wait for the device",
        )
    return fine(name, found)


def _rate(stamps: list[tuple[int, int]]) -> str:
    """Return rate, jitter and age. stamps: (captured, seen) pairs [ns]."""
    if len(stamps) < 2:
        return f"{len(stamps)} measurements"
    taken, seen = (np.array(each) for each in zip(*stamps, strict=True))
    gaps = np.diff(taken) / 1e6
    ages = (seen - taken) / 1e6
    rate = 1e3 / np.median(gaps) if np.median(gaps) > 0 else float("inf")
    jitter = np.quantile(np.abs(gaps - np.median(gaps)), 0.99)
    return (
        f"{rate:.0f} Hz, jitter {jitter:.1f} ms at p99, age {np.median(ages):.1f} ms at the median, "
        f"{np.quantile(ages, 0.99):.1f} at p99"
    )


def _many_turns(limits: JointLimits) -> str:
    """Return a question on a range that is probably in degrees; empty: there is none."""
    ends = np.maximum(np.abs(limits.q_min), np.abs(limits.q_max))
    widest = int(ends.argmax())
    if not _TURNS < ends[widest] / (2.0 * np.pi) < np.inf:
        return ""
    low, high = limits.q_min[widest], limits.q_max[widest]
    return f"joint {widest + 1} may go from {low:g} to {high:g} rad: is that in degrees?"


def _where(state: RobotState, limits: Limits | None) -> Iterator[Finding]:
    """Check whether the parts are inside their limits."""
    declared: Mapping[str, Any] = {} if limits is None else limits.parts
    outside = outside_limits(limits, state)
    for name, part in state.parts.items():
        allowed = declared.get(name)
        match part:
            case ArmState() if name in outside:
                yield wrong(name, "; ".join(outside[name]), BY_HAND)
            case ArmState() if isinstance(allowed, JointLimits) and (wide := _many_turns(allowed)):
                yield doubtful(name, wide, f"[parts.{name}.limits], in rad")
            case ArmState(q=q) if isinstance(allowed, JointLimits):
                yield fine(name, f"at {np.round(q, 2).tolist()} rad, inside its limits")
            case GripperState(width=width) if isinstance(allowed, GripperLimits):
                is_in = allowed.low - 0.005 <= width <= allowed.high + 0.005
                yield (fine if is_in else doubtful)(name, f"{1e3 * width:.1f} mm open")
            case BaseState(x_WB=x_WB) if allowed is not None and x_WB is not None:
                yield fine(name, f"odometry at {np.round(x_WB, 2).tolist()}")
            case _:
                yield doubtful(
                    name, "no limits are declared: it cannot be commanded", f"[parts.{name}.limits]"
                )
