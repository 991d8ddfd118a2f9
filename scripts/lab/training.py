"""`train_missing` trains the policies that a comparison lacks, each in its own process."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Protocol

from robot_runtime.errors import RobotRuntimeError

LOOK_AGAIN_S = 1.0
"""Between looks whether the demonstrations that others wait for are there."""


class Trainable(Protocol):
    """A checkpoint that is missing."""

    @property
    def folder(self) -> Path:
        """Where it will lie, beside the demonstrations of its task."""
        ...

    @property
    def command(self) -> tuple[str, ...]:
        """What makes it."""
        ...

    @property
    def can_train(self) -> bool:
        """Whether what it goes on from is there: a policy, a recording, or nothing at all."""
        ...


class TrainingError(RobotRuntimeError):
    """A policy could not be trained; what was trained before is kept."""


def train_missing[T: Trainable](
    missing: Sequence[T],
    *,
    workers: int,
    options: Sequence[str] = (),
    on_policy: Callable[[T], None] = lambda policy: None,
) -> list[T]:
    """Train them, at most `workers` at a time, each after the one it goes on from.

    Those that most others go on from come first, so that none has to wait for one of them at the end.

    Returns those that lack what they would learn from. The first policy of a task also collects the
    demonstrations, with its share of the workers; the others of the task wait for those, and not for the
    first one's training.

    options: further ones of `robot-runtime train`, for all of them.
    on_policy: gets each finished one. TrainingError: a command failed; it contains the end of its output.
    """
    waiting, running = _most_needed_first(missing), dict[Future[None], T]()
    num_to_collect = len({path for path in map(_demonstrations, missing) if not path.is_file()})
    collecting = ("--workers", str(max(1, workers // max(1, num_to_collect))))
    with ThreadPoolExecutor(workers) as pool:
        while waiting or running:
            for policy in [p for p in waiting if can_start(p, list(running.values()))]:
                if len(running) < workers and can_start(policy, list(running.values())):
                    waiting.remove(policy)
                    more = () if _demonstrations(policy).is_file() else collecting
                    running[pool.submit(_train, policy, (*more, *options))] = policy
            if not running:
                break
            is_idle = waiting and len(running) < workers
            done, _ = wait(running, LOOK_AGAIN_S if is_idle else None, return_when=FIRST_COMPLETED)
            for future in done:
                policy = running.pop(future)
                future.result()
                on_policy(policy)
    return waiting


def _most_needed_first[T: Trainable](policies: Sequence[T]) -> list[T]:
    commands = [policy.command for policy in policies]
    return sorted(policies, key=lambda policy: -sum(str(policy.folder) in command for command in commands))


def can_start(policy: Trainable, running: Sequence[Trainable]) -> bool:
    """Return whether what it learns from and goes on from is there, and completely written."""
    if any(str(other.folder) in policy.command for other in running):
        return False
    has_demonstrations = _demonstrations(policy).is_file()
    is_collected = any(_demonstrations(other) == _demonstrations(policy) for other in running)
    return policy.can_train and (has_demonstrations or not is_collected)


def _demonstrations(policy: Trainable) -> Path:
    return policy.folder.parent / "demonstrations.npz"


def _train(policy: Trainable, options: Sequence[str]) -> None:
    policy.folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "robot_runtime.cli", *policy.command[1:], *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise TrainingError(f"`{policy}` failed: {result.stderr.strip()[-500:]}")
