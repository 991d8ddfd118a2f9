"""`handover`: one arm picks up a cube, the other takes it in the air and puts it into a tray on its side.

                 x (away from the observer)
                 |
    left arm     |        right arm        the arms are at the sides of the table and face each other
      ◄► tray    |     cube ◄►             the tray is beyond the right arm's reach, the cube beyond the left
    ------ y ----B------------

The hands meet at EXCHANGE, both level: the fingers of the right hand open along x, those of the left along z,
so that each can grip two free sides of the cube. Cube and tray poses are drawn for every episode.
"""

import math

import mujoco
import numpy as np
import pinocchio as pin
from jaxtyping import Float

from robot_runtime.core.values.action import Command
from robot_runtime.core.values.schema import Schema
from sim.scene.arms import ArmInScene
from sim.scene.kinematics import Q_HOME
from sim.scene.model import MAX_WIDTH
from sim.scene.task import EpisodeScore, HeldFor, ObservationNoise, Scorer, point, two_arm_schema
from sim.scene.world import World
from sim.tasks.cube import CUBE_SIZE, add_cube
from sim.tasks.tray import TRAY_FLOOR, TRAY_HALF, add_tray

GIVER, RECEIVER = "right_arm", "left_arm"
CUBE_MIN, CUBE_MAX = np.array([-0.10, -0.26]), np.array([0.10, -0.14])
CUBE_YAW_MAX = 0.5
"""Largest initial yaw of the cube [rad]; it looks the same after a quarter turn."""
TRAY_MIN, TRAY_MAX = np.array([-0.08, 0.16]), np.array([0.08, 0.24])
EXCHANGE = np.array([0.0, 0.0, 0.35])
"""Where the hands meet, in B [m]."""
CUBE_IN_TRAY_Z = TRAY_FLOOR + CUBE_SIZE / 2
IN_THE_AIR = 0.15
"""Height of the cube above which it counts as in the air [m]."""
LET_GO_BELOW = CUBE_IN_TRAY_Z + 0.03
"""Height below which the cube may be released over the tray [m]."""
MAX_ARM_FORCE_N = 20.0
_HAND_SPREAD, _HAND_P = np.array([0.08, 0.05, 0.05]), np.array([0.0, 0.19, 0.30])
_SETTLED_S = 0.2


def hand_rotation(name: str, tilt: float, yaw: float) -> Float[np.ndarray, "3 3"]:
    """R_BE of a hand with a yaw about the vertical, then tilted towards the other arm.

    tilt: 0 points down, pi/2 at the other arm. yaw: zero with the fingers opening along y when it points
    down [rad].
    """
    s, c = math.sin(yaw), math.cos(yaw)
    S, C = _side(name) * math.sin(tilt), math.cos(tilt)
    return np.array([[c, s, 0.0], [C * s, -C * c, S], [S * s, -S * c, -C]])  # R_x(tilt) R_z(yaw) R_DOWN


def hand_angles(name: str, R_BE: Float[np.ndarray, "3 3"]) -> tuple[float, float]:
    """Tilt and yaw of the nearest such rotation: inverse of `hand_rotation`."""
    about_x = math.atan2(R_BE[1, 2], -R_BE[2, 2])
    across = math.cos(about_x) * R_BE[1, 0] + math.sin(about_x) * R_BE[2, 0]
    return _side(name) * about_x, math.atan2(across, R_BE[0, 0])


def tilt_rate(name: str, w_BE: Float[np.ndarray, "3"]) -> float:
    """Rate of the tilt of a hand with an angular velocity in B [rad/s]."""
    return _side(name) * float(w_BE[0])


def _side(name: str) -> float:
    return 1.0 if name == GIVER else -1.0


HOME_YAW = {GIVER: np.pi / 2, RECEIVER: 0.0}
"""Yaw of each hand at the exchange, where their fingers cross [rad]."""


class Handover:
    """The task of two arms, a cube and a tray."""

    name = "handover"
    instruction = "pass the cube from the right hand to the left and put it into the tray"
    observation_noise, workspace_height = ObservationNoise(points=(3, 3)), 0.0
    schema: Schema = two_arm_schema((*point("cube"), *point("tray"), "cube.sin_4yaw", "cube.cos_4yaw"))
    episode_s = 20.0

    def add_objects(self, spec: mujoco.MjSpec) -> None:
        add_cube(spec, np.array([0.0, -0.2, CUBE_SIZE / 2]))
        add_tray(spec.worldbody.add_body(name="tray", mocap=True), np.zeros(3))

    def reset(self, world: World, rng: np.random.Generator) -> None:
        for name in (GIVER, RECEIVER):
            p = _HAND_P * [1.0, -_side(name), 1.0] + rng.uniform(-_HAND_SPREAD, _HAND_SPREAD)
            place_hand(world.arms[name], p, HOME_YAW[name] + rng.uniform(-0.2, 0.2))
        yaw = rng.uniform(-CUBE_YAW_MAX, CUBE_YAW_MAX)
        cube = world.data.joint("cube").qpos
        cube[:2], cube[2] = rng.uniform(CUBE_MIN, CUBE_MAX), CUBE_SIZE / 2
        cube[3:] = np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)
        world.data.mocap_pos[0] = *rng.uniform(TRAY_MIN, TRAY_MAX), 0.0

    def update(self, world: World) -> None:
        """Do nothing: there are no scripted bodies."""

    def apply_event(self, world: World) -> None:
        """Do nothing: there are no scripted events."""

    def environment_state(self, world: World) -> Float[np.ndarray, "8"]:
        """In B: cube (3), a cube in the middle of the tray (3) [m]; sine and cosine of four times the yaw of
        the cube's most level edge."""
        cube = world.data.joint("cube").qpos
        tray = world.data.mocap_pos[0] + [0.0, 0.0, CUBE_IN_TRAY_Z]
        yaw = edge_yaw(cube[3:])
        return np.array([*cube[:3], *tray, np.sin(4 * yaw), np.cos(4 * yaw)])

    def make_scorer(self, world: World) -> Scorer:
        return HandoverScorer(world)


def place_hand(arm: ArmInScene, p_BE: Float[np.ndarray, "3"], yaw: float) -> None:
    """Place an arm with its hand open and pointing down, at a position [m]; for `Task.reset` only."""
    name, q = arm.mount.arm, np.array(Q_HOME)
    q[6] += arm.mount.yaw - yaw
    arm.place(arm.kinematics.solve(pin.SE3(hand_rotation(name, 0.0, yaw), p_BE), q), MAX_WIDTH)


def edge_yaw(quat: Float[np.ndarray, "4"]) -> float:
    """Yaw of the most level axis of a body [rad].

    For a cube lying flat it is the cube's yaw, up to quarter turns; for one raised about an edge, the edge's.
    """
    R = np.zeros(9)
    mujoco.mju_quat2Mat(R, quat)
    axis = R.reshape(3, 3)[:, int(np.argmin(np.abs(R[6:])))]
    return float(np.arctan2(axis[1], axis[0]))


class HandoverScorer:
    """Success: the cube went from hand to hand in the air and lies in the tray, released, for a fifth of a
    second.

    stage   reached when                                           detected by
    0       the cube lies on the table
    1       the giver alone holds it in the air                    both pads of its hand
    2       the receiver touches it, too
    3       the receiver alone holds it, still in the air          both pads of its hand
    4       it lies in the tray

    A cube that falls onto the table, onto the tray before stage 3, or out of the receiver's fingers higher
    than LET_GO_BELOW was dropped, which resets the stage. A cube off the table, or a collision of the arms
    above MAX_ARM_FORCE_N, fails the episode.
    """

    def __init__(self, world: World) -> None:
        self._t_start_ns = world.t_start_ns
        self._placed = HeldFor(_SETTLED_S)
        self._contacts = _Contacts(world)
        self.stage, self._num_drops = 0, 0
        self._arm_force, self._is_lost = 0.0, False

    def on_tick(self, t_ns: int, world: World, command: Command, t_obs_ns: int | None) -> None:
        touching, force = self._contacts.now(world)
        self._arm_force = max(self._arm_force, force)
        p_BO = world.data.joint("cube").qpos[:3]
        self._is_lost |= bool(p_BO[2] < -0.05) or self._arm_force > MAX_ARM_FORCE_N
        pads = self._contacts.pads
        given, taken = touching >= pads[GIVER], touching >= pads[RECEIVER]
        in_the_air = bool(p_BO[2] > IN_THE_AIR)
        fell = bool(touching & self._contacts.rests) and not given and not taken
        match self.stage:
            case 0 if in_the_air and given and not touching & pads[RECEIVER]:
                self.stage = 1
            case 1 if in_the_air and given and touching & pads[RECEIVER]:
                self.stage = 2
            case 2 if in_the_air and taken and not touching & pads[GIVER]:
                self.stage = 3
            case 1 | 2 if fell:
                self.stage, self._num_drops = 0, self._num_drops + 1
            case 3 if not touching & pads[RECEIVER] and (
                p_BO[2] > LET_GO_BELOW or self._contacts.table in touching
            ):
                self.stage, self._num_drops = 0, self._num_drops + 1
        self._placed.on_tick(t_ns, holds=self.stage == 3 and is_placed(world))

    @property
    def is_done(self) -> bool:
        return self._placed.done_ns is not None or self._is_lost

    def score(self) -> EpisodeScore:
        done = None if self._is_lost else self._placed.done_ns
        return EpisodeScore(
            success=done is not None,
            completion_s=None if done is None else (done - self._t_start_ns) / 1e9,
            metrics={
                "stage": float(self.stage if done is None else 4),
                "num_drops": float(self._num_drops),
                "arm_force_max_N": self._arm_force,
            },
        )


class _Contacts:
    """Contacts of the last physics step."""

    def __init__(self, world: World) -> None:
        model = world.model
        self._cube = model.geom("cube").id
        self.pads = {
            name: {model.geom(f"{arm.mount.prefix}{side}_pad").id for side in ("left", "right")}
            for name, arm in world.arms.items()
        }
        self.table = model.geom("table").id
        self.rests = {self.table, *(model.geom(f"tray_{i}").id for i in range(5))}
        roots = {name: model.body(f"{arm.mount.prefix}base").id for name, arm in world.arms.items()}
        root_of = model.body_rootid[model.geom_bodyid]
        self._giver, self._receiver = root_of == roots[GIVER], root_of == roots[RECEIVER]
        self._wrench = np.zeros(6)

    def now(self, world: World) -> tuple[set[int], float]:
        """Geoms in contact with the cube, and the strongest contact between the arms [N]."""
        touching, strongest = set[int](), 0.0
        for i, (a, b) in enumerate(world.data.contact.geom.tolist()):
            if self._cube in (a, b):
                touching.add(b if a == self._cube else a)
            elif (self._giver[a] and self._receiver[b]) or (self._giver[b] and self._receiver[a]):
                mujoco.mj_contactForce(world.model, world.data, i, self._wrench)
                strongest = max(strongest, float(np.linalg.norm(self._wrench[:3])))
        return touching, strongest


def is_placed(world: World) -> bool:
    """Whether the cube lies still in the tray, with the receiver's fingers open and 5 cm above it."""
    p_BO, tray = world.data.joint("cube").qpos[:3], world.data.mocap_pos[0]
    inside = np.abs(p_BO[:2] - tray[:2]).max() < TRAY_HALF - CUBE_SIZE / 4
    lies = abs(p_BO[2] - CUBE_IN_TRAY_Z) < 0.01
    still = np.abs(world.data.joint("cube").qvel[:3]).max() < 0.05
    arm = world.arms[RECEIVER]
    is_released = arm.gripper_width > CUBE_SIZE + 0.01
    return bool(inside and lies and still and is_released) and bool(
        arm.kinematics.forward(arm.q).translation[2] > p_BO[2] + 0.05
    )
