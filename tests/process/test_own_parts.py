"""A visitor's robot with other parts than the usual: sensors, groups of joints without a hand, and parts that
the policy does not move."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pinocchio as pin
import pytest

import robot_runtime as rr
from drivers.ideal import IdealArm, IdealGripper
from policies.commands.serve import joints_schema
from policies.scripted import SinePolicy
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.plan.limits import (
    BaseLimits,
    GripperLimits,
    JointLimits,
    Limits,
    MotionLimits,
    NumbersLimits,
)
from robot_runtime.core.safety import Cause
from robot_runtime.core.values.action import ActionSpec, EndEffectorPose
from robot_runtime.core.values.command import BaseTwistCommand, JointCommand
from robot_runtime.core.values.mismatches import mismatches
from robot_runtime.core.values.schema import Schema
from robot_runtime.errors import DriverError, SchemaMismatchError
from robot_runtime.load_object import load_object
from robot_runtime.robot.check import check_robot
from tests.process.toy import serving

pytestmark = pytest.mark.usefixtures("patient_time")

PATIENT_NS = 2_000_000_000
SPEC = ActionSpec(fields=(rr.JointPosition(2),), horizon=16, dt_ns=50_000_000)
Q = np.array([0.1, -0.2])


class Noted:
    """Keeps what it was told, and whether it was stopped."""

    def write(self, command):
        self.__dict__.setdefault("told", []).append(command)
        return super().write(command) if hasattr(super(), "write") else None

    def stop(self):
        self.is_stopped = True


class NotedArm(Noted, IdealArm):
    pass


class NotedGripper(Noted, IdealGripper):
    pass


class NotedBase(Noted):
    silence_s = 0.25

    def read(self):
        return rr.BaseState(t_ns=MonotonicClock().now_ns(), x_WB=np.zeros(3), V_WB_B=np.zeros(3))


class Wrench:
    num_values = 6

    def __init__(self) -> None:
        self.values = np.arange(6.0)

    def read(self):
        return self.values


class Scale:
    """One number, plain."""

    num_values = 1

    def read(self):
        return 9.81


def motion(n: int) -> MotionLimits:
    return MotionLimits(speed=np.ones(n), acceleration=10 * np.ones(n), jerk=1000 * np.ones(n))


def joints(n: int) -> JointLimits:
    one = np.ones(n)
    return JointLimits(q_min=-3 * one, q_max=3 * one, dq_max=one, ddq_max=9 * one, dddq_max=999 * one)


def arm(q=Q) -> NotedArm:
    return NotedArm(clock=MonotonicClock(), q=np.array(q))


def robot(**parts) -> rr.Robot:
    limits = Limits(
        {
            "arm": joints(2),
            "lift": joints(1),
            "gripper": GripperLimits(),
            "base": BaseLimits(motion=motion(3)),
        }
    )
    return rr.Robot(**{"arm": arm(), "limits": limits} | parts)


def test_what_a_sensor_reads_reaches_the_policy_under_its_name():
    shown = []

    @rr.policy(rr.PolicyInfo(name="feels", action_spec=SPEC, schema=Schema.of(SPEC, measured={"wrench": 6})))
    def feels(observation):
        shown.append(dict(observation.state.measured))
        return np.tile(observation.state.q, (SPEC.horizon, 1))

    with serving(feels, heartbeat_ns=PATIENT_NS) as server:
        record = rr.run(
            robot(wrench=Wrench(), load=Scale()), policy=server.address, control_hz=100.0, duration_s=0.5
        )
    assert record.fault == ""
    np.testing.assert_array_equal(shown[-1]["wrench"], np.arange(6.0))
    np.testing.assert_array_equal(shown[-1]["load"], [9.81])


def test_a_robot_without_the_sensor_that_a_policy_needs_is_refused_by_name():
    needs = Schema.of(SPEC, measured={"wrench": 6})
    assert mismatches(robot=robot(wrench=Wrench()).schema(), policy=needs) == []
    (text,) = mismatches(robot=robot(load=Scale()).schema(), policy=needs)
    assert text == "measured: the policy needs 6 numbers wrench, the robot has load (1)"


class IdealCamera:
    size = (4, 4)

    def read(self):
        return rr.Image(t_ns=MonotonicClock().now_ns(), pixels=np.zeros((4, 4, 3), np.uint8))

    def close(self):
        pass


def test_a_camera_is_given_by_name_as_parts_and_sensors_are():
    seeing = robot(front=IdealCamera(), cameras={"wrist": IdealCamera()}, wrench=Wrench())
    assert check_robot(seeing, MonotonicClock()).measured.keys() == {"wrench"}
    assert seeing.schema().cameras == {"front": (4, 4), "wrist": (4, 4)}
    assert [*replace(seeing, actions=()).cameras] == ["front", "wrist"]


def test_actions_say_of_the_parts_that_they_name_what_is_not_the_usual():
    actions = (rr.JointPosition(1, names=("up",), part="lift"),)
    named = robot(lift=arm([0.0]), gripper=NotedGripper(), base=NotedBase(), actions=actions)
    assert check_robot(named, MonotonicClock())
    told = named.schema().action_fields
    assert told == (*actions, rr.JointPosition(2), rr.GripperWidth(), rr.BaseTwist())
    assert named.schema().arms["lift"].names == ("up",)


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ((rr.JointPosition(2, part="amr"),), "actions name amr, which is none of its parts: arm, gripper"),
        ((rr.GripperWidth(part="arm"),), "actions have GripperWidth for arm, which takes JointPosition, "),
        ((rr.JointPosition(3),), "actions have 3 joints for arm, it has 2"),
        ((rr.JointVelocity(2), rr.BaseTwist()), "actions name base, which is none of its parts"),
    ],
)
def test_actions_of_parts_that_the_robot_lacks_are_refused_at_the_door(actions, words):
    with pytest.raises(DriverError, match=f"(?s)this robot cannot be run:.*{words}"):
        check_robot(robot(gripper=NotedGripper(), actions=actions), MonotonicClock())


@pytest.mark.parametrize("ends", [(-np.inf, 1.0), (0.0, np.inf)])
def test_plain_numbers_without_a_finite_range_are_refused_at_the_door(ends):
    low, high = (np.array([end]) for end in ends)
    parts = {"arm": joints(2), "suction": NumbersLimits(low=low, high=high)}
    with pytest.raises(DriverError, match=r"limits of suction: expected a finite range .*, got \["):
        check_robot(robot(suction=NotedGripper(), limits=Limits(parts)), MonotonicClock())


def test_joints_of_other_names_are_refused_with_what_gives_them_names():
    ours, theirs = robot().schema(), Schema.of(replace(SPEC, fields=(rr.JointPosition(2, names=("a", "b")),)))
    (text,) = mismatches(robot=ours, policy=theirs)
    assert text.endswith("what a Robot calls its joints: actions=(JointPosition(N, names=(...), part=...),)")


class Unsized:
    def read(self):
        return 1.0


@pytest.mark.parametrize(
    ("sensor", "words"),
    [
        (Unsized(), r"wrench \(Unsized\) is neither a part, which has .*write\(command\).* nor a sensor"),
        (type("Blind", (), {"size": (4, 4), "close": len})(), r"camera 'wrench' \(Blind\) has no read\(\)"),
        (type("Few", (Wrench,), {"num_values": 5})(), r"of shape \(6,\), expected \(5,\), its num_values"),
        (type("None_", (Wrench,), {"num_values": 0})(), "wrench.num_values is 0, expected a whole number"),
        (type("Word", (Wrench,), {"read": lambda self: "six"})(), "read.. returned str, expected 6 numbers"),
        (type("Nan", (Wrench,), {"read": lambda self: np.full(6, np.nan)})(), "expected finite numbers"),
    ],
)
def test_a_sensor_that_is_none_is_refused_at_the_door(sensor, words):
    with pytest.raises(DriverError, match=words):
        check_robot(robot(wrench=sensor), MonotonicClock())


class Breaks(Wrench):
    """Reads something else from its hundredth reading on."""

    def __init__(self, later: np.ndarray) -> None:
        super().__init__()
        self.num_reads, self.later = 0, later

    def read(self):
        self.num_reads += 1
        return self.later if self.num_reads > 100 else self.values


def test_a_robot_stops_when_a_sensor_reads_what_is_no_number_or_of_another_shape():
    with serving(SinePolicy(Schema.of(SPEC)), heartbeat_ns=PATIENT_NS) as server:
        options = {"policy": server.address, "control_hz": 100.0, "duration_s": 5.0}
        record = rr.run(robot(wrench=Breaks(np.full(6, np.nan))), **options)
        assert record.ticks[-1].cause is Cause.STATE_INVALID
        assert any("wrench[0] = nan, wrench[1] = nan, " in text for _, text in record.log)
        broken = robot(wrench=Breaks(np.zeros(5)))
        with pytest.raises(DriverError, match=r"wrench\.read\(\) returned an array of shape \(5,\)"):
            rr.run(broken, **options)
    assert broken.arm.is_stopped


def test_only_an_arm_whose_hand_is_measured_or_follows_from_its_joints_has_one():
    lift = arm([0.3])
    assert not robot(lift=lift).schema().needs_hand("arm")
    by_kinematics = robot(lift=lift, hand_pose=lambda q: pin.SE3.Identity())
    assert by_kinematics.read().X_BE is not None
    assert by_kinematics.schema().needs_hand("arm")
    assert not by_kinematics.schema().needs_hand("lift")
    moves_hand = Schema(action_fields=(EndEffectorPose(),), num_joints=2).without_hands()
    told_hands = robot(actions=(EndEffectorPose(),)).schema()
    (text,) = mismatches(robot=told_hands, policy=moves_hand)
    assert text.startswith("arm: the policy needs the pose of its hand, the robot measures none")


def test_parts_that_the_policy_does_not_move_are_held_still_said_once_and_stopped_with_the_rest():
    lift, gripper, base = arm([0.3]), NotedGripper(), NotedBase()
    mine = robot(lift=lift, gripper=gripper, base=base)
    with serving(SinePolicy(Schema.of(SPEC)), heartbeat_ns=PATIENT_NS) as server:
        record = rr.run(mine, policy=server.address, control_hz=100.0, duration_s=0.6)
    assert record.num_splices >= 1
    assert np.ptp([command.q[0] for command in mine.arm.told]) > 0.001
    assert {type(command) for command in lift.told} == {JointCommand}
    assert {command.q.item() for command in lift.told} == {0.3}
    assert {type(command) for command in base.told} == {BaseTwistCommand}
    assert not any(command.V_WB_B.any() for command in base.told)
    assert not hasattr(gripper, "told")  # it goes on holding what it holds
    assert all(part.is_stopped for part in mine.parts.values())
    said = [text for _, text in record.log if text.startswith("held still")]
    assert said == ["held still: lift, gripper, base; policy 'sine' does not move them"]
    assert list(record.ticks[-1].sent.parts) == ["arm"]


def test_a_state_that_the_policy_needs_and_the_robot_lacks_stays_refused():
    fields = (rr.JointPosition(2), rr.JointPosition(1, part="lift"))
    policy = SinePolicy(Schema.of(replace(SPEC, fields=fields)))
    with (
        serving(policy, heartbeat_ns=PATIENT_NS) as server,
        pytest.raises(SchemaMismatchError, match="lift: the robot has no such part, the policy needs joints"),
    ):
        rr.run(robot(), policy=server.address, duration_s=1.0)


class Loosens(NotedArm):
    """Its encoder comes loose."""

    num_reads = 0

    def read(self):
        self.num_reads += 1
        q = self.q * np.nan if self.num_reads > 50 else self.q
        return rr.ArmState(t_ns=self.clock.now_ns(), q=q, dq=np.zeros(1))


def test_a_part_that_is_not_moved_is_watched_as_the_others_are():
    mine = robot(lift=Loosens(clock=MonotonicClock(), q=np.array([0.3])))
    with serving(SinePolicy(Schema.of(SPEC)), heartbeat_ns=PATIENT_NS) as server:
        record = rr.run(mine, policy=server.address, control_hz=100.0, duration_s=1.5)
    assert record.ticks[-1].cause is Cause.STATE_INVALID


EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    """What it defines; its clock is patient, as the run's."""
    names = load_object(f"{EXAMPLES / name}:{'robot'}", group="", what="robot").__globals__
    names["time"] = SimpleNamespace(monotonic_ns=MonotonicClock().now_ns)
    return names


def test_the_example_of_a_mobile_base_drives_in_a_circle():
    mine = SimpleNamespace(**example("mobile_base.py"))
    robot = mine.robot()
    with serving(mine.circle, heartbeat_ns=PATIENT_NS) as server:
        record = rr.run(robot, policy=server.address, control_hz=100.0, duration_s=1.5)
    assert record.fault == ""
    x, y, yaw = robot.base.x
    assert 0.05 < x < 0.3
    assert y > 0.0
    assert 0.2 < yaw < 0.75
    assert not robot.base.twist.any()


def test_the_example_of_two_arms_moves_them_and_holds_its_lift():
    robot = example("two_arms.py")["robot"]()
    with serving(SinePolicy(joints_schema(["left_arm=6", "right_arm=6"])), heartbeat_ns=PATIENT_NS) as server:
        record = rr.run(robot, policy=server.address, control_hz=100.0, duration_s=0.6)
    assert record.fault == ""
    assert robot.parts["left_arm"].q.all()
    assert robot.parts["right_arm"].q.all()
    assert robot.parts["lift"].q.tolist() == [0.0]
    assert [text for _, text in record.log if "held still: lift" in text]


def test_the_policy_of_the_page_goes_on_from_what_will_have_run():
    """As docs/your_policy.md shows it, with a network of zeros."""
    page = (EXAMPLES.parent / "docs" / "your_policy.md").read_text()
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "KeepsItsWord" in code]
    names: dict[str, Any] = {"rr": rr, "ROWS": SPEC}
    exec(code, names)
    keeps = names["KeepsItsWord"](lambda observation: np.zeros((16, 2)))
    state = robot().read()
    planned = np.arange(32.0).reshape(16, 2)
    request = rr.ChunkRequest(
        observation=rr.Observation(state=state), prev_action_chunk=planned, inference_delay=3
    )
    first, rest = keeps.infer(request)
    np.testing.assert_array_equal(first[:3], planned[:3])
    assert not first[3:].any()
    assert len(first) + len(rest) == 16
    assert "committed-prefix" in keeps.info.capabilities.methods()
    with serving(keeps, heartbeat_ns=PATIENT_NS) as server:
        record = rr.run(robot(), policy=server.address, control_hz=100.0, duration_s=0.5)
    assert record.num_splices >= 1
