"""Kills the export of a run's log at random moments and reads the rest with stock LeRobot.

    uv run --extra lerobot python -m scripts.attack.kill_export --times 10

Each time, a log of five trials with two cameras is exported into a folder, the process is killed while it
writes the fifth episode, at a random moment, and stock LeRobot reads the first four, all numbers and first
and last images; then the same export is run again and must add the fifth. Exit code 1 if anything was lost.
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from robot_runtime.cli.options import Count, Seed
from scripts.harness import run_script

TRIAL_S, TRIALS = 2.0, 5


@dataclass(frozen=True, kw_only=True)
class Options:
    times: Count = 10
    """Number of exports to kill."""
    seed: Seed = 0
    """Seed of the moments."""


def main(options: Options) -> int:
    from robot_runtime.core.orders import EpisodeMark, Outcome
    from tests.dataset.runs import SCHEMA, START_NS, write_run

    rng, bad = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as scratch:
        starts = [START_NS + round((0.1 + TRIAL_S * i) * 1e9) for i in range(TRIALS)]
        marks = [
            EpisodeMark(start_ns=start, end_ns=start + round(TRIAL_S * 1e9), outcome=Outcome.SUCCESS)
            for start in starts
        ]
        cameras = {"chest": (240, 320), "wrist": (240, 320)}
        schema = replace(SCHEMA, cameras=cameras)
        log = write_run(Path(scratch) / "log", seconds=TRIAL_S * TRIALS + 0.2, marks=marks, schema=schema)
        whole_s = 0.0
        for number in range(options.times + 1):
            folder = Path(scratch) / "dataset"
            shutil.rmtree(folder, ignore_errors=True)
            moment_s = rng.uniform(0.0, whole_s) if number else 600.0
            took_s = killed(log, folder, moment_s)
            left = episodes_in(folder)
            if number == 0:
                whole_s = took_s
                print(f"the fifth episode takes {whole_s:.2f} s")
                continue
            readable = all_read(folder)
            subprocess.run(command(log, folder), check=True, stdout=subprocess.DEVNULL)
            after = all_read(folder)
            is_good = left in (4, 5) and readable == left and after == TRIALS
            bad += not is_good
            note = "" if is_good else "  <- lost"
            print(
                f"killed {moment_s:.2f} s into episode 5: {readable} readable, {after} after going on{note}"
            )
    print(f"{options.times} killed, {bad} lost something")
    return 1 if bad else 0


def command(log: Path, folder: Path) -> list[str]:
    return [sys.executable, "-m", "robot_runtime.cli", "log", "export", str(log), "--dataset", str(folder)]


def killed(log: Path, folder: Path, moment_s: float) -> float:
    """Export, and kill `moment_s` after the fourth episode; return how long it ran after that [s]."""
    process = subprocess.Popen(command(log, folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and episodes_in(folder) < TRIALS - 1:
        time.sleep(0.002)
    start_s = time.monotonic()
    while process.poll() is None and time.monotonic() < start_s + moment_s:
        time.sleep(0.001)
    took_s = time.monotonic() - start_s
    process.send_signal(signal.SIGKILL)
    process.wait()
    return took_s


def episodes_in(folder: Path) -> int:
    try:
        return int(json.loads((folder / "meta/info.json").read_text())["total_episodes"])
    except (FileNotFoundError, ValueError):
        return 0


def all_read(folder: Path) -> int:
    """Return the number of episodes that stock LeRobot reads, with numbers and images."""
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    dataset = LeRobotDataset("a/run", root=folder, video_backend="pyav")
    for episode in range(dataset.num_episodes):
        row = dataset.meta.episodes[episode]
        for k in (row["dataset_from_index"], row["dataset_to_index"] - 1):
            assert dataset[k]["observation.images.chest"].shape == (3, 240, 320)
    assert len(dataset.hf_dataset) == dataset.num_frames
    return int(dataset.num_episodes)


if __name__ == "__main__":
    run_script(Options, main, description=__doc__)
