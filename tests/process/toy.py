"""A small policy and its requests, for tests with real sockets."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import numpy as np

from robot_runtime.core.method.sampler_parts import ClampedPrefix, ConstantSchedule
from robot_runtime.core.policy import ChunkRequest, Policy
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S, ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.schema import Schema
from robot_runtime.core.values.state import Image, Observation, RobotState
from robot_runtime.server.server import PolicyServer

ANY_PORT = "tcp://127.0.0.1:*"
NUM_JOINTS = 2
SPEC = ActionSpec(fields=(JointPosition(NUM_JOINTS), GripperWidth()), horizon=6, dt_ns=NS_PER_S // 30)


def toy_schema(size: tuple[int, int] = (48, 64)) -> Schema:
    return Schema(
        action_fields=SPEC.fields,
        num_joints=NUM_JOINTS,
        has_gripper=True,
        has_base=False,
        cameras={"wrist": size},
    )


class ToyPolicy:
    """Rows that name their request: (q of the robot, mean of the image, row), in two blocks."""

    info = PolicyInfo(name="toy", action_spec=SPEC, schema=toy_schema())

    def infer(self, request: ChunkRequest) -> Iterator[np.ndarray]:
        observation = request.observation
        if isinstance(request.sampler, ClampedPrefix):
            raise ValueError("the toy policy knows no prefix")
        if observation.task == "stuck":
            time.sleep(600.0)
        if observation.task == "crash":
            raise RuntimeError("secret/path/of/the/server")
        rows = np.empty((SPEC.horizon, SPEC.dim))
        rows[:, 0] = observation.state.q[0]
        rows[:, 1] = observation.images["wrist"].pixels.mean()
        rows[:, 2] = np.arange(SPEC.horizon)
        yield rows[:2]
        yield rows[2:]


def toy_request(
    request_id: int, *, q: float = 0.0, pixels: np.ndarray | None = None, **changes
) -> ChunkRequest:
    if pixels is None:
        pixels = np.full((48, 64, 3), 7, np.uint8)
    state = RobotState(
        t_ns=1000 + request_id, q=np.array([q, 0.0]), dq=np.zeros(NUM_JOINTS), gripper_width=0.05
    )
    observation = Observation(
        state=state,
        images={"wrist": Image(t_ns=900, pixels=pixels)},
        task=changes.pop("task", "test"),
    )
    values = {
        "epoch": 0,
        "prev_action_chunk": None,
        "inference_delay": 0,
        "sampler": ConstantSchedule(),
        "seed": 1,
        "deadline_ns": 5 * NS_PER_S,
    }
    return ChunkRequest(request_id=request_id, observation=observation, **(values | changes))


@contextmanager
def serving(*policies: Policy, address: str = ANY_PORT, **options) -> Iterator[PolicyServer]:
    """A server in a thread of this process."""
    with PolicyServer(policies, address, **options) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.stop()
            thread.join()
