"""The log of a run while it runs: `RunLogWriter`, a thread of its own.

    control thread ─► deque ─┐                       ┌─► file, every 0.2 s; or ring in memory
    camera threads ─► JPEG ──┴─► encodes, in order ──┤
                                                     └─► subscribers (the page)

Notes append a reference and return at once. Under a simulation's clock there is no thread: the caller that
notes an entry encodes it, so that nothing depends on how fast this machine is.
"""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from robot_runtime.core.journal import Asked, Began, Entry, Ticked
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Image
from robot_runtime.errors import InvalidValueError
from robot_runtime.log import people
from robot_runtime.log.config import RunInfo
from robot_runtime.log.entries import Fault, Line, LogEntry, Sent, Timed
from robot_runtime.log.file import Sink
from robot_runtime.log.forms import Forms
from robot_runtime.log.foxglove import ERROR, INFO, WARNING, log_message
from robot_runtime.log.publish import END, Publisher
from robot_runtime.log.reasons import Reasons

logger = logging.getLogger(__name__)
FLUSH_NS = NS_PER_S // 5
"""Period at which encoded messages are written [ns]; with the encoding a quarter of a second."""
LOOK_S = 0.03
"""Maximum sleep of the thread when nothing wakes it [s]."""
MAX_WAITING = 100_000
"""Maximum number of waiting entries: a disk that hangs must not fill the memory."""
PATIENCE_S = 5.0
"""A disk that does not respond for this long no longer keeps a run from ending [s]."""
TOO_SLOW = "the log could not keep up: what waited to be written was dropped"


@dataclass(eq=False)
class _Listening:
    """A request to publish messages at an address."""

    address: str
    is_done: threading.Event = field(default_factory=threading.Event)
    error: InvalidValueError | None = None


class RunLogWriter:
    """Notes what happens in a run; any thread may note, and none ever waits."""

    def __init__(
        self,
        info: RunInfo,
        sink: Sink,
        *,
        has_thread: bool = True,
        jpeg_quality: int = 90,
        on_fault: Callable[[str], None] = logger.error,
    ) -> None:
        """
        sink: destination of the messages; this closes it.
        has_thread: whether a thread of its own encodes. Not under a simulation's clock.
        on_fault: receives a sentence, once, when the log stops because it cannot be written.
        """
        from robot_runtime.log.pictures import Pictures  # few robots need JPEG otherwise

        self.info, self.fault = info, ""
        """fault: why logging has stopped; empty while all is well."""
        self._sink, self._on_fault = sink, on_fault
        self._entries = deque[Entry | LogEntry]()
        self._offset_ns = info.offset_ns
        self._pictures = Pictures(jpeg_quality, self._wall_ns, has_thread=has_thread)
        self._forms, self._people = Forms(), people.People(info.schema, info.policy.action_spec)
        self._reasons = Reasons()
        self._num_left_out = self._num_put = 0
        self._step: list[Entry | LogEntry] = []
        self._has_ticked = False
        self._publishers, self._asked = list[Publisher](), deque[_Listening]()
        self._end = dict[str, str]()
        self._bell, self._is_over, self._flushed_ns = threading.Lock(), False, 0
        self._thread: threading.Thread | None = None
        self.thread_id = 0
        """Native id of its thread; 0 if it has none."""
        if has_thread:
            self._thread = threading.Thread(target=self._run, name="log", daemon=True)
            self._thread.start()
            while not self.thread_id:
                time.sleep(0.001)

    # ---- from any thread -------------------------------------------------------------------------

    def note(self, entry: Entry | LogEntry) -> None:
        """Note an entry; the values in it must not change any more."""
        self._entries.append(entry)
        if self._thread is None and isinstance(entry, Sent | Fault):
            self._drain()

    def picture(self, camera: str, image: Image) -> None:
        """Note an image of a camera."""
        self._pictures.show(camera, image)

    def line(self, t_ns: int, text: str, *, is_routine: bool = True) -> None:
        """Note a line of the run's log."""
        self.note(Line(t_ns, text, is_routine))

    def wake(self) -> None:
        """Signal that this tick's command is sent: there is time to encode."""
        if len(self._entries) > MAX_WAITING:
            self._entries.clear()
            self._fails(TOO_SLOW)  # reported here: its own thread may hang
        if self._bell.locked():
            with contextlib.suppress(RuntimeError):  # another thread woke it at the same time
                self._bell.release()

    def subscribe(self, address: str) -> None:
        """Send every message, as it is encoded, to subscribers of an address, ipc://PATH or tcp://HOST:PORT;
        `publish.Subscription` receives them. InvalidValueError: the address cannot be listened at."""
        ask = _Listening(address)
        self._asked.append(ask)
        if self._thread is None:
            self._listen()
        else:
            self.wake()
            ask.is_done.wait(5.0)
        if ask.error is not None:
            raise ask.error

    def flush(self) -> None:
        """Encode and write waiting entries here and now: for a log without a thread."""
        self._drain()
        self._guarded(self._sink.flush)

    @property
    def thread_ids(self) -> list[int]:
        """Native ids of its threads, for scheduling priorities."""
        return [each for each in (self.thread_id, self._pictures.thread_id) if each]

    @property
    def files(self) -> list[Path]:
        """The files that were written so far."""
        return list(self._sink.files)

    def close(self, end: dict[str, str] | None = None) -> None:
        """Write all that was noted, and the result of the run."""
        self._end = end or {}
        if self._is_over:
            return
        self._is_over = True
        if self._thread is None:
            self._finish()
            return
        self.wake()
        while self._thread.is_alive():
            before = self._num_put
            self._thread.join(PATIENCE_S)
            if self._thread.is_alive() and self._num_put == before:
                self._fails(f"the disk has not answered for {PATIENCE_S:g} s")
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close({} if error is None else {"error": f"{type(error).__name__}: {error}"})

    # ---- its own thread --------------------------------------------------------------------------

    def _run(self) -> None:
        self.thread_id = threading.get_native_id()
        self._bell.acquire()
        while not self._is_over:
            self._bell.acquire(timeout=LOOK_S)
            try:
                self._listen()
                self._drain()
            except Exception as error:  # whatever it is, the robot goes on
                logger.exception("the log has a bug")
                self._fails(f"{type(error).__name__}: {error}")
        self._finish()

    def _finish(self) -> None:
        self._drain()
        self._pictures.close()
        self._drain()
        if self._end.get("success") == "False":
            self._guarded(lambda: self._sink.keep("the episode failed"))
        self._guarded(lambda: self._sink.close(self._end))
        end = msgspec.json.encode({**self._end, "files": [str(path) for path in self.files]})
        while self._publishers:
            publisher = self._publishers.pop()
            publisher.send(END, self._wall_ns(self._people.now_ns), end)
            publisher.close()

    def _listen(self) -> None:
        """Open the addresses that `subscribe` has asked for."""
        while self._asked:
            ask = self._asked.popleft()
            try:
                self._publishers.append(Publisher(ask.address, self.info))
            except InvalidValueError as error:
                ask.error = error
            ask.is_done.set()

    def _drain(self) -> None:
        """Encode what waits, and write it if it is time to."""
        while self._entries:
            try:
                entry = self._entries.popleft()
            except IndexError:  # `wake` has cleared them
                break
            self._take(entry)
        self._put_step()
        for camera, t_ns, message in self._pictures.taken():
            self._put(f"/camera/{camera}", t_ns, message, None)
        if (count := self._pictures.num_left_out) > self._num_left_out:
            self._num_left_out = count
            why = self._pictures.why_left_out
            self._take(Line(self._people.now_ns, f"the log left out {count} images so far: {why}", False))
            self._put_step()
        now_ns = time.monotonic_ns()
        if now_ns - self._flushed_ns >= FLUSH_NS:
            self._flushed_ns = now_ns
            self._guarded(self._sink.flush)

    def _take(self, entry: Entry | LogEntry) -> None:
        if self._has_ticked and not isinstance(entry, Sent | Timed):
            self._put_step()
        self._has_ticked = self._has_ticked or isinstance(entry, Ticked)
        self._step.append(entry)
        if isinstance(entry, Began):  # a message of its own, which a part of the log contains, too
            self._put_step()

    def _put_step(self) -> None:
        """Write the entries of one control tick: a message of the journal, and what people see of them."""
        step, self._step, self._has_ticked = self._step, [], False
        if not step:
            return
        seen = [each for entry in step for each in self._seen_by_people(entry)]
        self._put("/journal", self._people.now_ns, self._forms.encode(step), None)
        for topic, t_ns, value in seen:
            self._put(topic, t_ns, msgspec.json.encode(value), people.FULLEST.get(topic, value))
        for entry in step:
            if (reason := self._reasons.to_keep(entry)) is not None:
                self._guarded(lambda: self._sink.keep(*reason))

    def _seen_by_people(self, entry: Entry | LogEntry) -> Iterator[tuple[str, int, Any]]:
        match entry:
            case Line(t_ns=t_ns, text=text, is_routine=is_routine):
                level = INFO if is_routine else WARNING
                yield "/log", t_ns, log_message(self._wall_ns(t_ns), level, text)
                return
            case Fault(t_ns=t_ns, text=text):
                yield "/log", t_ns, log_message(self._wall_ns(t_ns), ERROR, text)
            case Asked(observation=seen):
                for name, image in seen.images.items():
                    self._pictures.show(name, image)
        for each in self._people.messages(entry):
            yield each.topic, each.t_ns, each.value

    def _put(self, topic: str, t_ns: int, data: bytes, example: Any) -> None:
        log_ns = self._wall_ns(t_ns)
        self._num_put += 1
        self._guarded(lambda: self._sink.add(topic, log_ns, data, example))
        for publisher in self._publishers:
            publisher.send(topic, log_ns, data)

    def _wall_ns(self, t_ns: int) -> int:
        return max(0, t_ns + self._offset_ns)

    def _guarded(self, write: Callable[[], None]) -> None:
        if self.fault:
            return
        try:
            write()
        except (OSError, ValueError) as error:  # ValueError: from a file that has been closed
            self._fails(getattr(error, "strerror", None) or str(error))

    def _fails(self, why: str) -> None:
        if not self.fault:
            self.fault = f"the log of this run stops here, the robot goes on: {why}"
            self._on_fault(self.fault)
