"""Checks that a hand is within reach of the chest: not too far, behind, or on the other side."""

import numpy as np
import pinocchio as pin

from calibration.capture.raw import Device
from calibration.clocks import ClockFit
from calibration.trajectory import LOST
from calibration.verdict import Reason
from robot_runtime.core.values.action import NS_PER_S

MOST_REACH = 1.3
"""Largest distance [m] from a chest camera to a camera on a hand that holds a tool."""
_STEP_NS = NS_PER_S // 10
_OFF_SIDE = 0.1
"""Largest distance [m] by which a left hand's mean may lie on the right."""


def misplaced(
    role: str,
    chest: Device,
    hand: Device,
    clock: ClockFit | None,
    X_WcWh: pin.SE3,
    span: tuple[int, int],
) -> list[Reason]:
    """Faults of a hand's position in one demonstration; span: [begin, end), chest's clock."""
    t_ns = np.arange(span[0], span[1], _STEP_NS, dtype=np.int64)
    hand_ns = t_ns if clock is None else clock.b_of_a(t_ns)
    inside = (t_ns >= chest.poses.t_ns[0]) & (t_ns <= chest.poses.t_ns[-1])
    inside &= (hand_ns >= hand.poses.t_ns[0]) & (hand_ns <= hand.poses.t_ns[-1])
    if inside.sum() < 5:
        return []
    of_chest, of_hand = chest.poses.sampled(t_ns[inside]), hand.poses.sampled(hand_ns[inside]).before(X_WcWh)
    known = (of_chest.tracking != LOST) & (of_hand.tracking != LOST)
    if known.sum() < 5:
        return []
    p_CH = np.einsum("nji,nj->ni", of_chest.R, of_hand.p - of_chest.p)[known]
    far, behind = np.linalg.norm(p_CH, axis=1), float((p_CH[:, 2] < -0.1).mean())
    if np.quantile(far, 0.9) > MOST_REACH or behind > 0.5:
        return [
            Reason(
                name="hand-out-of-reach",
                what=f"{role}: it is {np.median(far):.2f} m from the chest's camera, and behind it for "
                f"{100 * behind:.0f} % of the time; an arm reaches {MOST_REACH:g} m, forward.",
                do="Chest and hand are swapped, the anchor is of another recording, or clocks are not "
                "joined.",
            )
        ]
    side = {"left_hand": -1.0, "right_hand": 1.0}.get(role, 0.0)
    if side and side * float(p_CH[:, 0].mean()) < -_OFF_SIDE:
        other = "right" if side < 0 else "left"
        return [
            Reason(
                name="sides-swapped",
                what=f"{role}: it is on the {other} for most of the time, {abs(p_CH[:, 0].mean()):.2f} m.",
                do="Left and right are swapped: import again with the roles exchanged.",
                is_fatal=False,
            )
        ]
    return []
