"""What happened in a run: `RunRecord` keeps every tick and splice, and sums them up."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from robot_runtime.core.action import NS_PER_S, BasePoseCommand, BaseTwistCommand, JointCommand, PoseCommand
from robot_runtime.core.executor import Splice, Tick
from robot_runtime.core.safety import Mode

MAX_TICKS = 300_000
"""Ten minutes at 500 Hz."""


@dataclass(kw_only=True, eq=False)
class RunRecord:
    """One episode's ticks and splices, in order; of a long run, the last `MAX_TICKS` ticks."""

    ticks: deque[Tick] = field(default_factory=lambda: deque(maxlen=MAX_TICKS))
    splices: list[Splice] = field(default_factory=list)
    lateness_ns: list[int] = field(default_factory=list)
    num_skipped: int = 0
    """Control deadlines that passed unserved."""
    log: list[tuple[int, str]] = field(default_factory=list)
    """What happened, with its time [ns]: changes of mode, server lost and back, answers not used."""

    def on_tick(self, tick: Tick, splice: Splice | None) -> None:
        """Keep a tick, and the executor's last splice if it is new."""
        self.ticks.append(tick)
        if splice is not None and (not self.splices or self.splices[-1] is not splice):
            self.splices.append(splice)

    def commands(self) -> np.ndarray:
        """(T, 1 + D) time [ns] and the numbers of every command that was sent."""
        return np.array([[tick.now_ns, *_numbers(tick)] for tick in self.ticks])

    def digest(self) -> str:
        """A fingerprint of the command log: equal if and only if every bit of it is."""
        import hashlib  # a robot does not need it

        return hashlib.sha256(self.commands().tobytes()).hexdigest()

    def summary(self) -> dict[str, float]:
        """The figures every method is judged by, besides the task's own score."""
        start_ns = next((tick.now_ns for tick in self.ticks if tick.mode is Mode.RUN), None)
        held_ns = sum(
            b.now_ns - a.now_ns
            for a, b in pairwise(self.ticks)
            if start_ns is not None and a.now_ns >= start_ns and a.mode is Mode.HOLD
        )
        latencies = [splice.latency_ns / NS_PER_S for splice in self.splices]
        # The first splice starts from rest: there is no plan it could disagree with.
        jumps = [splice.seam.jump for splice in self.splices[1:]]
        duration_ns = self.ticks[-1].now_ns - self.ticks[0].now_ns if self.ticks else 0
        return {
            "duration_s": duration_ns / NS_PER_S,
            "stalled_s": held_ns / NS_PER_S,
            "num_chunks": float(len(self.splices)),
            "latency_p50_s": _quantile(latencies, 0.5),
            "latency_p95_s": _quantile(latencies, 0.95),
            "seam_jump_p50": _quantile(jumps, 0.5),
            "seam_jump_max": max(jumps, default=0.0),
            "clipped_share": _share(tick.clip.position or tick.clip.velocity for tick in self.ticks),
            "smoothed_share": _share(tick.clip.acceleration for tick in self.ticks),
        }


def _numbers(tick: Tick) -> list[float]:
    out: list[float] = []
    match tick.command.arm:
        case JointCommand(q=q):
            out += q.tolist()
        case PoseCommand(p_BE=p, quat_BE=quat):
            out += [*p.tolist(), *quat.tolist()]
    match tick.command.base:
        case BasePoseCommand(x_WB=x):
            out += x.tolist()
        case BaseTwistCommand(V_WB_B=twist):
            out += twist.tolist()
    if tick.command.gripper is not None:
        out.append(tick.command.gripper.width)
    return out


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / max(len(values), 1)


def _quantile(values: list[float], q: float) -> float:
    return float(np.quantile(values, q)) if values else 0.0
