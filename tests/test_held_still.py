"""Parts that a policy does not move stay where they are, whatever odometry and the order of joints say."""

import numpy as np

from robot_runtime.core.values.action import ActionSpec, BasePose, JointPosition, Reference
from robot_runtime.core.values.alignment import Alignment
from robot_runtime.core.values.command import Command, JointCommand
from robot_runtime.core.values.schema import ArmSchema, BaseSchema, Schema
from robot_runtime.core.values.state import ArmState, BaseState, Observation, RobotState
from robot_runtime.core.values.transforms import compose_planar
from robot_runtime.robot.control import HeldStill

TICK = 10_000_000
SPEC = ActionSpec(fields=(JointPosition(1, part="arm"),), horizon=4, dt_ns=50_000_000)
ROBOT = Schema(
    action_fields=(JointPosition(1, part="arm"), BasePose(part="cart")),
    parts={"arm": ArmSchema(1), "cart": BaseSchema()},
)


class Body:
    """Stands on a base whose odometry may call its place by any name."""

    def __init__(self) -> None:
        self.t_ns, self.x_WB = 0, np.array([1.0, 2.0, 0.5])
        self.told = Command()

    def read(self) -> RobotState:
        self.t_ns += TICK
        arm, cart = ArmState(q=np.zeros(1), dq=np.zeros(1)), BaseState(x_WB=self.x_WB, V_WB_B=np.zeros(3))
        return RobotState(t_ns=self.t_ns, parts={"arm": arm, "cart": cart})

    def write(self, command: Command) -> Command:
        self.told = command
        return command


def test_a_base_that_is_held_does_not_chase_its_odometry():
    body = Body()
    held = HeldStill(body, ROBOT, SPEC)
    command = Command({"arm": JointCommand(q=np.ones(1))})
    held.read()
    body.x_WB = compose_planar(np.array([3.0, -1.0, 1.0]), body.x_WB)
    for _ in range(3):
        held.read()
        assert list(held.write(command).parts) == ["arm"]
        np.testing.assert_allclose(body.told.parts["cart"].x_WB, body.x_WB, atol=1e-9)
    assert list(held.completed(command).parts) == ["arm", "cart"]


def test_joints_that_a_policy_moves_without_declaring_them_are_shown_in_its_order_as_well():
    theirs = JointPosition(2, Reference.RELATIVE, names=("b", "a"))
    robot = Schema(
        action_fields=(JointPosition(2, names=("a", "b")),), parts={"arm": ArmSchema(2, ("a", "b"))}
    )
    policy = Schema(action_fields=(theirs,))
    spec = ActionSpec(fields=(theirs,), horizon=2, dt_ns=1)
    alignment = Alignment.between(robot=robot, policy=policy, action_spec=spec)
    state = RobotState(t_ns=0, q=np.array([1.0, 2.0]), dq=np.zeros(2))
    assert alignment.shown(Observation(state=state)).state.q.tolist() == [2.0, 1.0]
