"""`robot-runtime capture record`: two cameras with pose streams, live, into a raw capture."""

import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from robot_runtime.cli.aside import Aside
from robot_runtime.cli.capture.anchor_clip import AnchorClip
from robot_runtime.cli.capture.recorder import Recorder
from robot_runtime.cli.capture.rig import Rig, RigDevice, camera_model, load_rig, open_camera, pose_streams
from robot_runtime.cli.options import InputFile, Maybe, OutputFolder, Seconds, need
from robot_runtime.cli.signals import own_handler
from robot_runtime.errors import DriverError

HELP = "n begin   y end   x discard   a anchor   s sync   l lean (each begins and ends by turns)   q finish"
_CLIPS = {b"a": "anchor", b"s": "sync", b"l": "lean"}
_STATUS_S = 0.25


@dataclass(frozen=True, kw_only=True)
class CaptureRecord:
    """Record demonstrations without a robot, live: cameras of this machine, poses as devices stream them.

    Lost tracking is said and rung at once, and each demonstration is judged right after it. Keys of the
    terminal mark them, and the gripper closed twice within a second begins and ends one. A folder that holds
    a capture already gets a new part. Exit code 1: nothing of it can be used.

    Example: robot-runtime capture record examples/capture_rig.toml --output captures/kitchen
    """

    rig: Annotated[Positional[InputFile], arg(metavar="RIG.toml")]
    """The devices: docs/capture.md has an example."""
    output: OutputFolder
    """The capture's folder."""
    seconds: Maybe[Seconds] = None
    """End after this time; until key q or Ctrl-C, if not given."""
    no_beep: bool = False
    """Do not ring the terminal's bell when tracking is lost."""

    def main(self) -> int:
        need("scipy", "av", "cv2", extras=("calibration",))
        from calibration.capture.check import check_capture
        from calibration.capture.raw import RawCapture
        from robot_runtime.cli.capture.check import show

        rig = load_rig(self.rig)
        with ExitStack() as stack:
            aside = stack.enter_context(Aside())
            ended = threading.Event()
            stack.enter_context(own_handler(lambda number: ended.set()))
            cameras = {role: open_camera(each.camera) for role, each in rig.devices.items()}
            recorder = stack.enter_context(self._recorder(rig, cameras, aside))
            keys = stack.enter_context(_Keys())
            models = {role: camera_model(each, cameras[role].size) for role, each in rig.devices.items()}
            anchor = AnchorClip(rig, models, aside.say)
            recorder.on_arrival = anchor.tell
            _Marking(recorder, anchor, aside, keys, ended).run(self.seconds)
        path = recorder.writer.path
        report = check_capture(RawCapture.open(path), with_checksums=False)
        show(path, report)
        return 0 if report.usable else 1

    def _recorder(self, rig: Rig, cameras: dict[str, Any], aside: Aside) -> Recorder:
        def alarm(line: str) -> None:
            aside.say(line)
            if not self.no_beep:
                aside.write("\a")

        setup = _setup(rig, {role: camera.size for role, camera in cameras.items()})
        return Recorder(self.output, setup, cameras, pose_streams(rig), say=aside.say, alarm=alarm)


def _setup(rig: Rig, sizes: dict[str, tuple[int, int]]) -> Any:
    from calibration.board import Board
    from calibration.capture.values import Setup
    from calibration.store import load

    more = dict(rig.more)
    task, person, board = more.pop("task", ""), more.pop("person", ""), more.pop("board", None)
    return Setup(
        devices={role: _info(each, sizes[role]) for role, each in rig.devices.items()},
        task=str(task),
        person=str(person),
        board=None if board is None else load(Path(board), Board).to_dict(),
        more={**more, "clock": "shared"},  # all times are this machine's
    )


def _info(device: RigDevice, size: tuple[int, int]) -> Any:
    from calibration.capture.sources.spec import pose_file
    from calibration.capture.values import DeviceInfo

    camera = camera_model(device, size)
    return DeviceInfo(
        kind=str(device.camera["driver"]),
        size=size,
        fps=device.fps,
        camera=None if camera is None else camera.to_dict(),
        X_device_camera=None if device.extrinsic is None else pose_file(device.extrinsic),
        X_HE=None if device.tcp is None else pose_file(device.tcp),
        gripper=device.gripper,
        source=f"live, poses at {device.poses}",
    )


class _Keys:
    """The terminal's, where there is one."""

    def __init__(self) -> None:
        from drivers.terminal_key import Terminal

        self._terminal = Terminal("a key that marks demonstrations") if sys.stdin.isatty() else None

    def __enter__(self) -> "_Keys":
        if self._terminal is not None:
            self._terminal.open()
        return self

    def __exit__(self, *error: object) -> None:
        if self._terminal is not None:
            self._terminal.close()

    def read(self) -> bytes:
        """What was struck; standard input's end and a terminal that is gone strike nothing."""
        try:
            return b"" if self._terminal is None else self._terminal.read()
        except DriverError:
            self._terminal = None
            return b""


class _Marking:
    """Marks what keys and gestures say, and has each demonstration judged."""

    def __init__(
        self, recorder: Recorder, anchor: AnchorClip, aside: Aside, keys: _Keys, ended: threading.Event
    ) -> None:
        self._recorder, self._anchor = recorder, anchor
        self._aside, self._keys, self._ended = aside, keys, ended
        self._begun_ns: int | None = None
        self._clips: set[str] = set()
        self.num_kept = 0

    def run(self, seconds: float | None) -> None:
        """Until q, a signal, or so many seconds after all streams are heard."""
        recorder = self._recorder
        self._aside.say("waiting for the cameras and for every pose stream")
        while not recorder.streams.is_ready and not self._ended.is_set():
            recorder.step()
        self._aside.say(f"recording into {recorder.writer.path}\n{HELP}")
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
                doing = "between demonstrations" if self._begun_ns is None else "demonstrating"
                self._aside.status(f"{doing}   {self.num_kept} kept   {' '.join(sorted(self._clips))}")
        if self._begun_ns is not None:
            self._end("end", recorder.streams.clock.now_ns(), "the recording's end")

    def _struck(self, key: bytes) -> None:
        now_ns = self._recorder.streams.clock.now_ns()
        if key == b"q":
            self._ended.set()
        elif key in _CLIPS:
            clip = _CLIPS[key]
            edge = "end" if clip in self._clips else "begin"
            self._clips ^= {clip}
            self._recorder.writer.mark(now_ns, f"{clip}_{edge}", f"key {key.decode()}")
            self._aside.say(f"{clip}: {edge}")
            if clip == "anchor":
                self._anchor.begin() if edge == "begin" else self._anchor.end()
        elif key == b"n" and self._begun_ns is None:
            self._toggle(now_ns, "key n")
        elif key in (b"y", b"x"):
            what = "end" if key == b"y" else "discard"
            if self._begun_ns is not None or what == "discard":
                self._end(what, now_ns, f"key {key.decode()}")

    def _toggle(self, t_ns: int, by: str) -> None:
        if self._begun_ns is not None:
            self._end("end", t_ns, by)
            return
        self._begun_ns = t_ns
        self._recorder.writer.mark(t_ns, "begin", by)
        bad = ": TRACKING IS LOST, it will not be usable" if self._recorder.is_bad else ""
        self._aside.say(f"demonstration {self.num_kept}: begun{bad}")

    def _end(self, what: str, t_ns: int, by: str) -> None:
        begun_ns, self._begun_ns = self._begun_ns, None
        self._recorder.writer.mark(t_ns, what, by)
        if what == "discard" or begun_ns is None:
            self.num_kept -= begun_ns is None and self.num_kept > 0
            self._aside.say("discarded")
            return
        number, self.num_kept = self.num_kept, self.num_kept + 1
        threading.Thread(target=self._judge, args=(number, begun_ns, t_ns), daemon=True).start()

    def _judge(self, number: int, begun_ns: int, end_ns: int) -> None:
        """From what is on disk, in a thread of its own: recording goes on."""
        from calibration.capture.check import check_demonstration
        from calibration.capture.marks import Demonstration
        from calibration.capture.raw import RawCapture

        demonstration = Demonstration(number=number, begin_ns=begun_ns, end_ns=end_ns)
        verdict = check_demonstration(RawCapture.open(self._recorder.writer.path), demonstration)
        self._aside.say(f"demonstration {number}, {(end_ns - begun_ns) / 1e9:.1f} s: {verdict}")
