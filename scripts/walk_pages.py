"""Run the commands of README and pages as they are printed, in a copy of the repository.

python -m scripts.walk_pages                                 # all pages; an hour or more
python -m scripts.walk_pages --pages docs/quickstart.md --list

A page's commands run one after the other, from top to bottom, in one folder. A server goes on beside the
commands that follow, until the next one; a run without an end gets Ctrl-C. Files that a page asks to write
("`my_policy.py`, ...:" before a code block) are written. What needs a device, a person, another machine or
the user's own files does not run, and its reason is printed.
"""

import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from robot_runtime.cli.options import Several
from robot_runtime.errors import RobotRuntimeError
from scripts.harness import run_script

ROOT = Path(__file__).parents[1]
COMMAND_S, RUN_S, SERVER_S = 1800.0, 20.0, 120.0
"""Limits of a command, of a run until Ctrl-C, and of a server's start [s]."""
NOT_HERE = {
    r"^(pip|python3 -m uv|ssh|echo|sudo|ros2|franky-sim|lerobot-)|^FRANKA_HOST": "sets up a machine",
    r"/dev/|172\.16|robot\.toml|so101\.toml|examples/fr3|rig\.toml|doctor": "needs a robot or a camera",
    r"\.mp4|marks\.csv|CAPTURE|kitchen|bedroom|drive/|_lens|board/board": "needs the user's recordings",
    r"//gpu|tcp://\*|--keys|cuda": "needs another machine",
    r"--teleop|--page|^robot-runtime (page|teleop)": "needs a person",
    r"act/|act_aloha|\.\.\.\.|2026|datasets/fetch|policies/mine": "names files of the user's",
    r"outputs/(folding|more|all|parts)": "names files of the user's",
    r"capture_policies|--episodes (100|250)|outputs/own|--lerobot|RosRobot": "takes hours",
}


@dataclass(frozen=True, kw_only=True)
class Args:
    pages: Several[str] = ()
    """Pages, such as docs/quickstart.md; all if not given."""
    list: bool = False
    """Print what would run, and what would not and why."""


def blocks(text: str) -> list[tuple[str, str]]:
    """In the order of the page: ("file name", code) to write, and ("", commands) to run."""
    out = []
    for found in re.finditer(r"```(bash|python)\n(.*?)```", text, re.DOTALL):
        kind, code = found.groups()
        before = text[: found.start()].rstrip().rpartition("\n\n")[2]
        named = re.findall(r"`(\w+\.py)`[^`]*:$", before, re.DOTALL)
        if kind == "bash" or named:
            out.append(("" if kind == "bash" else named[-1], code))
    return out


def commands(block: str) -> list[str]:
    joined = re.sub(r"\\\n\s*", " ", block)
    lines = [line.partition("  #")[0].strip() for line in joined.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def as_run(command: str) -> str:
    """With the answer to the question whether the robot may be armed, for which a terminal is needed."""
    asks = re.search(r"^robot-runtime run .*--robot ", command) and "--yes" not in command
    return f"{command} --yes" if asks else command


def reason(command: str) -> str:
    """Why it cannot run here; empty: it can."""
    return next((why for pattern, why in NOT_HERE.items() if re.search(pattern, command)), "")


def started(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words, cwd=folder, stdout=(folder / "walk.txt").open("ab"), stderr=subprocess.STDOUT
    )


def run(command: str, folder: Path, beside: list[subprocess.Popen[bytes]]) -> str:
    """What went wrong; empty: nothing."""
    output = folder / "walk.txt"
    output.write_bytes(b"")
    words = shlex.split(command)
    words[:1] = (
        [sys.executable, "-m", "robot_runtime.cli"] if words[0] == "robot-runtime" else [sys.executable]
    )
    process = started(words, folder)
    if command.startswith("robot-runtime serve"):
        end_s = time.monotonic() + SERVER_S
        while b"ready" not in output.read_bytes():
            if process.poll() is not None or time.monotonic() > end_s:
                return output.read_text()[-600:]
            time.sleep(0.2)
        beside.append(process)
        return ""
    endless = command.startswith("robot-runtime run") and "--duration-s" not in command
    try:
        code = process.wait(RUN_S if endless else COMMAND_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        code = process.wait(30.0)
        if endless and code == 130:
            return ""
    return "" if code == 0 else f"exit code {code}: {output.read_text()[-600:]}"


def walk(page: str, folder: Path, *, only_list: bool) -> list[str]:
    """Return each command that failed, with the end of its output."""
    failed, beside = [], list[subprocess.Popen[bytes]]()
    for name, code in blocks((ROOT / page).read_text()):
        if name:
            (folder / name).write_text(code)
            continue
        for command in commands(code):
            why = reason(command)
            if command.startswith("robot-runtime serve") and not why and not only_list:
                stop(beside)
            begun_s = time.monotonic()
            wrong = "" if why or only_list else run(as_run(command), folder, beside)
            took = f"{time.monotonic() - begun_s:.0f} s"
            word = (
                f"not run: {why}"
                if why
                else "would run"
                if only_list
                else "FAILED"
                if wrong
                else f"ok, {took}"
            )
            print(f"{page}: {command[:100]}: {word}", flush=True)
            if wrong:
                print(wrong, flush=True)
                failed.append(f"{page}: {command}")
    stop(beside)
    return failed


def stop(beside: list[subprocess.Popen[bytes]]) -> None:
    while beside:
        process = beside.pop()
        process.send_signal(signal.SIGINT)
        process.wait(30.0)


def main(args: Args) -> None:
    """RobotRuntimeError: a command failed."""
    known = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md")))]
    failed = []
    for page in args.pages or known:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "copy"
            skipped = shutil.ignore_patterns(".git", ".venv", "__pycache__", "_build", "outputs")
            shutil.copytree(ROOT, folder, ignore=skipped)
            failed += walk(page, folder, only_list=args.list)
    if failed:
        raise RobotRuntimeError("these commands failed:\n" + "\n".join(failed))


if __name__ == "__main__":
    run_script(Args, main)
