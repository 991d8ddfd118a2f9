"""`robot-runtime capture poses`: computes the poses of a capture's cameras from their videos."""

import json as json_
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.progress import Progress
from rich.table import Table
from tyro.conf import Positional, arg

from robot_runtime.cli.console import plain_console
from robot_runtime.cli.options import Count, InputFolder, NewFolder, need
from robot_runtime.cli.progress import counted
from robot_runtime.errors import InvalidValueError

if TYPE_CHECKING:
    from calibration.capture.raw import RawCapture
    from calibration.capture.video_poses import ClipPoses, Solved

FOLDER = "poses"
"""Folder of the report and its pictures, in `derived` of the new capture."""


@dataclass(frozen=True, kw_only=True)
class CapturePoses:
    """Compute the poses of a capture's cameras from their videos alone, by structure from motion.

    For every device with a video and intrinsics and without poses. The board in the videos gives scale,
    gravity and one world for all of them. CAPTURE is not changed: --output is a copy with poses, for `capture
    check` and `capture label`. Its folder derived/poses has a map, and a picture of each clip that failed.
    Exit code 1: a clip has poses in less than 90 % of its images.

    Example: robot-runtime capture poses captures/plain --output captures/kitchen
    """

    capture: Annotated[Positional[InputFolder], arg(metavar="CAPTURE", help_behavior_hint="(required)")]
    """Folder of the capture."""
    output: NewFolder
    """Folder of the capture with poses."""
    every: Count = 20
    """Most images from one keyframe to the next; where a camera moves fast, there are more."""

    def main(self) -> int:
        need("scipy", "av", "cv2", "matplotlib", "pycolmap", extras=("calibration", "sfm"))
        from calibration.capture.raw import RawCapture, parts_of

        is_good = True
        for part in parts_of(self.capture):
            capture = RawCapture.open(part)
            with counted(stays=False) as progress:
                solved = _solved(capture, self.every, progress)
                written = write_with_poses(capture, solved, self.output)
            clips = clips_of(RawCapture.open(written), solved)
            report(RawCapture.open(written), solved, clips)
            show(written, solved, clips)
            is_good &= all(clip.reason is None for clip in clips.values())
        return 0 if is_good else 1


def _solved(capture: "RawCapture", every: int, progress: Progress) -> "Solved":
    from calibration.board import Board
    from calibration.capture.structure_from_motion import MapConfig
    from calibration.capture.video_poses import solve_poses

    devices = {
        role: device
        for role, device in capture.devices.items()
        if not (device.folder / "poses.csv").is_file() and (device.video or device.info.size)
    }
    if not devices:
        raise InvalidValueError(
            f"expected a device with a video and without poses in {capture.path}, got "
            f"{', '.join(capture.devices)} with poses or without videos: there is nothing to compute"
        )
    if capture.board is None:
        raise InvalidValueError(
            f"expected a board in {capture.path}, got none: scale and gravity come from it; import again "
            "with --board board.json"
        )
    bars = {}

    def step(what: str, done: int, total: int) -> None:
        if what not in bars:
            bars[what] = progress.add_task(what, total=total)
        progress.update(bars[what], completed=done, total=total)

    return solve_poses(devices, Board.from_dict(capture.board), MapConfig(every=every), progress=step)


def write_with_poses(capture: "RawCapture", solved: "Solved", output: Path) -> Path:
    """Write the capture again, with these poses; returns its folder, of the next part if there is one."""
    from importlib.metadata import version

    from calibration.capture.raw import CaptureWriter

    by = {"by": "structure from motion", "of": list(solved.videos), "pycolmap": version("pycolmap")}
    setup = replace(capture.setup, more={**capture.setup.more, "poses": by})
    with CaptureWriter(output, setup, when=capture.when, is_whole=True) as writer:
        for role, device in capture.devices.items():
            if role in solved.videos:
                writer.poses(role, solved.videos[role].trajectory)
            elif (device.folder / "poses.csv").is_file():
                writer.poses(role, device.poses)
            frames = device.frames
            if device.video is not None:
                writer.copy_video(
                    role, device.video, frames.t_ns.tolist(), exposure_ns=frames.exposure_ns.tolist()
                )
            if device.imu is not None:
                writer.imu(role, device.imu)
            if device.gripper is not None:
                for t_ns, width in zip(device.gripper.t_ns, device.gripper.width_m.tolist(), strict=True):
                    writer.width(role, int(t_ns), width)
            if (tags := device.tags) is not None:
                for t_ns, tag, corners in zip(tags.t_ns, tags.tag, tags.corners, strict=True):
                    writer.tag(role, int(t_ns), int(tag), corners)
        if (seen := capture.glimpses) is not None:
            rows = zip(seen.t_ns, seen.role, seen.name, seen.p.tolist(), seen.sigma.tolist(), strict=True)
            for t_ns, role, name, p, sigma in rows:
                writer.glimpse(str(role), int(t_ns), str(name), p, sigma)
        for mark in capture.marks:
            writer.mark(mark.t_ns, mark.what, mark.by)
        for path in sorted((capture.path / "source").glob("*")):
            writer.keep(path, path.name)
    return writer.path


def clips_of(capture: "RawCapture", solved: "Solved") -> "dict[tuple[str, str], ClipPoses]":
    """(role, clip) -> how well it was registered. A video without marks, or of a hand whose clock is not
    joined to the chest's, is one clip."""
    import numpy as np

    from calibration.capture.check import join_clocks

    clocks, _ = join_clocks(capture)
    spans = {
        f"demonstration {each.number}": (each.begin_ns, each.end_ns) for each in capture.demonstrations()
    }
    for what, found in capture.spans.clips.items():
        spans |= {f"{what} {i}": span for i, span in enumerate(found)}
    out = {}
    for role, video in solved.videos.items():
        is_joined = role == "chest" or role in clocks or capture.setup.more.get("clock") == "shared"
        if not spans or not is_joined:
            out[role, "video"] = solved.clip(role, int(video.t_ns[0]), int(video.t_ns[-1]) + 1)
            continue
        for name, (begin_ns, end_ns) in spans.items():
            if role in clocks:
                begin_ns, end_ns = clocks[role].b_of_a(np.array([begin_ns, end_ns])).tolist()
            out[role, name] = solved.clip(role, begin_ns, end_ns)
    return out


def show(path: Path, solved: "Solved", clips: "Mapping[tuple[str, str], ClipPoses]") -> None:
    """Print a row for each clip."""
    console = plain_console(is_wide=True)
    placed = [each for each in solved.maps if each.has_board]
    console.print(
        f"{path}: {sum(clip.reason is None for clip in clips.values())} of {len(clips)} clips have poses; "
        f"{len(solved.maps)} maps, {len(placed)} with the board; pictures in {path / 'derived' / FOLDER}",
        soft_wrap=True,
    )
    table = Table("device", "clip", "images with poses [%]", "error [px]", "why", box=None, pad_edge=False)
    for (role, name), clip in clips.items():
        why = "" if clip.reason is None else f"{clip.reason.name}: {clip.reason}"
        style = "green" if clip.reason is None else "red"
        table.add_row(role, name, f"{100 * clip.share:.0f}", f"{clip.error_px:.2f}", why, style=style)
    console.print(table)


def report(capture: "RawCapture", solved: "Solved", clips: "Mapping[tuple[str, str], ClipPoses]") -> None:
    """Write report.json, map.png, and a picture of each clip that failed."""
    folder = capture.derived / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "role": role,
            "clip": name,
            "share": clip.share,
            "error_px": clip.error_px if clip.share else None,
            "reason": None if clip.reason is None else {"name": clip.reason.name, "what": str(clip.reason)},
        }
        for (role, name), clip in clips.items()
    ]
    maps = [
        {"keyframes": dict(each.keyframes), "board_mm": 1e3 * each.scale_error if each.has_board else None}
        for each in solved.maps
    ]
    (folder / "report.json").write_text(json_.dumps({"clips": rows, "maps": maps}, indent=1) + "\n")
    draw_map(solved, folder / "map.png")
    for (role, name), clip in clips.items():
        if clip.reason is not None:
            draw_image(capture, solved, role, clip, folder / f"{role}-{name.replace(' ', '-')}.png")


_COLOURS = ("#3b7ea1", "#b0413e", "#4d8a57", "#8a6d3b")


def draw_map(solved: "Solved", path: Path) -> None:
    """Draw paths of the cameras and the board from above; dots: images without a pose."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from calibration.trajectory import LOST

    figure, axes = plt.subplots(figsize=(7, 6), constrained_layout=True)
    for (role, video), colour in zip(solved.videos.items(), _COLOURS, strict=False):
        p = video.p.copy()
        p[video.tracking == LOST] = float("nan")
        share = 100.0 * float((video.tracking != LOST).mean())
        axes.plot(p[:, 0], p[:, 1], color=colour, linewidth=1.2, label=f"{role}: {share:.0f} % of images")
    width, height = solved.board.size_m
    axes.fill([0, width, width, 0], [0, 0, -height, -height], color="#444444", label="board")
    axes.set(aspect="equal", xlabel="x [m]", ylabel="y [m]", title="from above")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_image(capture: "RawCapture", solved: "Solved", role: str, clip: "ClipPoses", path: Path) -> None:
    """Draw the keyframe nearest to a clip's worst image, its features, and why the clip failed."""
    import cv2
    import numpy as np

    near = min(solved.videos[role].keyframes, key=lambda each: abs(each.index - clip.worst), default=None)
    if near is None:
        return
    [(_, _, rgb)] = capture.devices[role].pictures(near.index, near.index + 1)
    image = np.ascontiguousarray(rgb[..., ::-1])
    for i, (u, v) in enumerate(near.uv):
        colour = (0, 0, 255) if i < near.num_corners else (0, 220, 0)
        cv2.circle(image, (round(float(u)), round(float(v))), 3, colour, 1, cv2.LINE_AA)
    assert clip.reason is not None
    text = f"{role}, image {near.index}: {clip.reason.name}, {len(near.descriptors)} features"
    cv2.rectangle(image, (0, 0), (image.shape[1], 26), (0, 0, 0), -1)
    cv2.putText(image, text, (6, 18), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255), 1, cv2.LINE_AA)
    cv2.imwrite(str(path), image)
