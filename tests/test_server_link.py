"""What a run says of its server, and of answers of which nothing runs: the real link and executor, and what
comes by hand."""

import logging

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.camera_watch import CameraLimits
from robot_runtime.core.executor import Executor
from robot_runtime.core.policy import ChunkPart
from robot_runtime.core.safety import Mode
from robot_runtime.core.values.fields import GripperWidth, JointPosition
from robot_runtime.core.values.schema import ArmSchema, GripperSchema, Schema
from robot_runtime.robot.cameras import Cameras
from robot_runtime.robot.client import NoPolicy
from robot_runtime.robot.counted_log import Logbook
from robot_runtime.robot.link import ServerLink
from robot_runtime.robot.telemetry import RunRecord
from robot_runtime.wire.events import Event, PartReceived
from robot_runtime.wire.messages import Readiness
from tests.core.support import DT, TICK, answer, executor, observation_at, ramp, state_at

FIELDS = (JointPosition(2), GripperWidth())
SCHEMA = Schema(action_fields=FIELDS, parts={"arm": ArmSchema(2), "gripper": GripperSchema()})


class ByHand(NoPolicy):
    """Hands on the parts that it was given."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self.came: list[Event] = []

    def come(self, *parts: ChunkPart, now_ns: int) -> None:
        self.came += [PartReceived(part=part, sent_ns=0, arrived_ns=now_ns) for part in parts]

    def events(self) -> list[Event]:
        out, self.came = self.came, []
        return out


def link_to(client: ByHand, robot: Executor, record: RunRecord) -> ServerLink:
    clock = MonotonicClock()
    return ServerLink(
        robot,
        client,
        client.wait_until_ready(),
        Cameras({}, clock, CameraLimits()),
        lambda state: observation_at(state.t_ns),
        record,
        Logbook(record, clock, logging.getLogger("test")),
    )


def test_that_the_server_has_something_left_to_warm_up_is_said_once_and_that_it_has_not_too():
    client, record = ByHand(SCHEMA), RunRecord()
    link = link_to(client, executor(), record)
    for left in (3, 2, 1, 0, 0):
        client.came.append(Readiness(samplers=("ClampedPrefix",), max_batch=1, pieces_left=left))
        link.take(0)
    assert [text for _, text in record.log] == [
        "the server still warms up its policy, 3 pieces; warm: ClampedPrefix",
        "the server has warmed up all of its policy",
    ]


def test_an_answer_whose_parts_come_after_the_stop_is_mentioned_once():
    robot, record = executor(), RunRecord()
    client = ByHand(SCHEMA)
    link = link_to(client, robot, record)
    robot.reset(state_at(0), 0)
    client.come(answer(robot.make_request(observation_at(0)), ramp(0.0, 0.1)), now_ns=0)
    link.take(0)
    for t_ns in range(0, 2 * DT, TICK):
        robot.tick(state_at(t_ns), t_ns)
    request = robot.make_request(observation_at(2 * DT))
    robot.stop()
    assert robot.tick(state_at(2 * DT), 2 * DT).mode is Mode.STOP
    rows = ramp(0.2, 0.1)
    for first in range(0, len(rows), 2):
        is_last = first + 2 == len(rows)
        client.come(
            answer(request, rows[first : first + 2], first_row=first, is_last=is_last), now_ns=3 * DT + first
        )
        link.take(3 * DT + first)
    said = [text for _, text in record.log]
    assert said == [f"answer {request.request_id} not used: the robot is stopped"]
