"""Messages of a run that never was, as a log publishes them: what a page can be tried with."""

import json
import math
from collections.abc import Iterator

import numpy as np

from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.values.action import NS_PER_S, ActionSpec
from robot_runtime.core.values.fields import EndEffectorPose, GripperWidth
from robot_runtime.core.values.schema import Schema
from robot_runtime.jpeg import jpeg_encoder
from robot_runtime.log.config import RunInfo
from robot_runtime.log.foxglove import compressed_image, log_message
from robot_runtime.page.state import PageState

START_NS, WALL_NS = 50 * NS_PER_S, 1_790_000_000 * NS_PER_S
DT_NS, H = NS_PER_S // 20, 24
JOINTS = (0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785)
Message = tuple[str, int, bytes]


def info() -> RunInfo:
    spec = ActionSpec(fields=(EndEffectorPose(), GripperWidth()), horizon=H, dt_ns=DT_NS)
    schema = Schema(
        action_fields=spec.fields,
        num_joints=7,
        has_gripper=True,
        cameras={"chest": (90, 120), "wrist": (90, 120)},
    )
    return RunInfo(
        task="fold the towel",
        robot="made up",
        schema=schema,
        policy=PolicyInfo(name="circle", action_spec=spec, schema=schema),
        control_period_ns=NS_PER_S // 100,
        started_wall_ns=WALL_NS,
        started_ns=START_NS,
        method="rtc",
    )


def say(topic: str, t_s: float, **value: object) -> Message:
    """One message, t_s after the run's begin."""
    return topic, WALL_NS + round(t_s * NS_PER_S), json.dumps(value).encode()


def line(t_s: float, text: str, level: int = 2) -> Message:
    return say("/log", t_s, **log_message(WALL_NS, level, text))


def mode(t_s: float, mode: Mode = Mode.RUN, cause: Cause = Cause.FRESH_CHUNK, **more: object) -> Message:
    said = {
        "mode": mode.name,
        "cause": cause.value,
        "request": None,
        "row": 3,
        "age_ms": 140.0,
        "clipped": {},
    }
    return say("/mode", t_s, **{**said, **more})


def state(t_s: float) -> Message:
    q = [a + 0.15 * math.sin(0.9 * t_s + i) for i, a in enumerate(JOINTS)]
    arm = {f"joint_{i + 1}": value for i, value in enumerate(q)}
    arm |= dict(zip(("x", "y", "z"), hand(t_s), strict=True))
    arm |= dict(zip((f"r{i}" for i in range(1, 7)), (1.0, 0.0, 0.0, 0.0, -1.0, 0.0), strict=True))
    return say("/state", t_s, arm=arm, gripper={"width": 0.04 + 0.03 * math.sin(t_s)})


def hand(t_s: float) -> tuple[float, float, float]:
    """Where it is [m]."""
    return 0.45 + 0.12 * math.cos(0.9 * t_s), 0.22 * math.sin(0.9 * t_s), 0.42 + 0.05 * math.sin(1.8 * t_s)


def chunk(t_s: float, event: str, request: int, **more: object) -> Message:
    return say("/chunk", t_s, event=event, request=request, **more)


def request(n: int, asked_s: float, latency_s: float = 0.18, *, drops: str = "") -> Iterator[Message]:
    """The life of one."""
    came_s = asked_s + latency_s
    yield chunk(asked_s, "asked", n, captured_ns=START_NS)
    if drops:
        yield chunk(came_s, "dropped", n, why=drops, rows=[0, H], is_last=True, latency_ms=1e3 * latency_s)
        return
    yield chunk(came_s, "came", n, rows=[0, H], is_last=True, latency_ms=1e3 * latency_s)
    first = math.ceil(latency_s / (DT_NS / NS_PER_S))
    due = START_NS + round(asked_s * NS_PER_S)
    yield chunk(came_s, "spliced", n, row_0_due_ns=due, first_row=first, dropped_rows=first, jump=0.002)
    times = [due + i * DT_NS for i in range(H)]
    ways = np.array([hand((t - START_NS) / NS_PER_S) for t in times])
    columns = {f"arm.{axis}": ways[:, i].tolist() for i, axis in enumerate("xyz")}
    yield say("/plan", came_s, request=n, due_ns=times, columns=columns, first_row=first)
    yield chunk(asked_s + first * DT_NS / NS_PER_S + 0.001, "runs", n, row=first)


def order(t_s: float, what: dict, *, refused: str = "", waited_ms: float = 4.0) -> Message:
    return say("/order", t_s, what=what, by="page", refused=refused, waited_ms=waited_ms)


def picture(t_s: float, camera: str) -> Message:
    y, x = np.mgrid[0:90, 0:120]
    pixels = np.stack([2 * x, 2 * y, 128 + 100 * np.sin(x / 9 + 3 * t_s)], axis=-1).astype(np.uint8)
    at_ns = WALL_NS + round(t_s * NS_PER_S)
    return f"/camera/{camera}", at_ns, compressed_image(at_ns, bytes(jpeg_encoder(85)(pixels)), camera)


def run(until_s: float, *, since_s: float = 0.0) -> Iterator[Message]:
    """All that happens, in the order of time."""
    out = [line(0.0, "connected: policy 'circle' at tcp://gpu:5757"), line(0.4, "armed by key a")]
    runs: int | None = None
    for i in range(int(until_s * 50)):
        t_s = i / 50
        n = int((t_s - 0.2) / 0.4)
        runs = None if n < 1 else n - 1
        armed = (Mode.HOLD, Cause.NOT_ARMED) if t_s < 0.4 else (Mode.RUN, Cause.FRESH_CHUNK)
        clipped = {"arm": {"velocity": True}} if 2.0 < t_s < 2.6 else {}
        out += [state(t_s), mode(t_s, *armed, request=runs, clipped=clipped)]
        out.append(say("/timing", t_s, lateness_ms=0.06 + 0.02 * math.sin(i), took_ms=0.5, skipped=0))
        who = {"arm": "human" if 4.0 < t_s < 5.5 else "policy", "gripper": "policy"}
        out.append(
            say("/authority", t_s, authority=who, phase={"arm": "CORRECT" if 4.0 < t_s < 5.5 else "NONE"})
        )
        if i % 5 == 0:
            out += [picture(t_s, "chest"), picture(t_s, "wrist")]
    for n in range(int(until_s / 0.4)):
        out += request(
            n, 0.4 * n, 0.16 + 0.03 * (n % 3), drops="all its rows were already past" if n % 7 == 5 else ""
        )
    out.append(order(1.0, {"order": "SetTask", "task": "fold the towel"}))
    out.append(line(3.0, "answers come late: latency p95 240 ms", 3))
    return iter(
        sorted((each for each in out if each[1] >= WALL_NS + since_s * NS_PER_S), key=lambda each: each[1])
    )


def shown(until_s: float) -> PageState:
    """What a page knows by then."""
    known = PageState()
    known.begin(info())
    for message in run(until_s):
        known.take(*message)
    return known
