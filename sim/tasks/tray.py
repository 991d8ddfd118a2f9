"""The tray as a target of tasks."""

import mujoco
import numpy as np
from jaxtyping import Float

from sim.scene.model import add_boxes

TRAY_HALF = 0.085
"""Half the inner edge of the square tray [m]."""
TRAY_FLOOR = 0.005
_RIM, _RIM_HEIGHT = 0.006, 0.025


def add_tray(body: mujoco.MjsBody, p: Float[np.ndarray, "3"]) -> None:
    """Add a square tray with a low rim to a body, centred at `p` on its surface [m]."""
    outer = TRAY_HALF + _RIM
    parts = [
        ([0.0, 0.0, TRAY_FLOOR / 2], [outer, outer, TRAY_FLOOR / 2]),
        ([outer, 0.0, _RIM_HEIGHT / 2], [_RIM, outer + _RIM, _RIM_HEIGHT / 2]),
        ([-outer, 0.0, _RIM_HEIGHT / 2], [_RIM, outer + _RIM, _RIM_HEIGHT / 2]),
        ([0.0, outer, _RIM_HEIGHT / 2], [outer + _RIM, _RIM, _RIM_HEIGHT / 2]),
        ([0.0, -outer, _RIM_HEIGHT / 2], [outer + _RIM, _RIM, _RIM_HEIGHT / 2]),
    ]
    add_boxes(body, "tray", parts, p=p, rgba=[0.25, 0.58, 0.40, 1.0])
