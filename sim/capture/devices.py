"""What one device of the rig is, and did, in true time: `Device`."""

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
"""Which random numbers are whose."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Device:
    """A camera with odometry, of a recording."""

    role: str
    camera: Camera
    X_W: Trajectory
    """Its camera's true path."""
    frames: Int64[np.ndarray, " N"]
    """When pictures are taken, dropped ones too [ns]."""
    kept: Int64[np.ndarray, " M"]
    """Which of them are in the video."""
    stamps: Int64[np.ndarray, " N"]
    """What its clock says about them [ns]."""
    clock: DeviceClock
    odometry: Odometry
    """At `frames`, in true time."""


def middle(recording: Recording, *, last: bool = False) -> int:
    """In the middle of the first (or last) demonstration, or of it all [ns of true time]."""
    spans = recording.spans_of(DEMONSTRATION) or recording.spans
    span = spans[-1 if last else 0]
    return (span.start_ns + span.stop_ns) // 2
