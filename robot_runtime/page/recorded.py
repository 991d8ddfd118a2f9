"""A page of a recorded run: `RecordedSource` plays its log, or shows it at the time of the slider.

messages of the log   |<--- rare ones, from the beginning --->|
                                          |<- all, the window ->|
                      0                                         t
"""

import json
import threading
import time
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import AbstractContextManager

from robot_runtime.core.orders import Order
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.foxglove import jpeg_of
from robot_runtime.log.reader import CAMERA, RunLog
from robot_runtime.log.records import LOST, Chunk, ChunkReader, RawMessage
from robot_runtime.log.ring import JOURNAL
from robot_runtime.page.hands import Hands
from robot_runtime.page.scene import Scene
from robot_runtime.page.source import Picture, Player
from robot_runtime.page.state import WINDOW_S, PageState
from robot_runtime.page.view import view_of

DRAWS_S = 1 / 20
_RARE = frozenset({"/log", "/fault", "/order", "/task", "/episode", "/chunk", "/authority"})


class Recording:
    """A log's messages in order of time; its images stay in the file until they are shown."""

    def __init__(self, log: RunLog) -> None:
        """InvalidValueError: the log holds nothing that can be shown."""
        self.info, self._path, self._chunks = log.info, log.path, log.layout.chunks
        found: list[RawMessage] = []
        self._pictures: dict[str, list[tuple[int, int]]] = {}
        self._reader = ChunkReader(log.path, log.layout)
        for i, chunk in enumerate(self._chunks):
            for message in self._reader.messages([chunk]):
                if message.topic == LOST:
                    log.note_gap(message)
                elif message.topic.startswith(CAMERA):
                    camera = message.topic.removeprefix(CAMERA)
                    self._pictures.setdefault(camera, []).append((message.log_ns, i))
                elif message.topic != JOURNAL:
                    found.append(message)
        if not found:
            raise InvalidValueError(f"{log.path} holds nothing that could be shown: it was cut at its begin")
        found.sort(key=lambda message: message.log_ns)
        for pictures in self._pictures.values():
            pictures.sort()
        self.messages = found
        self._times = [message.log_ns for message in found]
        self._rare = [message for message in found if message.topic in _RARE]
        self._rare_times = [message.log_ns for message in self._rare]
        self._opened: tuple[Chunk, dict[tuple[str, int], bytes]] | None = None

    @property
    def end_s(self) -> float:
        """Time of the last control tick, since the start of the run [s]; later messages are shown with it."""
        last = next((m for m in reversed(self.messages) if m.topic == "/mode"), self.messages[-1])
        return max(0.0, (last.log_ns - self._start_ns) / NS_PER_S)

    @property
    def _start_ns(self) -> int:
        return self.info.started_ns + self.info.offset_ns

    @property
    def start_s(self) -> float:
        """Time of the first control tick, since the start of the run [s]: before it the state is unknown.

        What was measured in it has a time of its own, a little before or after the tick's.
        """
        first_ns = [
            next((each.log_ns for each in self.messages if each.topic == topic), self._times[0])
            for topic in ("/mode", "/state")
        ]
        return max(0.0, (max(first_ns) - self._start_ns) / NS_PER_S)

    def at(self, t_s: float) -> PageState:
        """The state of the page at this time."""
        state = PageState()
        state.begin(self.info)
        begin = bisect_right(self._times, self._ns(t_s - WINDOW_S))
        before_ns = self._times[begin] if begin < len(self._times) else self._ns(t_s)
        for message in self._rare[: bisect_right(self._rare_times, min(before_ns - 1, self._ns(t_s)))]:
            state.take(message.topic, message.log_ns, message.data)
        self._feed(state, begin, t_s)
        return state

    def go_on(self, state: PageState, from_s: float, t_s: float) -> None:
        """Feed it the messages between two times."""
        self._feed(state, bisect_right(self._times, self._ns(from_s)), t_s)

    def _feed(self, state: PageState, begin: int, t_s: float) -> None:
        end = None if t_s >= self.end_s else bisect_right(self._times, self._ns(t_s))
        for message in self.messages[begin:end]:
            state.take(message.topic, message.log_ns, message.data)
        for camera, pictures in self._pictures.items():
            i = bisect_right(pictures, (self._ns(t_s), len(self._chunks))) - 1
            if i >= 0:
                log_ns, chunk = pictures[i]
                taken_s = (log_ns - self._start_ns) / NS_PER_S
                if state.pictures.get(camera, (-1.0, b""))[0] != taken_s:
                    state.pictures[camera] = taken_s, self._picture(camera, log_ns, chunk)
        state.t_s = t_s

    def _picture(self, camera: str, log_ns: int, chunk: int) -> bytes:
        here = self._chunks[chunk]
        if self._opened is None or self._opened[0] is not here:
            found = {
                (message.topic, message.log_ns): message.data
                for message in self._reader.messages([here])
                if message.topic.startswith(CAMERA)
            }
            self._opened = here, found
        return jpeg_of(self._opened[1][CAMERA + camera, log_ns])

    def _ns(self, t_s: float) -> int:
        return self._start_ns + round(t_s * NS_PER_S)


class RecordedSource(AbstractContextManager["RecordedSource"]):
    """One thread plays and draws; the server's thread reads what is shown, and sets the time."""

    def __init__(self, recording: Recording, scene: Scene) -> None:
        self._recording, self._scene, self._hands = recording, scene, Hands(scene.body)
        self._start_s, self._is_playing = recording.start_s, False
        self._t_s = self._start_s
        self._wanted_s: float | None = self._start_s
        self._view, self._shown = "", dict[str, Picture]()
        self.state = recording.at(self._start_s)
        self._step()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)

    def __enter__(self) -> "RecordedSource":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join(timeout=2.0)

    # ---- in the server's thread ------------------------------------------------------------------

    def view(self) -> str:
        return self._view

    def pictures(self) -> Mapping[str, Picture]:
        return self._shown

    def order(self, order: Order) -> None:
        self.refuse(type(order).__name__, "this run is over")

    def refuse(self, what: str, why: str) -> None:
        self.state.refuse(what, why)

    def play(self, player: Player) -> None:
        match player.what:
            case "seek":
                self._wanted_s = min(max(player.t_s, self._start_s), self._recording.end_s)
            case "play":
                if self._t_s >= self._recording.end_s:
                    self._wanted_s = self._start_s
                self._is_playing = True
            case "pause":
                self._is_playing = False

    # ---- in its own ------------------------------------------------------------------------------

    def _run(self) -> None:
        before_s = time.monotonic()
        while not self._is_over.wait(DRAWS_S):
            now_s = time.monotonic()
            if self._is_playing and self._wanted_s is None:
                self._play_on(now_s - before_s)
            before_s = now_s
            self._step()

    def _play_on(self, passed_s: float) -> None:
        t_s = min(self._t_s + passed_s, self._recording.end_s)
        self._recording.go_on(self.state, self._t_s, t_s)
        self._t_s = t_s
        self._is_playing = t_s < self._recording.end_s

    def _step(self) -> None:
        wanted_s, self._wanted_s = self._wanted_s, None
        if wanted_s is not None:
            self._t_s, self.state = wanted_s, self._recording.at(wanted_s)
        state = self.state
        player = {
            "t_s": round(self._t_s, 3),
            "start_s": round(self._start_s, 3),
            "end_s": round(self._recording.end_s, 3),
            "is_playing": self._is_playing,
        }
        self._view = json.dumps(view_of(state, quiet_s=None, player=player))
        self._shown = {name: Picture(round(t_s * 1e6), jpeg) for name, (t_s, jpeg) in state.pictures.items()}
        self._hands.draw(state, self._scene)
