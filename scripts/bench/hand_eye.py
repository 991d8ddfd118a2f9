"""Measures the accuracy of a camera's calibrated pose on, or beside, the simulated FR3, from rendered images.

    python -m scripts.bench.hand_eye --json scripts/results/hand_eye.json

Every seed mounts the camera elsewhere and moves the arm to 20 poses in simulated physics.
clean: sharp images, true intrinsics, an arm with exact end-effector poses.
noisy: images with blur, noise and shade, focal lengths 0.2 % and a principal point 1 px off, and an arm with
errors of 0.3 mm and 0.03 degrees in each coordinate.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin

from calibration.camera import Pinhole
from calibration.chain import ArmView, arm_view, moved
from calibration.detection import detect
from calibration.hand_eye import HandEye, solve_hand_eye, solve_robot_world
from robot_runtime.cli.options import Count, Maybe, OutputFile
from robot_runtime.cli.progress import counted
from scripts.harness import finish, run_script
from scripts.tables.calibration import hand_eye
from sim.capture.board_scene import CLEAN, NOISY, Look, draw_board
from sim.devices.board_arm import BOARD, CAMERA, X_AB, X_EC, places
from sim.scene.world import World
from sim.tasks import make_task

HAND_M, HAND_RAD = 3e-4, float(np.deg2rad(0.03))
SETTLE_NS = 1_500_000_000
X_EB = pin.SE3(np.diag([1.0, -1.0, -1.0]), np.array([-0.12, 0.09, 0.03]))
"""The board on the end effector, for a camera beside the arm."""


@dataclass(frozen=True, kw_only=True)
class Case:
    look: Look
    hand_m: float = 0.0
    hand_rad: float = 0.0
    focal_share: float = 0.0
    centre_px: float = 0.0


CASES: Mapping[str, Case] = {
    "clean": Case(look=CLEAN),
    "noisy": Case(look=NOISY, hand_m=HAND_M, hand_rad=HAND_RAD, focal_share=0.002, centre_px=1.0),
}


@dataclass(frozen=True)
class Found:
    """Result of one calibration."""

    setup: str
    case: str
    views: int
    off_mm: float
    off_deg: float
    nees: float
    """Squared error by its covariance, over 6."""
    sigma_mm: float
    corner_px: float
    hand_mm: float
    ok: bool


@dataclass(frozen=True, kw_only=True)
class MeasureHandEye:
    """Calibrate the simulated FR3's camera again and again, and compare it with the truth."""

    seeds: Count = 20
    views: Count = 20
    json: Maybe[OutputFile] = None
    """Write the table to this file."""


def main(args: MeasureHandEye) -> int:
    found: list[Found] = []
    with counted() as progress:
        bar = progress.add_task("calibrations", total=2 * len(CASES) * args.seeds)
        for seed in range(args.seeds):
            for name, case in CASES.items():
                for setup in ("hand-eye", "robot-world"):
                    found += calibrated(setup, name, case, seed, args.views)
                    progress.advance(bar)
    rows = summary(found)
    return finish({"rows": rows}, args.json, hand_eye({"rows": rows}), seeds=range(args.seeds))


def calibrated(setup: str, name: str, case: Case, seed: int, num: int) -> list[Found]:
    """With all views, and with the first ten."""
    rng = np.random.default_rng([seed, len(name), len(setup)])
    sign = rng.choice([-1.0, 1.0], 4)
    camera = replace(
        CAMERA,
        fx=CAMERA.fx * (1 + sign[0] * case.focal_share),
        fy=CAMERA.fy * (1 + sign[0] * case.focal_share),
        cx=CAMERA.cx + sign[1] * case.centre_px,
        cy=CAMERA.cy + sign[2] * case.centre_px,
    )
    X, Z, poses = stood(setup, rng, num)
    views = []
    for X_AE in poses:
        Y = X_AE if setup == "hand-eye" else X_AE.inverse()
        grey = draw_board(BOARD, CAMERA, X.inverse() * Y.inverse() * Z, look=case.look, rng=rng)
        corners = detect(BOARD, grey)
        if len(corners):
            error = np.concatenate([rng.normal(0.0, case.hand_m, 3), rng.normal(0.0, case.hand_rad, 3)])
            views.append(arm_view(BOARD, corners, camera, moved(X_AE, error)))
    return [judged(setup, name, views[:k], camera, X) for k in sorted({10, num}) if k <= len(views)]


def judged(setup: str, name: str, views: list[ArmView], camera: Pinhole, X: pin.SE3) -> Found:
    found = solve_hand_eye(views, camera) if setup == "hand-eye" else solve_robot_world(views, camera)
    X_found = found.X_EC if isinstance(found, HandEye) else found.X_AC
    off = np.concatenate([X_found.translation - X.translation, pin.log3(X_found.rotation @ X.rotation.T)])
    return Found(
        setup=setup,
        case=name,
        views=len(views),
        off_mm=1e3 * float(np.linalg.norm(off[:3])),
        off_deg=float(np.rad2deg(np.linalg.norm(off[3:]))),
        nees=float(off @ np.linalg.solve(found.covariance, off)) / 6,
        sigma_mm=found.residuals["sigma_mm"],
        corner_px=found.residuals["corner_px"],
        hand_mm=found.residuals["hand_mm"],
        ok=found.verdict.ok,
    )


def stood(setup: str, rng: np.random.Generator, num: int) -> tuple[pin.SE3, pin.SE3, list[pin.SE3]]:
    """Return the poses of camera and board, and of the end effector once the servos had settled."""
    mount = np.concatenate([rng.normal(0.0, 0.01, 3), rng.normal(0.0, 0.05, 3)])
    world = World(make_task("track"))
    if setup == "hand-eye":
        X, Z = moved(X_EC, mount), X_AB
        qs = places(rng, num, X_EC=X)
    else:
        X, Z = moved(beside(), mount), X_EB
        qs = held(rng, num, X, world)
    poses = []
    for q in qs:
        world.place_robot(q, 0.0)
        world.set_joint_target(q)
        world.advance_to(world.t_ns + SETTLE_NS)
        poses.append(world.kinematics.forward(world.q))
    return X, Z, poses


def beside() -> pin.SE3:
    """A camera on a stand before the arm, that looks at it."""
    p, target = np.array([1.15, -0.1, 0.55]), np.array([0.45, 0.0, 0.35])
    z = (target - p) / np.linalg.norm(target - p)
    x = np.cross(z, [0.0, 0.0, 1.0])
    x /= np.linalg.norm(x)
    return pin.SE3(np.column_stack([x, np.cross(z, x), z]), p)


def held(rng: np.random.Generator, num: int, X_AC: pin.SE3, world: World) -> list[np.ndarray]:
    """Return joint positions from which the camera sees the whole board on the end effector at an angle."""
    out: list[np.ndarray] = []
    while len(out) < num:
        tilt = pin.exp3(
            np.array([*(rng.choice([-1, 1], 2) * rng.uniform(0.15, 0.6, 2)), rng.uniform(-0.6, 0.6)])
        )
        p_C = np.array([rng.uniform(-0.08, 0.08), rng.uniform(-0.06, 0.06), rng.uniform(0.5, 0.7)])
        X_CB = pin.SE3(tilt, p_C - tilt @ BOARD.centre_B)
        X_AE = X_AC * X_CB * X_EB.inverse()
        q = world.kinematics.solve(X_AE, world.q)
        uv = CAMERA.project(BOARD.corners_B @ X_CB.rotation.T + X_CB.translation)
        if world.kinematics.forward(q).isApprox(X_AE, 1e-4) and CAMERA.sees(uv, margin=8.0).all():
            out.append(q)
    return out


def summary(found: list[Found]) -> list[dict[str, str | int | float]]:
    rows: list[dict[str, str | int | float]] = []
    for setup, case, views in sorted({(each.setup, each.case, each.views) for each in found}):
        these = [each for each in found if (each.setup, each.case, each.views) == (setup, case, views)]
        mm, deg = [each.off_mm for each in these], [each.off_deg for each in these]
        rows.append(
            {
                "setup": setup,
                "case": case,
                "views": views,
                "seeds": len(these),
                "median_mm": float(np.median(mm)),
                "p95_mm": float(np.percentile(mm, 95)),
                "median_deg": float(np.median(deg)),
                "p95_deg": float(np.percentile(deg, 95)),
                "nees": float(np.mean([each.nees for each in these])),
                "sigma_mm": float(np.median([each.sigma_mm for each in these])),
                "corner_px": float(np.median([each.corner_px for each in these])),
                "hand_mm": float(np.median([each.hand_mm for each in these])),
                "usable": sum(each.ok for each in these),
            }
        )
    return rows


if __name__ == "__main__":
    run_script(MeasureHandEye, main)
