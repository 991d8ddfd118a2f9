"""Records cameras and pose streams into a raw capture: `Recorder`.

Streams ─► `step`, the command's own thread ─► CaptureWriter, what is said at once, the anchor's guide
"""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from robot_runtime.cli.capture.streams import Arrival, Streams
from robot_runtime.core.robot import Camera
from robot_runtime.core.values.state import Image


class Recorder:
    """A context manager; `step` writes what has come and says what has to be said."""

    def __init__(
        self,
        path: Path,
        setup: Any,
        cameras: Mapping[str, Camera],
        streams: Mapping[str, tuple[str, str, str]],
        *,
        say: Callable[[str], None],
        alarm: Callable[[str], None],
    ) -> None:
        """
        setup: a `Setup`. streams: role -> (address, axes, up).
        say: a line. alarm: a line that rings.
        """
        from calibration.capture.stream import DoubleClose, TrackingWatch

        self._path, self._setup = path, setup
        self._say, self._alarm = say, alarm
        self.streams = Streams(cameras, streams, alarm=alarm)
        self._watches = {role: TrackingWatch(role) for role in streams}
        self._gestures = {role: DoubleClose() for role in streams}
        self.closed_twice: list[int] = []
        """When the gripper was closed twice, since somebody last looked."""
        self.on_arrival: Callable[[Arrival], None] | None = None
        """Told of what is written."""
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        from calibration.capture.writer import CaptureWriter

        with self._stack:
            self.writer = self._stack.enter_context(CaptureWriter(self._path, self._setup))
            self._stack.enter_context(self.streams)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    @property
    def is_bad(self) -> bool:
        """Whether some tracking is lost now."""
        return any(watch.is_bad for watch in self._watches.values())

    def step(self, wait_s: float = 0.02) -> None:
        """Write what has come, wait a little if nothing has."""
        newest = dict.fromkeys(self._watches)
        for each in self.streams.take(wait_s):
            if not isinstance(each.what, Image):
                newest[each.role] = each.what
            if each.t_ns is not None:
                self._write(each.role, each.what, each.t_ns)
                if self.on_arrival is not None:
                    self.on_arrival(each)
        now_ns = self.streams.clock.now_ns()
        for role, watch in self._watches.items():
            if (line := watch.look(newest[role], now_ns)) is not None:
                (self._alarm if watch.is_bad else self._say)(line)

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
