"""The robot's parts, sensors and cameras: how often they measure, how old that is, what is wrong with it."""

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
    CameraFault.FROZEN: "begin its stream anew; if its pictures are without noise, as a simulator's: "
    "[camera_limits] has_noise = false",
    CameraFault.MISSHAPEN: "its driver's read() gives Image(t_ns=..., pixels=...) of its size, which is in "
    "[cameras.{name}]",
    CameraFault.OLD: "look at the connection, or at [camera_limits]",
}
"""What mends it."""
_LOOK_S = 0.001
"""Between two looks at a part."""
_SLOW_S = 0.002
"""A read that takes longer has waited for its device."""
_USUAL = 0.95
"""Of its reads: a busy machine holds single ones up."""
_TURNS = 3.0
"""To each side: more than a joint with a cable through it makes."""
_STOPS = "What stops it."
"""How the paragraph begins."""


def look_at_parts(
    robot: Robot, limits: StateLimits, *, seconds: float = 2.0, is_whole: bool = True
) -> Iterator[Finding]:
    """Its parts and sensors, each by itself. Nothing is written to them.

    is_whole: False: some of it could not be made, which was reported; what it lacks is not reported again.
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
                "state", f"not finite: {bad}", "the robot would go to STOP at once: look at that sensor"
            )
        yield from _where(state, robot.limits)
    yield from _stopped(robot.parts)


def _alone(robot: Robot) -> Finding:
    try:
        with Lease(robot) as lease:
            known = ", ".join(lease.keys) or "no driver says which device it is"
            return fine("other controllers", f"none on this machine ({known})")
    except RobotBusyError as error:
        return wrong("other controllers", str(error))


def look_at_cameras(robot: Robot, limits: CameraLimits, *, seconds: float = 3.0) -> Iterator[Finding]:
    """Its cameras, read as a run reads them, all together."""
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
        said = {name: cameras.said(name, fault) for name, fault in faults.items()}
    for name, camera in robot.cameras.items():
        size = "{} x {}".format(*camera.size)
        if name in said or not stamps[name]:
            fault = faults.get(name, CameraFault.SILENT)
            mend = _CAMERA.get(fault, "").format(name=name)
            yield wrong(f"camera {name}", said.get(name, "gives no picture"), mend)
        elif name in refused:
            yield doubtful(f"camera {name}", f"{size}, {_rate(stamps[name])}; {refused[name]}")
        else:
            yield fine(f"camera {name}", f"{size}, {_rate(stamps[name])}")


def look_at_operator(options: Mapping[str, Any]) -> Iterator[Finding]:
    """Her switches, as the robot's file names them: whether they can be read, and what they are now."""
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
    """The paragraph on what stops it: of its class, of its module, or of that module's package."""
    names = type(driver).__module__.split(".")
    modules = [sys.modules.get(".".join(names[:n])) for n in range(len(names), 0, -1)]
    for place in (type(driver), *modules):
        for paragraph in (getattr(place, "__doc__", None) or "").split("\n\n"):
            text = " ".join(paragraph.split())
            if text.startswith(_STOPS):
                return text.removeprefix(_STOPS).strip()
    return None


def _stopped(parts: Mapping[str, object]) -> Iterator[Finding]:
    """What stops them; parts of which the same is said stand together."""
    together: dict[str, list[str]] = {}
    for name, driver in parts.items():
        if (text := what_stops(driver)) is None:
            yield doubtful(
                name,
                f"what stops it: {type(driver).__name__} does not say",
                f'the paragraph "{_STOPS} ..." in the docstring of the class, or of its file',
            )
        else:
            together.setdefault(text, []).append(name)
    for text, names in together.items():
        yield fine(", ".join(names), f"what stops {'it' if len(names) == 1 else 'them'}: {text}")


def _measured(name: str, driver: Any, limits: StateLimits, seconds: float) -> Finding:
    """How often a part measures, and how old that is when it is read."""
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
            f"a state older than {limits.timeout_ns / 1e6:g} ms makes the robot hold: look at the "
            "connection, or at [state_limits] timeout_s",
        )
    if (slow_s := float(np.quantile(reads_s, _USUAL))) > _SLOW_S:
        return doubtful(
            name,
            f"{found}; one read of {round(1 / (1 - _USUAL))} takes {1e3 * slow_s:.1f} ms or more",
            "read() should never wait for the device",
        )
    return fine(name, found)


def _rate(stamps: list[tuple[int, int]]) -> str:
    """Rate, jitter and age of what was captured at the first, and seen at the second of each pair [ns]."""
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
    """A range that is more likely in degrees; empty: there is none."""
    ends = np.maximum(np.abs(limits.q_min), np.abs(limits.q_max))
    widest = int(ends.argmax())
    if not _TURNS < ends[widest] / (2.0 * np.pi) < np.inf:
        return ""
    low, high = limits.q_min[widest], limits.q_max[widest]
    return f"joint {widest + 1} may go from {low:g} to {high:g} rad: is that in degrees?"


def _where(state: RobotState, limits: Limits | None) -> Iterator[Finding]:
    """Whether the parts are inside what they may be told."""
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
