"""Measures how well two devices' clocks are joined in simulated sessions, by inertial sensors or poses.

python -m scripts.bench.clocks --output scripts/results/capture-clocks.json
"""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np

from calibration.capture.check import join_clocks
from calibration.capture.raw import RawCapture
from robot_runtime.cli.options import Count, KeptFile, Within
from robot_runtime.cli.progress import counted
from scripts.harness import finish, run_script
from scripts.tables.calibration import clocks
from sim.capture.drills import sync_take, walk_take
from sim.capture.rig import CLEAN, NOISY, Noise, RigConfig
from sim.capture.session import simulate_session


@dataclass(frozen=True, kw_only=True)
class MeasureClocks:
    """Measure the error of joined clocks."""

    output: KeptFile
    """File for the figures."""
    seeds: Count = 20
    metres: Annotated[float, Within(1, 100)] = 8.0
    """Distance walked between the sync spans."""


CASES = {
    "clean, IMU at 200 Hz": (CLEAN, True),
    "noisy, IMU at 200 Hz": (NOISY, True),
    "noisy, poses alone": (NOISY, False),
}


@dataclass(frozen=True, kw_only=True)
class Joined:
    """One session's clocks."""

    worst_ms: float
    """Largest error of the hand's clock by the chest's in the session."""
    sigma_ms: float
    nees: float
    """Squared error at the middle of the sync spans, relative to sigma squared; a mean of 1 is consistent."""
    correlation: float


def joined(noise: Noise, imu: bool, seed: int, metres: float) -> Joined:
    """How well the clocks of one simulated session are joined."""
    rng = np.random.default_rng(seed)
    takes = [sync_take(rng), walk_take(rng, metres=metres), sync_take(rng)]
    quiet = replace(noise, device=replace(noise.device, vio=replace(noise.device.vio, lost_per_min=0.0)))
    with tempfile.TemporaryDirectory() as folder:
        config = RigConfig(noise=quiet, seed=seed, imu=imu, glimpses=False, tags=False)
        truth = simulate_session(takes, config, Path(folder))
        capture = RawCapture.open(Path(folder) / "capture")
        fits, reasons = join_clocks(capture)
        if "hand" not in fits:
            raise SystemExit(f"seed {seed}: {[str(each) for each in reasons]}")
        fit = fits["hand"]
        chest_ns = capture.devices["chest"].poses.t_ns[::20]
        true_ns = truth.true_time("chest", chest_ns)
        wanted = truth.clocks["hand"].at(true_ns)
        errors = (fit.b_of_a(chest_ns) - wanted) / 1e6
        middle = float(np.interp(fit.at_ns, chest_ns, errors))
        return Joined(
            worst_ms=float(np.abs(errors).max()),
            sigma_ms=fit.sigma_ns / 1e6,
            nees=(middle / (fit.sigma_ns / 1e6)) ** 2,
            correlation=min(span.correlation for span in fit.spans),
        )


def main(args: MeasureClocks) -> int:
    """Measure, and keep the figures."""
    out = {}
    with counted() as progress:
        bar = progress.add_task("sessions", total=len(CASES) * args.seeds)
        for name, (noise, imu) in CASES.items():
            rows = []
            for seed in range(args.seeds):
                rows.append(joined(noise, imu, seed, args.metres))
                progress.advance(bar)
            errors = np.array([row.worst_ms for row in rows])
            out[name] = {
                "p95_ms": round(float(np.quantile(errors, 0.95)), 3),
                "max_ms": round(float(errors.max()), 3),
                "median_ms": round(float(np.median(errors)), 3),
                "sigma_ms": round(float(np.median([row.sigma_ms for row in rows])), 3),
                "nees": round(float(np.mean([row.nees for row in rows])), 2),
                "least_correlation": round(min(row.correlation for row in rows), 3),
                "sessions": args.seeds,
            }
    return finish({"cases": out}, args.output, clocks({"cases": out}), seeds=range(args.seeds))


if __name__ == "__main__":
    run_script(MeasureClocks, main)
