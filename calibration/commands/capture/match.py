"""`robot-runtime capture match`: compares a robot's cameras with the captured ones, and maps their images."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pinocchio as pin
from rich.table import Table
from tyro.conf import Positional, arg

from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import InputFile, InputFolder, Maybe, OutputFolder, Pixels, Within, need
from robot_runtime.errors import InvalidValueError, RobotRuntimeError, nearest, placed

if TYPE_CHECKING:
    from calibration.camera_match import CameraMatch, MountedCamera
    from calibration.captured_cameras import CapturedCamera

Source = Annotated[Positional[InputFolder], arg(metavar="DATASET", help_behavior_hint="(required)")]
Robot = Annotated[Positional[InputFile], arg(metavar="ROBOT", help_behavior_hint="(required)")]


@dataclass(frozen=True, kw_only=True)
class CaptureMatch:
    """Report how far a robot's cameras are from the captured ones, and map their images.

    Compares lens, mounting pose and brightness, camera by camera. With --output it writes a small file for
    each camera, which robot.toml names as `match`: images are then warped to what the captured camera would
    have seen, exactly so at the working distance. No device is opened. Exit code 1: a camera is too far off.

    Example: robot-runtime capture match datasets/fetch robot.toml --output maps
    """

    dataset: Source
    """Dataset of `capture label`, or a capture."""
    robot: Robot
    """robot.toml, whose cameras have the same names and name their calibrations."""
    output: Maybe[OutputFolder] = None
    """Folder for a file CAMERA.match.json for each camera; only a report if not given."""
    images: Maybe[str] = None
    """Source of images of the robot's cameras, to compare the brightness: a folder with CAMERA.png or a
    folder CAMERA, a dataset, or the log of a run (.mcap)."""
    size: Maybe[tuple[Pixels, Pixels]] = None
    """Of a capture: --size of `capture label`, height and width [pixels]."""
    wrist_distance_m: Maybe[Annotated[float, Within(0.02, 20.0)]] = None
    """Working distance of wrist cameras, along the optical axis [m]; that of the TCP if not given."""
    chest_distance_m: Maybe[Annotated[float, Within(0.02, 20.0)]] = None
    """Likewise of the chest camera; that of the hand in the dataset if not given, 0.6 m for a capture."""

    def main(self) -> int:
        need("scipy", "cv2", "av", extras=("calibration",))
        if (self.dataset / "meta").is_dir():
            need("pyarrow", extras=("calibration", "lerobot"))
        from calibration.captured_cameras import captured_cameras
        from robot_runtime.robot_file import RobotFile

        if self.images is not None and not Path(self.images).exists():
            raise InvalidValueError(f"--images names images of the robot, and there is no {self.images}")
        file = RobotFile.load(self.robot)
        cameras, calibrations = file.table.get("cameras", {}), file.calibrations()
        captured = captured_cameras(self.dataset, self.size)
        found = {name: self._match(name, camera, cameras, calibrations) for name, camera in captured.items()}
        code = 0 if all(match.verdict.ok for match, _ in found.values()) else 1
        for name, (match, brightness) in found.items():
            show(match, captured[name], brightness)
        if self.output is not None:
            code = max(code, self._write([match for match, _ in found.values()], self.output))
        return code

    def _match(
        self,
        name: str,
        captured: "CapturedCamera",
        cameras: Mapping[str, Any],
        calibrations: Mapping[str, Any],
    ) -> "tuple[CameraMatch, tuple[float, float] | None]":
        """Compare one camera; with the mean grey levels of the captured images and the robot's."""
        from calibration.camera_match import CHEST, match_cameras, mounted

        if name not in cameras:
            raise InvalidValueError(
                f"{self.robot} has no camera {name}, which {self.dataset} was captured with; it has "
                f"{', '.join(cameras) or 'none'}{nearest(name, cameras)}: add [cameras.{name}], with its "
                "calibration"
            )
        if name not in calibrations:
            raise InvalidValueError(f"{self.robot}: cameras.{name} needs its calibration: calibration = FILE")
        try:
            robot = mounted(calibrations[name], captured.mount)
        except RobotRuntimeError as error:
            raise placed(error, f"{self.robot}: cameras.{name}.calibration") from None
        camera, reasons = captured.mounted(robot.X_MC)
        wanted_m = self.chest_distance_m if captured.mount == CHEST else self.wrist_distance_m
        distance_m = captured.distance_m if wanted_m is None else wanted_m
        given: dict[str, Any] = {"distance_m": distance_m, "source": str(self.dataset), "reasons": reasons}
        match = match_cameras(name, captured.mount, camera, robot, **given)
        if self.images is None:
            return match, None
        from calibration.camera_brightness import mean_brightness, mean_brightness_warped

        levels = mean_brightness(self.dataset, name), mean_brightness_warped(Path(self.images), match)
        return match_cameras(name, captured.mount, camera, robot, brightness=levels, **given), levels

    def _write(self, matches: "list[CameraMatch]", folder: Path) -> int:
        from calibration.commands.calibrate.result import write

        folder.mkdir(parents=True, exist_ok=True)
        codes = []
        for match in matches:
            path = folder / f"{match.name}.match.json"
            codes.append(write(path, match))
            if codes[-1] == 0:
                print(f'next: in {self.robot}, [cameras.{match.name}] match = "{_beside(path, self.robot)}"')
        return max(codes)


def _beside(path: Path, robot: Path) -> str:
    """The file's name relative to the robot's file, or in full."""
    try:
        return path.resolve().relative_to(robot.resolve().parent).as_posix()
    except ValueError:
        return str(path.resolve())


def show(match: "CameraMatch", captured: "CapturedCamera", brightness: tuple[float, float] | None) -> None:
    """Print a camera's table and verdict."""
    table = Table("camera " + match.name, "captured", "robot", "difference", box=None, pad_edge=False)
    for row in rows_of(match, captured, brightness):
        table.add_row(*row)
    console = plain_console(is_wide=True)
    console.print(table)
    console.print(f"camera {match.name}: {match.verdict}\n", soft_wrap=True)


def rows_of(
    match: "CameraMatch", captured: "CapturedCamera", brightness: tuple[float, float] | None
) -> list[tuple[str, ...]]:
    """Return the printed rows: what, of the captured camera, of the robot's, the difference."""
    from calibration.camera_match import field_of_view_deg, off_middle

    one, two, found = match.captured, match.robot, match.figures
    views, middles = ([each(m.lens) for m in (one, two)] for each in (field_of_view_deg, off_middle))
    turn, shift = found["mount_deg"], found["mount_mm"]
    rows: list[tuple[str, ...]] = [
        ("image, width x height [px]", *("{1} x {0}".format(*m.lens.size) for m in (one, two)), ""),
        ("lens", one.lens.MODEL, two.lens.MODEL, f"{found.get('distortion_px', float('nan')):.1f} px"),
        ("field of view [degrees]", *map(_pair, views), _pair(np.subtract(views[1], views[0]), sign="+")),
        ("principal point off the middle [%]", *(_pair(100 * np.array(m), ".1f") for m in middles),
         _pair(100 * np.subtract(middles[1], middles[0]), ".1f", sign="+")),
        (f"position in the {match.mount} [mm]", _position(one), _position(two), f"{shift:.0f}"),
        (f"roll, pitch, yaw in the {match.mount} [degrees]", _turn(one), _turn(two), f"{turn:.1f}"),
        ("working distance [m]", f"{match.distance_m:.2f}", "", ""),
        ("not seen by the robot [%]", "", "", f"{100 * found['unseen_share']:.1f}"),
        ("robot's pixels for a captured one", "", "", f"{found.get('detail', float('nan')):.1f}"),
        ("displaced at half, at twice the working distance [px]", "", "",
         ", ".join(f"{found.get(f'parallax_{each}_px', float('nan')):.1f}" for each in ("near", "far"))),
    ]  # fmt: skip
    if captured.sway is not None:
        sway = f"{1e3 * captured.sway[0]:.0f} mm, {np.rad2deg(captured.sway[1]):.0f} degrees"
        rows.append(("the person leans and sways by", sway, "", ""))
    if brightness is not None:
        levels = (f"{level:.0f}" for level in brightness)
        rows.append(("brightness, 0 to 255", *levels, f"{found['brightness_ratio']:.2f} times"))
    return rows


def _pair(values: Any, form: str = ".0f", *, sign: str = "") -> str:
    return " x ".join(f"{value:{sign}{form}}" for value in values)


def _position(camera: "MountedCamera") -> str:
    return ", ".join(f"{1e3 * value:.0f}" for value in camera.X_MC.translation)


def _turn(camera: "MountedCamera") -> str:
    return ", ".join(f"{value:.0f}" for value in np.rad2deg(pin.rpy.matrixToRpy(camera.X_MC.rotation)))
