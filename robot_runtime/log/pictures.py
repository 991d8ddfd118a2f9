"""Images on their way into a log: `Pictures` encodes them in a thread of its own.

    camera threads ─► deque ─► JPEG ─► deque ─► the log's thread

Encoding takes milliseconds, outside the interpreter's lock; in a thread beside the log's, so that entries do
not wait for it. A thread of normal priority would be preempted now and then while it holds that lock (500 Hz,
both processors busy, 9 runs of 3 s: 111 ticks lost, 31 with a priority above normal).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from robot_runtime.core.values.state import Image
from robot_runtime.jpeg import jpeg_encoder
from robot_runtime.log.foxglove import compressed_image

MAX_BYTES = 256_000_000
"""Maximum size of images that wait to be encoded: further ones are left out, and the log reports it."""
_PATIENCE_S = 0.2


class Pictures:
    """Encodes each image once; any thread may show one, one thread takes."""

    def __init__(self, quality: int, to_calendar: Callable[[int], int], *, has_thread: bool) -> None:
        """quality: of the JPEG. to_calendar: converts the run's time to calendar time [ns]."""
        self.num_left_out = 0
        """Images that were not encoded."""
        self.why_left_out = ""
        self._encode, self._to_calendar = jpeg_encoder(quality), to_calendar
        self._waiting, self._done = deque[tuple[str, Image]](), deque[tuple[str, int, bytes]]()
        self._num_bytes, self._seen = 0, dict[str, int]()
        self._bell, self._is_over = threading.Event(), False
        self.thread_id = 0
        """Native id of its thread; 0 if it has none."""
        self._thread: threading.Thread | None = None
        if has_thread:
            self._thread = threading.Thread(target=self._run, name="log-pictures", daemon=True)
            self._thread.start()
            while not self.thread_id:
                time.sleep(0.001)

    def show(self, camera: str, image: Image) -> None:
        """Queue an image of a camera, unless it was shown before."""
        if image.t_ns <= self._seen.get(camera, -1):
            return
        if self._num_bytes > MAX_BYTES:
            self.num_left_out += 1
            self.why_left_out = "too many came"
            return
        self._seen[camera] = image.t_ns
        self._num_bytes += image.pixels.nbytes
        self._waiting.append((camera, image))
        if self._thread is None:
            self._work()
        else:
            self._bell.set()

    def taken(self) -> Iterator[tuple[str, int, bytes]]:
        """Camera, capture time [ns] and message of each encoded image, each once."""
        while self._done:
            yield self._done.popleft()

    def close(self) -> None:
        """Encode waiting images, and end."""
        self._is_over = True
        if self._thread is not None:
            self._bell.set()
            self._thread.join()

    def _run(self) -> None:
        self.thread_id = threading.get_native_id()
        while not self._is_over:
            self._bell.wait(_PATIENCE_S)
            self._bell.clear()
            self._work()
        self._work()

    def _work(self) -> None:
        while self._waiting:
            camera, image = self._waiting.popleft()
            self._num_bytes -= image.pixels.nbytes
            try:
                jpeg = bytes(self._encode(image.pixels))
            except Exception as error:  # the next one may be good
                self.num_left_out += 1
                self.why_left_out = f"{camera}, {image.pixels.shape}: {error}"
                continue
            message = compressed_image(self._to_calendar(image.t_ns), jpeg, camera)
            self._done.append((camera, image.t_ns, message))
