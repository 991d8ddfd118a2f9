"""`robot-runtime capture record`: records cameras with pose streams live into a raw capture.

Streams ─► `Recorder.step`, the command's own thread ─► CaptureWriter, gestures, the anchor's guide
keys, gestures ─► `Marking` ─► demonstrations and clips, each judged when it ends
"""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from tyro.conf import Positional, arg

from calibration.commands.capture.anchor_watch import AnchorClip, board_of
from calibration.commands.capture.rig import Rig, RigDevice, camera_model, load_rig, open_camera, pose_streams
from calibration.commands.capture.streams import Arrival, Streams, wait_for
from robot_runtime.cli.background_console import BackgroundConsole
from robot_runtime.cli.options import InputFile, Maybe, OutputFolder, Seconds, need
from robot_runtime.cli.progress import advance, counted
from robot_runtime.cli.signals import own_handler
from robot_runtime.core.values.state import Image
from robot_runtime.errors import DriverError, InvalidValueError

if TYPE_CHECKING:
    from calibration.capture.writer import CaptureWriter


class Recorder:
    """Writes streams that are ready; the owner of the writer closes it."""

    def __init__(
        self, streams: Streams, writer: "CaptureWriter", *, on_arrival: Callable[[Arrival], None]
    ) -> None:
        """on_arrival: gets each arrival after it is written."""
        from calibration.capture.stream import DoubleClose

        self.streams, self.writer, self._on_arrival = streams, writer, on_arrival
        self._gestures = {role: DoubleClose() for role in writer.setup.devices}
        self.closed_twice: list[int] = []
        """Times of double closes of the gripper that were not handled yet [ns]."""

    def step(self, wait_s: float = 0.02) -> None:
        """Write all arrivals; wait a little if there are none."""
        for each in self.streams.take(wait_s):
            if each.t_ns is not None:
                self._write(each.role, each.what, each.t_ns)
                self._on_arrival(each)

    def _write(self, role: str, what: Any, t_ns: int) -> None:
        from calibration.capture.values import Imu

        if isinstance(what, Image):
            self.writer.picture(role, t_ns, what.pixels)
            return
        self.writer.pose(role, t_ns, what.X_WC, what.tracking)
        if what.w is not None and what.a is not None:
            self.writer.imu(role, Imu(t_ns=np.array([t_ns]), w=np.array([what.w]), a=np.array([what.a])))
        if what.width_m is not None:
            self.writer.width(role, t_ns, what.width_m)
            if self._gestures[role].look(t_ns, what.width_m):
                self.closed_twice.append(t_ns)


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
        from calibration.capture.raw import Demonstration

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


@dataclass(frozen=True, kw_only=True)
class CaptureRecord:
    """Record demonstrations live, without a robot.

    Records the cameras of this machine and the poses that devices stream. Reports lost tracking at once, with
    a beep, and judges each demonstration right after its end. Keys of the terminal mark demonstrations;
    closing the gripper twice within a second begins or ends one. A folder that already holds a capture gets a
    new part. Exit code 1: no demonstration is usable.

    Example: robot-runtime capture record examples/capture_rig.toml --output captures/kitchen
    """

    rig: Annotated[Positional[InputFile], arg(metavar="RIG.toml")]
    """File of the devices; docs/capture.md has an example."""
    output: OutputFolder
    """Folder of the capture."""
    seconds: Maybe[Seconds] = None
    """End after this time [s]; at the key q or Ctrl-C if not given."""
    no_beep: bool = False
    """Do not ring the terminal's bell when tracking is lost."""

    def main(self) -> int:
        need("scipy", "av", "cv2", extras=("calibration",))
        from calibration.capture.check import check_capture
        from calibration.capture.raw import RawCapture
        from calibration.capture.writer import next_part
        from calibration.commands.capture.check import show

        rig = load_rig(self.rig)
        next_part(self.output)
        with ExitStack() as stack:
            console = stack.enter_context(BackgroundConsole())
            ended = threading.Event()
            stack.enter_context(own_handler(lambda number: ended.set()))
            path = self._recorded(rig, console, ended, stack)
        with counted(stays=False) as progress:
            bar = progress.add_task("look for the board", total=None)
            report = check_capture(
                RawCapture.open(path), with_checksums=False, progress=advance(progress, bar)
            )
        show(path, report)
        return 0 if report.usable else 1

    def _recorded(
        self, rig: Rig, console: BackgroundConsole, ended: threading.Event, stack: ExitStack
    ) -> Path:
        """Record; return the folder. InvalidValueError: it ended before anything came."""
        from calibration.capture.writer import CaptureWriter

        cameras = {role: open_camera(each.camera) for role, each in rig.devices.items()}
        models = {role: camera_model(each, cameras[role].size) for role, each in rig.devices.items()}
        anchor = AnchorClip(rig, models, console.say)
        for role, device in rig.devices.items():
            if role != "chest" and device.tcp is None:
                console.say(f"{role}: the rig's file names no tcp, which labels need (`calibrate tcp`)")
        keys = stack.enter_context(Keys())

        def is_over() -> bool:
            if b"q" in keys.read():
                ended.set()
            return ended.is_set()

        def alarm(line: str) -> None:
            console.say(line)
            if not self.no_beep:
                console.write("\a")

        streams = stack.enter_context(Streams(cameras, pose_streams(rig), say=console.say, alarm=alarm))
        if not wait_for(streams, console.say, is_over=is_over):
            raise InvalidValueError(f"nothing was recorded: {'; '.join(streams.waits_for) or 'it was ended'}")
        rates = {role: _rate(role, each, streams, console.say) for role, each in rig.devices.items()}
        sizes = {role: camera.size for role, camera in cameras.items()}
        writer = stack.enter_context(CaptureWriter(self.output, _setup(rig, sizes, rates)))
        recorder = Recorder(streams, writer, on_arrival=anchor.tell)
        Marking(recorder, anchor, console, keys, ended).run(self.seconds)
        return writer.path


def _rate(role: str, device: RigDevice, streams: Streams, say: Callable[[str], None]) -> float:
    """Return images per second: as in the file, unless they come at another rate."""
    measured, declared = streams.pictures_a_second(role), device.fps or device.camera.get("fps")
    if declared is None or abs(measured - declared) > 0.2 * declared:
        if declared is not None:
            say(f"{role}: its camera gives {measured:g} images per second, the rig's file says {declared:g}")
        return measured
    return float(declared)


def _setup(rig: Rig, sizes: dict[str, tuple[int, int]], rates: dict[str, float]) -> Any:
    from calibration.capture.values import Setup

    board = board_of(rig)
    more = {name: value for name, value in rig.more.items() if name != "board"}
    task, person = more.pop("task", ""), more.pop("person", "")
    return Setup(
        devices={role: _info(each, sizes[role], rates[role]) for role, each in rig.devices.items()},
        task=str(task),
        person=str(person),
        board=None if board is None else board.to_dict(),
        more={**more, "clock": "shared"},  # all times are by this machine's clock
    )


def _info(device: RigDevice, size: tuple[int, int], fps: float) -> Any:
    from calibration.capture.sources.spec import pose_file
    from calibration.capture.values import DeviceInfo

    camera = camera_model(device, size)
    return DeviceInfo(
        kind=str(device.camera["driver"]),
        size=size,
        fps=fps,
        camera=None if camera is None else camera.to_dict(),
        X_device_camera=None if device.extrinsic is None else pose_file(device.extrinsic),
        X_HE=None if device.tcp is None else pose_file(device.tcp),
        gripper=device.gripper,
        source=f"live, poses at {device.poses}",
    )
