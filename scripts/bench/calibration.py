"""Measures the accuracy of corners, intrinsics and anchors against known cameras and worlds.

python -m scripts.bench.calibration --seeds 40 --lenses 4 --json scripts/results/calibration.json

Boards are rendered through the lens (sim/capture/board_scene.py). Anchors of many seeds use corners with the
measured errors of the detector; a few use rendered images from end to end. clean: no blur, no noise, exact
odometry. noisy: blur 0.8 px, noise 4 of 255, light that falls off; corner errors of 0.3 px; odometry jitter
of 0.6 mm and 0.03 degrees, while a device looks at the board from eight poses. walking: odometry that also
drifts by 4 mm and 0.1 degrees per root of a metre, with poses 0.1 m apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pinocchio as pin

from calibration.anchor import Anchor, DeviceViews, View, solve_anchor
from calibration.board import Board
from calibration.board_sheet import BOARDS
from calibration.camera import CameraModel, KannalaBrandt, Pinhole
from calibration.detection import Corners, detect, wrong_board
from calibration.intrinsics import calibrate
from robot_runtime.cli.options import Count, Maybe, OutputFile
from robot_runtime.cli.progress import counted
from robot_runtime.errors import InvalidValueError
from scripts.harness import finish, run_script
from scripts.tables import calibration as tables
from sim.capture.board_scene import CLEAN, NOISY, Look, draw_board

SHEET, TABLE = BOARDS["a4"], BOARDS["a3"]
"""For intrinsics, and for anchors: squares of 24 and of 50 mm."""
LENSES: dict[str, tuple[CameraModel, tuple[float, float]]] = {
    "pinhole": (
        Pinhole(
            size=(480, 640), fx=610.0, fy=608.0, cx=322.0, cy=236.0, k1=-0.12, k2=0.03, p1=5e-4, p2=-3e-4
        ),
        (0.2, 0.45),
    ),
    "fisheye": (
        KannalaBrandt(size=(720, 960), fx=300.0, fy=301.0, cx=482.0, cy=357.0, k1=0.03, k2=-0.008, k3=1e-3),
        (0.09, 0.25),
    ),
}
"""Each with the distances of the board [m]."""
CHEST = Pinhole(size=(720, 1280), fx=910.0, fy=910.0, cx=641.0, cy=358.0)
HAND = KannalaBrandt(size=(720, 960), fx=420.0, fy=420.0, cx=479.0, cy=361.0, k1=0.02, k2=-0.004)
LOOKS = {"clean": CLEAN, "noisy": NOISY}
SOME = [0, 1, 2, 5]
"""Numbers of a level anchor."""
FIGURES = ("corners_rms_px", "rms_px", "focal_error", "focal_repeat_share")
"""Of intrinsics, that are kept."""
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Odometry:
    """How wrong it is: of one pose [m], [rad]; walk per root of a metre."""

    tremble_m: float = 0.0
    tremble_rad: float = 0.0
    walk_m: float = 0.0
    walk_rad: float = 0.0


TREMBLES = Odometry(tremble_m=6e-4, tremble_rad=np.deg2rad(0.03))
WALKS = replace(TREMBLES, walk_m=4e-3, walk_rad=np.deg2rad(0.1))
ANCHORS = {
    "clean": (CLEAN, 0.06, Odometry()),
    "noisy": (NOISY, 0.3, TREMBLES),
    "walking": (NOISY, 0.3, WALKS),
}
"""What is drawn, how far corners are off that are not [pixels], and odometry."""


@dataclass(frozen=True, kw_only=True)
class Args:
    """Measure calibration against the truth."""

    seeds: Count = 40
    """Anchors of projected corners."""
    lenses: Count = 4
    """Intrinsics of each lens, from 45 drawn pictures each."""
    drawn: Count = 3
    """Anchors of drawn pictures."""
    json: Maybe[OutputFile] = None


def main(args: Args) -> int:
    total = len(LENSES) * len(LOOKS) * args.lenses + len(ANCHORS) * (args.seeds + args.drawn) + 1
    with counted() as progress:
        bar = progress.add_task("measure", total=total)

        def counted_off(rows: Iterator[Row]) -> list[Row]:
            out = []
            for row in rows:
                out.append(row)
                progress.advance(bar)
            return out

        out = {
            "intrinsics": worst(counted_off(_intrinsics(args.lenses))),
            "anchors": spread(counted_off(_anchors(args.seeds, drawn=False))),
            "drawn_anchors": spread(counted_off(_anchors(args.drawn, drawn=True))),
            "faults": faults(),
        }
        progress.advance(bar)
    return finish(out, args.json, tables.figures(out), tables.faults(out), seeds=range(args.seeds))


def worst(rows: list[Row]) -> list[Row]:
    """Of the intrinsics of a lens and a look, over its seeds."""
    out = []
    for lens, look in dict.fromkeys((row["lens"], row["look"]) for row in rows):
        of = [row for row in rows if (row["lens"], row["look"]) == (lens, look)]
        figures = {name: max(row[name] for row in of) for name in FIGURES}
        out.append({"lens": lens, "look": look, "seeds": len(of), **figures})
    return out


def spread(rows: list[Row]) -> list[Row]:
    """Of the anchors of a look over its seeds: 95th percentiles, the mean NEES, and how many are trusted."""
    out = []
    for look in dict.fromkeys(row["look"] for row in rows):
        of = [row for row in rows if row["look"] == look]
        p95 = {
            f"{name}_p95": float(np.quantile([row[name] for row in of], 0.95))
            for name in ("error_m", "error_rad", "held_out_px")
        }
        nees = float(np.mean([row["nees"] for row in of]))
        trusted = sum(row["ok"] for row in of)
        out.append({"look": look, "seeds": len(of), **p95, "nees": nees, "trusted": trusted})
    return out


def seen_anywhere(
    board: Board, camera: CameraModel, far: tuple[float, float], rng: np.random.Generator
) -> pin.SE3:
    """X_CB with the board anywhere in the picture, tilted by up to 50 degrees."""
    while True:
        uv = rng.uniform(0.02, 0.98, 2) * camera.size[::-1]
        ray = camera.unproject(uv[None])[0]
        if np.isfinite(ray).all():
            break
    R = pin.Quaternion.FromTwoVectors(np.array([0.0, 0.0, 1.0]), ray).matrix()
    R = R @ pin.exp3(np.array([0.0, 0.0, rng.uniform(-0.5, 0.5)])) @ _tilted(rng, np.deg2rad((0.0, 50.0)))
    return pin.SE3(R, ray * rng.uniform(*far) - R @ board.centre_B)


def _intrinsics(num: int) -> Iterator[Row]:
    for lens, (camera, far) in LENSES.items():
        for look_name, look in LOOKS.items():
            for seed in range(num):
                rng = np.random.default_rng(seed)
                views, off = [], []
                for _ in range(45):
                    X_CB = seen_anywhere(SHEET, camera, far, rng)
                    corners = detect(SHEET, draw_board(SHEET, camera, X_CB, look=look, rng=rng))
                    if len(corners):
                        views.append(corners)
                        p_C = SHEET.corners_B[corners.ids] @ X_CB.rotation.T + X_CB.translation
                        off.append(corners.uv - camera.project(p_C))
                found = calibrate(SHEET, views, "fisheye" if lens == "fisheye" else "pinhole").intrinsics
                errors = np.concatenate(off)
                yield {
                    "lens": lens,
                    "look": look_name,
                    "corners_rms_px": float(np.sqrt((errors**2).sum(axis=1).mean())),
                    "focal_error": float(abs(found.camera.fx / camera.fx - 1.0)),
                    **found.residuals,
                }


def _anchors(num: int, *, drawn: bool) -> Iterator[Row]:
    for look_name, (look, noise_px, odometry) in ANCHORS.items():
        for seed in range(num):
            chest, hand, X_WcWh = two_devices(
                np.random.default_rng(1000 + seed),
                odometry,
                noise_px,
                look if drawn else None,
            )
            anchor = solve_anchor(TABLE, chest, hand)
            e = error(anchor, X_WcWh)
            P = anchor.covariance[np.ix_(SOME, SOME)]
            yield {
                "look": look_name,
                "error_m": float(np.linalg.norm(e[:3])),
                "error_rad": float(np.linalg.norm(e[3:])),
                "nees": float(e[SOME] @ np.linalg.solve(P, e[SOME]) / 4),
                **anchor.residuals,
                "ok": anchor.verdict.ok,
            }


def error(anchor: Anchor, X_WcWh: pin.SE3) -> np.ndarray:
    """[place, turn] of the truth from it, at the board."""
    there = X_WcWh * anchor.X_WcWh.inverse()
    o = anchor.X_WcB.translation
    return np.concatenate([there.act(o) - o, pin.log3(there.rotation)])


def two_devices(
    rng: np.random.Generator,
    odometry: Odometry,
    noise_px: float,
    look: Look | None,
    *,
    tilts_deg: tuple[float, float] = (25.0, 50.0),
    printed: Board = TABLE,
) -> tuple[DeviceViews, DeviceViews, pin.SE3]:
    """What both saw, and X_WcWh at the middle of it. look: draw pictures; None: project corners."""
    lies = pin.SE3(pin.exp3(np.array([np.pi, 0.0, 0.0])) @ pin.exp3(rng.normal(0, 0.05, 3)), np.zeros(3))
    sides, drifts = [], []
    for camera, far in ((CHEST, (0.5, 0.9)), (HAND, (0.25, 0.5))):
        world = pin.SE3(pin.exp3(np.array([0, 0, rng.uniform(-3, 3)])), rng.uniform(-2, 2, 3))
        drift, views = pin.SE3.Identity(), []
        for k in range(40):
            if k % 5 == 0:
                at = _stance(printed, camera, far, np.deg2rad(tilts_deg), rng)
                drift = _walked(drift, (world * lies).translation, odometry, rng) if k else drift
            if k == 20:
                drifts.append(drift)
            X_CB = at * _small(0.003, 0.01, rng)
            trembling = _small(odometry.tremble_m, odometry.tremble_rad, rng)
            corners = _corners(printed, camera, X_CB, noise_px, look, rng)
            X_WC = drift * world * lies * X_CB.inverse() * trembling
            views.append(View(t_ns=k * 100_000_000, corners=corners, X_WC=X_WC))
        sides.append((DeviceViews(camera=camera, views=views), drifts[-1] * world))
    (chest, X_WcR), (hand, X_WhR) = sides
    return chest, hand, X_WcR * X_WhR.inverse()


def _corners(
    board: Board,
    camera: CameraModel,
    X_CB: pin.SE3,
    noise_px: float,
    look: Look | None,
    rng: np.random.Generator,
) -> Corners:
    if look is not None:
        return detect(board, draw_board(board, camera, X_CB, look=look, rng=rng))
    uv = camera.project(board.corners_B @ X_CB.rotation.T + X_CB.translation)
    uv = uv + rng.normal(0.0, noise_px / np.sqrt(2), uv.shape)
    keep = camera.sees(uv, margin=3)
    ids = np.flatnonzero(keep).astype(np.int64)
    return Corners(ids=ids, uv=uv[keep], size=camera.size, blur_px=0.6)


def _stance(
    board: Board,
    camera: CameraModel,
    far: tuple[float, float],
    tilts: np.ndarray,
    rng: np.random.Generator,
) -> pin.SE3:
    R = pin.exp3(np.array([0, 0, rng.uniform(-0.4, 0.4)])) @ _tilted(rng, tilts)
    return pin.SE3(R, np.array([*rng.normal(0, 0.02, 2), rng.uniform(*far)]) - R @ board.centre_B)


def _tilted(rng: np.random.Generator, tilts: np.ndarray) -> np.ndarray:
    side = rng.uniform(-np.pi, np.pi)
    return np.asarray(pin.exp3(rng.uniform(*tilts) * np.array([np.cos(side), np.sin(side), 0.0])))


def _small(m: float, rad: float, rng: np.random.Generator) -> pin.SE3:
    return pin.SE3(pin.exp3(rng.normal(0.0, 1.0, 3) * rad), rng.normal(0.0, 1.0, 3) * m)


def _walked(drift: pin.SE3, o: np.ndarray, odometry: Odometry, rng: np.random.Generator) -> pin.SE3:
    """0.1 m further; turned about the camera's surroundings."""
    root = np.sqrt(0.1)
    R = pin.exp3(np.array([0.0, 0.0, rng.normal() * odometry.walk_rad * root]))
    return pin.SE3(R, o - R @ o + rng.normal(0.0, 1.0, 3) * odometry.walk_m * root) * drift


def faults() -> list[Row]:
    """What is wrong, and the names by which it was caught (none: it was not)."""

    def names(**changed: object) -> list[str]:
        chest, hand, _ = two_devices(np.random.default_rng(7), TREMBLES, 0.3, None, **changed)  # type: ignore[arg-type]
        return list(solve_anchor(TABLE, chest, hand).verdict.names)

    chest, hand, _ = two_devices(np.random.default_rng(7), TREMBLES, 0.3, None)
    moved = pin.SE3(np.eye(3), np.array([0.03, 0.0, 0.0]))
    late = [replace(v, X_WC=moved * v.X_WC) if k >= 20 else v for k, v in enumerate(hand.views)]
    off = [
        replace(v, X_WC=v.X_WC * pin.SE3(pin.exp3(np.array([0.035, 0, 0])), np.zeros(3))) for v in hand.views
    ]
    half = [replace(v, corners=replace(v.corners, uv=v.corners.uv + 0.5)) for v in hand.views]
    rng = np.random.default_rng(3)
    camera, far = LENSES["pinhole"]
    X_CB = seen_anywhere(SHEET, camera, far, rng)
    picture = draw_board(SHEET, camera, X_CB)
    swapped = replace(SHEET, columns=SHEET.rows, rows=SHEET.columns)
    even = replace(SHEET, rows=6)
    before = pin.SE3(pin.exp3(np.array([0.5, 0.0, 0.0])), np.array([-0.1, -0.07, 0.4]))
    legacy = draw_board(replace(even, legacy=True), camera, before)
    found = {
        "none": names(),
        "frontal views": names(tilts_deg=(0.0, 6.0)),
        "print at 98 %": names(printed=TABLE.measured(0.098, 0.1)),
        "print at 102 %": names(printed=TABLE.measured(0.102, 0.1)),
        "board moved by 3 cm while the hand looks": list(
            solve_anchor(TABLE, chest, replace(hand, views=late)).verdict.names
        ),
        "camera turned by 2 degrees in its device": list(
            solve_anchor(TABLE, chest, replace(hand, views=off)).verdict.names
        ),
        "half a pixel off": list(solve_anchor(TABLE, chest, replace(hand, views=half)).verdict.names),
        "columns and rows swapped": _name(wrong_board(swapped, [picture])),
        "legacy layout": _name(wrong_board(even, [legacy])),
        "another dictionary": _name(wrong_board(replace(SHEET, dictionary="6X6_100"), [picture])),
        "pictures of another size": _refused(chest, hand),
    }
    return [{"fault": fault, "caught": caught} for fault, caught in found.items()]


def _name(reason: object) -> list[str]:
    return [] if reason is None else [reason.name]  # type: ignore[attr-defined]


def _refused(chest: DeviceViews, hand: DeviceViews) -> list[str]:
    try:
        solve_anchor(TABLE, chest, replace(hand, camera=HAND.resized((360, 480))))
    except InvalidValueError:
        return ["refused"]
    return []


if __name__ == "__main__":
    run_script(Args, main, description=__doc__)
