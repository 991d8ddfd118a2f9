"""The process that reads a camera of LeRobot: it writes every new image, with its time, to shared memory."""

import logging
import time
from typing import Any

import msgspec
import numpy as np

from drivers.child import SLOT, LifeLine, Newest
from drivers.lerobot.loading import CLOCK_NS, RefusedError, disconnect
from drivers.lerobot.messages import CameraConfig, CameraReport, Facts
from drivers.lerobot.own_process import run_own
from drivers.lerobot.pictures import Pictures
from robot_runtime.core.values.action import NS_PER_S

logger = logging.getLogger(__name__)

_WAIT_MS = 200
_GIVE_UP_S = 5.0
"""A camera that raises for this long is a fault [s]; the runtime notices much earlier."""
_FASTEST_S = 0.004
"""Shortest interval between reads of a camera that does not wait [s]."""


class CameraLoop:
    """The loop of the process with one camera."""

    def __init__(self, config: CameraConfig, camera: Any, descriptor: int) -> None:
        """Wait for the first image; RefusedError: it is invalid."""
        self._config, self._camera = config, camera
        self._reports: Newest[CameraReport] = Newest(CameraReport, descriptor, 2 * SLOT)
        try:
            first = _colours(camera.async_read(timeout_ms=5000))
        except Exception as error:  # of LeRobot or a plug-in
            raise RefusedError(f"it gives no image: {type(error).__name__}: {error}") from None
        height, width = first.shape[:2]
        for name, got in (("height", height), ("width", width)):
            wanted = config.config.get(name, got)
            if wanted != got:
                raise RefusedError(f"expected a {name} of {wanted}, got {got}")
        self.facts = Facts(parts={}, cameras={"camera": (height, width)})
        self._pictures = Pictures(descriptor, (height, width))
        self._count, self._seen_s = 0, time.monotonic()
        self._last: tuple[float | None, Any] = (None, None)
        self._put(first)

    def end(self) -> None:
        """Disconnect."""
        disconnect(self._camera)

    def run(self, life: LifeLine) -> None:
        """Run until the life line is cut."""
        fault = ""
        while not life.is_cut():
            try:
                self._put(_colours(self._camera.async_read(timeout_ms=_WAIT_MS)))
                self._seen_s = time.monotonic()
            except Exception as error:  # of LeRobot or a plug-in; a missed image raises, too
                silent_s = time.monotonic() - self._seen_s
                if silent_s > _GIVE_UP_S and not fault:
                    fault = f"no image for {silent_s:.1f} s: {type(error).__name__}: {error}"[:1000]
                    self._reports.put(CameraReport(num_frames=self._count, fault=fault))
                    logger.error("%s: %s", self._config.type, fault)
            time.sleep(_FASTEST_S)

    def _put(self, pixels: np.ndarray) -> None:
        """Write an image if it is new, by its stamp where LeRobot keeps one, else by its content."""
        stamp_s = getattr(self._camera, "latest_timestamp", None)
        before_s, before = self._last
        if stamp_s == before_s if stamp_s is not None else np.array_equal(pixels, before):
            return
        self._last = stamp_s, pixels
        t_ns = time.monotonic_ns() if stamp_s is None else round(stamp_s * NS_PER_S) + CLOCK_NS
        self._pictures.put(pixels, t_ns - round(self._config.latency_s * NS_PER_S))
        self._count += 1
        self._reports.put(CameraReport(num_frames=self._count))


def _colours(picture: Any) -> np.ndarray:
    pixels = np.asarray(picture)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
        raise ValueError(f"expected an image (height, width, 3) uint8, got {pixels.shape} {pixels.dtype}")
    return pixels


def main(text: str, descriptor: str) -> None:
    """config: a `CameraConfig` as JSON; descriptor: of the memory shared with the parent."""
    config = msgspec.json.decode(text, type=CameraConfig)
    run_own(
        "camera",
        config.type,
        config.config,
        config.plugins,
        lambda camera: CameraLoop(config, camera, int(descriptor)),
    )
