"""The rooms of a household task with a person in them in place of the robot: `PersonScene`.

    B     base of a robot that would do the same: the person's intentions are expressed in it
    T     torso: origin between the hips, x forwards, z up along the spine
    C, H  chest and wrist camera (optical: x right, y down, z forwards)      E  between the fingertips

The person holds the FR3's own gripper. A weld ties it to its target, so contacts can hold it back; fingers
hold things by friction alone. The body has no contacts: it is there to be seen.

Fiducial tags: a cube behind the gripper for the chest camera, two on the fingers. Frame T of a tag is the
board's: x to its right, y down as it is read, z into it; corners in the order of OpenCV's detector: top left,
top right, bottom right, bottom left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import cv2
import mujoco
import numpy as np
import pinocchio as pin
from jaxtyping import Float, UInt8
from numpy.typing import ArrayLike

from calibration.board import DICTIONARIES, Board
from robot_runtime.core.values.transforms import quaternion_from_rotation, turn_planar
from sim.capture.body import add_body
from sim.scene.arms import BASE_MOUNTS
from sim.scene.kinematics import P_HAND_E, Kinematics
from sim.scene.mobile_base import NUM_BASE_JOINTS, P_BA
from sim.scene.model import DT_NS, MAX_WIDTH, add_rooms, one_arm, set_physics
from sim.scene.task import Task
from sim.scene.world import World

WELD_S = 0.015
"""Time constant of the weld: the gripper lags its target by twice that [s]."""
HAND_LAG_S = 2 * WELD_S
P_HAND_H, LOOKS_AT = (0.085, 0.0, 0.02), (0.010, 0.0, 0.18)
"""Wrist camera in the hand body, and the point it looks at [m], as on the robot."""
_TEXELS, _TAG_TEXELS = 96, 120
"""Texels along a square's side, and along a tag's with its margin."""
_PAPER_M = 2e-4
"""Thickness of paper; its support is lowered by twice that [m]."""
WRIST_FOVY, CHEST_FOVY = 70.0, 100.0
"""Vertical fields of view of the default cameras [degrees]."""
X_HAND_E = pin.SE3(np.eye(3), np.array(P_HAND_E))
_ATTACHED = "held_"
BOARD = Board(columns=8, rows=5, square_m=0.05, marker_m=0.037)
"""The board that anchors the rig."""
BOARD_BODY = "board"


def optical(position: ArrayLike, target: ArrayLike, up: Sequence[float]) -> pin.SE3:
    """Pose of a camera at a position that looks at a target [m], with `up` upwards in its image."""
    p = np.array(position)
    z = np.array(target) - p
    z /= np.linalg.norm(z)
    x = np.cross(z, up)
    x /= np.linalg.norm(x)
    return pin.SE3(np.column_stack([x, np.cross(z, x), z]), p)


X_HAND_H = optical(P_HAND_H, LOOKS_AT, up=(1.0, 0.0, 0.0))
X_HE = X_HAND_H.inverse() * X_HAND_E
"""Pose of E in the wrist camera: what a hand-eye calibration has to find."""
X_EH = X_HE.inverse()
"""Pose of the wrist camera on the gripper."""


def chest_camera(*, p_TC: tuple[float, float, float], down: float) -> pin.SE3:
    """X_TC of a camera on the chest that looks forwards and `down` [rad]."""
    looks_at = (p_TC[0] + np.cos(down), p_TC[1], p_TC[2] - np.sin(down))
    return optical(p_TC, looks_at, up=(0.0, 0.0, 1.0))


def build_scene(
    task: Task,
    *,
    has_board: bool = False,
    prints: bool = False,
    wallpaper: int | None = None,
) -> mujoco.MjModel:
    """Compile the rooms, the person, the gripper and the task's objects into one model.

    has_board: whether the calibration board is in the rooms. prints: draw the board's face and the gripper's
    tags, which images need; snapshots stay those of the plain scene. wallpaper: seed of a random texture on
    floor, walls and furniture, which structure from motion needs; None: the plain colours.
    """
    spec = mujoco.MjSpec()
    spec.modelname = f"{task.name}, by a person"
    set_physics(spec)
    add_rooms(spec)
    _add_gripper(spec)
    _add_hips(spec)
    add_body(spec)
    _add_cameras(spec)
    task.add_objects(spec)
    if has_board:
        _add_board(spec, has_face=prints)
    if prints:
        _add_tags(spec)
    if wallpaper is not None:
        _add_wallpaper(spec, np.random.default_rng(wallpaper))
    return spec.compile()


def _add_gripper(spec: mujoco.MjSpec) -> None:
    arm = one_arm()
    spec.meshdir = arm.meshdir
    arm.option.integrator = spec.option.integrator
    spec.worldbody.add_frame().attach_body(arm.body("hand"), _ATTACHED, "")
    for part in (*spec.bodies, *spec.geoms, *spec.sites):
        part.name = part.name.removeprefix(_ATTACHED)  # MuJoCo warns if the prefix is empty
    hand = spec.body("hand")
    hand.pos, hand.quat = [0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]
    hand.add_freejoint(name="hand")
    spec.worldbody.add_body(name="hand_target", mocap=True)
    weld = spec.add_equality(name="hand", type=mujoco.mjtEq.mjEQ_WELD, objtype=mujoco.mjtObj.mjOBJ_BODY)
    weld.name1, weld.name2 = "hand_target", "hand"
    weld.data[:11] = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    weld.solref = [WELD_S, 1.0]


def _add_hips(spec: mujoco.MjSpec) -> None:
    """Add a kinematic body with its joints at B; things worn at the hips move with it."""
    hips = spec.worldbody.add_body(name="base", pos=P_BA)
    axis = [-P_BA[0], -P_BA[1], 0.0]
    for name, kind, direction in (
        ("base_x", mujoco.mjtJoint.mjJNT_SLIDE, [1.0, 0.0, 0.0]),
        ("base_y", mujoco.mjtJoint.mjJNT_SLIDE, [0.0, 1.0, 0.0]),
        ("base_yaw", mujoco.mjtJoint.mjJNT_HINGE, [0.0, 0.0, 1.0]),
    ):
        hips.add_joint(name=name, type=kind, axis=direction, pos=axis)
    hips.mass, hips.inertia, hips.ipos = 60.0, [5.0, 5.0, 5.0], axis
    hips.explicitinertial = True
    hips.gravcomp = 1.0


def _add_cameras(spec: mujoco.MjSpec) -> None:
    flip = np.diag([1.0, -1.0, -1.0])
    quat = quaternion_from_rotation(X_HAND_H.rotation @ flip)
    spec.body("hand").add_camera(name="wrist", pos=P_HAND_H, quat=quat, fovy=WRIST_FOVY)
    spec.worldbody.add_body(name="chest", mocap=True).add_camera(
        name="chest", quat=quaternion_from_rotation(flip), fovy=CHEST_FOVY
    )
    onlooker = optical((0.4, -3.3, 3.2), (0.0, 0.0, 0.4), up=(0.0, 0.0, 1.0))
    quat = quaternion_from_rotation(onlooker.rotation @ flip)
    spec.worldbody.add_camera(name="overview", pos=onlooker.translation, quat=quat, fovy=56.0)


def _add_board(spec: mujoco.MjSpec, *, has_face: bool) -> None:
    """Add the board; its frame is in a corner of the face: x, y along the edges, z into the board."""
    board = spec.worldbody.add_body(name=BOARD_BODY, mocap=True)
    width, height = BOARD.size_m
    thickness = 0.004
    board.add_geom(
        name=BOARD_BODY,
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[width / 2, height / 2, thickness / 2 + (2 * _PAPER_M if has_face else 0.0)],
        size=[width / 2, height / 2, thickness / 2],
        rgba=[0.97, 0.97, 0.97, 1.0],
        contype=0,
        conaffinity=0,
    )
    if has_face:
        face = pin.SE3(np.eye(3), np.array([width / 2, height / 2, 0.0]))
        _add_paper(board, spec, "board_face", BOARD.picture(_TEXELS), face, (width, height))


def _add_tags(spec: mujoco.MjSpec) -> None:
    """Add the cube with tags behind the gripper."""
    hand, edge = spec.body("hand"), CUBE_EDGE_M
    hand.add_geom(
        name="tag_cube",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=X_HAND_E.act(np.array(CUBE_P_E)),
        size=[edge / 2 - 2 * _PAPER_M] * 3,
        rgba=[0.95, 0.95, 0.95, 1.0],
        contype=0,
        conaffinity=0,
        mass=0.0,
    )
    for tag in cube():
        _add_paper(hand, spec, f"tag_{tag.number}", tag_picture(tag), X_HAND_E * tag.X_ET, (edge, edge))


class PersonScene:
    """Physics of one demonstration, stepped by its caller; tasks use it as their `World`."""

    def __init__(self, task: Task, *, has_board: bool = False) -> None:
        self.task = task
        self.model = build_scene(task, has_board=has_board)
        self.data = mujoco.MjData(self.model)
        self.seed = 0
        self.t_start_ns, self._num_steps = 0, 0
        self._kinematics = Kinematics(p_BA=BASE_MOUNTS[0].p_BA)
        self._hand = self.model.joint("hand").qposadr[0]
        self._dhand = self.model.joint("hand").dofadr[0]
        self._fingers = self.model.joint(f"{_ATTACHED}finger_joint1").qposadr[0]
        self._base, self._dbase = self.model.joint("base_x").qposadr[0], self.model.joint("base_x").dofadr[0]
        self._target = int(self.model.body("hand_target").mocapid[0])
        self._next_event_ns: int | None = None

    @property
    def as_world(self) -> World:
        """This scene, typed as the `World` of the tasks' methods, of which they use nothing else."""
        return cast(World, self)

    def reset(self, seed: int) -> None:
        """Draw the rooms of a seed, the same as for the robot."""
        self.seed, self._num_steps = seed, 0
        mujoco.mj_resetData(self.model, self.data)
        self.task.reset(self.as_world, np.random.default_rng(seed))
        self._next_event_ns = self.task.apply_event(self.as_world)
        self.task.update(self.as_world)
        mujoco.mj_forward(self.model, self.data)

    @property
    def t_ns(self) -> int:
        """Time since the reset [ns]."""
        return self._num_steps * DT_NS

    @property
    def x_WB(self) -> Float[np.ndarray, "3"]:
        """Pose of B, in which intentions are expressed (x, y, yaw), a copy."""
        return self.data.qpos[self._base : self._base + NUM_BASE_JOINTS].copy()

    @property
    def V_WB_B(self) -> Float[np.ndarray, "3"]:
        """Twist of B."""
        v = self.data.qvel[self._dbase : self._dbase + NUM_BASE_JOINTS]
        return turn_planar(v, -self.data.qpos[self._base + 2])

    @property
    def gripper_width(self) -> float:
        """Distance between the fingers [m]."""
        return float(self.data.qpos[self._fingers] + self.data.qpos[self._fingers + 1])

    @property
    def X_W_hand(self) -> pin.SE3:
        """Pose of the hand body."""
        body = self.data.body("hand")
        return pin.SE3(body.xmat.reshape(3, 3).copy(), body.xpos.copy())

    def place_base(self, x_WB: Float[np.ndarray, "3"]) -> None:
        """Place B at a pose, at zero velocity."""
        self.data.qpos[self._base : self._base + NUM_BASE_JOINTS] = x_WB
        self.data.qvel[self._dbase : self._dbase + NUM_BASE_JOINTS] = 0.0

    def place_robot(self, q: Float[np.ndarray, "7"], width: float) -> None:
        """Place the gripper where an arm on B has it at joints q [rad], its fingers `width` apart."""
        x = self.x_WB
        turn = pin.utils.rotate("z", float(x[2]))
        X_WB = pin.SE3(turn, np.array([x[0], x[1], 0.0]))
        self.place_hand(X_WB * self._kinematics.forward(q), width)

    def place_hand(self, X_WE: pin.SE3, width: float) -> None:
        """Place the gripper at a pose, at zero velocity."""
        self.lead_hand(X_WE, width)
        self.data.qpos[self._hand : self._hand + 3] = self.data.mocap_pos[self._target]
        self.data.qpos[self._hand + 3 : self._hand + 7] = self.data.mocap_quat[self._target]
        self.data.qvel[self._dhand : self._dhand + 6] = 0.0
        self.data.qpos[self._fingers : self._fingers + 2] = width / 2

    def lead_hand(self, X_WE: pin.SE3, width: float) -> None:
        """Set the target of the gripper's pose and width."""
        X = X_WE * X_HAND_E.inverse()
        self.data.mocap_pos[self._target] = X.translation
        self.data.mocap_quat[self._target] = quaternion_from_rotation(X.rotation)
        self.data.ctrl[0] = min(max(width, 0.0), MAX_WIDTH)

    def put(self, name: str, X_WO: pin.SE3) -> None:
        """Place a mocap body (chest camera, board) at a pose."""
        i = int(self.model.body(name).mocapid[0])
        self.data.mocap_pos[i] = X_WO.translation
        self.data.mocap_quat[i] = quaternion_from_rotation(X_WO.rotation)

    def step(self, x_WB: Float[np.ndarray, "3"], v_W: Float[np.ndarray, "3"]) -> None:
        """Advance physics by one step, with B at x_WB and velocity v_W regardless of loads."""
        qpos, qvel = self.data.qpos, self.data.qvel
        qpos[self._base : self._base + NUM_BASE_JOINTS] = x_WB
        qvel[self._dbase : self._dbase + NUM_BASE_JOINTS] = v_W
        mujoco.mj_step(self.model, self.data)
        self._num_steps += 1
        if self._next_event_ns is not None and self.t_ns >= self._next_event_ns:
            self._next_event_ns = self.task.apply_event(self.as_world)

    def snapshot(self) -> Float[np.ndarray, " P"]:
        """Everything visible in an image, for `sim.scene.world.show_snapshot`."""
        mocap = np.hstack([self.data.mocap_pos, self.data.mocap_quat])
        return np.concatenate([self.data.qpos, mocap.ravel()])


DICTIONARY = "4X4_50"
CUBE_EDGE_M, CUBE_TAG_M = 0.06, 0.048
CUBE_P_E = (0.0, 0.0, -0.19)
"""The cube's centre in E: behind the gripper, on its axis [m]."""
FINGER_TAG_M = 0.016
FINGER_P_E = (0.0, 0.012, -0.035)
"""Position in E, at width 0, of the tag on the finger towards +y [m]."""
_FACES = {10: (1, 0, 0), 11: (-1, 0, 0), 12: (0, 1, 0), 13: (0, -1, 0), 14: (0, 0, -1)}
"""Number -> outward normal in E."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Tag:
    """A tag that is fixed in E."""

    number: int
    size_m: float
    X_ET: pin.SE3

    @property
    def corners_E(self) -> Float[np.ndarray, "4 3"]:
        return self.corners_T @ self.X_ET.rotation.T + self.X_ET.translation

    @property
    def corners_T(self) -> Float[np.ndarray, "4 3"]:
        return 0.5 * self.size_m * np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], dtype=float)

    def to_dict(self) -> dict[str, Any]:
        """Number, side [m], and pose in E (x y z qw qx qy qz)."""
        q = pin.Quaternion(self.X_ET.rotation).coeffs()[[3, 0, 1, 2]]
        X_ET = [float(number) for number in (*self.X_ET.translation, *q)]
        return {"tag": self.number, "size_m": self.size_m, "X_ET": X_ET}


def cube() -> tuple[Tag, ...]:
    """Tags of the five visible faces."""
    tags = []
    for number, normal in _FACES.items():
        z = -np.array(normal, dtype=float)
        x = np.cross([0.0, 0.0, 1.0], z) if abs(z[2]) < 0.5 else np.array([1.0, 0.0, 0.0])
        R = np.column_stack([x, np.cross(z, x), z])
        p = np.array(CUBE_P_E) - 0.5 * CUBE_EDGE_M * z
        tags.append(Tag(number=number, size_m=CUBE_TAG_M, X_ET=pin.SE3(R, p)))
    return tuple(tags)


def tags_described() -> Mapping[str, Any]:
    """The data sheet of the gripper's tags, as captures store it under `tags`."""
    return {
        "dictionary": DICTIONARY,
        "cube": [tag.to_dict() for tag in cube()],
        "fingers": {"tags": [0, 1], "size_m": FINGER_TAG_M, "apart_closed_m": 2.0 * FINGER_P_E[1]},
    }


def tag_picture(tag: Tag) -> UInt8[np.ndarray, "n n"]:
    """Image of a cube face: its tag with a white margin."""
    dictionary = cv2.aruco.getPredefinedDictionary(DICTIONARIES[DICTIONARY])
    inner = round(_TAG_TEXELS * tag.size_m / CUBE_EDGE_M)
    margin = (_TAG_TEXELS - inner) // 2
    marker = cv2.aruco.generateImageMarker(dictionary, tag.number, inner)
    return cv2.copyMakeBorder(marker, *(margin,) * 4, cv2.BORDER_CONSTANT, value=255)


_LEAST_FACE_M = 0.35
"""Shortest longer side of a face that gets wallpaper [m]; things that are carried have none."""
_WALLPAPER_TEXEL_M = 0.003


def _add_wallpaper(spec: mujoco.MjSpec, rng: np.random.Generator) -> None:
    """Cover the floor of the rooms, and every large face of boxes that are not held, with random textures."""
    floor = pin.SE3(np.diag([1.0, -1.0, -1.0]), np.array([0.0, 0.0, 1e-3]))
    faces = [(spec.worldbody, floor, (6.2, 4.8))]
    for geom in spec.geoms:
        if geom.type != mujoco.mjtGeom.mjGEOM_BOX or geom.parent.name in ("hand", BOARD_BODY):
            continue
        half = np.array(geom.size)
        for axis in range(3):
            x, y = (axis + 1) % 3, (axis + 2) % 3
            size = (2 * float(half[x]), 2 * float(half[y]))
            if max(size) < _LEAST_FACE_M or min(size) < 0.2:
                continue
            for sign in (1.0, -1.0):
                z = -sign * np.eye(3)[axis]
                R = np.column_stack([np.eye(3)[x], np.cross(z, np.eye(3)[x]), z])
                p = np.array(geom.pos) - z * (half[axis] + 1e-3)
                faces.append((geom.parent, pin.SE3(R, p), size))
    for i, (body, X, size) in enumerate(faces):
        shape = tuple(max(8, round(side / _WALLPAPER_TEXEL_M)) for side in reversed(size))
        _add_paper(body, spec, f"wallpaper_{i}", random_texture(rng, (shape[0], shape[1])), X, size)


def random_texture(rng: np.random.Generator, shape: tuple[int, int]) -> UInt8[np.ndarray, "h w"]:
    """Image of blotches of all sizes and sharp-edged patches, without repetition."""
    height, width = shape
    light = np.zeros(shape, dtype=np.float32)
    for texels in (3, 6, 12, 25, 50, 100):
        coarse = rng.normal(size=(height // texels + 2, width // texels + 2)).astype(np.float32)
        size = ((width // texels + 2) * texels, (height // texels + 2) * texels)
        light += texels**0.35 * cv2.resize(coarse, size, interpolation=cv2.INTER_CUBIC)[:height, :width]
    light *= 38.0 / max(float(light.std()), 1e-6)
    light += 128.0
    for _ in range(height * width // 2500):
        h, w = rng.integers(4, 45, size=2)
        v, u = rng.integers(0, height), rng.integers(0, width)
        light[v : v + h, u : u + w] += rng.normal() * 40.0
    return np.clip(cv2.GaussianBlur(light, (0, 0), 0.7), 20, 235).astype(np.uint8)


def _add_paper(
    body: mujoco.MjsBody,
    spec: mujoco.MjSpec,
    name: str,
    image: UInt8[np.ndarray, "h w"],
    X: pin.SE3,
    size_m: tuple[float, float],
) -> None:
    """Add an image on a thin plate in a body's frame; X: its centre, x to its right, y down, z into it."""
    rgb = np.ascontiguousarray(np.repeat(image[:, :, None], 3, axis=2))
    texture = spec.add_texture(
        name=name,
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        width=image.shape[1],
        height=image.shape[0],
        nchannel=3,
    )
    texture.data = rgb.tobytes()
    material = spec.add_material(name=name, texuniform=False, texrepeat=[1.0, 1.0], emission=0.35)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
    material.specular = 0.0
    R = X.rotation @ np.diag([1.0, -1.0, -1.0])
    body.add_geom(
        name=name,
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=X.act(np.array([0.0, 0.0, _PAPER_M / 2])),
        quat=quaternion_from_rotation(R),
        size=[size_m[0] / 2, size_m[1] / 2, _PAPER_M / 2],
        mass=0.0,
        material=name,
        contype=0,
        conaffinity=0,
    )
