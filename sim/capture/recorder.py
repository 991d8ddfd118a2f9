"""Records a person's motion at each physics step: `PerformanceRecorder`."""

import numpy as np
import pinocchio as pin
from jaxtyping import Float

from robot_runtime.core.values.transforms import quaternion_from_rotation
from sim.capture.body import BodyMotion, BodyShown, Posture
from sim.capture.performance import PERIOD_NS, Kind, Path3, Performance
from sim.capture.scene import BOARD, X_HAND_E, X_HE, PersonScene
from sim.capture.things import points_in_world


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
                self._scene.put(BOARD, self._board)
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
