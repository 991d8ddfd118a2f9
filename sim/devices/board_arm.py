"""A simulated FR3 with a wrist camera that views a board on the table, for calibrations.

    robot-runtime calibrate hand-eye sim.devices.board_arm:robot --board board.json --intrinsics
    camera.json ...

The arm is simulated; images are drawn exactly through the lens `CAMERA`, and show only the board.
"""

from pathlib import Path

import numpy as np
import pinocchio as pin

from calibration.board import Board
from calibration.camera import CameraModel, Intrinsics, Pinhole
from calibration.store import save
from robot_runtime.clock import Clock, MonotonicClock
from robot_runtime.core.values.state import Image
from robot_runtime.robot.robot import Robot
from sim.capture.board_scene import CLEAN, Look, draw_board
from sim.scene.drivers import SimArm, sim_limits
from sim.scene.world import World
from sim.tasks import make_task

BOARD = Board(columns=9, rows=7, square_m=0.03, marker_m=0.022)
CAMERA = Pinhole(size=(480, 640), fx=610.0, fy=610.0, cx=319.5, cy=239.5)
X_EC = pin.SE3(pin.exp3(np.array([0.0, 0.0, np.pi / 2])), np.array([0.06, 0.0, -0.08]))
"""Pose of the camera beside the hand; it looks along the fingers."""
X_AB = pin.SE3(np.diag([1.0, -1.0, -1.0]), np.array([0.37, 0.11, 0.002]))
"""Pose of the board in the arm's base: flat on the table, its normal up."""


class BoardCamera:
    """A wrist camera; it shows the board from the arm's last simulated pose."""

    def __init__(
        self,
        world: World,
        clock: Clock,
        *,
        camera: CameraModel = CAMERA,
        board: Board = BOARD,
        X_EC: pin.SE3 = X_EC,
        X_AB: pin.SE3 = X_AB,
        look: Look = CLEAN,
        rate_hz: float = 10.0,
        seed: int = 0,
    ) -> None:
        self._world, self._clock = world, clock
        self._camera, self._board, self._X_EC, self._X_AB, self._look = camera, board, X_EC, X_AB, look
        self._rng, self._period_ns = np.random.default_rng(seed), round(1e9 / rate_hz)
        self._next_ns = clock.now_ns()
        self.size = camera.size

    def read(self) -> Image:
        """Wait until the next image is due, then draw it."""
        self._clock.sleep_until_ns(self._next_ns)
        now_ns = self._clock.now_ns()
        self._next_ns = max(self._next_ns, now_ns - self._period_ns) + self._period_ns
        self._world.advance_to(now_ns)
        X_AE = self._world.kinematics.forward(self._world.q)
        X_CB = (X_AE * self._X_EC).inverse() * self._X_AB
        grey = draw_board(self._board, self._camera, X_CB, look=self._look, rng=self._rng)
        return Image(t_ns=now_ns, pixels=np.repeat(grey[..., None], 3, axis=2))

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


def robot() -> Robot:
    """The robot in real time, at the start of an episode."""
    clock = MonotonicClock()
    world = World(make_task("track"), t_start_ns=clock.now_ns())
    return Robot(
        arm=SimArm(world, clock), cameras={"wrist": BoardCamera(world, clock)}, limits=sim_limits(world)
    )


def write_files(folder: Path) -> None:
    """Write board.json, camera.json and poses.csv, 20 postures from which the board is visible."""
    folder.mkdir(parents=True, exist_ok=True)
    save(folder / "board.json", BOARD)
    save(folder / "camera.json", Intrinsics(camera=CAMERA))
    rows = places(np.random.default_rng(0), 20)
    lines = [",".join(f"{value:.5f}" for value in q) for q in rows]
    (folder / "poses.csv").write_text(
        "\n".join([",".join(f"joint_{i + 1}" for i in range(7)), *lines]) + "\n"
    )


def places(
    rng: np.random.Generator,
    num: int,
    *,
    X_EC: pin.SE3 = X_EC,
    X_AB: pin.SE3 = X_AB,
    board: Board = BOARD,
    camera: CameraModel = CAMERA,
) -> list[np.ndarray]:
    """Joint positions (7,) [rad] from which a camera sees the whole board, at an angle and rotated."""
    world = World(make_task("track"))
    out: list[np.ndarray] = []
    centre = X_AB.act(board.centre_B)
    while len(out) < num:
        around, tilt = rng.uniform(0.0, 2.0 * np.pi), rng.uniform(0.25, 0.7)
        aside = np.array([np.sin(tilt) * np.cos(around), np.sin(tilt) * np.sin(around), np.cos(tilt)])
        z = -aside
        x = np.cross(z, [0.0, 1.0, 0.0])
        x /= np.linalg.norm(x)
        R = np.column_stack([x, np.cross(z, x), z]) @ pin.exp3(np.array([0.0, 0.0, rng.uniform(-0.5, 0.5)]))
        X_AC = pin.SE3(R, centre + rng.uniform(0.35, 0.5) * aside + rng.normal(0.0, 0.015, 3))
        X_AE = X_AC * X_EC.inverse()
        q = world.kinematics.solve(X_AE, world.q)
        X_CB = X_AC.inverse() * X_AB
        uv = camera.project(board.corners_B @ X_CB.rotation.T + X_CB.translation)
        is_reached = world.kinematics.forward(q).isApprox(X_AE, 1e-4)
        if is_reached and np.isfinite(uv).all() and camera.sees(uv, margin=8.0).all():
            out.append(q)
    return out
