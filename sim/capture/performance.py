"""Ground truth of what the simulated person did: `Performance`."""

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
"""Sampling period of a performance [ns]."""
Kind = Literal["demonstration", "anchor", "sync", "lean", "walk"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Path3:
    """Path of a moving frame: positions (N, 3) [m] and quaternions (N, 4) wxyz."""

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
    """The same quaternions with signs that are continuous from row to row."""
    if len(q) < 2:
        return q
    flips = np.cumprod(np.where((q[1:] * q[:-1]).sum(axis=1) < 0.0, -1.0, 1.0))
    return q * np.concatenate([[1.0], flips])[:, None]


@dataclass(frozen=True, kw_only=True, eq=False)
class Performance:
    """One clip, from its own time 0; all arrays are sampled at `t_ns`. W is the world of the rooms, z up.

    A rig turns it into recordings of its devices; the rest is the hidden truth.
    """

    kind: Kind
    task: str
    """Household task of the rooms, and of a demonstration."""
    words: str
    """The person's instruction."""
    seed: int
    t_ns: Int[np.ndarray, " N"]
    X_WC: Path3
    """Path of the chest camera's optical frame."""
    X_WH: Path3
    """Path of the wrist camera's optical frame."""
    X_WE: Path3
    """Path of the frame between the fingertips."""
    width: Float[np.ndarray, " N"]
    """Gripper width [m]."""
    x_WG: Float[np.ndarray, "N 3"]
    """Pose of the body on the floor without gait: hips (x, y), the chest's yaw."""
    x_WB: Float[np.ndarray, "N 3"]
    """Pose of the base of a robot that carried out the same intentions."""
    things: Mapping[str, Float[np.ndarray, "N 3"]]
    """Positions of the visible things, by name (`sim.capture.things`)."""
    snapshots: Float[np.ndarray, "N P"] | None
    """For `show_snapshot` and a `build_scene` of the same task; None without film."""
    X_TC: pin.SE3
    """Pose of the chest camera on the torso (origin between the hips)."""
    success: bool
    """Result of the task's scorer; True for clips other than demonstrations."""
    board: pin.SE3 | None = None
    """Pose of the calibration board, if any: origin in a corner of its face, x, y along edges, z into it."""

    @property
    def duration_s(self) -> float:
        """Time from the first to the last sample [s]."""
        return float(self.t_ns[-1] - self.t_ns[0]) / 1e9


_WORDS = ("kind", "task", "words")
_PATHS = ("X_WC", "X_WH", "X_WE")
_ROWS = ("t_ns", "width", "x_WG", "x_WB")


def save_performance(performance: Performance, path: Path) -> None:
    """Write an .npz file atomically; `load_performance` returns the same bits."""
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
    """Read what `save_performance` wrote; None: the file is missing or unreadable."""
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
