"""Cameras and pose streams of a rig, as they come: `Streams`; one thread a device.

camera ─► its thread ─┐
poses  ─► its thread ─┴► queue ─► `take`, on this machine's clock, times of each rising
"""

import contextlib
import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.camera_watch import CameraLimits
from robot_runtime.core.robot import Camera
from robot_runtime.core.values.state import Image
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.cameras import camera_threads

if TYPE_CHECKING:
    from calibration.capture.stream import PoseSample

MOST_WAITING = 600
"""Pictures and poses that wait to be taken; more are lost, and that is said."""
MOST_BYTES = 1 << 16
"""Of a message of a pose stream."""
_POLL_MS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrival:
    """One picture or pose."""

    role: str
    what: "Image | PoseSample"
    t_ns: int | None
    """On this machine's clock; None: it is not to be kept, as clocks are not known yet or it came late."""


class Streams:
    """A context manager; `take` gives what has come since."""

    def __init__(
        self,
        cameras: Mapping[str, Camera],
        streams: Mapping[str, tuple[str, str, str]],
        *,
        alarm: Callable[[str], None],
    ) -> None:
        """
        streams: role -> (address, axes, up).
        alarm: a line that rings.
        """
        from calibration.capture.stream import Offset

        self._cameras, self._streams, self._alarm = cameras, streams, alarm
        self.clock = MonotonicClock()
        self._waiting: queue.Queue[tuple[str, Any, int]] = queue.Queue(MOST_WAITING)
        self._offsets = {role: Offset() for role in streams}
        self._last_ns: dict[str, int] = {}
        self._num_fallen: Counter[str] = Counter()
        self.num_lost = 0
        self.num_bad = 0
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            for role, (address, _, _) in self._streams.items():
                listener = PoseListener(address, self._hear(role), self.clock.now_ns)
                self._stack.callback(listener.close)
            self._stack.enter_context(
                camera_threads(self._cameras, self.clock, CameraLimits(), on_picture=self._see)
            )
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    @property
    def is_ready(self) -> bool:
        """Whether every stream has been heard for long enough to know its clock."""
        now_ns = self.clock.now_ns()
        return all(offset.is_known(now_ns) for offset in self._offsets.values())

    def take(self, wait_s: float) -> list[Arrival]:
        """What has come, in its order; waits a little if nothing has."""
        out = []
        with contextlib.suppress(queue.Empty):
            item = self._waiting.get(timeout=wait_s)
            while True:
                out.append(self._told(*item))
                item = self._waiting.get_nowait()
        return out

    def _told(self, role: str, what: Any, at_ns: int) -> Arrival:
        if isinstance(what, Image):
            t_ns, name = what.t_ns, f"{role} pictures"
        else:
            self._offsets[role].hear(what.t_ns, at_ns)
            t_ns, name = self._offsets[role].here(what.t_ns), f"{role} poses"
        is_kept = self.is_ready and self._rises(name, t_ns)
        return Arrival(role=role, what=what, t_ns=t_ns if is_kept else None)

    def _rises(self, name: str, t_ns: int) -> bool:
        """Whether a time comes after the last of its table; one that does not is left out and said once."""
        last_ns = self._last_ns.get(name)
        if last_ns is not None and t_ns <= last_ns:
            self._num_fallen[name] += 1
            if self._num_fallen[name] in (1, 100, 10_000):
                self._alarm(
                    f"{name}: {self._num_fallen[name]} stamps do not come after the one before them and are "
                    f"left out, this one by {(last_ns - t_ns) / 1e6:.0f} ms: if the device's clock was set, "
                    "begin a new recording"
                )
            return False
        self._last_ns[name] = t_ns
        return True

    def _hear(self, role: str) -> Callable[[bytes, int], None]:
        from calibration.capture.stream import sample_of

        _, axes, up = self._streams[role]

        def hear(message: bytes, arrived_ns: int) -> None:
            try:
                self._put(role, sample_of(message, axes=axes, up=up), arrived_ns)
            except InvalidValueError as error:
                self.num_bad += 1
                if self.num_bad in (1, 100, 10_000):
                    self._alarm(f"{role}: {self.num_bad} messages could not be read: {error}")

        return hear

    def _see(self, role: str, image: Image) -> None:
        self._put(role, image, image.t_ns)

    def _put(self, role: str, what: Any, at_ns: int) -> None:
        try:
            self._waiting.put_nowait((role, what, at_ns))
        except queue.Full:
            self.num_lost += 1
            if self.num_lost in (1, 100, 10_000):
                self._alarm(
                    f"{self.num_lost} pictures or poses were lost: this machine is too slow for these sizes"
                )


class PoseListener:
    """Hears one device's pose stream: messages of ZeroMQ, pushed to an address of ours."""

    def __init__(self, address: str, hear: Callable[[bytes, int], None], now_ns: Callable[[], int]) -> None:
        """hear: is given each message and when it came, in the listener's thread."""
        import zmq

        self._hear, self._now_ns, self._is_over = hear, now_ns, False
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._context.destroy(0)
            raise InvalidValueError(f"nobody can listen at {address}: {error}") from error
        self._thread = threading.Thread(target=self._run, name="poses", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hear no more."""
        self._is_over = True
        self._thread.join(1.0)
        self._context.destroy(0)

    def _run(self) -> None:
        while not self._is_over:
            if self._socket.poll(_POLL_MS):
                message = self._socket.recv()
                self._hear(message, self._now_ns())
