"""A camera of LeRobot: `LeRobotCamera`. `drivers.lerobot` describes what stops it."""

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
    """A camera whose images another process writes to shared memory."""

    def __init__(
        self, pictures: Pictures, size: tuple[int, int], fault: Callable[[], str], what: str
    ) -> None:
        """fault: why there are no more images; empty: there are."""
        self._pictures, self._size, self._fault, self._what = pictures, size, fault, what
        self._number, self._is_closed = 0, False

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) [pixels]"""
        return self._size

    def read(self) -> Image:
        """Wait for the next image. DriverError: there are no more images."""
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
        """End a waiting `read`; may be called twice."""
        self._is_closed = True


class LeRobotCamera(SharedCamera):
    """Any camera of LeRobot or a plug-in, in its own process."""

    def __init__(
        self,
        type: str,
        *,
        config: Mapping[str, Any] | None = None,
        plugins: Sequence[str] = (),
        latency_s: float = 0.0,
    ) -> None:
        """Import LeRobot in a separate process and connect, which takes some seconds.

        type, config: as in LeRobot's `--robot.cameras`; width, height and fps among them.
        plugins: modules that register types, in addition to those that LeRobot finds by itself.
        latency_s: from the middle of exposure to LeRobot's stamp, which it sets when an image has been read
            and converted [s].

        InvalidValueError: an invalid number. DriverError: there is no such camera, or no image.
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
        """Id of the process that reads it."""
        return self._child.pid

    def close(self) -> None:
        """End its process; may be called twice."""
        super().close()
        self._child.close()
