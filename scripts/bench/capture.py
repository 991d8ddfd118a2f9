"""Measures the errors of a capture's clocks, anchors and labels, and which check finds which fault.

python -m scripts.bench.capture --sessions 12 --json outputs/capture.json

Sessions are walks without physics (sim/capture/drills.py) through simulated devices, clean and noisy: one of
2 m, one of 20 m of way between two anchors, whose middle is 10 m from either.
"""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from calibration.capture.check import check_capture
from calibration.capture.raw import RawCapture
from calibration.labels.anchors import anchors_of
from calibration.labels.demonstration import labels_of
from calibration.labels.joined import hand_of
from calibration.labels.label import clock_of, joined_by
from calibration.labels.values import Drift, LabelConfig
from calibration.verdict import Verdict
from robot_runtime.cli.options import Count, Maybe, OutputFile, Seed
from robot_runtime.errors import RobotRuntimeError
from scripts.harness import finish, run_script
from scripts.tables import capture as tables
from sim.capture import faults as fault
from sim.capture.camera_images import drawn as drawn_images
from sim.capture.clips import anchor_clip, sync_clip
from sim.capture.drills import session
from sim.capture.faults import Fault
from sim.capture.person import person_of
from sim.capture.rig import CLEAN, NOISY, Noise, RigConfig
from sim.capture.scene import PersonScene, build_scene
from sim.capture.session import simulate_session
from sim.capture.truth import Truth, anchor_error, clock_error_ns, errors_of
from sim.tasks import make_task

READ, CHECK, ANCHOR, LABELS = "read", "capture check", "anchor", "labels"


@dataclass(frozen=True, kw_only=True)
class Caught:
    """One finding of a check."""

    gate: str
    names: tuple[str, ...]
    """Names of the reasons; `error` for an exception."""
    is_fatal: bool
    """Whether it refuses the capture or a demonstration of it; otherwise it is a warning."""
    words: str


def gates_of(path: Path, config: LabelConfig | None = None) -> list[Caught]:
    """Run a raw capture through all checks that a collector runs, up to the first fatal stage.

    Returns an empty list if everything passes.
    """
    config, out = config or LabelConfig(), []
    try:
        capture = RawCapture.open(path)
        report = check_capture(capture)
    except RobotRuntimeError as error:
        return [_error(READ, error)]
    out += _of(CHECK, report.verdict)
    for each in report.demonstrations:
        out += _of(CHECK, each.verdict)
    if not report.verdict.ok:
        return out
    try:
        role = hand_of(capture, None)
        clock = clock_of(capture, role, config)
        anchors = anchors_of(capture, role, clock)
    except RobotRuntimeError as error:
        return [*out, _error(ANCHOR, error)]
    for anchor in anchors:
        out += _of(ANCHOR, anchor.verdict)
    if not all(anchor.verdict.ok for anchor in anchors):
        return out
    again = check_capture(capture, anchors={role: anchors[0].X_WcWh}, with_checksums=False)
    known = {name for each in out for name in each.names}
    for each in again.demonstrations:
        out += [found for found in _of(CHECK, each.verdict) if not set(found.names) <= known]
    try:
        joined = joined_by(capture, anchors, config, clock)
        for demonstration in capture.demonstrations():
            out += _of(LABELS, labels_of(joined, demonstration).verdict)
    except RobotRuntimeError as error:
        out.append(_error(LABELS, error))
    return out


def _of(gate: str, verdict: Verdict) -> list[Caught]:
    return [
        Caught(gate=gate, names=(reason.name,), is_fatal=reason.is_fatal, words=str(reason))
        for reason in verdict.reasons
    ]


def _error(gate: str, error: RobotRuntimeError) -> Caught:
    return Caught(gate=gate, names=("error",), is_fatal=True, words=str(error).splitlines()[0])


METRES = (2.0, 20.0)
NEAR_M, FAR_M = 2.0, (8.0, 12.0)
NOISES: Mapping[str, Noise] = {"clean": CLEAN, "noisy": NOISY}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Number and first seed of the sessions."""

    sessions: Count = 12
    """Sessions of each noise level."""
    fault_sessions: Count = 3
    """Noisy sessions of every fault."""
    drawn: bool = False
    """Also render the videos of an anchor clip, and anchor with the real detector; takes minutes."""
    first_seed: Seed = 0
    json: Maybe[OutputFile] = None
    """Write everything to this file, as JSON."""


def main(options: Options) -> int:
    seeds = range(options.first_seed, options.first_seed + options.sessions)
    runs = [(name, seed) for name in NOISES for seed in seeds]
    rows = [measured(name, seed) for name, seed in track(runs, description="sessions")]
    cases = [
        (faults, seed)
        for faults in ((), *((each,) for each in fault.ALL))
        for seed in range(options.first_seed, options.first_seed + options.fault_sessions)
    ]
    caught = [tried(faults, seed) for faults, seed in track(cases, description="faults")]
    figures = {name: summary([row for row in rows if row["noise"] == name]) for name in NOISES}
    for row in rows:
        row.pop("rows", None)
    found_drawn = [drawn("clean", options.first_seed)] if options.drawn else []
    found = {"figures": figures, "sessions": rows, "faults": caught, "drawn": found_drawn}
    shown = [tables.figures(found), tables.faults(found), *([tables.drawn(found)] if found_drawn else [])]
    return finish(found, options.json, *shown, seeds=seeds)


def measured(name: str, seed: int) -> dict[str, Any]:
    """One session, stage by stage."""
    noise, folder = NOISES[name], Path(tempfile.mkdtemp(prefix="capture-"))
    try:
        truth = simulate_session(session(seed, metres=METRES), RigConfig(noise=noise, seed=seed), folder)
        return {"noise": name, "seed": seed, **_stages(folder, truth, _config(noise))}
    finally:
        shutil.rmtree(folder)


def _config(noise: Noise) -> LabelConfig:
    """Return the configuration of a user who knows the odometry drift of the devices."""
    vio = noise.device.vio
    drift = Drift(
        walk_m=vio.walk_m,
        walk_rad=float(np.deg2rad(vio.walk_deg)),
        tilt_rad=float(np.deg2rad(max(vio.tilt_deg, 0.002))),
        noise_m=vio.noise_m,
        noise_rad=float(np.deg2rad(vio.noise_deg)),
    )
    return LabelConfig(chest_drift=drift, hand_drift=drift)


def _stages(folder: Path, truth: Truth, config: LabelConfig) -> dict[str, Any]:
    capture = RawCapture.open(folder / "capture")
    usable = {each.number for each in check_capture(capture, with_checksums=False).usable}
    try:
        clock = clock_of(capture, "hand", config)
        anchors = anchors_of(capture, "hand", clock)
        joined = joined_by(capture, anchors, config, clock)
    except RobotRuntimeError as error:
        return {"refused": str(error).splitlines()[0]}
    t_hand = capture.devices["hand"].poses.t_ns[::50]
    out: dict[str, Any] = {
        "clock_ms": float(np.abs(clock_error_ns(truth, t_hand, clock(t_hand))).max() / 1e6),
        "clock_graph_ms": float(np.abs(clock_error_ns(truth, t_hand, joined.clock(t_hand))).max() / 1e6),
        "anchors": [],
        "demonstrations": [],
        "rows": [],
    }
    for i, each in enumerate(anchors):
        m, rad = anchor_error(truth, i, each.X_WcWh, each.chest_ns, each.hand_ns)
        figures = {key: float(value) for key, value in each.residuals.items()}
        out["anchors"].append({"mm": 1e3 * m, "deg": float(np.rad2deg(rad)), **figures})
    for demonstration in capture.demonstrations():
        labels = labels_of(joined, demonstration)
        is_used = labels.verdict.ok and demonstration.number in usable
        found = errors_of(labels, truth)
        rows = np.column_stack(
            [
                found.path_m,
                1e3 * found.hand_m,
                np.rad2deg(found.hand_rad),
                found.nees,
                1e3 * found.base_m,
                np.rad2deg(found.base_rad),
            ]
        )[found.valid]
        out["demonstrations"].append(
            {
                "is_used": is_used,
                "reasons": list(labels.verdict.names),
                "valid": float(found.valid.mean()),
                "hand_p95_mm": float(np.quantile(rows[:, 1], 0.95)) if len(rows) else None,
                "nees": float(rows[:, 3].mean()) if len(rows) else None,
                "base_rms_mm": float(np.sqrt((rows[:, 4] ** 2).mean())) if len(rows) else None,
                "base_rms_deg": float(np.sqrt((rows[:, 5] ** 2).mean())) if len(rows) else None,
                "recomposition_m": found.recomposition_m,
            }
        )
        if is_used:
            out["rows"].append(rows)
    return out


def drawn(name: str, seed: int) -> dict[str, Any]:
    """Compute an anchor from rendered videos, with real detection, clocks and odometry, at 640 by 480."""
    noise, person = NOISES[name], person_of(seed)
    task = make_task("fetch")
    scene = PersonScene(task, has_board=True)
    scene.reset(seed)
    x = scene.x_WB.tolist()
    clips = [
        sync_clip(scene, person, seed, x=x, film=True),
        anchor_clip(scene, person, seed, x=x, stations=4, film=True),
    ]
    cameras = {
        role: replace(camera, lens=camera.lens.resized((480, 640)), rate_hz=rate)
        for (role, camera), rate in zip(noise.cameras().items(), (10.0, 15.0), strict=True)
    }
    config = RigConfig(noise=noise, seed=seed, cameras=cameras, glimpses=False)
    model = build_scene(task, has_board=True, prints=True)
    folder = Path(tempfile.mkdtemp(prefix="capture-"))
    try:
        truth = simulate_session(clips, config, folder, pictures=drawn_images(model, seed=seed))
        capture = RawCapture.open(folder / "capture")
        anchors = anchors_of(capture, "hand", clock_of(capture, "hand", LabelConfig()))
        m, rad = anchor_error(truth, 0, anchors[0].X_WcWh, anchors[0].chest_ns, anchors[0].hand_ns)
        figures = {key: float(value) for key, value in anchors[0].residuals.items()}
        reasons = list(anchors[0].verdict.names)
        return {"noise": name, "mm": 1e3 * m, "deg": float(np.rad2deg(rad)), "reasons": reasons, **figures}
    finally:
        shutil.rmtree(folder)


def summary(sessions: list[dict[str, Any]]) -> dict[str, float]:
    """The issue's figures over all sessions of a noise that were not refused."""
    used = [each for each in sessions if "refused" not in each]
    anchors = [anchor for each in used for anchor in each["anchors"]]
    demonstrations = [one for each in used for one in each["demonstrations"]]
    out = {
        "sessions": float(len(sessions)),
        "sessions_refused": float(len(sessions) - len(used)),
        "demonstrations": float(len(demonstrations)),
        "demonstrations_refused": float(sum(not one["is_used"] for one in demonstrations)),
    }
    if not used:
        return out
    rows = np.concatenate([piece for each in used for piece in each["rows"]])
    path, mm, deg, nees, base_mm, base_deg = rows.T
    near, far = path <= NEAR_M, (path >= FAR_M[0]) & (path <= FAR_M[1])
    out |= {
        "clock_p95_ms": _p95([each["clock_ms"] for each in used]),
        "clock_graph_p95_ms": _p95([each["clock_graph_ms"] for each in used]),
        "anchor_p95_mm": _p95([each["mm"] for each in anchors]),
        "anchor_p95_deg": _p95([each["deg"] for each in anchors]),
        "held_out_p95_px": _p95([each["held_out_px"] for each in anchors if "held_out_px" in each]),
        "near_p95_mm": _p95(mm[near]),
        "near_p95_deg": _p95(deg[near]),
        "far_p95_mm": _p95(mm[far]),
        "far_p95_deg": _p95(deg[far]),
        "all_p95_mm": _p95(mm),
        "all_p95_deg": _p95(deg),
        "base_rms_mm": float(np.sqrt((base_mm**2).mean())),
        "base_rms_deg": float(np.sqrt((base_deg**2).mean())),
        "recomposition_m": max(one["recomposition_m"] for one in demonstrations),
        "nees": float(nees.mean()),
        "nees_median": float(np.median(nees)),
    }
    return out


def _p95(values: Any) -> float:
    values = np.asarray(values, dtype=float)
    return float(np.quantile(values, 0.95)) if values.size else float("nan")


def tried(faults: tuple[Fault, ...], seed: int) -> dict[str, Any]:
    """Return which checks find the fault of a noisy session that is otherwise sound."""
    calm = replace(NOISY.device.vio, jumps_per_min=0.0, lost_per_min=0.0, limited_per_min=0.0)
    noise = replace(NOISY, device=replace(NOISY.device, vio=calm))
    folder = Path(tempfile.mkdtemp(prefix="capture-"))
    try:
        config = RigConfig(noise=noise, seed=seed, faults=faults)
        simulate_session(session(seed, metres=(2.0,), faults=faults), config, folder)
        found = gates_of(folder / "capture")
    finally:
        shutil.rmtree(folder)
    fatal = [each for each in found if each.is_fatal]
    return {
        "fault": " and ".join(map(fault_words, faults)) or "none",
        "seed": seed,
        "is_caught": bool(fatal),
        "by": sorted({f"{each.gate}: {name}" for each in fatal for name in each.names}),
        "warned": sorted(
            {f"{each.gate}: {name}" for each in found if not each.is_fatal for name in each.names}
        ),
        "words": fatal[0].words.replace(f"{folder}/", "") if fatal else "",
    }


def fault_words(fault_: Fault) -> str:
    """A fault in a line: `ClockShift ms=30.0 role=hand`."""
    values = " ".join(f"{each.name}={getattr(fault_, each.name)}" for each in fields(fault_))
    return f"{type(fault_).__name__} {values}".strip()


if __name__ == "__main__":
    run_script(Options, main, description=__doc__)
