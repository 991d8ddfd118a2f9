"""Estimates a person's stance: height of the floor, upright orientation, and the pivot of leaning."""

from collections.abc import Sequence

import numpy as np

from calibration.capture.raw import RawCapture
from calibration.labels.base import Pivot, assumed_pivot, fit_pivot
from calibration.labels.closure import note
from calibration.labels.tie import Tie
from calibration.labels.values import LabelConfig
from calibration.trajectory import LOST, Trajectory
from calibration.verdict import Reason
from robot_runtime.errors import InvalidValueError


def upright(capture: RawCapture, chest: Trajectory) -> Trajectory:
    """Path of the chest in the demonstrations, in most of which the person is upright."""
    keep = np.zeros(len(chest), bool)
    for each in capture.demonstrations():
        keep |= (chest.t_ns >= each.begin_ns) & (chest.t_ns < each.end_ns)
    keep &= chest.tracking != LOST
    return chest.taken(keep) if keep.any() else chest


def floor_of(
    capture: RawCapture, config: LabelConfig, ties: Sequence[Tie], level: Trajectory
) -> tuple[float, list[Reason]]:
    """Height of the floor in the chest's world, from the board or from the chest's height."""
    more = capture.setup.more
    by_board = config.board_height_m if config.board_height_m is not None else more.get("board_height_m")
    by_chest = config.chest_height_m if config.chest_height_m is not None else more.get("chest_height_m")
    for name, value in (("board_height_m", by_board), ("chest_height_m", by_chest)):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and -0.5 < value < 3.0):
            raise InvalidValueError(
                f"{capture.path / 'capture.json'}: expected {name} from -0.5 to 3 m above the floor, got "
                f"{value!r:.40}: give --{name.replace('_', '-')}"
            )
    tall = float(np.quantile(level.p[:, 2], 0.8))
    if by_board is not None:
        board = ties[0].X_WcB
        slope = float(np.rad2deg(np.arccos(np.clip(abs(board.rotation[2, 2]), 0.0, 1.0))))
        floor = float(board.translation[2]) - float(by_board)
        reasons = []
        if slope > 5.0 and by_board == 0.0:
            reasons.append(
                note(
                    "board-not-flat",
                    f"The board on the floor is tilted by {slope:.1f} degrees.",
                    "Lay it flat, or give its true --board-height-m.",
                )
            )
        if by_chest is not None and abs(tall - floor - float(by_chest)) > 0.15:
            reasons.append(
                note(
                    "heights-disagree",
                    f"By the board's height the chest is {tall - floor:.2f} m above the floor, "
                    f"by its own {float(by_chest):.2f} m.",
                    "Measure both again.",
                )
            )
        return floor, reasons
    if by_chest is not None:
        return tall - float(by_chest), []
    missing = note(
        "floor-unknown",
        "The height of the floor is undeclared, so the hand's height is unknown.",
        "Give --board-height-m (of the board above the floor, lying flat) or --chest-height-m.",
        is_fatal=True,
    )
    return tall - 1.3, [missing]


def pivot_of(
    capture: RawCapture, chest: Trajectory, R_GC: np.ndarray, config: LabelConfig
) -> tuple[Pivot, list[Reason]]:
    clips = []
    for begin_ns, end_ns in capture.clips("lean"):
        rows = (chest.t_ns >= begin_ns) & (chest.t_ns < end_ns) & (chest.tracking != LOST)
        if rows.sum() >= 10:
            clips.append((chest.p[rows], chest.R[rows]))
    if not clips:
        return assumed_pivot(R_GC, config.pivot_G), [
            note(
                "no-lean-clip",
                "No lean clip: hips are assumed 0.4 m below the chest camera.",
                "Stand for 10 s, feet still: lean forwards and to the sides by 20 degrees, and twist.",
            )
        ]
    pivot = fit_pivot(clips, R_GC, config.pivot_G)
    reasons = []
    if not pivot.is_measured:
        reasons.append(
            note(
                "shallow-lean",
                f"The lean clip turns by {np.rad2deg(pivot.lean_rad):.0f} degrees only, expected 15.",
                "Lean further, forwards and to both sides.",
            )
        )
    if pivot.rms_m > 0.02:
        reasons.append(
            note(
                "feet-moved",
                f"In the lean clip the hips move by {1e3 * pivot.rms_m:.0f} mm.",
                "Keep the feet still while leaning, and record the clip again.",
            )
        )
    return pivot, reasons
