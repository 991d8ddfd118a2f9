"""Logs of runs that never were: every control step written by hand, pictures and all."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from robot_runtime.core.authority import Authority, HandoverPhase
from robot_runtime.core.journal import Ticked
from robot_runtime.core.orders import EpisodeMark, SetTask, TakenOrder
from robot_runtime.core.plan.clip import Clip
from robot_runtime.core.plan.timeline import Phase, Source
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.command import Command, GripperCommand, JointCommand
from robot_runtime.core.values.fields import GripperWidth, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import ArmState, GripperState, Image, RobotState
from robot_runtime.log.config import LogConfig
from robot_runtime.log.entries import Sent
from robot_runtime.log.start import start_log

MS = 1_000_000
START_NS = 5_000_000_000_000
SPEC = ActionSpec(
    fields=(JointPosition(2, part="arm"), GripperWidth(part="gripper")), horizon=8, dt_ns=50 * MS
)
SCHEMA = Schema.of(SPEC, cameras={"wrist": (48, 64)})
NAMES = ["arm.joint_1", "arm.joint_2", "gripper.width"]


def state_at(t_ns: int) -> RobotState:
    """Where the robot is says when it was measured: joint 1 [s since the start]."""
    t_s = (t_ns - START_NS) / 1e9
    arm = ArmState(q=np.array([t_s, np.sin(t_s)]), dq=np.array([1.0, np.cos(t_s)]))
    return RobotState(t_ns=t_ns, parts={"arm": arm, "gripper": GripperState(width=0.04)})


def command(first: float, second: float = 0.0, width: float = 0.04) -> Command:
    return Command({"arm": JointCommand(q=np.array([first, second])), "gripper": GripperCommand(width=width)})


def tick_at(
    t_ns: int,
    *,
    arm: Authority = Authority.POLICY,
    gripper: Authority | None = None,
    phase: HandoverPhase = HandoverPhase.NONE,
    mode: Mode = Mode.RUN,
    has_plan: bool = True,
    clip: Clip | None = None,
) -> Tick:
    """A step that commands 0.1 more than the state, and whose policy wanted 0.2 more."""
    t_s = (t_ns - START_NS) / 1e9
    return Tick(
        now_ns=t_ns,
        command=command(t_s + 0.1, np.sin(t_s)),
        mode=mode,
        cause=Cause.FRESH_CHUNK if mode is Mode.RUN else Cause.PLAN_ENDED,
        phase=Phase.PLAN,
        source=Source(request_id=7, t_obs_ns=t_ns - 90 * MS) if has_plan else None,
        row=3 if has_plan else None,
        clip=Clip() if clip is None else clip,
        authority={"arm": arm, "gripper": arm if gripper is None else gripper},
        phase_of={"arm": phase, "gripper": HandoverPhase.NONE if gripper is not None else phase},
        policy_command=command(t_s + 0.2, np.sin(t_s)) if has_plan else None,
    )


def picture_at(t_ns: int, size: tuple[int, int] = (48, 64)) -> Image:
    """Its brightness says when it was taken: 40 and two levels more each 33 ms; a ramp beside it."""
    level = 40 + 2 * round((t_ns - START_NS) / (1e9 / 30)) % 160
    pixels = np.full((*size, 3), level, np.uint8)
    pixels[: size[0] // 4] = np.linspace(0, 255, size[1], dtype=np.uint8)[None, :, None]
    return Image(t_ns=t_ns, pixels=pixels)


def write_run(
    folder: Path,
    *,
    seconds: float,
    hz: float = 100.0,
    tick: Callable[[int], Tick | None] = tick_at,
    state: Callable[[int], RobotState] = state_at,
    marks: Sequence[EpisodeMark] = (),
    tasks: Sequence[tuple[int, str]] = (),
    camera_hz: float = 30.0,
    schema: Schema = SCHEMA,
    picture: Callable[[int, str], Image | None] | None = None,
    robot: str = "toy",
    policy: str = "pi-toy",
    is_virtual: bool = True,
    end: dict[str, str] | None = None,
) -> Path:
    """Steps k / hz from START_NS on; a picture is there from its capture on. tick: None leaves a step out."""
    log = start_log(
        LogConfig(folder=folder),
        task="wave",
        robot=robot,
        schema=schema,
        policy=PolicyInfo(name=policy or "no policy", action_spec=SPEC),
        has_policy=bool(policy),
        control_period_ns=round(1e9 / hz),
        now_ns=START_NS,
        is_virtual=is_virtual,
        seed=3,
    )
    told, number = list(tasks), 0
    for k in range(round(seconds * hz)):
        t_ns = START_NS + round(k * 1e9 / hz)
        while (taken_ns := START_NS + 7 * MS + round(number * 1e9 / camera_hz)) <= t_ns:
            for name, size in schema.cameras.items():
                shot = picture_at(taken_ns, size) if picture is None else picture(taken_ns, name)
                if shot is not None:
                    log.picture(name, shot)
            number += 1
        while told and told[0][0] <= t_ns:
            at_ns, text = told.pop(0)
            log.note(TakenOrder(order=SetTask(text), by="test", posted_ns=at_ns, done_ns=t_ns))
        step = tick(t_ns)
        if step is not None:
            log.note(Ticked(state(t_ns), t_ns, step))
            log.note(Sent(step.command))
    for mark in marks:
        log.note(mark)
    log.close(end)
    [path] = [path for path in folder.iterdir() if path.suffix == ".mcap"]
    return path
