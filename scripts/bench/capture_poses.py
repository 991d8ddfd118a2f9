"""Measures poses that come from two plain videos alone, in rendered textured rooms, against the truth.

python -m scripts.bench.capture_poses --output scripts/results/capture-poses.json

Each session is an anchor clip, a walk and a demonstration of `fetch`, drawn through both lenses with motion
blur and noise. Sessions with a fault show whether it is named.
"""

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calibration.board import Board
from calibration.capture.raw import RawCapture
from calibration.capture.video_poses import solve_poses
from calibration.commands.capture.poses import clips_of, write_with_poses
from robot_runtime.cli.options import AnyCount, Count, KeptFile
from robot_runtime.cli.progress import counted
from scripts.bench.plain_videos import film_visit, plain_capture, pose_errors
from scripts.harness import finish, run_script
from scripts.tables.calibration import poses

FAULTS: dict[str, dict[str, Any]] = {
    "plain walls and tables": {"wallpaper": False},
    "lens out of focus by 5 pixels": {"blur_px": 5.0},
}


@dataclass(frozen=True, kw_only=True)
class MeasurePoses:
    """Measure the error of poses from videos alone."""

    output: KeptFile
    """File for the figures."""
    seeds: Count = 4
    first_seed: AnyCount = 0
    without_faults: bool = False
    """Leave out the sessions with a fault."""


def measured(seed: int, **changes: Any) -> dict[str, Any]:
    """Draw one session, compute its poses, and compare them."""
    folder = Path(tempfile.mkdtemp(prefix="poses-"))
    try:
        truth = plain_capture(film_visit("fetch", seed), folder, seed=seed, **changes)
        began_s = time.process_time()
        capture = RawCapture.open(folder / "plain")
        solved = solve_poses(capture.devices, Board.from_dict(capture.board or {}))
        seconds = time.process_time() - began_s
        written = RawCapture.open(write_with_poses(capture, solved, folder / "posed"))
        rows = []
        for (role, name), clip in clips_of(written, solved).items():
            errors = pose_errors(written, truth, role)
            inside = solved.videos[role].span(*clip.span_ns)
            mm, deg = 1e3 * errors.m[inside], np.degrees(errors.rad[inside])
            known = np.isfinite(mm)
            rows.append(
                {
                    "role": role,
                    "clip": name,
                    "images": len(mm),
                    "share": round(clip.share, 4),
                    "reason": None if clip.reason is None else clip.reason.name,
                    "mm": np.round(mm[known], 2).tolist(),
                    "deg": np.round(deg[known], 3).tolist(),
                }
            )
        return {"seed": seed, "cpu_s": round(seconds, 1), "maps": len(solved.maps), "clips": rows}
    finally:
        shutil.rmtree(folder)


def summary(sessions: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures over all clips; those of a clip are the medians of its images."""
    clips = [clip for each in sessions for clip in each["clips"]]
    mm, deg = (np.concatenate([clip[key] for clip in clips]) for key in ("mm", "deg"))
    failed = [clip["reason"] for clip in clips if clip["reason"] is not None]
    out: dict[str, Any] = {"clips": len(clips), "registered": len(clips) - len(failed), "reasons": failed}
    out["images_share"] = round(sum(len(c["mm"]) for c in clips) / sum(c["images"] for c in clips), 4)
    for key, values in (("mm", mm), ("deg", deg)):
        if len(values):
            out |= {f"median_{key}": round(float(np.median(values)), 3)}
            out |= {f"p95_{key}": round(float(np.quantile(values, 0.95)), 3)}
    out["cpu_s"] = round(float(np.mean([each["cpu_s"] for each in sessions])), 1)
    return out


def short(session: dict[str, Any]) -> dict[str, Any]:
    """A session with figures of each clip in place of those of each image."""
    clips = []
    for clip in session["clips"]:
        figures = {
            f"{name}_{key}": round(float(np.quantile(clip[key], q)), 3) if clip[key] else None
            for key in ("mm", "deg")
            for name, q in (("median", 0.5), ("p95", 0.95))
        }
        clips.append({name: value for name, value in clip.items() if name not in ("mm", "deg")} | figures)
    return session | {"clips": clips}


def main(args: MeasurePoses) -> int:
    """Measure, and keep the figures."""
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    faults = {} if args.without_faults else FAULTS
    sessions, with_faults = [], {}
    with counted() as progress:
        bar = progress.add_task("sessions", total=args.seeds + len(faults))
        for seed in seeds:
            sessions.append(measured(seed))
            progress.advance(bar)
        for name, changes in faults.items():
            with_faults[name] = measured(args.first_seed, **changes)
            progress.advance(bar)
    cases = {"textured rooms": summary(sessions)} | {
        name: summary([session]) for name, session in with_faults.items()
    }
    found = {
        "cases": cases,
        "sessions": [short(each) for each in sessions],
        "faults": {name: short(each) for name, each in with_faults.items()},
    }
    return finish(found, args.output, poses(found), seeds=seeds)


if __name__ == "__main__":
    run_script(MeasurePoses, main)
