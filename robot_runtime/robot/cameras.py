"""Cameras, each in its own thread: `Cameras` has the newest valid image of each, or the reason for none.

camera ─► read (its thread) ─► CameraWatch ─► Mailbox ─► newest (control thread, every tick)
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from robot_runtime.clock import Clock
from robot_runtime.core.camera_watch import CameraFault, CameraLimits, CameraWatch
from robot_runtime.core.robot import Camera
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Image
from robot_runtime.errors import SchemaMismatchError
from robot_runtime.mailbox import Mailbox

logger = logging.getLogger(__name__)

CAMERAS_BACK = "all cameras give images again"
"""The start of that entry in the run's log."""
JOIN_S = 1.5
"""How long closing waits in total for drivers that are still reading [s]."""
RETRY_S = 0.01
"""Pause after a read that returned no image [s]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CameraReader:
    """One camera, the watch over its images, and the newest valid image."""

    camera: Camera
    watch: CameraWatch
    box: Mailbox[Image]


def needed_cameras(cameras: Mapping[str, Camera], wanted: Mapping[str, tuple[int, int]]) -> dict[str, Camera]:
    """Return the cameras that a policy uses; SchemaMismatchError: one is missing, or has another size."""
    for name, size in wanted.items():
        if name not in cameras:
            have = ", ".join(cameras) or "none"
            raise SchemaMismatchError(f"the policy looks at camera {name!r}, this robot has {have}")
        if tuple(cameras[name].size) != tuple(size):
            raise SchemaMismatchError(
                f"the policy wants pictures of {tuple(size)} from camera {name!r}, it gives "
                f"{tuple(cameras[name].size)} (height, width)"
            )
    return {name: cameras[name] for name in wanted}


class Cameras:
    """All cameras of a run; the control thread owns it, and each camera is read in its own thread."""

    def __init__(self, readers: Mapping[str, CameraReader], clock: Clock, limits: CameraLimits) -> None:
        self._readers, self._clock, self._limits = readers, clock, limits
        self._shown: dict[str, int] = {}
        self._num_refused = dict.fromkeys(readers, 0)

    def await_first(self, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """Wait at most `start_ns` for the first image of every camera; return whether all have come.

        Starting a camera can block the interpreter for tenths of a second, so it happens before the loop
        runs.
        """
        end_ns = self._clock.now_ns() + self._limits.start_ns
        while any(reader.box.peek() is None for reader in self._readers.values()):
            if (now_ns := self._clock.now_ns()) >= end_ns or should_stop():
                return False
            self._clock.sleep_until_ns(now_ns + NS_PER_S // 100)
        return True

    def newest(self, now_ns: int) -> tuple[dict[str, Image], dict[str, CameraFault]]:
        """Return the newest valid image of each camera, and the fault of each camera that has none."""
        images, faults = {}, {}
        for name, reader in self._readers.items():
            shown = reader.box.peek()
            fault = reader.watch.why_blind(shown, now_ns)
            if fault is not None:
                faults[name] = fault
            elif shown is not None:
                images[name] = shown
        return images, faults

    def show(self, images: Mapping[str, Image]) -> list[str]:
        """Note the images of a request; return the cameras whose image the previous request had already."""
        again = [name for name, image in images.items() if self._shown.get(name) == image.t_ns]
        self._shown = {name: image.t_ns for name, image in images.items()}
        return again

    def said(self, name: str, fault: CameraFault) -> str:
        """Describe a camera's fault in words, with the read error if the image is malformed."""
        came = f": {self._readers[name].watch.misshapen}" if fault is CameraFault.MISSHAPEN else ""
        return f"camera {name} {fault.value}{came}"

    @property
    def num_refused(self) -> int:
        """The number of images of all cameras that were rejected."""
        return sum(reader.watch.num_refused for reader in self._readers.values())

    def newly_refused(self) -> list[tuple[str, CameraFault, int]]:
        """Return camera, fault and number of images so far, for each count that has grown."""
        out = []
        for name, reader in self._readers.items():
            if reader.watch.num_refused != self._num_refused[name]:
                self._num_refused[name] = reader.watch.num_refused
                out += [(name, fault, count) for fault, count in reader.watch.counts.items() if count]
        return out


@contextlib.contextmanager
def camera_threads(
    cameras: Mapping[str, Camera],
    clock: Clock,
    limits: CameraLimits | None = None,
    *,
    on_picture: Callable[[str, Image], object] | None = None,
) -> Iterator[Cameras]:
    """Run a thread for each camera, which puts its newest valid frame into a mailbox.

    on_picture: receives every frame, valid or not, in the camera's thread; it must return at once.
    """
    limits = limits or CameraLimits()
    stopping = threading.Event()
    readers = {
        name: CameraReader(camera=camera, watch=_watch(camera, limits), box=Mailbox[Image]())
        for name, camera in cameras.items()
    }
    threads = [
        threading.Thread(
            target=_read, args=(name, reader, clock, stopping, on_picture), name=f"camera-{name}", daemon=True
        )
        for name, reader in readers.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield Cameras(readers, clock, limits)
    finally:
        stopping.set()
        end_s = time.monotonic() + JOIN_S
        for thread in threads:
            thread.join(timeout=max(0.0, end_s - time.monotonic()))


def _watch(camera: Camera, limits: CameraLimits) -> CameraWatch:
    has_noise = limits.has_noise and bool(getattr(camera, "has_noise", True))
    return CameraWatch(camera.size, replace(limits, has_noise=has_noise))


def _read(
    name: str,
    reader: CameraReader,
    clock: Clock,
    stopping: threading.Event,
    on_picture: Callable[[str, Image], object] | None,
) -> None:
    try:
        while not stopping.is_set():
            try:
                image = reader.camera.read()
                if not isinstance(image, Image):
                    kind = type(image).__name__
                    raise ValueError(f"read() returned {kind}, expected Image(t_ns=..., pixels=...)")
            except ValueError as error:  # `Image` rejects it
                reader.watch.misshapen = str(error)
                reader.watch.fails(CameraFault.MISSHAPEN, clock.now_ns())
                stopping.wait(RETRY_S)
                continue
            if on_picture is not None:
                on_picture(name, image)
            if reader.watch.look(image, clock.now_ns()):
                reader.box.put(image)
    except (Exception, SystemExit) as error:
        # An error of the driver; the robot runs its plan to the end without it.
        logger.error("camera %s has failed: %s: %s", name, type(error).__name__, error)
        reader.watch.fails(CameraFault.FAILED, clock.now_ns())
    finally:
        with contextlib.suppress(Exception):  # one that has failed may fail to close as well
            reader.camera.close()
