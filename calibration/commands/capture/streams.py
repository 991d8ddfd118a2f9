"""`Streams`: receives the cameras and pose streams of a rig, with one thread per device.

camera ─► its thread ─┐
poses  ─► its thread ─┴► queue ─► `take`, on this machine's clock, times of each rising
"""

import contextlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.camera_watch import CameraLimits
from robot_runtime.core.robot import Camera
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Image
from robot_runtime.errors import InvalidValueError
from robot_runtime.robot.cameras import camera_threads

if TYPE_CHECKING:
    from calibration.capture.stream import PoseSample

MOST_WAITING = 600
"""Images and poses that can be queued; further ones are lost, and the loss is reported."""
MOST_BYTES = 1 << 16
"""Largest message of a pose stream [bytes]."""
_POLL_MS = 50
_SAY_EVERY_S = 3.0
_MEASURED = 200
"""Largest number of images from which a camera's rate is measured."""
_MOST_AHEAD_NS = NS_PER_S
_LEAST_PERIOD_NS = 2_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Arrival:
    """An image or pose."""

    role: str
    what: "Image | PoseSample"
    t_ns: int | None
    """Time by this machine's clock; None: discard it, as clocks are not known yet or it is out of order."""


class Streams:
    """Context manager that receives streams; `take` returns what has arrived since."""

    def __init__(
        self,
        cameras: Mapping[str, Camera],
        streams: Mapping[str, tuple[str, str, str]],
        *,
        say: Callable[[str], None],
        alarm: Callable[[str], None],
    ) -> None:
        """
        streams: role -> (address, axes, up).
        say: prints a line. alarm: prints a line with a beep. Both are called from any thread.
        """
        from calibration.capture.stream import Offset, PictureWatch, TrackingWatch

        self._cameras, self._streams, self._say, self._alarm = cameras, streams, say, alarm
        self._watches = {role: TrackingWatch(role) for role in streams}
        self._pictures = {role: PictureWatch(role) for role in cameras}
        self._first_ns: dict[str, list[int]] = {role: [] for role in cameras}
        self.clock = MonotonicClock()
        self._waiting: queue.Queue[tuple[str, Any, int]] = queue.Queue(MOST_WAITING)
        self._offsets = {role: Offset() for role in streams}
        self._last_ns: dict[str, int] = {}
        self._num_fallen: Counter[str] = Counter()
        self._num_ahead: Counter[str] = Counter()
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
        """Whether the clock of every pose stream is known, and every camera has given images."""
        return not self.waits_for

    @property
    def waits_for(self) -> list[str]:
        """Lines on what has not arrived yet."""
        now_ns = self.clock.now_ns()
        poses = [
            f"{role}: no pose yet at {self._streams[role][0]}"
            if offset.is_new
            else f"{role}: its clock offset is being measured"
            for role, offset in self._offsets.items()
            if not offset.is_known(now_ns)
        ]
        return poses + [f"{role}: no picture yet" for role, seen in self._first_ns.items() if len(seen) < 2]

    @property
    def is_bad(self) -> bool:
        """Whether any device has lost tracking now."""
        return any(watch.is_bad for watch in self._watches.values())

    def pictures_a_second(self, role: str) -> float:
        """Rate of a camera's first images; requires `is_ready`."""
        period_ns = max(float(np.median(np.diff(self._first_ns[role]))), _LEAST_PERIOD_NS)
        return round(NS_PER_S / period_ns, 1)

    def take(self, wait_s: float) -> list[Arrival]:
        """Return all arrivals in order; wait a little if there are none. Reports streams that have
        stopped."""
        out: list[Arrival] = []
        with contextlib.suppress(queue.Empty):
            item = self._waiting.get(timeout=wait_s)
            out.append(self._arrival(*item))
            for _ in range(self._waiting.qsize()):  # bounded: they may come faster than they are taken
                out.append(self._arrival(*self._waiting.get_nowait()))
        self._look(out)
        return out

    def _look(self, arrivals: list[Arrival]) -> None:
        now_ns = self.clock.now_ns()
        newest = {each.role: each.what for each in arrivals if not isinstance(each.what, Image)}
        for role, watch in self._watches.items():
            if (line := watch.look(newest.get(role), now_ns)) is not None:
                (self._alarm if watch.is_bad else self._say)(line)
        num = Counter(each.role for each in arrivals if isinstance(each.what, Image))
        for role, camera in self._pictures.items():
            if (line := camera.look(num[role], now_ns)) is not None:
                (self._alarm if camera.is_bad else self._say)(line)

    def _arrival(self, role: str, what: Any, at_ns: int) -> Arrival:
        if isinstance(what, Image):
            t_ns, name = what.t_ns, f"{role} pictures"
            if len(self._first_ns[role]) < _MEASURED:
                self._first_ns[role].append(t_ns)
        else:
            self._offsets[role].hear(what.t_ns, at_ns)
            t_ns, name = self._offsets[role].here(what.t_ns), f"{role} poses"
        is_kept = self.is_ready and self._is_due(name, t_ns) and self._rises(name, t_ns)
        return Arrival(role=role, what=what, t_ns=t_ns if is_kept else None)

    def _is_due(self, name: str, t_ns: int) -> bool:
        """Return whether a time is not far in the future, which would make all later ones out of order."""
        ahead_ns = t_ns - self.clock.now_ns()
        if ahead_ns <= _MOST_AHEAD_NS:
            return True
        self._num_ahead[name] += 1
        if self._num_ahead[name] in (1, 100, 10_000):
            self._alarm(
                f"{name}: {self._num_ahead[name]} stamps are in the future and are left out, this one by "
                f"{ahead_ns / NS_PER_S:.1f} s"
            )
        return False

    def _rises(self, name: str, t_ns: int) -> bool:
        """Return whether a time comes after the last of its stream; others are left out and reported."""
        last_ns = self._last_ns.get(name)
        if last_ns is not None and t_ns <= last_ns:
            self._num_fallen[name] += 1
            if self._num_fallen[name] in (1, 100, 10_000):
                self._alarm(
                    f"{name}: {self._num_fallen[name]} stamps do not come after the one before them and are "
                    f"left out, this one by {(last_ns - t_ns) / 1e6:.0f} ms: if the device's clock was set, "
                    "start again"
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


def wait_for(streams: Streams, say: Callable[[str], None], *, is_over: Callable[[], bool]) -> bool:
    """Wait until all streams have arrived, and print missing ones every few seconds; False: it ended
    before."""
    say("waiting for the cameras and for every pose stream")
    next_s = time.monotonic() + _SAY_EVERY_S
    while not streams.is_ready:
        if is_over():
            return False
        streams.take(0.02)
        if time.monotonic() >= next_s:
            next_s += _SAY_EVERY_S
            say("; ".join(streams.waits_for))
    return True


class PoseListener:
    """Receives one device's pose stream: ZeroMQ messages, pushed to an address on this machine."""

    def __init__(self, address: str, hear: Callable[[bytes, int], None], now_ns: Callable[[], int]) -> None:
        """hear: gets each message and its arrival time, in the listener's thread."""
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
            raise InvalidValueError(f"cannot listen on {address}: {error}") from error
        self._thread = threading.Thread(target=self._run, name="poses", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop receiving."""
        self._is_over = True
        self._thread.join(1.0)
        self._context.destroy(0)

    def _run(self) -> None:
        while not self._is_over:
            if self._socket.poll(_POLL_MS):
                message = self._socket.recv()
                self._hear(message, self._now_ns())
