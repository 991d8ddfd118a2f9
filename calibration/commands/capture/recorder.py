"""`Recorder`: writes the streams of a rig into a raw capture.

Streams ─► `step`, the command's own thread ─► CaptureWriter, gestures, the anchor's guide
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.commands.capture.streams import Arrival, Streams
from robot_runtime.core.values.state import Image

if TYPE_CHECKING:
    from calibration.capture.writer import CaptureWriter


class Recorder:
    """Writes streams that are ready; the owner of the writer closes it."""

    def __init__(
        self, streams: Streams, writer: "CaptureWriter", *, on_arrival: Callable[[Arrival], None]
    ) -> None:
        """on_arrival: gets each arrival after it is written."""
        from calibration.capture.stream import DoubleClose

        self.streams, self.writer, self._on_arrival = streams, writer, on_arrival
        self._gestures = {role: DoubleClose() for role in writer.setup.devices}
        self.closed_twice: list[int] = []
        """Times of double closes of the gripper that were not handled yet [ns]."""

    def step(self, wait_s: float = 0.02) -> None:
        """Write all arrivals; wait a little if there are none."""
        for each in self.streams.take(wait_s):
            if each.t_ns is not None:
                self._write(each.role, each.what, each.t_ns)
                self._on_arrival(each)

    def _write(self, role: str, what: Any, t_ns: int) -> None:
        from calibration.capture.values import Imu

        if isinstance(what, Image):
            self.writer.picture(role, t_ns, what.pixels)
            return
        self.writer.pose(role, t_ns, what.X_WC, what.tracking)
        if what.w is not None and what.a is not None:
            self.writer.imu(role, Imu(t_ns=np.array([t_ns]), w=np.array([what.w]), a=np.array([what.a])))
        if what.width_m is not None:
            self.writer.width(role, t_ns, what.width_m)
            if self._gestures[role].look(t_ns, what.width_m):
                self.closed_twice.append(t_ns)
