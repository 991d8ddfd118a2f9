"""Robots of named parts: columns are matched by name, and parts in one command are independent."""

from dataclasses import replace

import numpy as np
import pinocchio as pin
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.configuration import Configuration
from robot_runtime.core.executor import Executor
from robot_runtime.core.method.table import method_named
from robot_runtime.core.plan.limits import (
    BaseLimits,
    GripperLimits,
    JointLimits,
    Limits,
    MotionLimits,
    NumbersLimits,
)
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.values.action import (
    ActionChunk,
    ActionSpec,
    BasePose,
    BaseTwist,
    ChunkPart,
    EndEffectorPose,
    GripperFraction,
    GripperWidth,
    JointPosition,
    JointVelocity,
    Numbers,
    Reference,
    WorldEndEffectorPose,
    command_at_state,
)
from robot_runtime.core.values.alignment import Alignment
from robot_runtime.core.values.mismatches import mismatches
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, GripperSchema, Schema
from robot_runtime.core.values.state import ArmState, BaseState, GripperState, Observation, RobotState
from robot_runtime.core.values.waypoints import Waypoints
from robot_runtime.errors import InvalidValueError
from robot_runtime.wire.codec import decode, encode
from robot_runtime.wire.messages import Packet
from tests.examples import examples

DT, TICK = 50_000_000, 2_000_000
REFERENCES = st.sampled_from(list(Reference))
KINDS = st.sampled_from(
    ("joints", "velocity", "integrated", "hand", "width", "fraction", "pose", "twist", "n")
)


def _motion(n: int) -> MotionLimits:
    return MotionLimits(speed=np.full(n, 2.0), acceleration=np.full(n, 10.0), jerk=np.full(n, 1000.0))


def _joints(n: int) -> JointLimits:
    return JointLimits(
        q_min=np.full(n, -3.0), q_max=np.full(n, 3.0), dq_max=np.full(n, 2.0), ddq_max=np.full(n, 10.0),
        dddq_max=np.full(n, 1000.0), hand_translation=_motion(3), hand_rotation=_motion(3),
    )  # fmt: skip


@st.composite
def robots(draw) -> tuple[ActionSpec, RobotState]:
    """Any set of parts, each with some kind of command, and a state of theirs."""
    rng, fields, parts = np.random.default_rng(draw(st.integers(0, 1000))), [], {}
    for i, kind in enumerate(draw(st.lists(KINDS, min_size=1, max_size=6))):
        name, n = f"part_{i}", draw(st.integers(1, 7))
        X = pin.SE3(pin.exp3(rng.normal(size=3)), rng.normal(size=3))
        arm = ArmState(q=rng.normal(size=n), dq=rng.normal(size=n), X_BE=X)
        match kind:
            case "joints":
                field, part = JointPosition(n, draw(REFERENCES), name), arm
            case "velocity" | "integrated":
                field, part = JointVelocity(n, kind == "integrated", name), arm
            case "hand":
                field, part = EndEffectorPose(draw(REFERENCES), name), arm
            case "width":
                field, part = GripperWidth(name), GripperState(width=float(rng.uniform(0.0, 0.08)))
            case "fraction":
                field = GripperFraction(name, draw(st.booleans()), 0.0, 0.08)
                part = GripperState(width=float(rng.uniform(0.0, 0.08)))
            case "pose":
                field, part = BasePose(draw(REFERENCES), name), BaseState(x_WB=rng.normal(size=3))
            case "twist":
                field, part = BaseTwist(name), BaseState(x_WB=rng.normal(size=3), V_WB_B=np.zeros(3))
            case _:
                field, part = Numbers(tuple(f"x{k}" for k in range(n)), name, draw(st.booleans())), None
        fields.append(field)
        if part is not None:
            parts[name] = part
    spec = ActionSpec(fields=tuple(fields), horizon=4, dt_ns=DT)
    return spec, RobotState(t_ns=5, parts=parts, measured={"wrench": rng.normal(size=6)})


@examples(60)
@given(robot=robots(), seed=st.integers(0, 1000))
def test_rows_of_any_set_of_parts_become_targets_and_come_back(robot, seed):
    spec, state = robot
    rng = np.random.default_rng(seed)
    still = Waypoints.from_commands([command_at_state(spec, state)] * 4)
    moved = {
        what: values + (0.01 * rng.normal(size=values.shape) if what[1] not in ("quat_BE", "width") else 0.0)
        for what, values in still.rows_of.items()
    }
    rows = Waypoints(moved).encode(spec, state)
    assert rows.shape == (4, spec.dim)
    chunk = ActionChunk(spec=spec, rows=rows, anchor=state, request_id=0, epoch=0)
    back = Waypoints.from_chunk(chunk)
    assert back.rows_of.keys() == moved.keys()
    for what, values in moved.items():
        np.testing.assert_allclose(back.rows_of[what], values, atol=1e-9)
    assert ActionSpec.from_dict(spec.to_dict()) == spec
    assert len(set(spec.names)) == spec.dim


@examples(40)
@given(robot=robots())
def test_the_state_of_any_set_of_parts_crosses_the_wire_as_it_is(robot):
    _, state = robot
    request = ChunkRequest(observation=Observation(state=state), request_id=1, epoch=1, seed=3)
    frames = [bytes(frame) for frame in encode(Packet("robot", 1, request))]
    seen = decode(frames).message.observation.state
    assert list(seen.parts) == list(state.parts)
    np.testing.assert_array_equal(seen.measured["wrench"], state.measured["wrench"])
    for name, part in state.parts.items():
        assert type(seen.parts[name]) is type(part)
        for quantity in ("q", "dq", "width", "x_WB", "V_WB_B"):
            if getattr(part, quantity, None) is not None:
                np.testing.assert_array_equal(getattr(seen.parts[name], quantity), getattr(part, quantity))
        if getattr(part, "X_BE", None) is not None:
            assert seen.hand(name).isApprox(part.X_BE, 1e-12)


SHOULDER, ELBOW, WRIST = NAMES = ("shoulder", "elbow", "wrist")
ROBOT = Schema(
    action_fields=(JointPosition(3, part="left_arm", names=NAMES), GripperWidth("left_gripper")),
    parts={"left_arm": ArmSchema(3, NAMES), "left_gripper": GripperSchema()},
)


def test_a_policy_with_its_columns_in_another_order_gives_the_same_targets():
    turned = (WRIST, SHOULDER, ELBOW)
    fields = (GripperWidth("left_gripper"), JointPosition(3, Reference.RELATIVE, "left_arm", turned))
    parts = {"left_gripper": GripperSchema(), "left_arm": ArmSchema(3, turned)}
    policy = Schema(action_fields=fields, parts=parts)
    assert mismatches(robot=ROBOT, policy=policy) == []
    spec = ActionSpec(fields=fields, horizon=2, dt_ns=DT)
    alignment = Alignment.between(robot=ROBOT, policy=policy, action_spec=spec)
    q = np.array([1.0, 2.0, 3.0])
    arm, gripper = ArmState(q=q, dq=-q), GripperState(width=0.04)
    state = RobotState(t_ns=0, parts={"left_arm": arm, "left_gripper": gripper})
    shown = alignment.shown(Observation(state=state)).state
    np.testing.assert_array_equal(shown.arm("left_arm").q, [3.0, 1.0, 2.0])
    rows = np.array([[0.05, 0.3, 0.1, 0.2], [0.05, 0.6, 0.2, 0.4]])  # gripper, wrist, shoulder, elbow
    ours = alignment.ours(rows)
    np.testing.assert_array_equal(alignment.theirs(ours), rows)
    chunk = ActionChunk(spec=alignment.spec, rows=ours, anchor=state, request_id=0, epoch=0)
    targets = Waypoints.from_chunk(chunk).rows_of
    np.testing.assert_allclose(targets["left_arm", "q"][0], [1.1, 2.2, 3.3])


def test_plain_numbers_are_shown_in_the_policy_s_order_as_they_are_told():
    robot = Schema(action_fields=(Numbers(("x", "y")),), measured={"action": 2})
    policy = Schema(action_fields=(Numbers(("y", "x")),), measured={"action": 2})
    spec = ActionSpec(fields=policy.action_fields, horizon=2, dt_ns=DT)
    alignment = Alignment.between(robot=robot, policy=policy, action_spec=spec)
    earlier = Observation(state=RobotState(t_ns=0, measured={"action": np.array([3.0, 4.0])}))
    measured = {"action": np.array([1.0, 2.0]), "wrench": np.zeros(6)}
    seen = alignment.shown(Observation(state=RobotState(t_ns=1, measured=measured), history=(earlier,)))
    assert seen.state.measured["action"].tolist() == [2.0, 1.0]
    assert seen.history[0].state.measured["action"].tolist() == [4.0, 3.0]
    assert alignment.ours(np.array([[2.0, 1.0]])).tolist() == [[1.0, 2.0]]


def test_columns_of_the_same_names_that_mean_something_else_are_refused():
    joints = JointPosition(2, names=("a", "b"))
    robot = Schema(action_fields=(joints,), parts={"arm": ArmSchema(2, ("a", "b"))})
    policy = Schema(action_fields=(Numbers(("b", "a"), part="arm"),), parts=robot.parts)
    (text,) = mismatches(robot=robot, policy=policy)
    assert "the robot takes 2 joint positions, the policy gives 2 numbers" in text
    left, right = (Schema(action_fields=(WorldEndEffectorPose(base=b),)) for b in ("cart", "lift"))
    (text,) = mismatches(robot=left, policy=right)
    assert "on the base 'cart', the policy on 'lift'" in text


def test_a_schema_has_one_order_of_joints_and_one_field_for_a_part():
    turned = JointPosition(2, Reference.RELATIVE, names=("b", "a"))
    with pytest.raises(InvalidValueError, match="commanded and measured in one order"):
        Schema(action_fields=(turned,), parts={"arm": ArmSchema(2, ("a", "b"))})
    halves = (JointPosition(1, names=("a",)), JointPosition(1, names=("b",)))
    with pytest.raises(InvalidValueError, match="one action field for a part"):
        Schema(action_fields=halves, parts={"arm": ArmSchema(2, ("a", "b"))})


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_numbers_that_rest_nowhere_are_refused(wrong):
    for given_up in ({"at_rest": (wrong,)}, {"scale": wrong}):
        with pytest.raises(InvalidValueError, match="finite"):
            Numbers(("x",), **given_up)
    with pytest.raises(InvalidValueError, match="no range"):
        GripperFraction(high=float("inf"))


def test_columns_that_are_missing_or_left_over_are_named():
    other = ("shoulder", "elbow", "hip")
    policy = Schema(
        action_fields=(JointPosition(3, part="left_arm", names=other), JointPosition(1, part="lift")),
        parts={"left_arm": ArmSchema(3, other), "lift": ArmSchema(1)},
    )
    text = " / ".join(mismatches(robot=ROBOT, policy=policy))
    assert text == (
        "left_arm joints: the robot has 3, the policy needs 3; missing: left_arm.hip; left over: "
        "left_arm.wrist / lift: the robot has no such part, the policy needs joints"
    )
    assert Schema.from_dict(policy.to_dict()) == policy


def test_parts_that_a_policy_neither_looks_at_nor_moves_are_no_mismatch_but_plain_numbers_are():
    policy = Schema.of(ActionSpec(fields=(GripperWidth("left_gripper"),), horizon=2, dt_ns=DT))
    assert mismatches(robot=ROBOT, policy=policy) == []
    x, y = Numbers(("x",), part="x"), Numbers(("y",), part="y")
    (text,) = mismatches(robot=Schema(action_fields=(x, y)), policy=Schema(action_fields=(x,)))
    assert text == "y: the robot takes 1 numbers, the policy gives nothing"


def test_a_hand_pose_is_asked_only_of_a_robot_that_has_one():
    fields = (JointPosition(2),)
    blind = Schema(action_fields=fields, parts={"arm": ArmSchema(2, has_hand=False)})
    seeing = Schema(action_fields=fields, num_joints=2)
    assert mismatches(robot=blind, policy=blind) == []
    assert mismatches(robot=seeing, policy=blind) == []
    (text,) = mismatches(robot=blind, policy=seeing)
    assert "the pose of its hand" in text


def _run(names: tuple[str, ...], method: str) -> list[dict[str, list[float]]]:
    """Commands of arms in 300 ticks, each with rows of its own."""
    fields = tuple(f for n in names for f in (JointPosition(2, part=n), GripperWidth(f"{n}_gripper")))
    limits: dict = {n: _joints(2) for n in names}
    limits |= {f"{n}_gripper": GripperLimits(motion=_motion(1)) for n in names}
    robot = Executor(
        Configuration(
            action_spec=ActionSpec(fields=fields, horizon=8, dt_ns=DT),
            method=method_named(method),
            limits=Limits(limits),
            control_period_ns=TICK,
        )
    )
    positions = {n: np.zeros(2) for n in names}
    out = []
    for k in range(300):
        parts: dict = {n: ArmState(q=positions[n], dq=np.zeros(2)) for n in names}
        parts |= {f"{n}_gripper": GripperState(width=0.04) for n in names}
        state = RobotState(t_ns=k * TICK, parts=parts)
        if k == 0:
            robot.reset(state, 0)
        if robot.wants_request(k * TICK):
            request = robot.make_request(Observation(state=state))
            rows = np.hstack([_rows(n, k) for n in names])
            part = ChunkPart(
                request_id=request.request_id,
                epoch=1,
                t_obs_ns=state.t_ns,
                first_row=0,
                rows=rows,
                is_last=True,
            )
            robot.on_part(part, k * TICK)
        command = robot.tick(state, k * TICK).command
        positions = {n: command.parts[n].q for n in names}
        out.append({n: [*command.parts[n].q, command.parts[f"{n}_gripper"].width] for n in names})
    return out


def _rows(name: str, k: int) -> np.ndarray:
    phase = (k * TICK / DT + np.arange(8)) * (0.5 if name == "left" else 0.3)
    return np.column_stack([np.sin(phase), 0.8 * np.cos(phase), 0.04 + 0.03 * np.sin(phase)])


@pytest.mark.parametrize("method", ["time-aligned", "cross-fade", "temporal-ensembling"])
def test_two_arms_led_together_go_as_each_of_them_alone(method):
    both, left, right = _run(("left", "right"), method), _run(("left",), method), _run(("right",), method)
    assert both == [a | b for a, b in zip(left, right, strict=True)]
    assert np.ptp([tick["left"][0] for tick in both]) > 0.1


def test_joints_that_are_told_velocities_stand_before_the_ends_of_their_range():
    spec = ActionSpec(fields=(JointVelocity(1),), horizon=8, dt_ns=DT)
    robot = Executor(
        Configuration(
            action_spec=spec,
            method=method_named("time-aligned"),
            limits=Limits({"arm": _joints(1)}),
            control_period_ns=TICK,
        )
    )
    q, speeds = np.zeros(1), []
    robot.reset(RobotState(t_ns=0, q=q, dq=np.zeros(1)), 0)
    for k in range(1500):
        state = RobotState(t_ns=k * TICK, q=q, dq=np.zeros(1))
        if robot.wants_request(k * TICK):
            request = robot.make_request(Observation(state=state))
            part = ChunkPart(
                request_id=request.request_id, epoch=1, t_obs_ns=state.t_ns, first_row=0,
                rows=np.full((8, 1), 5.0), is_last=True,
            )  # fmt: skip
            robot.on_part(part, k * TICK)
        speeds.append(float(robot.tick(state, k * TICK).command.arm.dq[0]))
        q = q + speeds[-1] * TICK / 1e9
    assert max(speeds) == pytest.approx(2.0, rel=1e-3)
    assert q[0] == pytest.approx(3.0, abs=0.05)
    assert q[0] <= 3.0


def test_shares_of_an_opening_stand_for_the_widths_that_the_robot_declares():
    spec = ActionSpec(fields=(GripperFraction(one_is_open=False),), horizon=2, dt_ns=DT)
    limits = Limits({"gripper": GripperLimits(low=0.01, high=0.09, motion=_motion(1))})
    bound = spec.with_gripper_ranges(limits.gripper_ranges)
    state = RobotState(t_ns=0, gripper_width=0.05)
    chunk = ActionChunk(spec=bound, rows=np.array([[0.0], [1.0]]), anchor=state, request_id=0, epoch=0)
    np.testing.assert_allclose(Waypoints.from_chunk(chunk).gripper, [0.09, 0.01])


def test_plain_numbers_are_held_and_kept_within_their_range():
    spec = ActionSpec(fields=(Numbers(("x", "y")),), horizon=4, dt_ns=DT)
    limits = Limits({"action": NumbersLimits(low=np.zeros(2), high=np.full(2, 512.0))})
    robot = Executor(
        Configuration(
            action_spec=spec, method=method_named("time-aligned"), limits=limits, control_period_ns=TICK
        )
    )
    state = RobotState(t_ns=0)
    robot.reset(state, 0)
    request = robot.make_request(Observation(state=state))
    rows = np.array([[1.0, 2.0], [100.0, 200.0], [600.0, -1.0], [5.0, 6.0]])
    part = ChunkPart(request_id=request.request_id, epoch=1, t_obs_ns=0, first_row=0, rows=rows, is_last=True)
    robot.on_part(part, 0)
    sent = [robot.tick(replace(state, t_ns=t), t).command.parts["action"].values.tolist() for t in
            (0, DT - TICK, DT, 2 * DT, 3 * DT)]  # fmt: skip
    assert sent[2:] == [[100.0, 200.0], [512.0, 0.0], [5.0, 6.0]]
    assert sent[0] == sent[1]


def test_a_part_without_limits_cannot_be_commanded_and_is_named():
    limits = Limits({"left_arm": _joints(3), "base": BaseLimits(motion=_motion(3))})
    spec = ActionSpec(
        fields=(JointPosition(3, part="left_arm"), GripperWidth("left_gripper")), horizon=2, dt_ns=1
    )
    with pytest.raises(InvalidValueError, match="left_gripper"):
        limits.check(spec)
    assert Schema(action_fields=(), parts={"base": BaseSchema()}).has_base
