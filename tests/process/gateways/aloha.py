"""A robot with two arms, as ALOHA has them, and a policy that says what it was shown of it."""

from collections.abc import Iterator

import numpy as np

from robot_runtime.core.policy_info import PolicyInfo
from robot_runtime.core.values.action import NS_PER_S, ActionSpec, GripperWidth, JointPosition
from robot_runtime.core.values.schema import ArmSchema, GripperSchema, Schema
from robot_runtime.server.gateways.key_map import KeyMap

JOINTS = ("waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate")
SIDES, STROKE_M = ("left", "right"), 0.08
FIELDS = tuple(
    field
    for side in SIDES
    for field in (JointPosition(6, part=f"{side}_arm", names=JOINTS), GripperWidth(f"{side}_gripper"))
)
SPEC = ActionSpec(fields=FIELDS, horizon=4, dt_ns=NS_PER_S // 20)
SCHEMA = Schema(
    action_fields=FIELDS,
    parts={
        f"{side}_{kind}": ArmSchema(6, JOINTS, has_hand=False) if kind == "arm" else GripperSchema()
        for side in SIDES
        for kind in ("arm", "gripper")
    },
    cameras={"cam_high": (4, 6)},
)
ALOHA = KeyMap(convention="aloha", stroke_m=STROKE_M, joint_unit="rad", channels="first")
STATE = np.array([*np.linspace(0.1, 0.6, 6), 0.25, *np.linspace(-0.6, -0.1, 6), 0.75])
"""Joints [rad] and shares of an opening, the left arm first."""
NAMES = [f"{side}_{name}.pos" for side in SIDES for name in (*JOINTS, "gripper")]


class EchoPolicy:
    """Every row is the state that was shown; what a picture has comes on top of the left waist."""

    info = PolicyInfo(name="echo", action_spec=SPEC, schema=SCHEMA)

    def infer(self, request) -> Iterator[np.ndarray]:
        state = request.observation.state
        row = []
        for side in SIDES:
            row += [*state.arm(f"{side}_arm").q, state.gripper(f"{side}_gripper").width]
        row[0] += request.observation.images["cam_high"].pixels[0, 1, 2]
        yield np.tile(row, (SPEC.horizon, 1))


SERVED = EchoPolicy.info
PICTURE = np.zeros((4, 6, 3), np.uint8)
PICTURE[0, 1, 2] = 9
EXPECTED = np.tile(STATE + 9.0 * np.eye(14)[0], (SPEC.horizon, 1))
