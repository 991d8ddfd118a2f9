"""`robot-runtime capture import`: imports devices' files into a raw capture and checks its demonstrations."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from calibration.commands.capture.check import show
from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import (
    ChestHeight,
    Height,
    InputFile,
    Maybe,
    OutputFolder,
    need,
)
from robot_runtime.cli.progress import advance, counted
from robot_runtime.errors import InvalidValueError, placed

if TYPE_CHECKING:
    from calibration.capture.check import CaptureReport
    from calibration.capture.sources.spec import Source

_SPEC = (
    "KIND:FILE,option=value,... KIND: record3d, arkit, realsense, gopro, aria, euroc, umi, video, log. "
    "Options: camera, "
    "trajectory (with axes and up), extrinsic, tcp, gripper; docs/capture.md has them all."
)
Spec = Annotated[str | None, arg(metavar="KIND:FILE,...", help_behavior_hint="(optional)")]


@dataclass(frozen=True, kw_only=True)
class CaptureImport:
    """Import recordings of devices into a raw capture.

    Converts units, axes and orders; the raw data is not changed afterwards. A folder that already holds a
    capture gets a new part. Exit code 1: no demonstration is usable; the capture stays there, to be inspected
    or deleted.

    Example: robot-runtime capture import --output captures/kitchen --task "fetch the cup"
    --board board/board.json --marks marks.csv --chest record3d:chest.r3d
    --hand gopro:GX010042.MP4,trajectory=hand.txt,camera=hand.json
    """

    output: OutputFolder
    """Folder of the capture."""
    chest: Annotated[
        str | None,
        arg(
            help=f"The chest's recording: {_SPEC}",
            metavar="KIND:FILE,...",
            help_behavior_hint="(required)",
        ),
    ] = None
    hand: Spec = None
    """Recording of the hand, if there is one."""
    left_hand: Spec = None
    """Recording of this hand, if there are two."""
    right_hand: Spec = None
    """Recording of this hand, if there are two."""
    marks: Maybe[InputFile] = None
    """CSV table what,begin_s,end_s with times from the start of the chest's recording [s]; what is
    demonstration, discard, anchor, sync or lean."""
    task: str = ""
    """Task in words, which becomes the policy's instruction."""
    person: str = ""
    """Name of the demonstrator."""
    board: Maybe[InputFile] = None
    """board.json of the board shown to the cameras, by `calibrate board`."""
    board_height_m: Maybe[Height] = None
    """Height of the flat board above the floor [m]."""
    chest_height_m: Maybe[ChestHeight] = None
    """Height of the chest camera above the floor while its wearer is upright [m]."""
    shared_clock: bool = False
    """All devices share one clock, so that no sync spans are needed."""

    def main(self) -> int:
        need("scipy", "av", "cv2", extras=("calibration",))
        from calibration.capture.check import check_capture
        from calibration.capture.raw import CaptureWriter, RawCapture
        from calibration.capture.sources.marks_file import read_marks
        from calibration.capture.sources.recording import write
        from calibration.capture.sources.spec import parse, read
        from calibration.capture.values import Setup

        if self.chest is None:
            raise InvalidValueError(
                "--chest is missing: labels need a chest camera beside the hand, whose path moves the "
                "robot's base. A UMI session has a hand alone: LeRobot and UMI train from it as it is"
            )
        sources: dict[str, Source] = {}
        for role in ("chest", "hand", "left_hand", "right_hand"):
            if (text := getattr(self, role)) is not None:
                try:
                    sources[role] = parse(text)
                except InvalidValueError as error:
                    raise placed(error, f"--{role.replace('_', '-')}") from error
        _check_different(sources)
        recordings = {role: read(source) for role, source in sources.items()}
        for role, each in recordings.items():
            for line in each.lacks:
                plain_console(is_error=True).print(f"warning: {role}: {line}", soft_wrap=True, markup=False)
        chest = recordings["chest"]
        marks = [] if self.marks is None else read_marks(self.marks, chest.start_ns, end_ns=chest.end_ns)
        setup = Setup(
            devices={role: each.info for role, each in recordings.items()},
            task=self.task,
            person=self.person,
            board=None if self.board is None else _board(self.board),
            more=self._more(),
        )
        with ExitStack() as stack:
            writer = stack.enter_context(CaptureWriter(self.output, setup, is_whole=True))
            progress = stack.enter_context(counted(stays=False))
            for role, each in recordings.items():
                total = len(each.frames_ns) if each.frames_ns is not None and each.video is None else 1
                bar = progress.add_task(role, total=total)
                write(writer, role, each, on_picture=lambda bar=bar: progress.advance(bar))  # type: ignore[misc]
                progress.update(bar, completed=total)
            for mark in marks:
                writer.mark(mark.t_ns, mark.what, mark.by)
        if unposed := [role for role, each in recordings.items() if each.poses is None]:
            plain_console().print(
                f"{writer.path}: {', '.join(unposed)} without poses; next: robot-runtime capture poses "
                f"{writer.path} --output FOLDER",
                soft_wrap=True,
                markup=False,
            )
            return 0
        with counted(stays=False) as progress:
            bar = progress.add_task("look for the board", total=None)
            report = check_capture(
                RawCapture.open(writer.path),
                with_checksums=False,
                progress=advance(progress, bar),
            )
        show(writer.path, report)
        if not report.usable:
            plain_console(is_error=True).print(_to_do(writer.path, report), soft_wrap=True, markup=False)
        if damage := dict.fromkeys(each.damage for each in recordings.values() if each.damage):
            raise InvalidValueError("; ".join(damage))
        return 0 if report.usable else 1

    def _more(self) -> dict[str, Any]:
        more: dict[str, Any] = {"clock": "shared"} if self.shared_clock else {}
        heights = {"board_height_m": self.board_height_m, "chest_height_m": self.chest_height_m}
        return more | {name: value for name, value in heights.items() if value is not None}


def _to_do(path: Path, report: "CaptureReport") -> str:
    """Return what to do after an unusable import: repeating the command would add a second part."""
    is_unjoined = any(each.name == "clocks-not-joined" for each in report.verdict.reasons)
    clock = ", with --shared-clock if one clock stamped all devices," if is_unjoined else ""
    return (
        f"not usable: it stays in {path}. Fix the faults above, and import it again{clock} into another "
        f"--output; or delete {path} first: an import into an existing capture adds another part"
    )


_PARTS = {"log": ("view", "part"), "umi": ("robot", "episode")}
"""Kind -> options that tell apart the recordings in one file."""


def _check_different(sources: "Mapping[str, Source]") -> None:
    """Raise InvalidValueError if two roles have the same recording; a run's log and a UMI session hold
    several."""
    seen: dict[tuple[object, ...], str] = {}
    for role, source in sources.items():
        which = [source.options.get(name) for name in _PARTS.get(source.kind, ())]
        other = seen.setdefault((source.path.resolve(), *which), role)
        if other != role:
            first, second = (f"--{each.replace('_', '-')}" for each in (other, role))
            raise InvalidValueError(f"{first} and {second} are one recording: {source.path}")


def _board(path: Path) -> dict[str, Any]:
    from calibration.board import Board
    from calibration.store import load

    return load(path, Board).to_dict()
