"""What happened in a run: `RunRecord` keeps every tick and splice, and sums them up."""

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import pairwise

import numpy as np

from robot_runtime.core.action import NS_PER_S, BasePoseCommand, BaseTwistCommand, JointCommand, PoseCommand
from robot_runtime.core.counts import Counts
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
    counts: Counts = field(default_factory=Counts)
    """The executor's own, shared with it: they go on counting when old ticks have been dropped."""

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
        jerk = self.jerk()
        duration_ns = self.ticks[-1].now_ns - self.ticks[0].now_ns if self.ticks else 0
        return {
            "duration_s": duration_ns / NS_PER_S,
            "stalled_s": held_ns / NS_PER_S,
            "num_chunks": float(len(self.splices)),
            "latency_p50_s": _quantile(latencies, 0.5),
            "latency_p95_s": _quantile(latencies, 0.95),
            "seam_jump_p50": _quantile(jumps, 0.5),
            "seam_jump_max": max(jumps, default=0.0),
            "jerk_mean": float(jerk.mean()) if jerk.size else 0.0,
            "jerk_max": float(jerk.max(initial=0.0)),
            "repeated_rows": float(self.num_repeated_rows()),
            "resent_rows": float(self.num_resent_rows()),
            **{name: float(count) for name, count in asdict(self.counts).items()},
            "clipped_share": _share(tick.clip.position or tick.clip.velocity for tick in self.ticks),
            "smoothed_share": _share(tick.clip.acceleration for tick in self.ticks),
        }

    def rows_sent(self) -> list[tuple[int, int]]:
        """(request id, row) of every row in the order in which they came due, a row once for each time."""
        rows = [
            (tick.source.request_id, tick.row)
            for tick in self.ticks
            if tick.source is not None and tick.row is not None
        ]
        return [row for i, row in enumerate(rows) if i == 0 or rows[i - 1] != row]

    def num_resent_rows(self) -> int:
        """Rows sent again, or after a later row of their chunk: 0 by construction.

        Rows of an older chunk may follow those of a newer one whose further rows are late or lost.
        """
        latest: dict[int, int] = {}
        count = 0
        for request_id, row in self.rows_sent():
            count += row <= latest.get(request_id, -1)
            latest[request_id] = max(row, latest.get(request_id, -1))
        return count

    def num_repeated_rows(self) -> int:
        """Rows sent although the time they were meant for had passed when their chunk entered the plan.

        The robot was moving, so it had already been where they lead: the rows a naive splice goes back over.

            capture            arrival
               0    1    2    3 |               meant for: rows 0 to 3 are past
                                0    1    2     sent: all of them, rows 0 to 3 repeat
        """
        fresh = {splice.source.request_id: splice.first_fresh_row for splice in self.splices}
        return sum(row < fresh.get(request_id, 0) for request_id, row in set(self.rows_sent()))

    def jerk(self) -> np.ndarray:
        """Third derivative of the commanded arm by divided differences from tick to tick, (T - 3,).

        The largest joint's [rad/s^3], or that of the hand's position [m/s^3].
        """
        arms = [tick.command.arm for tick in self.ticks]
        joints = [arm.q for arm in arms if isinstance(arm, JointCommand)]
        hands = [arm.p_BE for arm in arms if isinstance(arm, PoseCommand)]
        if len(self.ticks) < 4 or max(len(joints), len(hands)) < len(self.ticks):
            return np.zeros(0)
        values = np.array(joints or hands)
        times = np.array([tick.now_ns for tick in self.ticks]) / NS_PER_S
        for _ in range(3):
            values = np.diff(values, axis=0) / np.diff(times)[:, None]
            times = 0.5 * (times[1:] + times[:-1])
        return np.abs(values).max(axis=1) if joints else np.linalg.norm(values, axis=1)


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
