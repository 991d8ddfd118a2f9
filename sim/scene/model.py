"""The MuJoCo scene: FR3s on a table or one on a mobile base, cameras, lights, and the task's objects.

The same coarse geometry is rendered and collides: the shipped visual meshes cost 50 ms a frame and are
deleted. On a table the world frame W coincides with B, the arm mount, and the table top is z = 0; two arms
are mounted at its sides and B is midway between them. With a mobile base the floor is z = 0.
"""

from collections.abc import Iterable, Sequence
from types import MappingProxyType

import mujoco
import numpy as np
from numpy.typing import ArrayLike

from robot_runtime.core.values.transforms import quaternion_from_rotation
from sim.scene.arms import Mount, mounts_of
from sim.scene.kinematics import ASSETS, P_HAND_E
from sim.scene.mobile_base import CHEST_LOOKS_AT, CHEST_P, P_BA, add_mobile_base
from sim.scene.task import Task

DT_NS = 2_000_000
"""Length of a physics step [ns]."""
SERVO_LAG_S = 0.030
"""Ratio of damping to stiffness of the joint servos: the arm's lag behind a smooth setpoint [s]."""
MAX_WIDTH = 0.08
"""Widest distance between the fingers [m]."""
CHEST_FOVY = 100.0
"""Vertical field of view of the chest camera, as of body-worn cameras [degrees]."""
ROBOT, SCENE = 1, 2
"""Contact bits: robot against scene, scene against scene, never an arm against itself."""
OTHER_ARM = 8
"""Contact bit of one arm against the other, where there are two."""
CONTACT = MappingProxyType({"contype": SCENE, "conaffinity": ROBOT | SCENE})
"""Contact bits of a geom of the scene."""
_STIFFNESS = (6000.0, 6000.0, 5000.0, 5000.0, 2000.0, 2000.0, 2000.0)
_GRIP_FORCE, _GRIP_STIFFNESS, _GRIP_DAMPING = 20.0, 2000.0, 100.0
_WHITE, _DARK, _ACCENT = (0.88, 0.89, 0.91, 1.0), (0.22, 0.23, 0.26, 1.0), (0.55, 0.58, 0.63, 1.0)
_LINK_COLOURS = {"fr3_link0": _DARK, "fr3_link4": _ACCENT, "fr3_link6": _ACCENT, "hand": _DARK}


def build_model(task: Task) -> mujoco.MjModel:
    """Compile robot, table or floor, cameras and the task's objects into one model."""
    mounts = mounts_of(task.schema)
    spec = _two_arms(mounts) if len(mounts) > 1 else one_arm()
    spec.modelname = task.name
    set_physics(spec)
    if task.schema.has_base:
        add_rooms(spec)
        add_mobile_base(spec, contact=(ROBOT, 0))
    else:
        middle_and_half = ((0.0, 0.0), (0.45, 0.98)) if len(mounts) > 1 else ((0.40, 0.0), (0.60, 0.60))
        _add_surroundings(spec, floor_z=-0.7)
        _add_table(spec, middle=middle_and_half[0], half=middle_and_half[1])
    _add_cameras(spec, has_base=task.schema.has_base, mounts=mounts)
    task.add_objects(spec)
    return spec.compile()


def set_physics(spec: mujoco.MjSpec) -> None:
    """Set time step and solver of all our scenes."""
    spec.option.timestep = DT_NS / 1e9
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.impratio = 10.0
    spec.option.iterations = 20
    spec.option.ls_iterations = 20


def one_arm() -> mujoco.MjSpec:
    """Build an FR3 with its hand, without a scene."""
    spec = mujoco.MjSpec.from_file(str(ASSETS / "fr3.xml"))
    spec.meshdir = str(ASSETS / "meshes")
    _strip(spec)
    _add_servos(spec)
    _add_fingers(spec)
    return spec


def _two_arms(mounts: Sequence[Mount]) -> mujoco.MjSpec:
    """Build an arm at each mount, with prefixed names; different arms collide, links of one arm do not."""
    spec = mujoco.MjSpec()
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST  # as in the arms' own file
    for i, mount in enumerate(mounts):
        arm = one_arm()
        for geom in arm.geoms:
            if geom.contype or geom.name.endswith("_pad"):
                geom.contype, geom.conaffinity = (ROBOT | OTHER_ARM, 0) if i == 0 else (ROBOT, OTHER_ARM)
        half = 0.5 * mount.yaw
        frame = spec.worldbody.add_frame(pos=mount.p_BA, quat=[np.cos(half), 0.0, 0.0, np.sin(half)])
        spec.attach(arm, prefix=mount.prefix, frame=frame)
    return spec


def add_boxes(
    body: mujoco.MjsBody,
    name: str,
    boxes: Iterable[tuple[Sequence[float], Sequence[float]]],
    *,
    rgba: Sequence[float],
    p: ArrayLike = (0.0, 0.0, 0.0),
    mass: float | None = None,
) -> None:
    """Add colliding boxes to a body, named `<name>_0` and so on.

    boxes: centre of each, relative to `p` in the body, and half its edges [m]. mass: of each [kg]; None: by
    the density of water.
    """
    given = {} if mass is None else {"mass": mass}
    for i, (middle, half) in enumerate(boxes):
        body.add_geom(
            name=f"{name}_{i}",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            pos=np.add(p, middle),
            size=half,
            rgba=rgba,
            **given,
            **CONTACT,
        )


def _strip(spec: mujoco.MjSpec) -> None:
    """Keep the coarse link meshes for rendering and contact; delete finer ones and keyframes."""
    for geom in list(spec.geoms):
        on_finger = geom.parent.name.endswith("_finger")
        if geom.classname.name == "visual" or (on_finger and geom.type != mujoco.mjtGeom.mjGEOM_MESH):
            spec.delete(geom)
    used = {geom.meshname for geom in spec.geoms}
    for mesh in list(spec.meshes):
        if mesh.name not in used:
            spec.delete(mesh)
    for key in list(spec.keys):
        spec.delete(key)
    for geom in spec.geoms:
        on_finger = geom.parent.name.endswith("_finger")
        geom.group = 0
        geom.contype, geom.conaffinity = (0, 0) if on_finger else (ROBOT, 0)
        geom.rgba = _DARK if on_finger else _LINK_COLOURS.get(geom.parent.name, _WHITE)
    for body in spec.bodies:
        body.gravcomp = 1.0


def _add_servos(spec: mujoco.MjSpec) -> None:
    """Set joint impedance like the real arm's controller: gravity compensated, one lag for all joints.

    The shipped servos have a lag of 100 ms: their damping is a tenth of the stiffness.
    """
    for stiffness, actuator in zip(_STIFFNESS, spec.actuators[:7], strict=True):
        actuator.gainprm[0] = stiffness
        actuator.biasprm[1] = -stiffness
        actuator.biasprm[2] = -stiffness * SERVO_LAG_S
    spec.delete(spec.actuator("hand"))
    spec.delete(spec.tendon("split"))
    width = spec.add_tendon(name="width", damping=[_GRIP_DAMPING, 0.0, 0.0])
    width.wrap_joint("finger_joint1", 1.0)
    width.wrap_joint("finger_joint2", 1.0)
    gripper = spec.add_actuator(name="width", target="width", trntype=mujoco.mjtTrn.mjTRN_TENDON)
    gripper.set_to_position(kp=_GRIP_STIFFNESS)
    gripper.forcelimited, gripper.forcerange = True, [-_GRIP_FORCE, _GRIP_FORCE]
    gripper.ctrllimited, gripper.ctrlrange = True, [0.0, MAX_WIDTH]


def _add_fingers(spec: mujoco.MjSpec) -> None:
    """Add one soft pad per finger; its inner face is at y = 0 of the finger, so width = q8 + q9."""
    for side in ("left", "right"):
        spec.body(f"{side}_finger").add_geom(
            name=f"{side}_pad",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=[0.010, 0.004, 0.010],
            pos=[0.0, 0.004, P_HAND_E[2] - 0.0584],
            mass=0.0,
            friction=[1.2, 0.05, 0.001],
            condim=4,
            solref=[0.004, 1.0],
            contype=ROBOT,
            conaffinity=0,
            rgba=[0.13, 0.13, 0.14, 1.0],
        )
    spec.body("hand").add_site(name="end_effector", pos=list(P_HAND_E), size=[0.002, 0.002, 0.002], group=4)


def _add_surroundings(spec: mujoco.MjSpec, *, floor_z: float) -> None:
    spec.worldbody.add_geom(
        name="floor",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[8.0, 8.0, 0.1] if floor_z == 0.0 else [3.0, 3.0, 0.1],
        pos=[0.0, 0.0, floor_z],
        **CONTACT,
        rgba=[0.78, 0.80, 0.82, 1.0],
    )
    spec.add_texture(
        name="sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.86, 0.89, 0.93],
        rgb2=[0.62, 0.68, 0.76],
        width=64,
        height=384,
    )
    spec.visual.headlight.ambient = [0.42, 0.42, 0.42]
    spec.visual.headlight.diffuse = [0.35, 0.35, 0.35]
    spec.visual.headlight.specular = [0.05, 0.05, 0.05]
    spec.worldbody.add_light(
        pos=[0.8, -0.8, 1.8], dir=[-0.3, 0.5, -1.0], diffuse=[0.45, 0.45, 0.45], castshadow=False
    )


def add_rooms(spec: mujoco.MjSpec) -> None:
    """Add the floor at z = 0, light and sky; tiles, and a wall on every side in its own colour.

    Tiles and walls are visual only, without contacts.
    """
    _add_surroundings(spec, floor_z=0.0)
    spec.add_texture(
        name="tiles",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=[0.80, 0.81, 0.83],
        rgb2=[0.72, 0.74, 0.77],
        width=128,
        height=128,
    )
    material = spec.add_material(name="tiles", texrepeat=[1.0, 1.0], texuniform=True)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "tiles"
    floor = spec.geom("floor")
    floor.material, floor.rgba = "tiles", [1.0, 1.0, 1.0, 1.0]
    for name, p, half, rgba in (
        ("north", [0.0, 2.4, 0.6], [3.1, 0.03, 0.6], [0.55, 0.65, 0.80, 1.0]),
        ("south", [0.0, -2.4, 0.6], [3.1, 0.03, 0.6], [0.80, 0.60, 0.52, 1.0]),
        ("east", [3.1, 0.0, 0.6], [0.03, 2.4, 0.6], [0.58, 0.75, 0.60, 1.0]),
        ("west", [-3.1, 0.0, 0.6], [0.03, 2.4, 0.6], [0.82, 0.77, 0.55, 1.0]),
    ):
        spec.worldbody.add_geom(
            name=name, type=mujoco.mjtGeom.mjGEOM_BOX, pos=p, size=half, rgba=rgba, contype=0, conaffinity=0
        )


def _add_table(spec: mujoco.MjSpec, *, middle: tuple[float, float], half: tuple[float, float]) -> None:
    spec.worldbody.add_geom(
        name="table",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[*half, 0.02],
        pos=[*middle, -0.02],
        **CONTACT,
        rgba=[0.72, 0.60, 0.46, 1.0],
    )


def _add_cameras(spec: mujoco.MjSpec, *, has_base: bool, mounts: Sequence[Mount]) -> None:
    position, target, fovy = np.array([1.40, -0.80, 0.90]), np.array([0.36, 0.0, 0.24]), 48.0
    if has_base:
        position, target, fovy = np.array([0.4, -3.3, 3.2]), np.array([0.0, 0.0, 0.2]), 56.0
    elif len(mounts) > 1:
        position, target, fovy = np.array([1.75, -0.6, 1.05]), np.array([0.0, 0.0, 0.22]), 48.0
    quat = _look_at(position, target, up=np.array([0.0, 0.0, 1.0]))
    spec.worldbody.add_camera(name="overview", pos=position, quat=quat, fovy=fovy)
    position, target = np.array([0.085, 0.0, 0.02]), np.array([0.010, 0.0, 0.18])
    quat = _look_at(position, target, up=np.array([1.0, 0.0, 0.0]))
    for mount in mounts:
        hand = spec.body(f"{mount.prefix}hand")
        hand.add_camera(name=f"{mount.prefix}wrist", pos=position, quat=quat, fovy=70.0)
    if len(mounts) > 1:
        position, target = np.array([-0.90, 0.0, 0.85]), np.array([0.05, 0.0, 0.18])
        quat = _look_at(position, target, up=np.array([0.0, 0.0, 1.0]))
        spec.worldbody.add_camera(name="chest", pos=position, quat=quat, fovy=62.0)
    if has_base:
        position, target = np.array(CHEST_P) - P_BA, np.array(CHEST_LOOKS_AT) - P_BA
        quat = _look_at(position, target, up=np.array([0.0, 0.0, 1.0]))
        spec.body("base").add_camera(name="chest", pos=position, quat=quat, fovy=CHEST_FOVY)


def _look_at(position: np.ndarray, target: np.ndarray, *, up: np.ndarray) -> np.ndarray:
    """Orientation (wxyz) of a camera that looks at the target along its -z, with y up and x to the right."""
    z = (position - target) / np.linalg.norm(position - target)
    x = np.cross(up, z)
    x /= np.linalg.norm(x)
    return quaternion_from_rotation(np.column_stack([x, np.cross(z, x), z]))
