"""Cameras in threads of their own: `Cameras` has the newest good picture of each, and says why not.

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

CAMERAS_BACK = "all cameras give pictures again"
"""How that entry of the run's log begins."""
JOIN_S = 1.5
"""How long the end waits for drivers that are still reading, all together [s]."""
RETRY_S = 0.01
"""Pause after something that is no picture [s]."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CameraReader:
    """One camera, what is known of its pictures, and the newest good one."""

    camera: Camera
    watch: CameraWatch
    box: Mailbox[Image]


def needed_cameras(cameras: Mapping[str, Camera], wanted: Mapping[str, tuple[int, int]]) -> dict[str, Camera]:
    """Those a policy looks at; SchemaMismatchError: one is missing, or has another size."""
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
    """All cameras of a run; the control thread owns it, and each camera is read in a thread of its own."""

    def __init__(self, eyes: Mapping[str, CameraReader], clock: Clock, limits: CameraLimits) -> None:
        self._eyes, self._clock, self._limits = eyes, clock, limits
        self._shown: dict[str, int] = {}
        self._num_refused = dict.fromkeys(eyes, 0)

    def await_first(self, should_stop: Callable[[], bool] = lambda: False) -> bool:
        """Whether every camera has given a picture, at most `start_ns` later.

        Making a camera ready can hold the interpreter for tenths of a second: not once the loop runs.
        """
        end_ns = self._clock.now_ns() + self._limits.start_ns
        while any(eye.box.peek() is None for eye in self._eyes.values()):
            if (now_ns := self._clock.now_ns()) >= end_ns or should_stop():
                return False
            self._clock.sleep_until_ns(now_ns + NS_PER_S // 100)
        return True

    def newest(self, now_ns: int) -> tuple[dict[str, Image], dict[str, CameraFault]]:
        """The newest good picture of each camera, and what is the matter with those that have none."""
        images, faults = {}, {}
        for name, eye in self._eyes.items():
            shown = eye.box.peek()
            fault = eye.watch.why_blind(shown, now_ns)
            if fault is not None:
                faults[name] = fault
            elif shown is not None:
                images[name] = shown
        return images, faults

    def show(self, images: Mapping[str, Image]) -> list[str]:
        """A request shows these pictures; the cameras whose picture the one before has shown as well."""
        again = [name for name, image in images.items() if self._shown.get(name) == image.t_ns]
        self._shown = {name: image.t_ns for name, image in images.items()}
        return again

    def said(self, name: str, fault: CameraFault) -> str:
        """A camera's fault in words, with what came if it is no picture of its own."""
        came = f": {self._eyes[name].watch.misshapen}" if fault is CameraFault.MISSHAPEN else ""
        return f"camera {name} {fault.value}{came}"

    @property
    def num_refused(self) -> int:
        """Pictures of all cameras that were not shown."""
        return sum(eye.watch.num_refused for eye in self._eyes.values())

    def newly_refused(self) -> list[tuple[str, CameraFault, int]]:
        """Camera, what is wrong, and with how many of its pictures so far, where there are more now."""
        out = []
        for name, eye in self._eyes.items():
            if eye.watch.num_refused != self._num_refused[name]:
                self._num_refused[name] = eye.watch.num_refused
                out += [(name, fault, count) for fault, count in eye.watch.counts.items() if count]
        return out


@contextlib.contextmanager
def camera_threads(
    cameras: Mapping[str, Camera],
    clock: Clock,
    limits: CameraLimits | None = None,
    *,
    on_picture: Callable[[str, Image], object] | None = None,
) -> Iterator[Cameras]:
    """A thread per camera, each putting its newest good frame into a mailbox.

    on_picture: is given every frame, good or not, in the camera's thread; it returns at once.
    """
    limits = limits or CameraLimits()
    stopping = threading.Event()
    eyes = {
        name: CameraReader(camera=camera, watch=_watch(camera, limits), box=Mailbox[Image]())
        for name, camera in cameras.items()
    }
    threads = [
        threading.Thread(
            target=_read, args=(name, eye, clock, stopping, on_picture), name=f"camera-{name}", daemon=True
        )
        for name, eye in eyes.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield Cameras(eyes, clock, limits)
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
    eye: CameraReader,
    clock: Clock,
    stopping: threading.Event,
    on_picture: Callable[[str, Image], object] | None,
) -> None:
    try:
        while not stopping.is_set():
            try:
                image = eye.camera.read()
                if not isinstance(image, Image):
                    kind = type(image).__name__
                    raise ValueError(f"read() returned {kind}, expected Image(t_ns=..., pixels=...)")
            except ValueError as error:  # what `Image` does not take
                eye.watch.misshapen = str(error)
                eye.watch.fails(CameraFault.MISSHAPEN, clock.now_ns())
                stopping.wait(RETRY_S)
                continue
            if on_picture is not None:
                on_picture(name, image)
            if eye.watch.look(image, clock.now_ns()):
                eye.box.put(image)
    except (Exception, SystemExit) as error:
        # A driver's own; the robot goes on to the end of its plan without it.
        logger.error("camera %s has failed: %s: %s", name, type(error).__name__, error)
        eye.watch.fails(CameraFault.FAILED, clock.now_ns())
    finally:
        with contextlib.suppress(Exception):  # one that has failed may fail to close as well
            eye.camera.close()
