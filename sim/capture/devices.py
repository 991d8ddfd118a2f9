"""One device of the rig and what it recorded, in true time: `Device`."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from calibration.trajectory import Trajectory
from sim.capture.cameras import Camera
from sim.capture.clocks import DeviceClock
from sim.capture.takes import DEMONSTRATION, Recording
from sim.capture.vio import Odometry

CHEST, HAND = "chest", "hand"
STREAMS = {CHEST: 1, HAND: 2}
"""Random streams by role."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Device:
    """A camera with odometry in a recording."""

    role: str
    camera: Camera
    X_W: Trajectory
    """The camera's true path."""
    frames: Int64[np.ndarray, " N"]
    """True times of all frames, including dropped ones [ns]."""
    kept: Int64[np.ndarray, " M"]
    """Indices of the frames in the video."""
    stamps: Int64[np.ndarray, " N"]
    """Their stamps on the device's clock [ns]."""
    clock: DeviceClock
    odometry: Odometry
    """At `frames`, in true time."""


def middle(recording: Recording, *, last: bool = False) -> int:
    """The middle of the first (or last) demonstration, or of the first (or last) span [ns of true time]."""
    spans = recording.spans_of(DEMONSTRATION) or recording.spans
    span = spans[-1 if last else 0]
    return (span.start_ns + span.stop_ns) // 2
