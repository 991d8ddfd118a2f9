"""A camera of LeRobot's: `LeRobotCamera`. What stops it is written in `drivers.lerobot`."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from drivers.child import Child
from drivers.lerobot.messages import LIBRARY_START_S, CameraConfig, CameraOrder, CameraReport, Facts
from drivers.lerobot.pictures import Pictures
from robot_runtime.core.values.state import Image
from robot_runtime.errors import DriverError, InvalidValueError

_LOOK_S = 0.001


class SharedCamera:
    """A camera whose pictures another process puts into shared memory."""

    def __init__(
        self, pictures: Pictures, size: tuple[int, int], fault: Callable[[], str], what: str
    ) -> None:
        """fault: why no picture will come any more; empty: one will."""
        self._pictures, self._size, self._fault, self._what = pictures, size, fault, what
        self._number, self._is_closed = 0, False

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)"""
        return self._size

    def read(self) -> Image:
        """Wait for the next picture. DriverError: there will be none any more."""
        while not self._is_closed:
            newest = self._pictures.get(after=self._number)
            if newest is not None:
                self._number, image = newest
                return image
            if fault := self._fault():
                raise DriverError(f"{self._what}: {fault}")
            time.sleep(_LOOK_S)
        raise DriverError(f"{self._what}: the camera was closed")

    def close(self) -> None:
        """May be called twice."""
        self._is_closed = True


class LeRobotCamera(SharedCamera):
    """Any camera that LeRobot knows, or a plug-in of its, in a process of its own."""

    def __init__(
        self,
        type: str,
        *,
        config: Mapping[str, Any] | None = None,
        plugins: Sequence[str] = (),
        latency_s: float = 0.0,
    ) -> None:
        """Imports LeRobot in a process of its own and connects, which takes some seconds.

        type, config: as in LeRobot's `--robot.cameras`; width, height and fps among them.
        plugins: modules that register types, beside those that LeRobot finds by itself.
        latency_s: from the middle of exposure to LeRobot's stamp, which it sets when a picture has been read
            and converted [s].

        InvalidValueError: a number makes no sense. DriverError: there is no such camera, or no picture.
        """
        if not 0.0 <= latency_s < 10.0:
            raise InvalidValueError(f"latency_s is 0 or more, got {latency_s:g}")
        plain = CameraConfig(type=type, config=dict(config or {}), plugins=list(plugins), latency_s=latency_s)
        what = f"LeRobot's camera {type}"
        self._child = Child(
            "drivers.lerobot.camera_process",
            plain,
            CameraOrder,
            CameraReport,
            what=what,
            start_s=LIBRARY_START_S,
        )
        (size,) = msgspec.json.decode(self._child.greeting, type=Facts).cameras.values()
        pictures = Pictures(self._child.descriptor, size)
        super().__init__(pictures, size, lambda: self._child.report().fault or self._child.ended, what)

    @property
    def pid(self) -> int:
        """Of the process that reads it."""
        return self._child.pid

    def close(self) -> None:
        """End its process; may be called twice."""
        super().close()
        self._child.close()
