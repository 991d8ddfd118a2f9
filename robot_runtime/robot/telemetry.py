"""What happened in a run: `RunRecord` sums up every tick and splice, and keeps the newest.

ticks      1 2 3 ................................. n
figures    |<------------ of all, in fixed memory ->|
kept                               |<---- newest --->|     `keep` of them, or all
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pinocchio as pin

from robot_runtime.core.authority import Authority
from robot_runtime.core.orders import EpisodeMark, TakenOrder
from robot_runtime.core.plan.answers import Splice
from robot_runtime.core.plan.counts import Counts
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import (
    NS_PER_S,
    BasePoseCommand,
    Command,
    JointCommand,
    JointVelocityCommand,
    PoseCommand,
)
from robot_runtime.core.values.state import ARM, BASE, GRIPPER, ArmState, BaseState, RobotState
from robot_runtime.distribution import Distribution
from robot_runtime.errors import InvalidValueError

KEPT_TICKS = 15_000
"""Half a minute at 500 Hz, 10 MB."""
KEPT_LINES = 1000
KEPT_REQUESTS = 64
"""Requests whose rows are distinguished: more than can be in flight at once."""


class RunRecord:
    """The figures of one run, and its newest ticks, splices and lines, in order."""

    def __init__(
        self,
        *,
        counts: Counts | None = None,
        keep: int | None = KEPT_TICKS,
        period_ns: int | None = None,
    ) -> None:
        """
        counts: the executor's counts, shared with it.
        period_ns: of the control loop [ns], as the limits count: lateness of a tick is no jerk of the robot.
            None: the period is the difference of the ticks' times.
        keep: how many ticks, and how many splices; None keeps all, for episodes that are evaluated whole.
        """
        self.counts = Counts() if counts is None else counts
        self.ticks = deque[Tick](maxlen=keep)
        self.splices = deque[Splice](maxlen=keep)
        self.log = deque[tuple[int, str]](maxlen=KEPT_LINES)
        """What happened, with its time [ns]: changes of mode, server lost and back, answers not used."""
        self.listeners: list[Callable[[int, str, bool], object]] = []
        """Called with each line: its time [ns], its text, whether it is routine."""
        self.log_files: list[Path] = []
        """Where the run was logged, once it is over."""
        self.log_fault = ""
        """Why the log of the run stopped before the run did; empty: it did not, or there was no log."""
        self.armed = deque[tuple[int, str]](maxlen=KEPT_LINES)
        """When the robot was armed [ns], and by what; empty for a robot that needs no arming."""
        self.orders = deque[TakenOrder](maxlen=KEPT_LINES)
        """Operator commands, done and refused."""
        self.episodes = deque[EpisodeMark](maxlen=KEPT_LINES)
        """Trials that were marked and are over."""
        self.lateness_ns = Distribution()
        self.lead_latency_s = Distribution()
        """From each input of a person to the tick that commanded it [s]."""
        self.num_led = 0
        """Ticks in which a person drove a part."""
        self.has_policy = True
        """Whether there is a policy; else a person drives, and a stationary robot is no fault."""
        self.num_skipped = 0
        """Control deadlines that passed unserved."""
        self.refused_pictures = self.reused_pictures = 0
        """Camera images that were rejected, and requests that repeated an image."""
        self.fault = ""
        """Why the run ended by itself, or never moved the robot; empty if it was ended on purpose."""
        self.num_ticks = self.num_splices = 0
        self.first_splice: Splice | None = None
        self.start_ns: int | None = None
        """Time of its first tick [ns]."""
        self._held_ns = Counter[Cause]()
        self._num_clipped = self._num_smoothed = 0
        self._behind = 0.0
        self._latency_s, self._jump, self._picture_age_s = Distribution(), Distribution(), Distribution()
        self._jerk, self._rows = _Jerk(period_ns), _RowsSent()

    @property
    def is_whole(self) -> bool:
        """Whether every tick is kept."""
        return len(self.ticks) == self.num_ticks

    def line(self, t_ns: int, text: str, *, is_routine: bool = True) -> None:
        """A line for `log`, from any thread."""
        self.log.append((t_ns, text))
        for listener in self.listeners:
            listener(t_ns, text, is_routine)

    def on_tick(self, tick: Tick, splice: Splice | None) -> None:
        """Take a tick, and the executor's last splice if it is new."""
        if splice is not None and (not self.splices or self.splices[-1] is not splice):
            self._on_splice(splice)
        if self.start_ns is None:
            self.start_ns = tick.now_ns
        elif self.ticks[-1].mode is Mode.HOLD and Authority.HUMAN not in self.ticks[-1].authority.values():
            self._held_ns[self.ticks[-1].cause] += tick.now_ns - self.ticks[-1].now_ns
        self._num_clipped += tick.clip.has("position") or tick.clip.has("velocity")
        self._num_smoothed += tick.clip.has("acceleration") or tick.clip.has("jerk")
        self._behind = max(self._behind, tick.clip.distance)
        if tick.source is not None and tick.row is not None:
            self._rows.add(tick.source.request_id, tick.row)
        self._jerk.add(tick)
        self.num_ticks += 1
        self.ticks.append(tick)

    def _on_splice(self, splice: Splice) -> None:
        self._latency_s.add(splice.latency_ns / NS_PER_S)
        self._picture_age_s.add(splice.picture_age_ns / NS_PER_S)
        if self.first_splice is None:
            self.first_splice = splice
        else:  # the first one starts from rest: there is no plan it could disagree with
            self._jump.add(splice.seam.jump)
        self._rows.begin(splice.source.request_id, splice.first_fresh_row)
        self.num_splices += 1
        self.splices.append(splice)

    def commands(self) -> np.ndarray:
        """(T, 1 + D) time [ns] and the numbers of every command given to the drivers, of the kept ticks."""
        return np.array([[tick.now_ns, *_numbers(tick.command)] for tick in self.ticks])

    def sent(self) -> np.ndarray:
        """As `commands`, but what the drivers actually sent, within their own limits."""
        return np.array([[tick.now_ns, *_numbers(tick.sent or tick.command)] for tick in self.ticks])

    def digest(self) -> str:
        """Return a fingerprint of `commands`: equal if and only if every bit of them is.

        InvalidValueError: not all ticks are kept.
        """
        import hashlib  # not needed to run a robot

        if not self.is_whole:
            raise InvalidValueError(f"of {self.num_ticks} ticks the last {len(self.ticks)} are kept, not all")
        return hashlib.sha256(self.commands().tobytes()).hexdigest()

    @property
    def chunks_per_s(self) -> float:
        """Chunks per second that ran, by their capture times; 0 for fewer than two."""
        if self.first_splice is None or self.num_splices < 2:
            return 0.0
        seen_ns = self.splices[-1].source.t_obs_ns - self.first_splice.source.t_obs_ns
        return (self.num_splices - 1) * NS_PER_S / seen_ns if seen_ns > 0 else 0.0

    def summary(self) -> dict[str, float]:
        """Return the figures by which methods are compared, besides the task's own score."""
        return {
            "duration_s": self._duration_s,
            "stalled_s": self._held_ns.total() / NS_PER_S,
            "num_chunks": float(self.num_splices),
            "latency_p50_s": self._latency_s.quantile(0.5),
            "latency_p95_s": self._latency_s.quantile(0.95),
            "seam_jump_p50": self._jump.quantile(0.5),
            "seam_jump_max": self._jump.max,
            "jerk_mean": self._jerk.sizes.mean,
            "jerk_max": self._jerk.sizes.max,
            "repeated_rows": float(self._rows.num_repeated),
            "resent_rows": float(self._rows.num_resent),
            **{name: float(count) for name, count in asdict(self.counts).items()},
            "picture_age_p95_s": self._picture_age_s.quantile(0.95),
            "refused_pictures": float(self.refused_pictures),
            "reused_pictures": float(self.reused_pictures),
            **self._led_figures(),
            "clipped_share": self._num_clipped / max(self.num_ticks, 1),
            "smoothed_share": self._num_smoothed / max(self.num_ticks, 1),
            "behind_max": self._behind,
        }

    def _led_figures(self) -> dict[str, float]:
        """Return the figures of a run in which a person drove."""
        latency_s = self.lead_latency_s
        if latency_s.count == 0:
            return {}
        return {
            "led_share": self.num_led / max(self.num_ticks, 1),
            "lead_latency_p50_s": latency_s.quantile(0.5),
            "lead_latency_p95_s": latency_s.quantile(0.95),
        }

    @property
    def _duration_s(self) -> float:
        return (self.ticks[-1].now_ns - self.start_ns) / NS_PER_S if self.start_ns is not None else 0.0

    def why_it_stood(self) -> str:
        """Return a sentence if the robot was stationary for more than half of its armed time; else empty.

        Waiting for an operator is no fault.
        """
        if not self.has_policy:
            return ""
        held = Counter({c: ns for c, ns in self._held_ns.items() if c is not Cause.NOT_ARMED})
        held_s = held.total() / NS_PER_S
        armed_s = self._duration_s - self._held_ns[Cause.NOT_ARMED] / NS_PER_S
        if held_s <= 0.5 * armed_s:
            return ""
        first = "it waited for its first chunk"
        words = {Cause.RESET: first, Cause.ARMED: first}
        why = ", ".join(
            f"{words.get(cause, cause.value)} ({ns / NS_PER_S:.1f} s)" for cause, ns in held.most_common()
        )
        return f"the robot was stationary for {held_s:.1f} of {armed_s:.1f} s: {why}"

    def num_resent_rows(self) -> int:
        """Return `_RowsSent.num_resent`: 0 by construction."""
        return self._rows.num_resent

    def num_repeated_rows(self) -> int:
        """Return `_RowsSent.num_repeated`: the rows that a naive splice repeats."""
        return self._rows.num_repeated

    def rows_sent(self) -> list[tuple[int, int]]:
        """Return (request id, row) of every row in the order in which they came due, once for each time; of
        the kept ticks."""
        rows = [
            (tick.source.request_id, tick.row)
            for tick in self.ticks
            if tick.source is not None and tick.row is not None
        ]
        return [row for i, row in enumerate(rows) if i == 0 or rows[i - 1] != row]


class _RowsSent:
    """Counts rows that were sent twice, of the newest `KEPT_REQUESTS` answers."""

    def __init__(self) -> None:
        self.num_resent = 0
        """Rows sent again, or after a later row of their chunk: 0 by construction.

        Rows of an older chunk may follow those of a newer one whose further rows are late or lost.
        """
        self.num_repeated = 0
        """Rows sent although the time they were meant for had passed when their chunk entered the plan.

        The robot was moving, so it had passed their targets already: the rows that a naive splice repeats.

            capture            arrival
               0    1    2    3 |               meant for: rows 0 to 3 are past
                                0    1    2     sent: all of them, rows 0 to 3 repeat
        """
        self._last: tuple[int, int] | None = None
        self._latest: dict[int, int] = {}
        self._first_fresh: dict[int, int] = {}
        self._repeated: dict[int, set[int]] = {}

    def begin(self, request_id: int, first_fresh_row: int) -> None:
        """Note that an answer enters the plan; its rows before `first_fresh_row` are due in the past."""
        for of in (self._latest, self._first_fresh, self._repeated):
            while len(of) >= KEPT_REQUESTS:
                del of[next(iter(of))]
        self._first_fresh[request_id] = first_fresh_row

    def add(self, request_id: int, row: int) -> None:
        """Note the row that a tick moves toward; called at every tick."""
        if self._last == (request_id, row):
            return
        self._last = (request_id, row)
        latest = self._latest.get(request_id, -1)
        self.num_resent += row <= latest
        self._latest[request_id] = max(row, latest)
        if row < self._first_fresh.get(request_id, 0):
            repeated = self._repeated.setdefault(request_id, set())
            self.num_repeated += row not in repeated
            repeated.add(row)


class _Jerk:
    """Third derivative of the commands of arms and other groups of joints, by divided differences between
    ticks.

    The largest of the joints' [rad/s^3] and of the end effectors' positions [m/s^3].
    """

    def __init__(self, period_ns: int | None) -> None:
        self._period_ns, self._num_ticks = period_ns, 0
        self.sizes = Distribution()
        self._before: dict[tuple[str, type], list[tuple[float, np.ndarray]]] = {}
        """Value, velocity and acceleration of each part's last command, each with its time [s]."""

    def add(self, tick: Tick) -> None:
        """Add a command; for a new part, or another kind of command, the differences restart."""
        self._num_ticks += 1
        now_ns = tick.now_ns if self._period_ns is None else self._num_ticks * self._period_ns
        before, self._before, largest = self._before, {}, -1.0
        for name, commanded in tick.command.parts.items():
            match commanded:
                case JointCommand(q=values) | PoseCommand(p_BE=values):
                    key = name, type(commanded)
                    derivatives = _derivatives(now_ns / NS_PER_S, values, before.get(key, []))
                    self._before[key] = derivatives[:3]
                    if len(derivatives) == 4:
                        jerk = derivatives[3][1]
                        is_joints = isinstance(commanded, JointCommand)
                        size = float(np.abs(jerk).max() if is_joints else np.linalg.norm(jerk))
                        largest = max(largest, size)
        if largest >= 0.0:
            self.sizes.add(largest)


class MotionCheck:
    """Whether the robot moves as it is commanded to: joints, end effectors and poses of bases.

    It compares, for each number, the commanded and the measured range, from least to largest. A gripper on an
    object may stay where it is, so grippers are not checked.
    """

    def __init__(self, period_s: float) -> None:
        """period_s: how long a joint velocity is commanded [s]."""
        self._period_s = period_s
        self._ends: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}
        """(part, what) -> the least and the largest (2, n), commanded and measured."""
        self._integrated: dict[str, np.ndarray] = {}
        """Part -> the integral of its velocities (n,)."""

    def add(self, command: Command, state: RobotState) -> None:
        """Add a tick."""
        for part, commanded in command.parts.items():
            measured = state.parts.get(part)
            match commanded, measured:
                case JointCommand(q=q), ArmState():
                    self._note((part, "joint"), q, measured.q)
                case JointVelocityCommand(dq=dq), ArmState():
                    moved = self._integrated.get(part, np.zeros(len(dq))) + self._period_s * dq
                    self._integrated[part] = moved
                    self._note((part, "joint"), moved, measured.q)
                case PoseCommand(p_BE=p_BE), ArmState(X_BE=pin.SE3() as X_BE):
                    self._note((part, "axis"), p_BE, X_BE.translation)
                case BasePoseCommand(x_WB=x_WB), BaseState(x_WB=np.ndarray() as at):
                    self._note((part, "axis"), x_WB, at)

    def _note(self, what: tuple[str, str], commanded: np.ndarray, measured: np.ndarray) -> None:
        both = np.array([commanded, measured])
        low, high = self._ends.get(what, (both, both))
        self._ends[what] = np.minimum(low, both), np.maximum(high, both)

    def unmoved(self) -> tuple[list[str], bool]:
        """Return a sentence for each part that did not move in some axis, and whether nothing moved at
        all."""
        out, num_moved = [], 0
        for (part, what), (low, high) in self._ends.items():
            commanded, moved = high - low
            asked = commanded >= ASKED
            stood = asked & (moved < FOLLOWED * commanded)
            num_moved += int(asked.sum() - stood.sum())
            if not stood.any():
                continue
            worst = int(np.argmax(np.where(stood, commanded, 0.0)))
            which = part if (stood == asked).all() else f"{what} {worst + 1} of {part}"
            unit = "rad or m" if what == "joint" else "m"
            out.append(
                f"{which} was commanded over {commanded[worst]:.2g} {unit} and is measured to have moved "
                f"{moved[worst]:.2g}: is it enabled, and does its driver's read() give what is measured now?"
            )
        return out, bool(out) and num_moved == 0


ASKED = 0.05
"""A range that counts as a commanded motion [rad or m]."""
FOLLOWED = 0.1
"""A part that moves less than this share of it does not follow."""


def _derivatives(
    now_s: float, values: np.ndarray, before: list[tuple[float, np.ndarray]]
) -> list[tuple[float, np.ndarray]]:
    """Return value, velocity, acceleration and jerk, each with its time, as far as `before` reaches."""
    out = [(now_s, values)]
    for time_s, value in before:
        newest_s, newest = out[-1]
        out.append((0.5 * (newest_s + time_s), (newest - value) / (newest_s - time_s)))
    return out


def _numbers(command: Command) -> list[float]:
    """Return the numbers of "arm", "base" and "gripper" first, then of the other parts in their order."""
    usual = [name for name in (ARM, BASE, GRIPPER) if name in command.parts]
    out: list[float] = []
    for name in (*usual, *(name for name in command.parts if name not in usual)):
        for value in vars(command.parts[name]).values():
            if not isinstance(value, bool):
                out += np.ravel(value).tolist()
    return out
