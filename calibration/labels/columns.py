"""Columns of a demonstration in a dataset, named as in recordings of a robot."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from calibration.labels.demonstration import in_base
from calibration.labels.feasibility import Feasibility, feasibility
from calibration.labels.grip import commanded_width
from calibration.labels.joined import CHEST
from calibration.labels.values import Labels
from calibration.trajectory import Trajectory
from robot_runtime.core.values.action import RowTiming
from robot_runtime.core.values.columns import HAND, POSE, TWIST, VELOCITY
from robot_runtime.core.values.fields import joint_names
from robot_runtime.core.values.schema import GripperSchema
from robot_runtime.core.values.state import ARM, BASE, GRIPPER
from robot_runtime.core.values.transforms import rotation_to_6d, wrap_angle
from robot_runtime.dataset.recording import ACTION, BASE_POSES, CAPTURE, PICTURES, SCENE, STATE
from robot_runtime.dataset.run_columns import NEXT_VALID, TRAINABLE
from robot_runtime.errors import InvalidValueError

Kind = Literal["decoupled", "chest", "world"]
KINDS: tuple[Kind, ...] = ("decoupled", "chest", "world")
"""Frame of an action's hand pose: the virtual base, the leaning chest, the room."""
HAND_NAMES = tuple(f"{ARM}.{name}" for name in HAND)
WIDTH_NAMES = tuple(f"{GRIPPER}.{name}" for name in GripperSchema.names)
POSE_NAMES, TWIST_NAMES = (tuple(f"{BASE}.{name}" for name in names) for names in (POSE, TWIST))
ACTION_NAMES = (*POSE_NAMES, *HAND_NAMES, *WIDTH_NAMES)
SIDES = ("right", "left")
"""Names of the hands in a dataset of two: the parts right_arm, right_gripper and so on."""
HANDS_NAMES = tuple(
    f"{side}_{part}.{name}"
    for side in SIDES
    for part, names in ((ARM, HAND), (GRIPPER, GripperSchema.names))
    for name in names
)
POSE7 = ("x", "y", "z", "qw", "qx", "qy", "qz")
VALID = ("chest", "hand", "gripper", "anchor", "reach")
CAMERA_OF = {CHEST: "chest", "hand": "wrist", "right_hand": "right_wrist", "left_hand": "left_wrist"}
"""Name of a role's camera in a dataset."""

SceneOf = Callable[[Labels, np.ndarray], np.ndarray]
"""Maps labels and the robot's base x_WB (N, 3) to the scene state (N, K) that a task's policy expects."""
PlacesOf = Callable[[Labels], Mapping[str, np.ndarray]]
"""Maps labels to positions of things in W (N, 3); InvalidValueError: one was never seen."""
PLACES = "label.places"
"""Column of positions of things in the room, whose origin is the base at the first row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scene:
    """Defines how glimpses become `observation.environment_state`."""

    names: tuple[str, ...]
    of: SceneOf
    things: tuple[str, ...] = ()
    """Things that `places` gives positions of."""
    places: PlacesOf | None = None
    """For offline checks, so it may use sightings before and after each row."""


def points_of(names: Sequence[str]) -> Scene:
    """A scene of positions of things in the base, three numbers each, in this order."""

    def points(labels: Labels, x_WB: np.ndarray) -> np.ndarray:
        none = np.full((len(labels), 3), np.nan)
        places = [labels.seen_from(name, x_WB) if name in labels.glimpses else none for name in names]
        return np.hstack(places) if places else np.zeros((len(labels), 0))

    return Scene(names=tuple(f"{name}.{axis}" for name in names for axis in "xyz"), of=points)


def features(
    *,
    cameras: Mapping[str, tuple[int, int]],
    num_joints: int,
    scene: Scene | None,
    kind: Kind,
    slower: float = 1.0,
    has_two_hands: bool = False,
) -> dict[str, dict[str, Any]]:
    """Declaration of the columns for LeRobot.

    cameras: (height, width) by name in the dataset. has_two_hands: without joints.
    """
    action_names = (*POSE_NAMES, *HANDS_NAMES) if has_two_hands else ACTION_NAMES
    state = (*HANDS_NAMES, *TWIST_NAMES) if has_two_hands else state_names(num_joints)

    def of(dtype: str, names: Sequence[str] | None, **info: Any) -> dict[str, Any]:
        shape = (1,) if names is None else (len(names),)
        out: dict[str, Any] = {"dtype": dtype, "shape": shape, "names": None if names is None else [*names]}
        return out | ({"info": info} if info else {})

    out = {
        STATE: of("float32", state),
        BASE_POSES: of("float32", POSE_NAMES),
        ACTION: of("float32", action_names, timing=RowTiming.REACHED.value, labels=kind, slower=slower),
    }
    if scene is not None and scene.names:
        out[SCENE] = of("float32", scene.names)
        if scene.places is not None:
            out[PLACES] = of("float32", [f"{name}.{axis}" for name in scene.things for axis in "xyz"])
    for name in KINDS:
        out[f"labels.{name}"] = of("float32", action_names)
    valid = (*VALID, "left_hand", "left_gripper") if has_two_hands else VALID
    out |= {
        "observation.pose_chest_hand": of("float32", POSE7),
        "observation.pose_world_chest": of("float32", POSE7),
        "observation.pose_world_hand": of("float32", POSE7),
        "observation.sigma_chest_hand": of("float32", ("x", "y", "z", "rx", "ry", "rz")),
        "observation.valid": of("bool", valid),
        "label.stands": of("bool", None),
        "label.yaw_spread": of("float32", ["yaw_spread"]),
        "label.person": of("float32", POSE_NAMES),
        TRAINABLE: of("bool", None),
        NEXT_VALID: of("bool", None),
    }
    if has_two_hands:
        out["observation.pose_chest_left_hand"] = of("float32", POSE7)
        out["observation.pose_world_left_hand"] = of("float32", POSE7)
        out["observation.sigma_chest_left_hand"] = of("float32", ("x", "y", "z", "rx", "ry", "rz"))
    for camera, (height, width) in cameras.items():
        shape = (height, width, 3)
        out[f"{PICTURES}.{camera}"] = {
            "dtype": "video",
            "shape": shape,
            "names": ["height", "width", "channels"],
        }
    for clock in ("state", *cameras):
        out[f"{CAPTURE}.{clock}"] = of("int64", None)
    return out


def state_names(num_joints: int) -> tuple[str, ...]:
    """Names in `observation.state`: an arm's joints and their speeds, if any; hand, gripper, base twist."""
    joints = tuple(f"{ARM}.{name}" for name in (joint_names(num_joints) if num_joints else ()))
    return (*joints, *(name + VELOCITY for name in joints), *HAND_NAMES, *WIDTH_NAMES, *TWIST_NAMES)


def columns(
    labels: Labels, done: Feasibility | None = None, *, kind: Kind = "decoupled", scene: Scene | None = None
) -> dict[str, np.ndarray]:
    """Values of all columns except images, (frames, numbers) each.

    done: the motion of a robot, with joints if it has an arm; None: the virtual base itself. W is the base at
    the first row: the base begins at 0, 0, 0, and its yaw has no jumps of 2 pi.
    """
    done = feasibility(labels) if done is None else done
    X_WE, x_WB, chest = _from_start(labels, done.x_WB)
    X_BE = in_base(x_WB, X_WE)
    width = _measured(labels)
    squeezed = _commanded(labels)
    actions = {
        "decoupled": np.hstack([x_WB, hand(X_BE), squeezed]),
        "chest": np.hstack([x_WB, hand(_moved(labels, done)), squeezed]),
        "world": np.hstack([x_WB, hand(X_WE), squeezed]),
    }
    twist = _twist(x_WB, labels.period_s)
    speeds = np.gradient(done.q, labels.period_s, axis=0) if done.q.size else done.q
    valid = np.column_stack([*(labels.valid[name] for name in VALID[:-1]), done.reached])
    needed = valid if labels.valid["gripper"].any() else np.delete(valid, VALID.index("gripper"), axis=1)
    out = {
        STATE: np.hstack([done.q, speeds, hand(X_BE), width, twist]),
        BASE_POSES: x_WB,
        ACTION: actions[kind],
        **{f"labels.{name}": rows for name, rows in actions.items()},
        "observation.pose_chest_hand": _seven(labels.X_CE),
        "observation.pose_world_chest": _seven(chest),
        "observation.pose_world_hand": _seven(X_WE),
        "observation.sigma_chest_hand": np.sqrt(np.einsum("nii->ni", labels.covariance)),
        "observation.valid": valid,
        "label.stands": labels.stands[:, None],
        "label.yaw_spread": labels.yaw_spread[:, None],
        "label.person": _planar_from(labels.x_WG[0], done, labels.x_WP),
        TRAINABLE: np.asarray(needed.all(axis=1))[:, None],
        NEXT_VALID: np.append(np.ones(len(labels) - 1, bool), False)[:, None],
        f"{CAPTURE}.state": labels.t_ns[:, None],
    }
    if scene is not None and scene.names:
        seen = scene.of(labels, done.x_WB)
        bad = ~np.isfinite(seen).all(axis=1)
        out[SCENE], out[TRAINABLE] = np.nan_to_num(seen), out[TRAINABLE] & ~bad[:, None]
        if scene.places is not None:
            out[PLACES] = np.nan_to_num(_places(scene, scene.places, labels, done.x_WB[0]))
    for role, stamps in labels.picture_ns.items():
        out[f"{CAPTURE}.{CAMERA_OF[role]}"] = stamps[:, None]
    return out


def with_other_hand(
    out: dict[str, np.ndarray], labels: Labels, other: Labels, *, kind: Kind = "decoupled"
) -> dict[str, np.ndarray]:
    """Columns of the right hand, extended by those of the left; no robot, so the base is the virtual one."""
    done = feasibility(labels)
    X_WE, x_WB, _ = _from_start(other, done.x_WB)
    X_BE, squeezed = in_base(x_WB, X_WE), _commanded(other)
    poses = {"decoupled": X_BE, "chest": _moved(other, done), "world": X_WE}
    twist = out[STATE].shape[1] - len(TWIST_NAMES)
    out = out | {
        STATE: np.hstack([out[STATE][:, :twist], hand(X_BE), _measured(other), out[STATE][:, twist:]]),
        **{
            f"labels.{name}": np.hstack([out[f"labels.{name}"], hand(X), squeezed])
            for name, X in poses.items()
        },
        "observation.pose_chest_left_hand": _seven(other.X_CE),
        "observation.pose_world_left_hand": _seven(X_WE),
        "observation.sigma_chest_left_hand": np.sqrt(np.einsum("nii->ni", other.covariance)),
        "observation.valid": np.column_stack(
            [out["observation.valid"], other.valid["hand"], other.valid["gripper"]]
        ),
    }
    has_width = bool(other.valid["gripper"].any())
    known = other.valid["hand"] & (other.valid["gripper"] | (not has_width))
    stamps = {f"{CAPTURE}.{CAMERA_OF[role]}": t_ns[:, None] for role, t_ns in other.picture_ns.items()}
    return stamps | out | {ACTION: out[f"labels.{kind}"], TRAINABLE: out[TRAINABLE] & known[:, None]}


def _measured(labels: Labels) -> np.ndarray:
    """Measured widths (N, 1), 0 where unknown."""
    return np.nan_to_num(labels.width, nan=0.0)[:, None]


def _commanded(labels: Labels) -> np.ndarray:
    """Commanded widths (N, 1), 0 where unknown."""
    return np.nan_to_num(commanded_width(np.asarray(labels.width), labels.period_s), nan=0.0)[:, None]


def hand(X: Trajectory) -> np.ndarray:
    """Poses as (N, 9): position and two columns of the rotation."""
    return np.hstack([X.p, rotation_to_6d(X.R)])


def _from_start(labels: Labels, x_WB: np.ndarray) -> tuple[Trajectory, np.ndarray, Trajectory]:
    """X_WE, x_WB and X_WC, in a W where the robot's base begins."""
    x, y, yaw = x_WB[0]
    start = np.tile([x, y, yaw], (len(labels), 1))
    moved = np.column_stack([_floor_from(x_WB[0], x_WB), x_WB[:, 2] - yaw])
    return in_base(start, labels.X_WE), moved, in_base(start, labels.X_WC)


def _planar_from(x_first: np.ndarray, done: Feasibility, x_WP: np.ndarray) -> np.ndarray:
    start = done.x_WB[0]
    turned = np.unwrap([wrap_angle(x_WP[0, 2] - start[2]), *x_WP[1:, 2] - start[2]])
    return np.column_stack([_floor_from(start, x_WP), turned])


def _floor_from(start: np.ndarray, p_W: np.ndarray) -> np.ndarray:
    """x and y (N, 2) of positions in W, relative to a base at `start` (x, y, yaw)."""
    c, s = np.cos(start[2]), np.sin(start[2])
    d = p_W[:, :2] - start[:2]
    return np.column_stack([c * d[:, 0] + s * d[:, 1], c * d[:, 1] - s * d[:, 0]])


def _moved(labels: Labels, done: Feasibility) -> Trajectory:
    """The raw hand in the chest's frame, expressed in the robot's base in place of G."""
    back = np.tile(done.x_GB, (len(labels), 1))
    return in_base(back, labels.X_GE_chest)


def _places(scene: Scene, places: PlacesOf, labels: Labels, start: np.ndarray) -> np.ndarray:
    """Positions (N, 3 K) relative to a base at `start`; NaN if one was never seen."""
    try:
        found = places(labels)
    except InvalidValueError:
        return np.full((len(labels), 3 * len(scene.things)), np.nan)
    places_W = [found[name] for name in scene.things]
    return np.hstack([np.column_stack([_floor_from(start, p), p[:, 2]]) for p in places_W])


def _twist(x_WB: np.ndarray, period_s: float) -> np.ndarray:
    v = np.gradient(x_WB, period_s, axis=0)
    c, s = np.cos(x_WB[:, 2]), np.sin(x_WB[:, 2])
    return np.column_stack([c * v[:, 0] + s * v[:, 1], c * v[:, 1] - s * v[:, 0], v[:, 2]])


def _seven(X: Trajectory) -> np.ndarray:
    return np.hstack([X.p, X.q])
