"""The raw zone of a capture on disk: `RawCapture` reads it, `CaptureWriter` writes it.

CAPTURE/   capture.json    version, task, person, when, board, devices by role (chest, hand, ...)
           chest/ hand/    video.mp4 frames.csv poses.csv imu.csv gripper.csv tags.csv, where present
           marks.csv       demonstrations and calibration clips, chest's clock
           glimpses.csv corners.csv      detections, if a detector ran already
           calibration/    copies of the cameras' and the board's files
           source/         a device's own files, unchanged
           checksums.json  of every file, written when the capture is closed
           part-2/ ...     recorded later, each a capture in itself: other worlds, other clocks
           derived/        computed from it; can be deleted

`spans_of` pairs the marks of beginnings with those of ends:

    marks     begin     end   begin    discard   begin  begin      end
    spans     [ demo 0  )     [ discarded )      ?      [ demo 1   )      ?: begun twice, reported
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin

from calibration.capture import tables
from calibration.capture.values import (
    BEGIN,
    CLIPS,
    DISCARD,
    END,
    TRACKING,
    BoardCorners,
    DeviceInfo,
    Frames,
    Glimpses,
    Imu,
    Mark,
    Setup,
    Tags,
    Widths,
)
from calibration.capture.video import count_pictures, pictures
from calibration.capture.writer import (
    CAPTURE_FILE,
    CHECKSUMS_FILE,
    DERIVED,
    VERSION,
    VIDEO_FILE,
    CaptureWriter,
    is_raw,
    sha256,
)
from calibration.store import pose_from_json
from calibration.trajectory import Trajectory
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """One demonstration's span [begin, end), chest's clock."""

    number: int
    """Number among the demonstrations that were kept, from 0."""
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Spans that the marks of a capture define."""

    demonstrations: tuple[Demonstration, ...]
    discarded: tuple[tuple[int, int], ...]
    clips: Mapping[str, tuple[tuple[int, int], ...]]
    """`anchor`, `sync`, `lean` -> spans (begin_ns, end_ns), chest's clock."""
    unpaired: tuple[Mark, ...]
    """Marks of spans that were begun and never ended, or ended and never begun."""


def spans_of(marks: Sequence[Mark]) -> Spans:
    """Pair marks in order of time; a span that is begun twice begins the second time."""
    demonstrations: list[Demonstration] = []
    discarded, unpaired = [], []
    clips: dict[str, list[tuple[int, int]]] = {clip: [] for clip in CLIPS}
    open_at: dict[str, Mark] = {}
    for mark in marks:
        name, is_begin = _name(mark.what)
        if is_begin:
            if name in open_at:
                unpaired.append(open_at[name])
            open_at[name] = mark
            continue
        begun = open_at.pop(name, None)
        if begun is None or begun.t_ns >= mark.t_ns:
            if mark.what == DISCARD and begun is None and demonstrations:  # the one just ended
                last = demonstrations.pop()
                discarded.append((last.begin_ns, last.end_ns))
                continue
            unpaired += [mark] if begun is None else [begun, mark]
        elif mark.what == DISCARD:
            discarded.append((begun.t_ns, mark.t_ns))
        elif name == "demonstration":
            number = len(demonstrations)
            demonstrations.append(Demonstration(number=number, begin_ns=begun.t_ns, end_ns=mark.t_ns))
        else:
            clips[name].append((begun.t_ns, mark.t_ns))
    return Spans(
        demonstrations=tuple(demonstrations),
        discarded=tuple(discarded),
        clips={name: tuple(spans) for name, spans in clips.items()},
        unpaired=(*unpaired, *open_at.values()),
    )


def _name(what: str) -> tuple[str, bool]:
    if what in (BEGIN, END, DISCARD):
        return "demonstration", what == BEGIN
    clip, _, edge = what.partition("_")
    return clip, edge == BEGIN


__all__ = ["CaptureWriter", "Device", "RawCapture", "parts_of"]


class Device:
    """The data of one device of a capture; each file is read lazily, once.

    InvalidValueError names file, line, expected and actual value.
    """

    def __init__(self, role: str, folder: Path, info: DeviceInfo, *, is_closed: bool) -> None:
        self.role, self.folder, self.info, self._is_closed = role, folder, info, is_closed
        self.cut: list[str] = []
        """Files among those read so far that end in the middle of a row or a fragment."""

    @cached_property
    def frames(self) -> Frames:
        """Capture times of its images; for a video that was cut, of the remaining ones. May be empty."""
        table = self._read("frames.csv", tables.FRAMES)
        if table is None:
            none = np.zeros(0, dtype=np.int64)
            return Frames(index=none, t_ns=none, exposure_ns=none)
        index, t_ns, exposure_ns = (table.columns[name] for name in ("index", "t_ns", "exposure_ns"))
        path = self.folder / "frames.csv"
        if (wrong := np.flatnonzero(index != np.arange(len(index)))).size:
            i = int(wrong[0])
            raise InvalidValueError(f"{path}, line {i + 2}: expected index {i}, got {index[i]}")
        tables.rising(path, t_ns)
        if not self._is_closed and self.video is not None and self.num_pictures < len(index):
            self.cut.append(VIDEO_FILE)
            index, t_ns, exposure_ns = (each[: self.num_pictures] for each in (index, t_ns, exposure_ns))
        return Frames(index=index, t_ns=t_ns, exposure_ns=exposure_ns)

    @cached_property
    def poses(self) -> Trajectory:
        """X_WC of its camera in its own world, z up. InvalidValueError: it has none."""
        table = self._read("poses.csv", tables.POSES)
        path = self.folder / "poses.csv"
        if table is None or not len(table.columns["t_ns"]):
            raise InvalidValueError(f"{path} has no poses: device {self.role} needs them")
        t_ns, words = table.columns["t_ns"], table.columns["tracking"]
        tables.rising(path, t_ns)
        if (wrong := np.flatnonzero(~np.isin(words, list(TRACKING)))).size:
            i = int(wrong[0])
            raise InvalidValueError(
                f"{path}, line {i + 2}, column tracking: expected ok, limited or lost, "
                f"got {str(words[i])!r:.60}"
            )
        tracking = np.array([TRACKING[word] for word in words.tolist()], dtype=np.uint8)
        try:
            return Trajectory(
                t_ns=t_ns,
                p=table.rows("px", "py", "pz"),
                q=table.rows("qw", "qx", "qy", "qz"),
                tracking=tracking,
            )
        except InvalidValueError as error:
            raise InvalidValueError(f"{path} (its first pose, 0, is line 2): {error}") from error

    @cached_property
    def imu(self) -> Imu | None:
        """Measurements of its inertial sensors; None: it has none."""
        table = self._read("imu.csv", tables.IMU)
        if table is None:
            return None
        tables.rising(self.folder / "imu.csv", table.columns["t_ns"])
        return Imu(t_ns=table.columns["t_ns"], w=table.rows("wx", "wy", "wz"), a=table.rows("ax", "ay", "az"))

    @cached_property
    def gripper(self) -> Widths | None:
        """Measured gripper widths; None: it does not measure them."""
        table = self._read("gripper.csv", tables.GRIPPER)
        if table is None:
            return None
        tables.rising(self.folder / "gripper.csv", table.columns["t_ns"])
        return Widths(t_ns=table.columns["t_ns"], width_m=table.columns["width_m"])

    @cached_property
    def tags(self) -> Tags | None:
        """Tags already detected in its images; None: no detector ran."""
        table = self._read("tags.csv", tables.TAGS)
        if table is None:
            return None
        tables.rising(self.folder / "tags.csv", table.columns["t_ns"], strictly=False)
        corners = table.rows(*(f"{axis}{k}" for k in range(4) for axis in "uv")).reshape(-1, 4, 2)
        return Tags(t_ns=table.columns["t_ns"], tag=table.columns["tag"], corners=corners)

    @property
    def video(self) -> Path | None:
        """Its video; None: it has none."""
        path = self.folder / VIDEO_FILE
        return path if path.is_file() else None

    @cached_property
    def num_pictures(self) -> int:
        """Number of images that its video really has; 0 without a video."""
        return 0 if self.video is None else count_pictures(self.video)

    def pictures(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int, np.ndarray]]:
        """(index, t_ns, (height, width, 3) uint8 RGB) of the frames [start, stop), indices and not times:
        `frames.span(start_ns, stop_ns)` gives the indices between two times.

        InvalidValueError: it has no video.
        """
        if self.video is None:
            raise InvalidValueError(
                f"device {self.role} has no video: {self.folder / VIDEO_FILE} is not there"
            )
        stop = len(self.frames) if stop is None else min(stop, len(self.frames))
        for index, rgb in pictures(self.video, start, stop):
            yield index, int(self.frames.t_ns[index]), rgb

    def _read(self, name: str, layout: tables.Layout) -> tables.Table | None:
        return _table(self.folder / name, layout, self.cut)


class RawCapture:
    """Reads one part of a capture; it never writes."""

    def __init__(self, path: Path, setup: Setup, when: str) -> None:
        self.path, self.setup, self.when = path, setup, when
        self.devices: Mapping[str, Device] = {
            role: Device(role, path / role, info, is_closed=self.is_closed)
            for role, info in setup.devices.items()
        }
        self.cut: list[str] = []
        """The capture's own tables, among those read so far, that end in the middle of a row."""

    @classmethod
    def open(cls, path: Path | str) -> "RawCapture":
        """Read its capture.json; InvalidValueError: it is not a capture, or of another version."""
        path = Path(path)
        file = path / CAPTURE_FILE
        if not file.is_file():
            raise InvalidValueError(f"{path} is no capture: there is no {CAPTURE_FILE} in it")
        declared = _json(file)
        if declared.get("version") != VERSION:
            raise InvalidValueError(f"{file}: expected version {VERSION}, got {declared.get('version')!r}")
        try:
            setup = Setup(
                devices={role: _device_info(path, each) for role, each in declared["devices"].items()},
                task=str(declared["task"]),
                person=str(declared["person"]),
                board=None if declared["board"] is None else _json(_inside(path, declared["board"])),
                more=declared.get("more", {}),
            )
            return cls(path, setup, str(declared["when"]))
        except InvalidValueError as error:
            where = "" if str(error).startswith(str(path)) else f"{file}: "
            raise InvalidValueError(f"{where}{error}") from error
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
            raise InvalidValueError(f"{file}: expected the fields of a capture, got {error!r}") from error

    def supply_tcp(self, role: str, X_HE: pin.SE3) -> None:
        """Set the TCP's pose in a hand's camera, found after the recording; nothing is written."""
        self.devices[role].info = replace(self.devices[role].info, X_HE=X_HE)

    @property
    def task(self) -> str:
        """The demonstrated task in words."""
        return self.setup.task

    @property
    def board(self) -> Mapping[str, Any] | None:
        """The board as `Board.to_dict()`; None: captured without one."""
        return self.setup.board

    @property
    def derived(self) -> Path:
        """Folder of what is computed from it; may not exist yet."""
        return self.path / DERIVED

    @property
    def is_closed(self) -> bool:
        """Whether its recording was closed properly."""
        return (self.path / CHECKSUMS_FILE).is_file()

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """Marks in order of time; at the same time, ends come before beginnings."""
        table = self._read("marks.csv", tables.MARKS)
        if table is None:
            return ()
        rows = zip(*(table.columns[name].tolist() for name in ("t_ns", "what", "by")), strict=True)
        out = []
        for i, (t_ns, what, by) in enumerate(rows):
            try:
                out.append(Mark(t_ns=t_ns, what=what, by=by))
            except InvalidValueError as error:
                raise InvalidValueError(f"{self.path / 'marks.csv'}, line {i + 2}: {error}") from error
        return tuple(sorted(out, key=lambda mark: (mark.t_ns, mark.what.endswith(BEGIN))))

    @cached_property
    def spans(self) -> Spans:
        """Demonstrations and calibration clips by their marks, and marks without a partner."""
        return spans_of(self.marks)

    def demonstrations(self) -> tuple[Demonstration, ...]:
        """Demonstrations that were begun and ended and not discarded, in order."""
        return self.spans.demonstrations

    def clips(self, what: str) -> tuple[tuple[int, int], ...]:
        """Spans (begin_ns, end_ns) of `anchor`, `sync` or `lean` clips, chest's clock."""
        return self.spans.clips[what]

    @cached_property
    def glimpses(self) -> Glimpses | None:
        """Detections of an object detector; None: none ran."""
        table = self._read("glimpses.csv", tables.GLIMPSES)
        if table is None:
            return None
        t_ns, role, name, sigma = (table.columns[each] for each in ("t_ns", "role", "name", "sigma"))
        return Glimpses(t_ns=t_ns, role=role, name=name, p=table.rows("x", "y", "z"), sigma=sigma)

    @cached_property
    def corners(self) -> Mapping[str, BoardCorners]:
        """Role -> the board's corners, where already detected; empty: no detector ran."""
        table = self._read("corners.csv", tables.CORNERS)
        if table is None:
            return {}
        role, uv, out = table.columns["role"], table.rows("u", "v"), {}
        for each in np.unique(role):
            rows = role == each
            t_ns, index, corner = (table.columns[name][rows] for name in ("t_ns", "index", "corner"))
            out[str(each)] = BoardCorners(t_ns=t_ns, index=index, corner=corner, uv=uv[rows])
        return out

    def changed(self) -> list[str]:
        """Sentences on files that differ from their checksums; empty: none does. Reads every byte."""
        if not self.is_closed:
            return []
        sums = _json(self.path / CHECKSUMS_FILE)
        out = []
        for name, wanted in sums.items():
            file = self.path / name
            if not file.is_file():
                out.append(f"{name} is missing")
            elif sha256(file) != wanted:
                out.append(f"{name} has been changed since it was recorded")
        there = {path.relative_to(self.path).as_posix() for path in self.path.rglob("*") if path.is_file()}
        new = sorted(name for name in there - set(sums) if is_raw(self.path / name, self.path))
        return out + [f"{name} was added after the recording" for name in new]

    def _read(self, name: str, layout: tables.Layout) -> tables.Table | None:
        return _table(self.path / name, layout, self.cut)


def parts_of(path: Path | str) -> list[Path]:
    """The folder itself and the parts that were recorded later; open each separately."""
    path = Path(path)
    found = (each for each in path.glob("part-*") if each.name.removeprefix("part-").isdecimal())
    later = [each for each in found if (each / CAPTURE_FILE).is_file()]
    return [path, *sorted(later, key=lambda each: int(each.name.removeprefix("part-")))]


def _table(path: Path, layout: tables.Layout, cut: list[str]) -> tables.Table | None:
    """The table in a file; None: no such file. If it is cut, its name is appended to `cut`."""
    if not path.is_file():
        return None
    table = tables.read(path, layout)
    if table.is_cut:
        cut.append(path.name)
    return table


def _json(path: Path) -> dict[str, Any]:
    try:
        out = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidValueError(
            f"{path} cannot be read: {error.strerror}; {CAPTURE_FILE} of the capture names it"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(out, dict):
        raise InvalidValueError(f"{path}: expected an object of JSON, got {type(out).__name__}")
    return out


def _inside(capture: Path, name: str) -> Path:
    """Path of a file inside the capture; InvalidValueError: the name points outside."""
    path = capture / name
    if not path.resolve().is_relative_to(capture.resolve()):
        raise InvalidValueError(
            f"{capture / CAPTURE_FILE}: {name} points outside the capture; copy the file into it"
        )
    return path


def _device_info(path: Path, declared: Mapping[str, Any]) -> DeviceInfo:
    return DeviceInfo(
        kind=str(declared["kind"]),
        size=None if declared["size"] is None else (int(declared["size"][0]), int(declared["size"][1])),
        fps=None if declared["fps"] is None else float(declared["fps"]),
        camera=None if declared["camera"] is None else _json(_inside(path, declared["camera"])),
        X_device_camera=_pose(declared["pose_device_camera"]),
        X_HE=_pose(declared["pose_camera_tcp"]),
        gripper=declared["gripper"],
        source=str(declared["source"]),
    )


def _pose(values: Mapping[str, Any] | None) -> pin.SE3 | None:
    if values is None:
        return None
    return pose_from_json({"p": values["place_m"], "q_wxyz": values["quaternion_wxyz"]})
