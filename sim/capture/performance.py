"""What a person did, as nobody but the simulation knows it: `Performance`."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pinocchio as pin
from jaxtyping import Float, Int

from robot_runtime.core.values.state import readonly

PERIOD_NS = 4_000_000
"""Spacing of what a performance tells [ns]."""
Kind = Literal["demonstration", "anchor", "sync", "lean", "walk"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Path3:
    """A moving frame: places (N, 3) [m] and turns (N, 4) wxyz."""

    p: Float[np.ndarray, "N 3"]
    q: Float[np.ndarray, "N 4"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "p", readonly(self.p))
        object.__setattr__(self, "q", readonly(_continuous(np.asarray(self.q, dtype=float))))

    def __len__(self) -> int:
        return len(self.p)

    def __getitem__(self, i: int) -> pin.SE3:
        w, x, y, z = self.q[i]
        return pin.SE3(pin.Quaternion(w, x, y, z).normalized().matrix(), np.array(self.p[i]))


def _continuous(q: Float[np.ndarray, "N 4"]) -> Float[np.ndarray, "N 4"]:
    """The same turns with neighbours on the same side of the sphere."""
    if len(q) < 2:
        return q
    flips = np.cumprod(np.where((q[1:] * q[:-1]).sum(axis=1) < 0.0, -1.0, 1.0))
    return q * np.concatenate([[1.0], flips])[:, None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Performance:
    """One clip, from its own time 0; all arrays go with `t_ns`. W is the world of the rooms, z up.

    A rig makes from it what devices would have recorded; the rest is the hidden truth.
    """

    kind: Kind
    task: str
    """Of the rooms; a demonstration is one of it."""
    words: str
    """What the person was asked to do."""
    seed: int
    t_ns: Int[np.ndarray, " N"]
    X_WC: Path3
    """Chest camera, optical."""
    X_WH: Path3
    """Wrist camera, optical."""
    X_WE: Path3
    """Between the fingertips."""
    width: Float[np.ndarray, " N"]
    """Of the fingers [m]."""
    x_WG: Float[np.ndarray, "N 3"]
    """Body on the floor without gait: hips (x, y), the chest's yaw."""
    x_WB: Float[np.ndarray, "N 3"]
    """Where a robot's base would have stood, if it had done what she meant."""
    things: Mapping[str, Float[np.ndarray, "N 3"]]
    """Where what there is to see is, by name (`sim.capture.things`)."""
    snapshots: Float[np.ndarray, "N P"] | None
    """For `show_snapshot` and a `build_scene` of the same task; None where no film was wanted."""
    X_TC: pin.SE3
    """Chest camera on the torso (origin between the hips)."""
    success: bool
    """By the task's own scorer; True for clips that are no demonstration."""
    board: pin.SE3 | None = None
    """Pose of the calibration board, if there is one: corner of its face, x and y along edges, z into it."""

    @property
    def duration_s(self) -> float:
        """From the first to the last time [s]."""
        return float(self.t_ns[-1] - self.t_ns[0]) / 1e9


_WORDS = ("kind", "task", "words")
_PATHS = ("X_WC", "X_WH", "X_WE")
_ROWS = ("t_ns", "width", "x_WG", "x_WB")


def save_performance(performance: Performance, path: Path) -> None:
    """Into an .npz file, whole or not at all; `load_performance` gives back the same bits."""
    out: dict[str, Any] = {name: getattr(performance, name) for name in (*_WORDS, *_ROWS, "seed", "success")}
    for name in _PATHS:
        out[f"{name}.p"], out[f"{name}.q"] = getattr(performance, name).p, getattr(performance, name).q
    out |= {f"things.{name}": p for name, p in performance.things.items()}
    for name in ("X_TC", "board"):
        if (X := getattr(performance, name)) is not None:
            out[name] = X.homogeneous
    if performance.snapshots is not None:
        out["snapshots"] = performance.snapshots
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    with part.open("wb") as file:
        np.savez(file, **out)
    part.replace(path)


def load_performance(path: Path) -> Performance | None:
    """What `save_performance` wrote; None: there is none, or it cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
        fields: dict[str, Any] = {
            **{name: str(held[name]) for name in _WORDS},
            **{name: held[name] for name in _ROWS},
            **{name: Path3(p=held[f"{name}.p"], q=held[f"{name}.q"]) for name in _PATHS},
            **{X: pin.SE3(held[X][:3, :3], held[X][:3, 3]) for X in ("X_TC", "board") if X in held},
        }
        return Performance(
            **fields,
            seed=int(held["seed"]),
            success=bool(held["success"]),
            things={
                name.removeprefix("things."): p for name, p in held.items() if name.startswith("things.")
            },
            snapshots=held.get("snapshots"),
        )
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
        return None
