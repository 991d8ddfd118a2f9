"""The rooms of a household task with a person in them in place of the robot: `PersonScene`.

    B     base of a robot that would do the same: the person's intentions are expressed in it
    T     torso: origin between the hips, x forwards, z up along the spine
    C, H  chest and wrist camera (optical: x right, y down, z forwards)      E  between the fingertips

The person holds the FR3's own gripper. A weld ties it to its target, so contacts can hold it back; fingers
hold things by friction alone. The body has no contacts: it is there to be seen.
"""

from collections.abc import Callable, Sequence
from typing import cast

import mujoco
import numpy as np
import pinocchio as pin
from jaxtyping import Float

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
WRIST_FOVY, CHEST_FOVY = 70.0, 100.0
"""Vertical fields of view of the default cameras [degrees]."""
X_HAND_E = pin.SE3(np.eye(3), np.array(P_HAND_E))
_ATTACHED = "held_"
BOARD = "board"
"""Name of the calibration board's body; a rig gives it a face."""


def optical(position: Sequence[float], target: Sequence[float], up: Sequence[float]) -> pin.SE3:
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


def chest_camera(*, p_TC: tuple[float, float, float], down: float) -> pin.SE3:
    """X_TC of a camera on the chest that looks forwards and `down` [rad]."""
    looks_at = (p_TC[0] + np.cos(down), p_TC[1], p_TC[2] - np.sin(down))
    return optical(p_TC, looks_at, up=(0.0, 0.0, 1.0))


def build_scene(
    task: Task,
    *,
    board_half: tuple[float, float] | None = None,
    decorate: Callable[[mujoco.MjSpec], None] | None = None,
) -> mujoco.MjModel:
    """Compile the rooms, the person, the gripper and the task's objects into one model.

    board_half: half of the calibration board's edges [m], if there is one in the rooms.
    decorate: adds visible geometry without contacts; snapshots stay those of the plain scene.
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
    if board_half is not None:
        _add_board(spec, board_half)
    if decorate is not None:
        decorate(spec)
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


def _add_board(spec: mujoco.MjSpec, half: tuple[float, float]) -> None:
    """Add the board; its frame is in a corner of the face: x, y along the edges, z into the board."""
    board = spec.worldbody.add_body(name=BOARD, mocap=True)
    thickness = 0.004
    board.add_geom(
        name=BOARD,
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=[*half, thickness / 2],
        size=[*half, thickness / 2],
        rgba=[0.97, 0.97, 0.97, 1.0],
        contype=0,
        conaffinity=0,
    )


class PersonScene:
    """Physics of one demonstration, stepped by its caller; tasks use it as their `World`."""

    def __init__(self, task: Task, *, board_half: tuple[float, float] | None = None) -> None:
        self.task = task
        self.model = build_scene(task, board_half=board_half)
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
