"""Prediction for experts with two arms: both end effectors, the cube, and the rows that follow from a rule.

Everything is expressed in B. An end effector (here: hand) has a position, a tilt towards the other arm and a
yaw about the vertical, see `sim.tasks.handover.hand_rotation`; the first row corrects any other rotation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.action import ActionSpec
from robot_runtime.core.values.state import RobotState
from robot_runtime.core.values.transforms import rotation_from_6d, rotation_to_6d
from sim.experts.motion import DT_NS, DT_S, HORIZON, limit, limit_norm
from sim.scene.arms import FACING_MOUNTS
from sim.scene.kinematics import Kinematics
from sim.scene.model import SERVO_LAG_S
from sim.scene.task import two_arm_schema
from sim.tasks.cube import CUBE_SIZE
from sim.tasks.handover import GIVER, RECEIVER, hand_angles, hand_rotation, tilt_rate

ACCELERATION_MAX, TURN_ACCELERATION = 2.5, 8.0
"""Bounds of the predicted motion [m/s², rad/s²]."""
_FINGER_SPEED = 0.2
_SQUEEZED = 0.0004
"""Largest excess of the width over the cube's while squeezing it [m]."""
_GRIPPERS = {mount.arm: mount.gripper for mount in FACING_MOUNTS}
_AROUND = (0.018, 0.024, 0.018)
"""Largest offset of a cube between the fingers from E, along the hand's axes [m]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Hand:
    """State of one end effector, measured or predicted."""

    name: str
    p: Float[np.ndarray, "3"]
    """Position of E in B [m]."""
    v: Float[np.ndarray, "3"]
    tilt: float
    tilt_rate: float
    yaw: float
    width: float

    @cached_property
    def R_BE(self) -> Float[np.ndarray, "3 3"]:
        return hand_rotation(self.name, self.tilt, self.yaw)

    def to(self, p: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3"]:
        """A point given in B, expressed in E: z is where the fingers point [m]."""
        return self.R_BE.T @ (p - self.p)

    def is_around(self, p_cube: Float[np.ndarray, "3"]) -> bool:
        """Whether the cube is between the fingers."""
        x, y, z = np.abs(self.to(p_cube)).tolist()
        return x < _AROUND[0] and y < _AROUND[1] and z < _AROUND[2]

    def holds(self, p_cube: Float[np.ndarray, "3"]) -> bool:
        """Whether the fingers have closed on the cube."""
        return CUBE_SIZE - 0.004 < self.width < CUBE_SIZE + _SQUEEZED and self.is_around(p_cube)


@dataclass(frozen=True, kw_only=True, eq=False)
class Want:
    """Desired velocities and width of one end effector."""

    v: Float[np.ndarray, "3"]
    """Velocity of E in B [m/s]."""
    tilt_rate: float
    yaw_rate: float
    width: float
    """Commanded gripper width [m]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TwoHandScene:
    """Input of a rule."""

    giver: Hand
    receiver: Hand
    p_cube: Float[np.ndarray, "3"]
    yaw_cube: float
    """Yaw of its most level edge [rad]."""
    tray: Float[np.ndarray, "3"]
    """Position of a cube in it [m]."""


TWO_HAND_SPEC = ActionSpec(fields=two_arm_schema().action_fields, horizon=HORIZON, dt_ns=DT_NS)
"""32 rows at 20 Hz: for each arm, left first, the end-effector pose in B (9) and the gripper width (1)."""
COLUMNS = {RECEIVER: slice(0, 10), GIVER: slice(10, 20)}
"""Columns of each arm, the width last."""
Wants = tuple[Want, Want]
"""Those of giver and receiver."""


def see(
    state: RobotState, *, p_cube: Float[np.ndarray, "3"], yaw_cube: float, tray: Float[np.ndarray, "3"]
) -> TwoHandScene:
    """The scene at a state.

    Rows are setpoints: each hand is taken at its setpoint, one lag ahead of the measurement, together with a
    cube that it holds.
    """
    hands = {}
    for name, gripper in _GRIPPERS.items():
        arm = state.arm(name)
        assert arm.X_BE is not None
        tilt, yaw = hand_angles(name, arm.X_BE.rotation)
        V_BE = _kinematics(name).jacobian(arm.q) @ arm.dq
        measured = Hand(
            name=name,
            p=arm.X_BE.translation,
            v=V_BE[:3],
            tilt=tilt,
            tilt_rate=tilt_rate(name, V_BE[3:]),
            yaw=yaw,
            width=state.gripper(gripper).width,
        )
        lead = SERVO_LAG_S * measured.v
        if measured.holds(p_cube):
            p_cube = p_cube + lead
        tilt += SERVO_LAG_S * measured.tilt_rate
        hands[name] = replace(measured, p=measured.p + lead, tilt=tilt)
    return TwoHandScene(
        giver=hands[GIVER], receiver=hands[RECEIVER], p_cube=p_cube, yaw_cube=yaw_cube, tray=tray
    )


@cache
def _kinematics(name: str) -> Kinematics:
    mount = next(mount for mount in FACING_MOUNTS if mount.arm == name)
    return Kinematics(p_BA=mount.p_BA, yaw=mount.yaw)


def imagine(scene: TwoHandScene, wants: Wants) -> TwoHandScene:
    """Predict the scene one row later, with bounded accelerations; a held cube moves with the hand."""
    hands = []
    for hand, want in zip((scene.giver, scene.receiver), wants, strict=True):
        v = hand.v + limit_norm(want.v - hand.v, ACCELERATION_MAX * DT_S)
        most = TURN_ACCELERATION * DT_S
        rate = hand.tilt_rate + limit(want.tilt_rate - hand.tilt_rate, -most, most)
        hands.append(
            replace(
                hand,
                p=hand.p + DT_S * v,
                v=v,
                tilt=hand.tilt + DT_S * rate,
                tilt_rate=rate,
                yaw=hand.yaw + DT_S * want.yaw_rate,
                width=_closing(hand, scene.p_cube, want.width),
            )
        )
    return _moved(scene, hands[0], hands[1], (wants[0].width, wants[1].width))


def _closing(hand: Hand, p_cube: Float[np.ndarray, "3"], width: float) -> float:
    """Predict the width one row later. Closing on a cube is predicted slower than it is, so that the other
    hand does not act before the cube is held."""
    grip = hand.width + limit(width - hand.width, -_FINGER_SPEED * DT_S, _FINGER_SPEED * DT_S)
    if not hand.is_around(p_cube) or grip >= hand.width:
        return grip
    return max(grip, CUBE_SIZE + 0.6 * max(0.0, hand.width - CUBE_SIZE))


def _moved(scene: TwoHandScene, giver: Hand, receiver: Hand, widths: tuple[float, float]) -> TwoHandScene:
    """The scene with its hands moved; the cube moves with the one that holds it, the giver first."""
    p_cube, yaw_cube = scene.p_cube, scene.yaw_cube
    pairs = ((scene.giver, giver, widths[0]), (scene.receiver, receiver, widths[1]))
    for before, after, width in pairs:
        if before.holds(p_cube) and width < CUBE_SIZE:
            p_cube = after.p + after.R_BE @ before.to(p_cube)
            yaw_cube += after.yaw - before.yaw
            break
    return replace(scene, giver=giver, receiver=receiver, p_cube=p_cube, yaw_cube=yaw_cube)


def row_of(scene: TwoHandScene, wants: Wants) -> Float[np.ndarray, "20"]:
    """The row that commands a scene's hands: for each, left first, pose (9) and width."""
    give = _columns(scene.giver, wants[0].width)
    return np.concatenate([_columns(scene.receiver, wants[1].width), give])


def _columns(hand: Hand, width: float) -> Float[np.ndarray, "10"]:
    return np.array([*hand.p, *rotation_to_6d(hand.R_BE), width])


def _follow(
    scene: TwoHandScene, row: Float[np.ndarray, "20"], next_row: Float[np.ndarray, "20"]
) -> TwoHandScene:
    """Predict the scene one row later if the hands execute one row and then the next."""
    now = [_commanded(hand, row, row) for hand in (scene.giver, scene.receiver)]
    there = [_commanded(hand, row, next_row) for hand in now]
    widths = [float(row[COLUMNS[hand.name]][-1]) for hand in now]
    scene = _moved(scene, now[0], now[1], (widths[0], widths[1]))
    there = [
        replace(hand, width=_closing(before, scene.p_cube, width))
        for before, hand, width in zip(now, there, widths, strict=True)
    ]
    return _moved(scene, there[0], there[1], (widths[0], widths[1]))


def _commanded(hand: Hand, row: Float[np.ndarray, "20"], next_row: Float[np.ndarray, "20"]) -> Hand:
    here, there = row[COLUMNS[hand.name]], next_row[COLUMNS[hand.name]]
    before, _ = hand_angles(hand.name, rotation_from_6d(here[3:9]))
    tilt, yaw = hand_angles(hand.name, rotation_from_6d(there[3:9]))
    v, rate = (there[:3] - here[:3]) / DT_S, (tilt - before) / DT_S
    return replace(hand, p=there[:3], v=v, tilt=tilt, tilt_rate=rate, yaw=yaw)


def rows_by_rule(
    scene: TwoHandScene,
    rule: Callable[[TwoHandScene], Wants],
    committed: Float[np.ndarray, "d 20"] | None = None,
) -> Float[np.ndarray, "32 20"]:
    """Predict rows by a rule from a scene, after the committed ones."""
    rows = [] if committed is None else list(committed)
    for row, next_row in pairwise(rows):
        scene = _follow(scene, row, next_row)
    if rows:
        give, take = rule(scene)
        give = replace(give, width=rows[-1][COLUMNS[GIVER]][-1])
        take = replace(take, width=rows[-1][COLUMNS[RECEIVER]][-1])
        scene = imagine(scene, (give, take))
    while len(rows) < HORIZON:
        wants = rule(scene)
        rows.append(row_of(scene, wants))
        scene = imagine(scene, wants)
    return np.array(rows)
