"""`robot-runtime capture check`: checks which demonstrations of a capture are usable."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from tyro.conf import Positional, arg

from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import InputFolder, Maybe, OutputFile, Some, need
from robot_runtime.cli.progress import advance, counted
from robot_runtime.results import keep_text, result_json

if TYPE_CHECKING:
    from calibration.capture.check import CaptureReport
    from calibration.verdict import Verdict

Captures = Annotated[
    Positional[Some[InputFolder]], arg(metavar="CAPTURE...", help_behavior_hint="(required)")
]


@dataclass(frozen=True, kw_only=True)
class CaptureCheck:
    """Check which demonstrations of captures are usable, and report how to fix the others.

    Checks all parts of each capture. Exit code 1: a capture as a whole, or a demonstration, is not usable.

    Example: robot-runtime capture check captures/kitchen
    """

    captures: Captures
    """Folders of the captures."""
    no_checksums: bool = False
    """Do not read every byte to see whether the raw zone is as it was recorded: sooner done."""
    no_videos: bool = False
    """Do not search the videos of the anchor clips for the board where its corners were not found before;
    faster."""
    json: Maybe[OutputFile] = None
    """Write all findings to this file, as JSON."""

    def main(self) -> int:
        need("scipy", "av", "cv2", extras=("calibration",))
        from calibration.capture.check import check_capture
        from calibration.capture.raw import RawCapture, parts_of

        found: dict[Path, CaptureReport] = {}
        paths = [part for folder in self.captures for part in parts_of(folder)]
        with counted(stays=False) as progress:
            bar = progress.add_task("check", total=len(paths))
            for path in paths:
                look = progress.add_task(f"board in {path.name}", total=None)
                found[path] = check_capture(
                    RawCapture.open(path),
                    with_checksums=not self.no_checksums,
                    in_videos=not self.no_videos,
                    progress=advance(progress, look),
                )
                progress.remove_task(look)
                progress.advance(bar)
        for path, report in found.items():
            show(path, report)
        if self.json is not None:
            keep_text(self.json, result_json({str(path): as_json(each) for path, each in found.items()}))
        is_good = all(
            each.verdict.ok and all(one.verdict.ok for one in each.demonstrations) for each in found.values()
        )
        return 0 if is_good else 1


def show(path: Path, report: "CaptureReport") -> None:
    """Print a capture's verdict, and one line for each of its demonstrations."""
    console = plain_console(is_wide=True)
    demonstrations = report.demonstrations
    console.print(
        f"{path}: {len(report.usable)} of {len(demonstrations)} demonstrations can be used"
        + ("" if report.verdict.ok else "; the capture as a whole cannot")
    )
    for line in reasons_of(report.verdict):
        console.print(f"  {line}", soft_wrap=True)
    for role, fit in report.clocks.items():
        console.print(
            f"  clock of {role}: {fit.offset_ns / 1e6:+.2f} ms to the chest's, sigma "
            f"{fit.sigma_ns / 1e6:.2f} ms, "
            f"skew {fit.skew_ppm:+.1f} ppm, {len(fit.spans)} sync spans, correlation "
            f"{min(span.correlation for span in fit.spans):.3f}",
            soft_wrap=True,
        )
    if not demonstrations:
        return
    table = Table("demonstration", "long [s]", "verdict", "why", box=None, pad_edge=False)
    for each in demonstrations:
        number, why = str(each.demonstration.number), "\n".join(reasons_of(each.verdict))
        style = "green" if each.verdict.ok else "red"
        verdict = "usable" if each.verdict.ok and report.verdict.ok else "not usable"
        if each.verdict.ok and not report.verdict.ok:
            style, why = "red", "\n".join(filter(None, ("the capture cannot be used", why)))
        table.add_row(number, f"{each.seconds:.1f}", verdict, why, style=style)
    console.print(table)


def reasons_of(verdict: "Verdict") -> list[str]:
    """Return the reasons as sentences; a warning is marked as one."""
    return [f"{'' if each.is_fatal else 'warning: '}{each.name}: {each}" for each in verdict.reasons]


def as_json(report: "CaptureReport") -> dict[str, Any]:
    """Return the findings."""
    return {
        "verdict": report.verdict.to_dict(),
        "clocks": {
            role: {
                "offset_ns": fit.offset_ns,
                "sigma_ns": fit.sigma_ns,
                "skew_ppm": fit.skew_ppm,
                "at_ns": fit.at_ns,
            }
            for role, fit in report.clocks.items()
        },
        "demonstrations": [
            {
                "number": each.demonstration.number,
                "begin_ns": each.demonstration.begin_ns,
                "end_ns": each.demonstration.end_ns,
                "verdict": each.verdict.to_dict(),
            }
            for each in report.demonstrations
        ],
    }
