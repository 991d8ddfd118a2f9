"""The visible things of a task's rooms, as named points, and the task's scene state computed from them.

A detector on a video finds points; a direction (through the door, along a counter) is that from a point to
another one, `REACH` further on the same object.
"""

from collections.abc import Mapping
from typing import cast

import numpy as np
from jaxtyping import Float

from robot_runtime.core.values.transforms import turn_planar
from robot_runtime.errors import UnknownNameError
from sim.capture.scene import PersonScene
from sim.tasks.clear import BIN_HEIGHT, BIN_P, is_over_bin

BIN = "bin"
"""The bin at the person's hip; the robot's own bin aligns its base with the person."""
REACH = 1.0
"""Distance from the first point of a direction to the second [m]."""
Points = Mapping[str, Float[np.ndarray, "*n 3"]]
_LAYOUT: dict[str, tuple[tuple[str, int], ...]] = {
    "fetch": (
        ("cup", 3),
        ("tray", 3),
        ("door", 2),
        ("door>through", 2),
        ("door>table_a", 2),
        ("door>table_b", 2),
    ),
    "wipe": (("frontier", 3), ("end", 3), ("end>along", 2), ("end>across", 2)),
    "clear": (("cup_0", 3), ("cup_1", 3), ("cup_2", 3), ("counter>across", 2)),
    "drawer": (("cup", 3), ("handle", 3), ("opening", 1), ("cabinet>out", 2)),
}
"""The task's environment state, in order: points with their number of coordinates, and directions a>b."""
_WORDS: Mapping[str, str] = {
    "cup": "the cup",
    "tray": "the tray",
    "door": "the middle of the doorway",
    "door>through": "the direction through the doorway",
    "door>table_a": "the direction from the doorway to the first table",
    "door>table_b": "the direction from the doorway to the second table",
    "frontier": "the edge up to which the counter is wiped",
    "end": "the far end of the area to wipe",
    "end>along": "the direction along the counter",
    "end>across": "the direction across the counter",
    "cup_0": "the first cup",
    "cup_1": "the second cup",
    "cup_2": "the third cup",
    "counter": "the middle of the counter",
    "counter>across": "the direction across the counter",
    BIN: "the bin at the person's hip",
    "handle": "the drawer's handle",
    "cabinet": "the cabinet",
    "cabinet>out": "the direction in which the drawer opens",
}


def names_of(task: str) -> tuple[str, ...]:
    """Names of a task's visible points."""
    names: list[str] = []
    for name, _ in _layout(task):
        if name == "opening":
            continue
        names += [name.partition(">")[0], name] if ">" in name else [name]
    return tuple(dict.fromkeys([*names, *((BIN,) if task == "clear" else ())]))


def in_words(name: str) -> str:
    """A thing's description for the user; its own name if it is unknown."""
    return _WORDS.get(name, name)


def _layout(task: str) -> tuple[tuple[str, int], ...]:
    if task not in _LAYOUT:
        raise UnknownNameError("task", task, _LAYOUT)
    return _LAYOUT[task]


def points_in_world(scene: PersonScene) -> dict[str, Float[np.ndarray, "3"]]:
    """The points' current positions in W, from what the task's own tracker would measure."""
    task, x = scene.task.name, scene.x_WB
    seen = scene.task.environment_state(scene.as_world)
    out: dict[str, np.ndarray] = {}
    at = 0
    for name, size in _layout(task):
        numbers, at = seen[at : at + size], at + size
        if name == "opening":
            out["cabinet"] = out["handle"] * 1.0
            opening = float(numbers[0])
        elif ">" in name:
            first, direction = name.partition(">")[0], turn_planar(numbers, float(x[2]))
            if name == "cabinet>out":
                out[first] = out["handle"] - opening * np.array([*direction, 0.0])
            elif first not in out:
                out[first] = _counter(scene)
            out[name] = out[first] + REACH * np.array([*direction, 0.0])
        else:
            p = turn_planar(numbers[:2], float(x[2])) + x[:2]
            out[name] = np.array([*p, numbers[2] if size == 3 else 1.0])
    if task == "clear":  # a tracker keeps names of things apart, whichever is nearest
        p = turn_planar(np.array(BIN_P[:2]), float(x[2])) + x[:2]
        out[BIN] = np.array([*p, BIN_P[2]])
        for i in range(3):
            out[f"cup_{i}"] = scene.data.joint(f"cup_{i}").qpos[:3].copy()
    return out


def _counter(scene: PersonScene) -> Float[np.ndarray, "3"]:
    return cast(np.ndarray, scene.data.body("counter").xpos.copy()) + np.array([0.0, 0.0, 0.72])


def environment_state(task: str, points: Points) -> Float[np.ndarray, " K"]:
    """The task's environment state, as its policies take it, from points in a robot's base."""
    parts: list[np.ndarray] = []
    for name, size in _layout(task):
        if name == "opening":
            out = _direction(points, "cabinet>out")
            along = float((points["handle"] - points["cabinet"])[:2] @ out)
            parts.append(np.array([max(0.0, along)]))
        elif ">" in name:
            parts.append(_direction(points, name))
        else:
            parts.append(points[name][:size])
    if task == "clear":
        cups = sorted(parts[:3], key=lambda p: (_lies_in_bin(p), np.hypot(p[0], p[1])))
        parts[:3] = cups
    return np.concatenate(parts)


def points_in_scene(task: str, numbers: Float[np.ndarray, "N K"]) -> dict[str, Float[np.ndarray, "N 3"]]:
    """The things whose full position in the robot's base is in the environment states of N rows."""
    out, at = {}, 0
    for name, size in _layout(task):
        if size == 3 and ">" not in name:
            out[name] = numbers[:, at : at + 3]
        at += size
    return out


def _direction(points: Points, name: str) -> Float[np.ndarray, "2"]:
    d = (points[name] - points[name.partition(">")[0]])[:2]
    return d / max(float(np.linalg.norm(d)), 1e-9)


def _lies_in_bin(p_B: Float[np.ndarray, "3"]) -> bool:
    return is_over_bin(p_B) and bool(p_B[2] < BIN_P[2] + BIN_HEIGHT)
