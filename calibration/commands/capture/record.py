"""`robot-runtime capture record`: two cameras with pose streams, live, into a raw capture."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from calibration.commands.capture.anchor_clip import AnchorClip, board_of
from calibration.commands.capture.marking import Keys, Marking
from calibration.commands.capture.recorder import Recorder
from calibration.commands.capture.rig import Rig, RigDevice, camera_model, load_rig, open_camera, pose_streams
from calibration.commands.capture.streams import Streams, wait_for
from robot_runtime.cli.background_console import BackgroundConsole
from robot_runtime.cli.options import InputFile, Maybe, OutputFolder, Seconds, need
from robot_runtime.cli.progress import advance, counted
from robot_runtime.cli.signals import own_handler
from robot_runtime.errors import InvalidValueError


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
        from calibration.capture.writer import next_part
        from calibration.commands.capture.check import show

        rig = load_rig(self.rig)
        next_part(self.output)
        with ExitStack() as stack:
            aside = stack.enter_context(BackgroundConsole())
            ended = threading.Event()
            stack.enter_context(own_handler(lambda number: ended.set()))
            path = self._recorded(rig, aside, ended, stack)
        with counted(stays=False) as progress:
            bar = progress.add_task("look for the board", total=None)
            report = check_capture(
                RawCapture.open(path), with_checksums=False, progress=advance(progress, bar)
            )
        show(path, report)
        return 0 if report.usable else 1

    def _recorded(self, rig: Rig, aside: BackgroundConsole, ended: threading.Event, stack: ExitStack) -> Path:
        """Into which folder. InvalidValueError: it was ended before anything came."""
        from calibration.capture.writer import CaptureWriter

        cameras = {role: open_camera(each.camera) for role, each in rig.devices.items()}
        models = {role: camera_model(each, cameras[role].size) for role, each in rig.devices.items()}
        anchor = AnchorClip(rig, models, aside.say)
        for role, device in rig.devices.items():
            if role != "chest" and device.tcp is None:
                aside.say(f"{role}: the rig's file names no tcp, which labels need (`calibrate tcp`)")
        keys = stack.enter_context(Keys())

        def is_over() -> bool:
            if b"q" in keys.read():
                ended.set()
            return ended.is_set()

        def alarm(line: str) -> None:
            aside.say(line)
            if not self.no_beep:
                aside.write("\a")

        streams = stack.enter_context(Streams(cameras, pose_streams(rig), say=aside.say, alarm=alarm))
        if not wait_for(streams, aside.say, is_over=is_over):
            raise InvalidValueError(f"nothing was recorded: {'; '.join(streams.waits_for) or 'it was ended'}")
        rates = {role: _rate(role, each, streams, aside.say) for role, each in rig.devices.items()}
        sizes = {role: camera.size for role, camera in cameras.items()}
        writer = stack.enter_context(CaptureWriter(self.output, _setup(rig, sizes, rates)))
        recorder = Recorder(streams, writer, on_arrival=anchor.tell)
        Marking(recorder, anchor, aside, keys, ended).run(self.seconds)
        return writer.path


def _rate(role: str, device: RigDevice, streams: Streams, say: Callable[[str], None]) -> float:
    """Pictures a second: as the file says, unless they come at another rate."""
    measured, said = streams.pictures_a_second(role), device.fps or device.camera.get("fps")
    if said is None or abs(measured - said) > 0.2 * said:
        if said is not None:
            say(f"{role}: its camera gives {measured:g} pictures a second, the rig's file says {said:g}")
        return measured
    return float(said)


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
        more={**more, "clock": "shared"},  # all times are this machine's
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
