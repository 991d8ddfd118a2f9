"""A robot described by one file: `RobotFile` reads TOML into the values that Python users build.

    name = "fr3"

    [parts.arm]                       a name of your choice: arm, left_arm, gripper, base, lift, ...
    driver = "franka-arm"             shipped, or my_robot.py:MyArm, or package.module:MyArm
    host = "172.16.0.2"               and other arguments of the driver
    latency_s = 0.1                   command to motion: rows are sent that much earlier

    [parts.arm.limits]
    of = "fr3"                        a data sheet
    share = 0.2                       of its speeds and accelerations

The whole file is checked before any driver is made, and drivers are made before anything moves. Unknown keys
and names are refused with the nearest known ones.
"""

import contextlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from robot_runtime.core.camera_watch import CameraLimits
from robot_runtime.core.plan.limits import Limits, PartLimits
from robot_runtime.core.plan.predict import HandPose
from robot_runtime.core.state_watch import StateLimits
from robot_runtime.core.values.action import NS_PER_S, ActionField
from robot_runtime.errors import InvalidValueError, RobotRuntimeError, placed
from robot_runtime.load_object import load_made
from robot_runtime.page.robot_model import FR3, check_model
from robot_runtime.providers import provider
from robot_runtime.robot.config import MAX_HZ
from robot_runtime.robot.robot import Robot
from robot_runtime.robot_file.check import Table, action_field, check_home, check_keys, check_sections
from robot_runtime.robot_file.code import Code
from robot_runtime.robot_file.kinds import misfit
from robot_runtime.robot_file.kinematics import hand_pose_of
from robot_runtime.robot_file.limits import limits_of
from robot_runtime.robot_file.make import Failures, Maker
from robot_runtime.robot_file.names import DATA_SHEETS, code_of, data_sheet, shipped_for
from robot_runtime.robot_file.teleop import made_teleop
from robot_runtime.robot_file.toml_error import the_line
from robot_runtime.user_code import UserCodeError

__all__ = ["OpenRobot", "RobotFile", "open_robot"]

ROBOTS = "robot_runtime.robots"
"""The group of entry points that name robots."""


@dataclass(frozen=True, kw_only=True, eq=False)
class OpenRobot:
    """A robot with its drivers open, and the other run options of its file."""

    robot: Robot
    options: Mapping[str, Any]
    """Options of `robot_runtime.Session`: name, control_hz, limits of measurements, switches."""
    home: Mapping[str, tuple[float, ...]]
    """Part -> its home position [rad]."""
    calibrations: Mapping[str, Any] = field(default_factory=dict)
    """Camera -> the content of its calibration file: extrinsics or intrinsics."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RobotFile:
    """A robot as a file describes it, before anything is connected."""

    path: Path
    table: Table
    """The table as read, with the settings applied."""

    @classmethod
    def load(cls, path: str | Path, settings: Sequence[str] = ()) -> "RobotFile":
        """
        settings: `parts.arm.host=172.16.0.3` each: they replace values of the file.
        InvalidValueError: there is no such file, it is no TOML, or a key or name in it is unknown.
        """
        path = Path(path)
        try:
            text = path.read_text()
        except OSError as error:
            raise InvalidValueError(
                f"a robot is described in {path}, which cannot be read: {error.strerror}"
            ) from None
        except UnicodeDecodeError as error:
            raise InvalidValueError(f"{path} is no TOML: {error}") from None
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidValueError(f"{path} is no TOML: {error}{the_line(text, error)}") from None
        except (ValueError, RecursionError) as error:  # 5000 digits, 3000 brackets
            raise InvalidValueError(f"{path} is no TOML: {error}") from None
        for setting in settings:
            _set(table, setting)
        with _errors_name(path):
            file = cls(path=path, table=provider("calibration").with_delays(table, path.parent))
            check_sections(file.table)
            file._options()
            file.calibrations()
        return file

    @contextlib.contextmanager
    def open(self, failed: Failures | None = None) -> Iterator[OpenRobot]:
        """Make its drivers without moving anything, and close them at the end.

        failed: failures are kept there by place, as `parts.arm`, and left out of the robot; None: the
            first failure is raised.
        InvalidValueError, DriverError: errors of the drivers, and limits beyond those that a driver declares
        for its hardware.
        """
        with contextlib.ExitStack() as opened:
            with _errors_name(self.path):
                made = self._opened(Maker(opened, self.path.parent, failed))
            yield made

    def code(self) -> dict[str, Code]:
        """Return place -> the code that opening the file runs there; imports none of it.

        Names that a robot file may not use are left out: `open` raises for them.
        """
        out: dict[str, Code] = {}
        for section in ("devices", "parts", "sensors", "cameras", "operator"):
            for name, table in self._tables(section):
                place, text, limits = f"{section}.{name}", table["driver"], table.get("limits", {})
                with contextlib.suppress(InvalidValueError):
                    if not text.startswith("@"):
                        out[place] = code_of(text, self.path.parent, shipped_for(name))
                with contextlib.suppress(InvalidValueError):
                    if section == "parts" and "of" in limits:
                        sheet = Code.of(str(limits["of"]), self.path.parent, DATA_SHEETS)
                        out[f"{place}.limits"] = sheet
        return out

    def calibrations(self) -> dict[str, Any]:
        """Return camera -> the content of its calibration file. InvalidValueError: it cannot be used."""
        return {
            name: provider("calibration").calibration_of(
                f"cameras.{name}.calibration", table["calibration"], self.path.parent
            )
            for name, table in self._tables("cameras")
            if "calibration" in table
        }

    def _opened(self, maker: Maker) -> OpenRobot:
        matches = self._matches(maker)
        self._made("devices", maker, maker.devices)  # a device may name an earlier one
        found = {kind: self._made(kind, maker) for kind in ("parts", "sensors", "cameras")}
        switches = self._operator(maker)
        drivers = found["parts"]
        parts = {name: table for name, table in self._tables("parts") if name in drivers}
        limits: dict[str, PartLimits] = {}
        actions: list[ActionField] = []
        home: dict[str, tuple[float, ...]] = {}
        for name, table in parts.items():
            if "limits" in table:
                with maker.attempt(where := f"parts.{name}.limits"):
                    sheets = partial(data_sheet, folder=self.path.parent)
                    limits[name] = limits_of(where, table["limits"], drivers[name], name, sheets)
            with maker.attempt(f"parts.{name}"):
                if (action := action_field(name, table, drivers[name])) is not None:
                    actions.append(action)
            if "home" in table:
                with maker.attempt(f"parts.{name}.home"):
                    check_home({name: (q := tuple(map(float, table["home"])))}, drivers, limits)
                    home[name] = q
        hand_poses: dict[str, HandPose] = {}
        for name, table in parts.items():
            if "kinematics" in table:
                with maker.attempt(where := f"parts.{name}.kinematics"):
                    folder = self.path.parent
                    hand_poses[name] = hand_pose_of(where, table["kinematics"], drivers[name], folder)
        late: dict[str, Any] = {
            name: float(table["latency_s"]) for name, table in parts.items() if "latency_s" in table
        }
        robot = Robot(
            drivers,
            sensors=found["sensors"],
            cameras=self._matched(found["cameras"], matches, maker),
            limits=Limits(limits) if limits else None,
            actions=tuple(actions),
            hand_pose=hand_poses or None,
            latency_s=late,
        )
        options = self._options() | switches
        return OpenRobot(robot=robot, options=options, home=home, calibrations=self.calibrations())

    def _operator(self, maker: Maker) -> dict[str, Any]:
        """Make the switches and the teleoperator."""
        out: dict[str, Any] = {}
        for name, table in self._tables("operator"):
            with maker.attempt(where := f"operator.{name}"):
                out |= (
                    made_teleop(maker, where, table) if name == "teleop" else {name: maker.make(where, table)}
                )
        return out

    def _made(self, section: str, maker: Maker, into: dict[str, Any] | None = None) -> dict[str, Any]:
        out = {} if into is None else into
        for name, table in self._tables(section):
            with maker.attempt(where := f"{section}.{name}"):
                out[name] = maker.make(where, table)
        return out

    def _matches(self, maker: Maker) -> dict[str, Any]:
        """Camera -> the content of its match file."""
        calibrations, out = self.calibrations(), dict[str, Any]()
        for name, table in self._tables("cameras"):
            if "match" in table:
                with maker.attempt(f"cameras.{name}"):
                    out[name] = provider("calibration").match_of(
                        f"cameras.{name}.match",
                        table["match"],
                        self.path.parent,
                        camera=name,
                        calibration=calibrations[name],
                    )
        return out

    def _matched(self, cameras: dict[str, Any], matches: Mapping[str, Any], maker: Maker) -> dict[str, Any]:
        """Warp the images of cameras with a match; a camera without its declared match is left out."""
        out = dict[str, Any]()
        for name, camera in cameras.items():
            if "match" not in self.table["cameras"][name]:
                out[name] = camera
            elif name in matches:
                with maker.attempt(where := f"cameras.{name}"):
                    out[name] = provider("calibration").matched(f"{where}.match", camera, matches[name])
        return out

    def _tables(self, section: str) -> list[tuple[str, Table]]:
        return list(self.table.get(section, {}).items())

    def _options(self) -> dict[str, Any]:
        out: dict[str, Any] = {"name": self.table.get("name", self.path.stem)}
        if not isinstance(out["name"], str):
            raise InvalidValueError(f"name takes a text, got {out['name']!r:.60}")
        if (model := self._model()) is not None:
            out["model"] = model
        if "control_hz" in self.table:
            out["control_hz"] = _number("control_hz", self.table["control_hz"], most=MAX_HZ)
        for section, kind in (("state_limits", StateLimits), ("camera_limits", CameraLimits)):
            if section in self.table:
                out[section] = _watch_limits(section, kind, self.table[section])
        return out

    def _model(self) -> str | None:
        """Return the robot's geometry: a file beside this one, or a name; a single Franka is known."""
        text = self.table.get("model")
        if text is None:
            arms = [table for _, table in self._tables("parts") if table.get("driver") == "franka-arm"]
            return FR3 if len(arms) == 1 else None
        if not isinstance(text, str):
            raise InvalidValueError(f"model takes a text, a file's name or {FR3!r}, got {text!r:.60}")
        model = text if text == FR3 else str(self.path.parent / text)
        check_model(model)
        return model


@contextlib.contextmanager
def open_robot(
    text: str, settings: Sequence[str] = (), *, failed: Failures | None = None
) -> Iterator[OpenRobot]:
    """Open the robot that a command line names: a file, or an object of the user's.

    settings: replace values of the file. failed: as in `RobotFile.open`.
    InvalidValueError, DriverError, UserCodeError: as in `RobotFile` and `load_made`.
    """
    if text.endswith(".toml"):
        with RobotFile.load(text, settings).open(failed) as opened:
            yield opened
        return
    if settings:
        raise InvalidValueError(f"--set is for a robot that a .toml file describes, got {text}")
    robot = load_made(text, group=ROBOTS, what="robot", is_one=lambda found: isinstance(found, Robot))
    assert isinstance(robot, Robot)
    yield OpenRobot(robot=robot, options={}, home={})


def _watch_limits(section: str, kind: type, table: Table) -> Any:
    """Make `StateLimits` or `CameraLimits`, whose times a file gives in seconds."""
    names = {
        each.name.removesuffix("_ns") + "_s" if each.name.endswith("_ns") else each.name: each.name
        for each in fields(kind)
    }
    if not isinstance(table, Mapping):
        raise InvalidValueError(f"{section} is a table, [{section}], got {table!r:.60}")
    check_keys(section, table, tuple(names))
    values = {}
    for key, value in table.items():
        is_time = names[key].endswith("_ns")
        if not is_time and (wanted := misfit(kind, names[key], value)):
            raise InvalidValueError(f"{section}.{key} takes {wanted}, got {value!r:.60}")
        values[names[key]] = round(_number(f"{section}.{key}", value) * NS_PER_S) if is_time else value
    try:
        return kind(**values)
    except InvalidValueError as error:
        raise InvalidValueError(f"{section}: {error}") from None


def _number(where: str, value: Any, *, most: float = 3600.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= most:
        raise InvalidValueError(f"{where} takes a number above 0, up to {most:g}, got {value!r:.60}")
    return float(value)


def _set(table: dict[str, Any], setting: str) -> None:
    """Replace one value: `parts.arm.host=172.16.0.3`, read as TOML if it is, else as a text."""
    key, equals, text = setting.partition("=")
    path = key.strip().split(".")
    if not equals or not all(path):
        raise InvalidValueError(f"a setting is written as parts.arm.host=VALUE, got {setting!r}")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"{setting[:60]!r}: {error}") from None
    at: Any = table
    for name in path[:-1]:
        at = at.setdefault(name, {})
        if not isinstance(at, dict):
            raise InvalidValueError(f"{setting!r}: {name} is no table")
    at[path[-1]] = value


@contextlib.contextmanager
def _errors_name(path: Path) -> Iterator[None]:
    """Add the file's name to errors."""
    try:
        yield
    except UserCodeError:
        raise
    except RobotRuntimeError as error:
        raise placed(error, path) from error
