"""Kills a recording at random moments and reads the rest with stock LeRobot.

    uv run --extra lerobot python -m scripts.attack.kill_record --times 100
    uv run --extra lerobot --extra sim python -m scripts.attack.kill_record --times 12 --command

The first kills the recorder in its own process, the second `robot-runtime record`.

Each time, the script records episodes with images into a folder, ends the process by a signal at a random
moment, reads all numbers and the first and last images of every episode reported as finished, and continues
in the folder with another recording, three times in a row. Exit code 1 if anything was lost.
"""

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from robot_runtime.cli.options import Count, Seed
from scripts.bench.faults.recordings import killed_recorder, missing
from scripts.harness import run_script

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def killed_command(folder: Path, moment_s: float, number: int) -> tuple[int, bool]:
    """Kill `robot-runtime record` likewise; the moment counts from its first episode."""
    command = [
        sys.executable,
        "-m",
        "robot_runtime.cli",
        "record",
        "--task",
        "track",
        "--output",
        str(folder),
    ]
    command += ["--episodes", "6", "--cameras", "overview", "--size", "48", "48", "--resume"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    before = episodes_in(folder)
    while process.poll() is None and episodes_in(folder) == before:
        time.sleep(0.02)
    time.sleep(moment_s)
    finished, was_alive = episodes_in(folder), process.poll() is None
    if was_alive:
        process.send_signal(number)
    process.wait()
    return finished, was_alive


def episodes_in(folder: Path) -> int:
    try:
        return int(json.loads((folder / "meta/info.json").read_text())["total_episodes"])
    except FileNotFoundError:
        return 0


@dataclass(frozen=True, kw_only=True)
class Args:
    times: Count = 100
    seed: Seed = 0
    command: bool = False
    """Kill `robot-runtime record` itself."""


def main(options: Args) -> int:
    rng, lost, in_time, finished_in_all = random.Random(options.seed), 0, 0, 0
    kill = killed_command if options.command else killed_recorder
    with tempfile.TemporaryDirectory() as folders:
        killed_recorder(Path(folders) / "warm", 60.0, signal.SIGKILL)
        start = time.monotonic()
        killed_recorder(Path(folders) / "whole", 60.0, signal.SIGKILL)
        whole_s = 6.0 if options.command else time.monotonic() - start
        for i in range(options.times):
            folder = Path(folders) / f"dataset-{i - i % 3}"  # the same folder three times in a row
            number = rng.choice(SIGNALS)
            finished, was_alive = kill(folder, rng.uniform(0.0, whole_s), number)
            why = missing(folder, finished, numbered=not options.command)
            in_time, finished_in_all = in_time + was_alive, finished_in_all + finished
            lost += bool(why)
            print(f"{i:3} {signal.Signals(number).name} {finished} finished {why or 'all read'}", flush=True)
    print(
        f"{options.times} times, {in_time} before it had ended by itself; {finished_in_all} episodes were "
        f"finished when the signal came; datasets with something lost: {lost}"
    )
    return int(lost > 0)


if __name__ == "__main__":
    run_script(Args, main, description=__doc__)
