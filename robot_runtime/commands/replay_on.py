"""`robot-runtime replay --on`: moves a robot along a recorded episode."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import numpy as np

from robot_runtime.errors import InvalidValueError, UnknownNameError

if TYPE_CHECKING:
    from robot_runtime.core.policy import Policy
    from robot_runtime.log.played import RecordedWay
    from robot_runtime.log.reader import RunLog
    from robot_runtime.robot.robot import Robot

METHOD = "time-aligned"
LINGER_S = 0.5
"""How long a robot holds at the end of the recording before it is stopped and judged [s]."""


def on_robot(log: "RunLog", episode: int, *, robot: str, settings: tuple[str, ...], yes: bool) -> str:
    """Move a robot slowly to the start of the episode, then along it; return a summary."""
    from robot_runtime.cli.background_console import BackgroundConsole
    from robot_runtime.commands.run import Orders, Run, refuse_fault
    from robot_runtime.log.played import PlayedPolicy, RecordedWay
    from robot_runtime.robot.run import Session
    from robot_runtime.robot_file import open_robot
    from robot_runtime.signals import Ended

    recorded = RecordedWay.of(log, episode)
    run = Run(robot=robot, set=settings, yes=yes, method=METHOD, duration_s=recorded.duration_s + LINGER_S)
    sessions: list[Session] = []
    policy = PlayedPolicy(recorded, may_begin=lambda: bool(sessions) and sessions[0].is_armed)
    off, began_ns = 0.0, None
    with (
        BackgroundConsole() as console,
        Orders() as orders,
        open_robot(robot, settings) as opened,
        ExitStack() as held,
    ):
        refuse_misfit(recorded, opened.robot)
        address = held.enter_context(served(policy))
        if (arm := run.arm_switch(opened)) is not None:
            held.callback(arm.close)
        if recorded.start:
            run.go_slowly(opened, recorded.start, "where the episode begins", arm, orders, console)
            orders.close()
        options = {**opened.options, **run.options(log.info.task, console), "arm": arm, "policy": address}
        with Session(opened.robot, task=log.info.task, **options) as session:
            sessions.append(session)
            orders.take_signals()
            for tick in session:
                began_ns = policy.began_ns if began_ns is None else began_ns
                if began_ns is not None:
                    off = max(off, off_by(recorded, (tick.now_ns - began_ns) / 1e9, tick.command.parts))
    if orders.signals:
        raise Ended(orders.signals[0])
    refuse_fault(session.record)
    return f"{recorded.duration_s:.2f} s of {log.path.name} played; {far_words(off)}"


def refuse_misfit(recorded: "RecordedWay", robot: "Robot") -> None:
    """Refuse an episode that the robot cannot follow. UnknownNameError: it moves a part that the robot lacks.
    InvalidValueError: it exceeds the robot's speeds, so that the robot would fall behind."""
    from robot_runtime.core.values.fields import JointPosition

    for f, column in recorded.columns.items():
        if f.part not in robot.parts:
            raise UnknownNameError("part of this robot", f.part, tuple(robot.parts))
        if isinstance(f, JointPosition) and robot.limits is not None and len(column) > 1:
            dq_max = robot.limits.arm(f.part).dq_max
            dq = np.abs(np.gradient(column, recorded.times_s, axis=0)).max(axis=0)
            if len(dq) != len(dq_max):
                raise InvalidValueError(f"{f.part} has {len(dq_max)} joints, in the log it has {len(dq)}")
            i = int((dq / dq_max).argmax())
            if dq[i] > 1.01 * dq_max[i]:
                raise InvalidValueError(
                    f"the episode moves {f.column_names[i]} at {dq[i]:.2f} rad/s, this robot may "
                    f"{dq_max[i]:.2f}: it would fall behind (speeds of [parts.{f.part}.limits])"
                )


@contextmanager
def served(policy: "Policy") -> Iterator[str]:
    """Run a server in this process; yield its address."""
    from robot_runtime.server.server import PolicyServer

    with PolicyServer(policy, "tcp://127.0.0.1:*") as server:
        thread = threading.Thread(target=server.serve_forever, name="played", daemon=True)
        thread.start()
        try:
            yield server.address
        finally:
            server.stop()
            thread.join()


def off_by(recorded: "RecordedWay", t_s: float, parts: Mapping[str, object]) -> float:
    """Return how far commanded joints are from the recording at a time of it [rad]."""
    from robot_runtime.core.values.command import JointCommand
    from robot_runtime.core.values.fields import JointPosition

    off = 0.0
    for f, column in recorded.columns.items():
        command = parts.get(f.part)
        if isinstance(f, JointPosition) and isinstance(command, JointCommand) and t_s <= recorded.duration_s:
            there = np.array([np.interp(t_s, recorded.times_s, each) for each in column.T])
            off = max(off, float(np.abs(command.q - there).max()))
    return off


def far_words(off: float) -> str:
    return f"joints were commanded up to {off:.4f} rad from the recording"
