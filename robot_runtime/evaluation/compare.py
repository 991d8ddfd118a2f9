"""Compares two groups of logged runs: `trials_of` a log, `compare` groups of them.

The figures come from the journal, so a run on a robot and one in simulation are judged alike. An interval
shows how certain a difference is: of rates by Newcombe 1998, of means by the bootstrap, paired by seed where
both groups have the same ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from robot_runtime.core.journal import PartCame, Ticked
from robot_runtime.core.orders import EpisodeMark, Outcome
from robot_runtime.core.safety import Cause, Mode
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import ArmState, RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.evaluation.statistics import difference_interval, wilson_interval
from robot_runtime.log.reader import RunLog
from robot_runtime.robot.telemetry import RunRecord

STARVED = (Cause.PLAN_ENDED, Cause.RESET, Cause.ARMED)
"""Cause of HOLD that only means that no chunk was there."""
SETTLING_NS = NS_PER_S
"""The end of a trial, in which a robot should be stationary at its goal [ns]."""
RESAMPLES = 4000

FIGURES: Mapping[str, str] = {
    "completion_s": "of those that succeeded [s]",
    "duration_s": "of all trials [s]",
    "starved_s": "held because no chunk was there [s]",
    "stalled_s": "held for any cause [s]",
    "jerk_mean": "of what was commanded [rad/s³ or m/s³]",
    "jerk_max": "the same, largest",
    "oscillation": "path of a joint there and back in the last second [rad]",
    "seam_jump_p50": "between old and new plan, median [rad or m]",
    "clipped_share": "of ticks that the limits cut",
    "latency_p50_s": "capture to first row, median [s]",
    "latency_p95_s": "the same, 95th percentile [s]",
    "human_s": "moved by a person [s]",
}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One episode of a log, in figures."""

    seed: int
    outcome: Outcome
    figures: Mapping[str, float]
    """By the names of `FIGURES`; unknown ones are left out."""
    task: str = ""
    """Seed of its run."""


def trials_of(log: RunLog) -> list[Trial]:
    """The trials of a log, in order, except those with gaps.

    InvalidValueError: its journal is of another version.
    """
    marks = [mark for mark in log.episodes() if not log.is_missing(mark.start_ns, mark.end_ns)]
    steps: list[list[Ticked | PartCame]] = [[] for _ in marks]
    for entry in log.journal():
        match entry:
            case Ticked(tick=tick):
                t_ns = tick.now_ns
            case PartCame(splice=splice, now_ns=t_ns) if splice is not None:
                pass
            case _:
                continue
        for mark, of in zip(marks, steps, strict=True):
            if mark.start_ns <= t_ns < mark.end_ns:
                of.append(entry)
    return [
        replace(_trial(log.info.seed, mark, of, log.info.control_period_ns), task=log.info.task)
        for mark, of in zip(marks, steps, strict=True)
        if any(isinstance(entry, Ticked) for entry in of)
    ]


def _trial(seed: int, mark: EpisodeMark, entries: Sequence[Ticked | PartCame], period_ns: int) -> Trial:
    record, splice = RunRecord(keep=None, period_ns=period_ns), None
    states: list[RobotState] = []
    for entry in entries:
        match entry:
            case PartCame():
                splice = entry.splice
            case Ticked(state=state, tick=tick):
                record.on_tick(tick, splice)
                states.append(state)
    ticks = list(record.ticks)
    summary = record.summary()
    starved = sum(tick.mode is Mode.HOLD and tick.cause in STARVED for tick in ticks)
    figures = {name: summary[name] for name in FIGURES if name in summary}
    if not record.num_splices:  # without a splice these are undefined
        for name in ("seam_jump_p50", "latency_p50_s", "latency_p95_s"):
            figures.pop(name, None)
    figures |= {
        "starved_s": starved * period_ns / NS_PER_S,
        "oscillation": oscillation(states),
        "human_s": sum(map(_is_humans, ticks)) * period_ns / NS_PER_S,
    }
    if mark.outcome is Outcome.SUCCESS:
        figures["completion_s"] = summary["duration_s"]
    return Trial(seed=seed, outcome=mark.outcome, figures=figures)


def _is_humans(tick: object) -> bool:
    authority = getattr(tick, "authority", None) or {}
    return any(who.value == "human" for who in authority.values())


def oscillation(states: Sequence[RobotState]) -> float:
    """Oscillation of the busiest joint in the last second: path length less distance [rad]."""
    settling = [s for s in states if s.t_ns >= states[-1].t_ns - SETTLING_NS]
    largest = 0.0
    for part, first in settling[0].parts.items() if settling else ():
        if isinstance(first, ArmState):
            q = np.array([s.arm(part).q for s in settling if part in s.parts])
            q = q[np.isfinite(q).all(axis=1)]
            if len(q) > 1:
                to_and_fro = np.abs(np.diff(q, axis=0)).sum(axis=0) - np.abs(q[-1] - q[0])
                largest = max(largest, float(to_and_fro.max()))
    return largest


@dataclass(frozen=True, kw_only=True)
class Row:
    """A figure of two groups."""

    name: str
    a: float | None
    b: float | None
    """Means; None: no trial has it."""
    difference_95: tuple[float, float] | None = None
    """Interval of b less a; None: too few trials."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two groups of trials."""

    trials: tuple[int, int]
    outcomes: tuple[dict[str, int], dict[str, int]]
    success_interval_95: tuple[tuple[float, float] | None, tuple[float, float] | None]
    is_paired: bool
    """Whether the trials have the same seeds, and are compared seed by seed."""
    rows: tuple[Row, ...] = field(default=())


def compare(a: Sequence[Trial], b: Sequence[Trial]) -> Comparison:
    """Compare b with a. Trials without an outcome count for everything but success.

    InvalidValueError: the groups are of different tasks.
    """
    tasks = [sorted({trial.task for trial in group}) for group in (a, b)]
    if tasks[0] != tasks[1]:
        names = (", ".join(map(repr, each)) for each in tasks)
        raise InvalidValueError(
            "expected two groups of the same tasks, got {} in a and {} in b".format(*names)
        )
    judged = [_judged(group) for group in (a, b)]
    seeds = [[(trial.task, trial.seed) for trial in group] for group in (a, b)]
    is_paired = len(a) > 1 and sorted(seeds[0]) == sorted(seeds[1]) and len(set(seeds[0])) == len(a)
    if is_paired:
        a, b = (sorted(group, key=lambda trial: (trial.task, trial.seed)) for group in (a, b))
    rates = [(sum(group) / len(group) if group else None) for group in judged]
    success = None
    if all(len(group) > 1 for group in judged):
        success = difference_interval(sum(judged[1]), len(judged[1]), sum(judged[0]), len(judged[0]))
    rows = [Row(name="success", a=rates[0], b=rates[1], difference_95=success)]
    for name in FIGURES:
        if any(name in trial.figures for trial in (*a, *b)):
            rows.append(_row(name, a, b, is_paired=is_paired))
    return Comparison(
        trials=(len(a), len(b)),
        outcomes=(_outcomes(a), _outcomes(b)),
        success_interval_95=tuple(  # type: ignore[arg-type]
            wilson_interval(sum(group), len(group)) if group else None for group in judged
        ),
        is_paired=is_paired,
        rows=tuple(rows),
    )


def _judged(trials: Sequence[Trial]) -> list[bool]:
    return [trial.outcome is Outcome.SUCCESS for trial in trials if trial.outcome is not Outcome.UNKNOWN]


def _outcomes(trials: Sequence[Trial]) -> dict[str, int]:
    found = [trial.outcome.value for trial in trials]
    return {outcome.value: found.count(outcome.value) for outcome in Outcome if outcome.value in found}


def _row(name: str, a: Sequence[Trial], b: Sequence[Trial], *, is_paired: bool) -> Row:
    values = [np.array([t.figures[name] for t in group if name in t.figures]) for group in (a, b)]
    pairs = [(x.figures.get(name), y.figures.get(name)) for x, y in zip(a, b, strict=False)]
    rng = np.random.default_rng(0)
    interval = None
    if is_paired and all(None not in pair for pair in pairs):
        interval = _bootstrap(np.array(pairs, dtype=float) @ [-1.0, 1.0], rng)
    elif all(len(each) > 1 for each in values):
        draws = [rng.choice(each, (RESAMPLES, len(each))).mean(axis=1) for each in values]
        interval = _middle(draws[1] - draws[0])
    means = [float(each.mean()) if len(each) else None for each in values]
    return Row(name=name, a=means[0], b=means[1], difference_95=interval)


def _bootstrap(values: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    return _middle(rng.choice(values, (RESAMPLES, len(values))).mean(axis=1))


def _middle(draws: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(low), float(high)
