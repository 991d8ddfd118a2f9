"""`Marking`: marks demonstrations while a capture is recorded, by keys and gestures, and judges them."""

import sys
import threading
import time
from typing import Any

from calibration.commands.capture.anchor_clip import AnchorClip
from calibration.commands.capture.recorder import Recorder
from robot_runtime.cli.background_console import BackgroundConsole
from robot_runtime.errors import DriverError, InvalidValueError

HELP = "n begin   y end   x discard   a anchor   s sync   l lean (each begins and ends by turns)   q finish"
_CLIPS = {b"a": "anchor", b"s": "sync", b"l": "lean"}
_STATUS_S = 0.25
_WRITTEN_S, _LOOK_S = 5.0, 0.3


class Keys:
    """Keys of the terminal, if there is one."""

    def __init__(self) -> None:
        from robot_runtime.robot.terminal_key import Terminal

        self._terminal = Terminal("a key that marks demonstrations") if sys.stdin.isatty() else None

    def __enter__(self) -> "Keys":
        if self._terminal is not None:
            self._terminal.open()
        return self

    def __exit__(self, *error: object) -> None:
        if self._terminal is not None:
            self._terminal.close()

    def read(self) -> bytes:
        """Return the pressed keys; nothing at the end of standard input or without the terminal."""
        try:
            return b"" if self._terminal is None else self._terminal.read()
        except DriverError:
            self._terminal = None
            return b""


class Marking:
    """Marks demonstrations and clips by keys and gestures, and has each demonstration judged."""

    def __init__(
        self,
        recorder: Recorder,
        anchor: AnchorClip,
        console: BackgroundConsole,
        keys: Keys,
        ended: threading.Event,
    ) -> None:
        self._recorder, self._anchor = recorder, anchor
        self._console, self._keys, self._ended = console, keys, ended
        self._begun_ns: int | None = None
        self._clips: set[str] = set()
        self._demonstrated: list[int] = []
        """Begin times of the demonstrations that were not discarded [ns]."""
        self._is_usable: dict[int, bool] = {}
        """Verdicts of judged demonstrations, by begin time."""
        self._judging: list[threading.Thread] = []

    def run(self, seconds: float | None) -> None:
        """Mark until the key q, a signal, or the end of this time [s]."""
        recorder = self._recorder
        self._console.say(f"recording into {recorder.writer.path}\n{HELP}")
        end_s = None if seconds is None else time.monotonic() + seconds
        next_s = 0.0
        while not self._ended.is_set() and (end_s is None or time.monotonic() < end_s):
            recorder.step()
            for key in self._keys.read():
                self._struck(bytes([key]))
            while recorder.closed_twice:
                self._toggle(recorder.closed_twice.pop(0), "gripper closed twice")
            if time.monotonic() >= next_s and sys.stdout.isatty():
                next_s = time.monotonic() + _STATUS_S
                self._console.status(self._status())
        self._ended.set()
        now_ns = recorder.streams.clock.now_ns()
        if self._begun_ns is not None:
            self._end("end", now_ns, "the recording's end")
        for clip in sorted(self._clips):
            self._mark_clip(clip, now_ns, "the recording's end")
        for thread in self._judging:
            thread.join()

    def _status(self) -> str:
        doing = "between demonstrations" if self._begun_ns is None else "demonstrating"
        good = sum(self._is_usable.values())
        verdicts = f"{good} usable, {len(self._is_usable) - good} not"
        return f"{doing}   {verdicts}   {' '.join(sorted(self._clips))}"

    def _struck(self, key: bytes) -> None:
        now_ns = self._recorder.streams.clock.now_ns()
        by = f"key {key.decode(errors='replace')}"
        if key == b"q":
            self._ended.set()
        elif key in _CLIPS:
            self._mark_clip(_CLIPS[key], now_ns, by)
        elif key == b"n" and self._begun_ns is None:
            self._toggle(now_ns, by)
        elif key == b"x" or (key == b"y" and self._begun_ns is not None):
            self._end("end" if key == b"y" else "discard", now_ns, by)
        else:
            why = {b"n": "a demonstration has begun", b"y": "no demonstration has begun"}
            self._console.say(f"{by}: {why.get(key, HELP)}")

    def _mark_clip(self, clip: str, t_ns: int, by: str) -> None:
        edge = "end" if clip in self._clips else "begin"
        self._clips ^= {clip}
        self._recorder.writer.mark(t_ns, f"{clip}_{edge}", by)
        self._console.say(f"{clip}: {edge}")
        if clip == "anchor" and edge == "begin":
            self._anchor.begin()
        elif clip == "anchor" and (thread := self._anchor.end()) is not None:
            self._judging.append(thread)

    def _toggle(self, t_ns: int, by: str) -> None:
        if self._begun_ns is not None:
            self._end("end", t_ns, by)
            return
        self._begun_ns = t_ns
        self._recorder.writer.mark(t_ns, "begin", by)
        bad = ": TRACKING IS LOST, it will not be usable" if self._recorder.streams.is_bad else ""
        self._console.say(f"demonstration {len(self._demonstrated)}: begun{bad}")

    def _end(self, what: str, t_ns: int, by: str) -> None:
        begun_ns, self._begun_ns = self._begun_ns, None
        self._recorder.writer.mark(t_ns, what, by)
        if what == "discard" or begun_ns is None:
            if begun_ns is None and self._demonstrated:
                self._is_usable.pop(self._demonstrated.pop(), None)
            self._console.say("discarded")
            return
        number = len(self._demonstrated)
        self._demonstrated.append(begun_ns)
        thread = threading.Thread(target=self._judge, args=(number, begun_ns, t_ns), daemon=True)
        thread.start()
        self._judging.append(thread)

    def _judge(self, number: int, begun_ns: int, end_ns: int) -> None:
        """Judge a demonstration from disk, in its own thread, while recording continues. One that ends with
        the recording is judged after it, with all others."""
        from calibration.capture.check import check_demonstration
        from calibration.capture.marks import Demonstration

        end_s = time.monotonic() + _WRITTEN_S
        while time.monotonic() < end_s and not _is_written(capture := self._capture(), end_ns):
            if self._ended.wait(_LOOK_S):
                return
        demonstration = Demonstration(number=number, begin_ns=begun_ns, end_ns=end_ns)
        verdict = check_demonstration(capture, demonstration)
        if begun_ns not in self._demonstrated:
            return  # discarded meanwhile
        self._is_usable[begun_ns] = verdict.ok
        self._console.say(f"demonstration {number}, {(end_ns - begun_ns) / 1e9:.1f} s: {verdict}")

    def _capture(self) -> Any:
        from calibration.capture.raw import RawCapture

        return RawCapture.open(self._recorder.writer.path)


def _is_written(capture: Any, end_ns: int) -> bool:
    """Return whether images of that time can be read: videos are written in pieces of half a second or
    more."""
    try:
        stamps = [each.frames.t_ns for each in capture.devices.values() if each.video is not None]
    except InvalidValueError:
        return False
    return all(len(t_ns) and t_ns[-1] >= end_ns for t_ns in stamps)
