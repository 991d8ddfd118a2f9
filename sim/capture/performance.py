"""Ground truth of what the simulated person did: `Performance`, and its recorder."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pinocchio as pin
from jaxtyping import Float, Int

from robot_runtime.core.values.state import readonly
from robot_runtime.core.values.transforms import quaternion_from_rotation
from sim.capture.body import BodyMotion, BodyShown, Posture
from sim.capture.scene import BOARD_BODY, X_HAND_E, X_HE, PersonScene
from sim.capture.things import points_in_world

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


class PerformanceRecorder:
    """Collects the data of a `Performance`."""

    def __init__(
        self,
        scene: PersonScene,
        X_TC: pin.SE3,
        body: BodyMotion | None,
        *,
        film: bool,
        board: pin.SE3 | None = None,
    ) -> None:
        """body: computes posture; None where `on_pose` gives it. film: keep snapshots.

        board: pose of the calibration board.
        """
        self._scene, self._X_TC, self._body, self._film = scene, X_TC, body, film
        self._board = board
        self._shown = BodyShown(scene.model, scene.data)
        self._poses: dict[str, list[pin.SE3]] = {"C": [], "H": [], "E": []}
        self._numbers: dict[str, list[np.ndarray]] = {"t": [], "width": [], "G": [], "B": [], "snapshot": []}
        self._things: dict[str, list[np.ndarray]] = {}

    def on_step(self, v_W: Float[np.ndarray, "3"]) -> None:
        """Call before each physics step; v_W: velocity of B."""
        scene = self._scene
        if scene.t_ns % PERIOD_NS:
            return
        assert self._body is not None
        X_WE = scene.X_W_hand * X_HAND_E
        posture = self._body.follow(scene.x_WB, v_W, X_WE.translation, PERIOD_NS / 1e9)
        for name, p in points_in_world(scene).items():
            self._things.setdefault(name, []).append(p)
        self._note(scene.t_ns, posture, X_WE, scene.gripper_width, scene.x_WB)

    def on_pose(self, t_ns: int, posture: Posture, X_WE: pin.SE3, width: float) -> None:
        """Call at each time of a clip without physics."""
        if self._film:
            self._scene.place_hand(X_WE, width)
        self._note(t_ns, posture, X_WE, width, posture.x_WG)

    def _note(
        self, t_ns: int, posture: Posture, X_WE: pin.SE3, width: float, x_WB: Float[np.ndarray, "3"]
    ) -> None:
        X_WC = posture.X_WT * self._X_TC
        for name, X in (("C", X_WC), ("H", X_WE * X_HE.inverse()), ("E", X_WE)):
            self._poses[name].append(X)
        for name, value in (("t", t_ns), ("width", width), ("G", posture.x_WG), ("B", x_WB)):
            self._numbers[name].append(np.array(value))
        if self._film:
            self._shown.show(posture, X_WE)
            self._scene.put("chest", X_WC)
            if self._board is not None:
                self._scene.put(BOARD_BODY, self._board)
            self._numbers["snapshot"].append(self._scene.snapshot().astype(np.float32))

    def performance(self, *, kind: Kind, words: str, seed: int, success: bool) -> Performance:
        """The recorded performance."""
        numbers = self._numbers
        return Performance(
            kind=kind,
            task=self._scene.task.name,
            words=words,
            seed=seed,
            t_ns=np.array(numbers["t"], dtype=np.int64),
            X_WC=_path(self._poses["C"]),
            X_WH=_path(self._poses["H"]),
            X_WE=_path(self._poses["E"]),
            width=np.array(numbers["width"]),
            x_WG=_unwrapped(np.array(numbers["G"])),
            x_WB=_unwrapped(np.array(numbers["B"])),
            things={name: np.array(points) for name, points in self._things.items()},
            snapshots=np.array(numbers["snapshot"]) if self._film else None,
            X_TC=self._X_TC,
            success=success,
            board=self._board,
        )


def _path(poses: list[pin.SE3]) -> Path3:
    return Path3(
        p=np.array([X.translation for X in poses]),
        q=np.array([quaternion_from_rotation(X.rotation) for X in poses]),
    )


def _unwrapped(x: Float[np.ndarray, "N 3"]) -> Float[np.ndarray, "N 3"]:
    x[:, 2] = np.unwrap(x[:, 2])
    return x
