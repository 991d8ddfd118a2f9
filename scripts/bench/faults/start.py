"""Rows 17 and 19: a policy that hangs, and one that does not fit the robot, before anything moves."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.robot import ArmState
from robot_runtime.core.values.action import NS_PER_MS, ActionSpec
from robot_runtime.core.values.command import ArmCommand
from robot_runtime.core.values.fields import (
    ActionField,
    BaseTwist,
    EndEffectorPose,
    GripperWidth,
    JointPosition,
    JointVelocity,
)
from robot_runtime.core.values.schema import ArmSchema, GripperSchema, Schema
from robot_runtime.errors import RobotRuntimeError
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.run import Session
from scripts.bench.faults.policies import CAMERA, DT_NS, FRANKA, HORIZON, SIZE, Swing
from scripts.bench.faults.servers import PolicyProcess
from scripts.bench.faults.table import Fault, Figure, Injection


class CountedArm:
    """Arm that counts its commands."""

    num_joints = 7

    def __init__(self, address: str = "") -> None:
        """address: identifies the device."""
        from drivers.ideal import Q_HOME

        self.address, self.first_ns = address, 0
        self.num_commanded, self.num_moving, self._q = 0, 0, Q_HOME

    def read(self) -> ArmState:
        return ArmState(t_ns=time.monotonic_ns(), q=self._q, dq=np.zeros(7))

    def write(self, command: ArmCommand) -> None:
        self.first_ns = self.first_ns or time.monotonic_ns()
        self.num_commanded += 1
        self.num_moving += not np.array_equal(getattr(command, "q", self._q), self._q)

    def stop(self) -> None: ...

    def robot(self) -> Robot:
        """Return a robot of this arm and a gripper."""
        from drivers.fr3 import FR3_LIMITS
        from drivers.ideal import IdealGripper

        return Robot(arm=self, gripper=IdealGripper(), limits=FR3_LIMITS)


def refused(address: str, *, expected: str, **options: Any) -> Injection:
    """Check that a run is refused. expected: words of the sentence with the reason."""
    arm, message = CountedArm(), ""
    start_ns = MonotonicClock().now_ns()
    try:
        with Session(arm.robot(), policy=address, **{"duration_s": 0.5} | options) as running:
            for _ in running:
                pass
        message = running.record.fault
    except RobotRuntimeError as error:
        message = str(error)
    found = () if expected in message else (f"expected {expected!r}, got: {message or 'nothing'}",)
    return Injection(
        figures={
            "commands that move": float(arm.num_moving),
            "refused after": (MonotonicClock().now_ns() - start_ns) / NS_PER_MS,
        },
        surprises=found,
    )


# ---- 19: the wrong policy ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """Policy for another robot, and the words that its refusal must contain."""

    info: PolicyInfo
    expected: str
    options: tuple[tuple[str, object], ...] = ()


class Unfit(Swing):
    """Policy that does not fit; it is never asked."""

    def __init__(self, number: int) -> None:
        """number: in `wrong_policies`."""
        super().__init__()
        self.info = wrong_policies()[number].info

    def infer(self, request: ChunkRequest) -> Iterator[np.ndarray]:
        yield np.zeros((HORIZON, self.info.action_spec.dim))


def wrong_policies() -> list[Wrong]:
    """Return policies with other joints, names, units, parts, hands, cameras and tasks."""
    names = tuple(f"axis_{i}" for i in range(7))
    joints, six = JointPosition(7), JointPosition(6)
    return [
        Wrong(info=_info(six, GripperWidth(), schema=_arm(6)), expected="arm"),
        Wrong(
            info=_info(JointPosition(7, names=names), GripperWidth(), schema=_arm(7, names)),
            expected="axis_0",
        ),
        Wrong(info=_info(JointVelocity(7), GripperWidth(), schema=FRANKA), expected="arm"),
        Wrong(info=_info(joints, GripperWidth(), BaseTwist(), schema=FRANKA), expected="base"),
        Wrong(info=_info(EndEffectorPose(), GripperWidth(), schema=FRANKA), expected="arm"),
        Wrong(info=_info(JointPosition(7, part="left_arm"), schema=_of("left_arm")), expected="left_arm"),
        Wrong(info=_info(joints, GripperWidth(), schema=_seeing(CAMERA)), expected=CAMERA),
        Wrong(
            info=_info(joints, schema=replace(FRANKA, measured={"wrist_force": 6})), expected="wrist_force"
        ),
        Wrong(
            info=replace(_info(joints, GripperWidth(), schema=FRANKA), tasks=("wipe the table",)),
            expected="wipe the table",
            options=(("task", "open the drawer"),),
        ),
    ]


def _info(*fields: ActionField, schema: Schema) -> PolicyInfo:
    spec = ActionSpec(fields=fields, horizon=HORIZON, dt_ns=DT_NS)
    return replace(Swing().info, name="unfit", action_spec=spec, schema=replace(schema, action_fields=fields))


def _arm(num_joints: int, names: tuple[str, ...] = ()) -> Schema:
    return replace(FRANKA, parts={"arm": ArmSchema(num_joints, names), "gripper": GripperSchema()})


def _of(part: str) -> Schema:
    return replace(FRANKA, parts={part: ArmSchema(7)})


def _seeing(camera: str) -> Schema:
    return replace(FRANKA, cameras={camera: SIZE})


def unfit_policies(times: int) -> Iterator[Injection]:
    """Serve each in turn, in its own server."""
    for number, wrong in islice(cycle(enumerate(wrong_policies())), times):
        with PolicyProcess(partial(Unfit, number)) as server:
            yield refused(server.address, expected=wrong.expected, **dict(wrong.options))


ROWS = (
    Fault(
        number=19,
        name="wrong policy for this robot",
        how="servers whose policies have other joints, names, units, parts, hands, cameras, sensors or tasks",
        behaviour="refused at the greeting, with the name of what does not fit",
        figures=(
            Figure(name="commands that move", most=0.0),
            Figure(name="refused after", unit="ms", most=2000.0),
        ),
        inject=unfit_policies,
    ),
)
