"""What all gateways are tested with: a policy that says what it was shown, and a server for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import numpy as np

from robot_runtime.core.policy import Policy
from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S, ActionSpec, GripperWidth, JointPosition, Reference
from robot_runtime.core.values.schema import Schema
from robot_runtime.server.server import PolicyServer

SPEC = ActionSpec(fields=(JointPosition(2), GripperWidth()), horizon=12, dt_ns=NS_PER_S // 20)
SCHEMA = Schema(
    action_fields=SPEC.fields, num_joints=2, has_gripper=True, has_base=False, cameras={"wrist": (4, 6)}
)


class EchoPolicy:
    """Rows of (joint 1, mean of the picture, gripper width)."""

    info = PolicyInfo(name="echo", action_spec=SPEC, schema=SCHEMA)

    def infer(self, request) -> Iterator[np.ndarray]:
        observation = request.observation
        assert observation.task in ("", "task", "pick it up")
        pixels, state = observation.images["wrist"].pixels, observation.state
        yield np.tile([state.q[0], pixels.mean(), state.gripper_width], (SPEC.horizon, 1))


class StepPolicy(EchoPolicy):
    """Steps: each row 0.01 further than the one before, whatever is seen."""

    info = PolicyInfo(
        name="steps",
        action_spec=ActionSpec(
            fields=(JointPosition(2, Reference.DELTA), GripperWidth()), horizon=3, dt_ns=NS_PER_S // 20
        ),
    )

    def infer(self, request) -> Iterator[np.ndarray]:
        yield np.tile([0.01, -0.01, 0.05], (3, 1))


ECHO = EchoPolicy.info


@contextmanager
def echo_server(address: str = "tcp://127.0.0.1:*", policy: Policy | None = None) -> Iterator[str]:
    """Where an echo policy, or another, is served while it lasts."""
    with PolicyServer(policy or EchoPolicy(), address) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.address
        finally:
            server.stop()
            thread.join()
