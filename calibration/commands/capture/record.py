"""`robot-runtime capture record`: records cameras with pose streams live into a raw capture."""

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
