"""Checks of an episode's numbers. Each yields findings, or nothing if all is well."""

from collections.abc import Iterator, Mapping

import numpy as np

from robot_runtime.core.values.columns import HAND
from robot_runtime.dataset.check.episode import Bounds, Numbers, Span, is_gripper, is_velocity, pairs
from robot_runtime.dataset.check.finding import Finding, Severity
from robot_runtime.dataset.recording import ACTION, STATE
from robot_runtime.dataset.run_columns import TRAINABLE
from robot_runtime.dataset.stored import StoredDataset

TOLERANCE_S = 1e-4
"""Tolerance of timestamps against the grid k / fps: LeRobot refuses images that are further off."""
SHORT_S = 1.0
JUMP, SPIKE = 0.25, 0.5
"""Shares of a number's span within one frame: doubtful; more than any real motion."""
TURN, ANGLE, LENGTH, PERCENT = 0.5, 0.1, 0.02, 2.0
"""Minimum span for jumps, since a number that hardly moves shows noise and encoder steps: of a rotation
entry; of an angle [rad], or a number of unknown unit; of a length [m]; of LeRobot's motors [degrees, per
cent]."""
FEW = 0.2
"""Share of trainable frames below which an episode is doubtful."""
MOVES = 0.05
"""Share of a number's span beyond which it counts as moving."""


def rows(numbers: Numbers, dataset: StoredDataset) -> Iterator[Finding]:
    """Row count, frame numbers from 0, timestamps k / fps, and a task that exists."""
    episode, n = numbers.episode, numbers.num_rows
    indexed = int(episode.row["dataset_to_index"]) - int(episode.row["dataset_from_index"])
    if n != episode.length or indexed != episode.length:
        text = f"{n} rows, meta/episodes declares {episode.length} frames and {indexed} indices"
        yield Finding("rows", Severity.UNUSABLE, text)
    frames = numbers.columns["frame_index"].ravel()
    if not np.array_equal(frames, np.arange(n)):
        text = f"frame_index does not count from 0 to {n - 1}"
        yield Finding("rows", Severity.UNUSABLE, text)
    index = numbers.columns["index"].ravel()
    if not np.array_equal(index, int(episode.row["dataset_from_index"]) + np.arange(n)):
        text = f"index does not count from {episode.row['dataset_from_index']}"
        yield Finding("index", Severity.UNUSABLE, text)
    if unknown := set(numbers.columns["task_index"].ravel().tolist()) - dataset.tasks.keys():
        yield Finding("task", Severity.UNUSABLE, f"task {sorted(unknown)[0]} is in no meta/tasks.parquet")
    elif any(not dataset.tasks[int(i)].strip() for i in np.unique(numbers.columns["task_index"])):
        yield Finding("task", Severity.DOUBTFUL, "the task's text is empty")


def time(numbers: Numbers, dataset: StoredDataset) -> Iterator[Finding]:
    """timestamp is k / fps, and the episode has its declared length."""
    stamps, fps = numbers.columns["timestamp"].ravel().astype(float), dataset.fps
    if len(stamps) < 2:
        yield Finding("tiny", Severity.UNUSABLE, f"{len(stamps)} frames")
        return
    off = np.abs(stamps - np.arange(len(stamps)) / fps)
    tolerance = TOLERANCE_S + 1e-6 * abs(stamps[-1])  # rounding of float32
    if (off > tolerance).any():
        k = int(np.argmax(off > tolerance))
        text = f"timestamp {stamps[k]:.4f} s of frame {k} is not {k} / {fps:g}"
        yield Finding("time", Severity.UNUSABLE if dataset.cameras else Severity.DOUBTFUL, text)
    if len(stamps) / fps < SHORT_S:
        yield Finding("tiny", Severity.DOUBTFUL, f"{len(stamps)} frames, {len(stamps) / fps:.2f} s")


def finite(numbers: Numbers) -> Iterator[Finding]:
    for column, values in numbers.columns.items():
        bad = ~np.isfinite(values.astype(float)) if values.dtype.kind == "f" else np.zeros((0, 0), bool)
        if bad.any():
            k, i = (int(each) for each in np.argwhere(bad)[0])
            name = numbers.names[column][i] if i < len(numbers.names[column]) else f"[{i}]"
            what = name if name == column else f"{column} {name}"
            text = f"{what} is {values[k, i]} in frame {k} ({int(bad.any(1).sum())} frames in all)"
            yield Finding("finite", Severity.UNUSABLE, text)


def trainable(numbers: Numbers) -> Iterator[Finding]:
    """Whether enough of a run's frames can be learned from."""
    if TRAINABLE not in numbers.columns:
        return
    num, good = numbers.num_rows, int(numbers.columns[TRAINABLE].ravel().astype(bool).sum())
    if num and good < FEW * num:
        text = f"{good or 'none'} of {num} frames can be learned from: {TRAINABLE} is False in the rest"
        yield Finding("trainable", Severity.DOUBTFUL, text)


def jumps(numbers: Numbers, spans: Mapping[str, Mapping[str, Span]]) -> Iterator[Finding]:
    """Steps far larger than those around them, in positions; velocities and fingers may jump. A command may
    jump further than a robot can move."""
    for column in (STATE, ACTION):
        for name, values in numbers.series(column).items():
            span = spans.get(column, {}).get(name)
            if span is None or span.num_values < 9 or is_velocity(name) or is_gripper(name):
                continue
            size = max(span.size, _least_span(name))
            if (k := _jump_in(values, size, JUMP if column == STATE else SPIKE)) is None:
                continue
            step = values[k + 1] - values[k]
            is_wrap = abs(abs(step) - 2 * np.pi) < 0.3
            is_spike = column == STATE and abs(step) > SPIKE * size and not is_wrap
            what = "wraps round by 2 pi" if is_wrap else f"jumps by {step:+.4g}"
            text = f"{column} {name} {what} after frame {k} (its range is {span.size:.4g})"
            yield Finding("jump", Severity.UNUSABLE if is_spike else Severity.DOUBTFUL, text)


def _least_span(name: str) -> float:
    match name.rpartition(".")[2]:
        case last if last in HAND[3:]:
            return TURN
        case "x" | "y" | "z":
            return LENGTH
        case "pos":
            return PERCENT
        case _:
            return ANGLE


def _jump_in(values: np.ndarray, size: float, share: float) -> int | None:
    """The frame before the largest isolated step of more than this share of the size."""
    step = np.abs(np.diff(np.nan_to_num(values)))
    if len(step) < 8 or not (step > share * size).any():
        return None
    around = np.stack([np.roll(step, by) for by in (-4, -3, -2, 2, 3, 4)])
    usual = np.maximum(np.median(around, axis=0), 0.004 * size)
    lonely = (step > share * size) & (step > 5.0 * usual)
    return int(np.argmax(np.where(lonely, step, 0.0))) if lonely.any() else None


def gripper(numbers: Numbers, spans: Mapping[str, Mapping[str, Span]], fps: float) -> Iterator[Finding]:
    """Whether the fingers follow their command: the gripper opens when commanded to open."""
    for name, sign in directions(numbers, spans, fps).items():
        if sign < 0:
            text = f"{name} moves against its command: it opens when commanded to close"
            yield Finding("gripper", Severity.UNUSABLE, text)


def directions(numbers: Numbers, spans: Mapping[str, Mapping[str, Span]], fps: float) -> dict[str, float]:
    """Direction of each gripper, +1 or -1, for those that are commanded to move and do."""
    out = {}
    for name, action, state in pairs(numbers):
        own, commanded = spans.get(STATE, {}).get(name), spans.get(ACTION, {}).get(name)
        if not is_gripper(name) or own is None or commanded is None or not np.isfinite([action, state]).all():
            continue
        if (
            np.ptp(action) <= 0.2 * commanded.size
            or np.ptp(state) <= 0.2 * own.size
            or not commanded.size * own.size
        ):
            continue
        found = [_correlation(action, state, lag) for lag in range(round(fps) + 1)]
        best = max(found, key=abs, default=0.0)
        if abs(best) > 0.5:
            out[name] = float(np.sign(best))
    return out


def dead(numbers: Numbers, spans: Mapping[str, Mapping[str, Span]]) -> Iterator[Finding]:
    """A measured number that is constant while it is commanded to move, and moves in other episodes or
    never."""
    for name, action, state in pairs(numbers):
        commanded = spans.get(ACTION, {}).get(name)
        if commanded is None or commanded.size <= 0 or len(state) < 8:
            continue
        if np.ptp(state) == 0 and np.ptp(action) > max(MOVES * commanded.size, 1e-3):
            text = f"{STATE} {name} is {state[0]:.4g} all the time while it is commanded to move"
            yield Finding("dead", Severity.UNUSABLE, text)


def lag(numbers: Numbers, fps: float) -> Iterator[Finding]:
    """Delay of the state behind the action."""
    frames = lag_frames(numbers, fps)
    if frames is None:
        return
    if frames < 0:
        text = f"the state moves {-frames} frames before the action: are they shifted?"
        yield Finding("lag", Severity.DOUBTFUL, text)
    elif frames / fps > 0.5:
        yield Finding("lag", Severity.DOUBTFUL, f"the state follows the action after {frames / fps:.2f} s")


def lag_frames(numbers: Numbers, fps: float) -> int | None:
    """Frames from a change of the action to that of the state, over all shared numbers; None:
    undetectable."""
    changes = [
        (np.diff(action), np.diff(state))
        for name, action, state in pairs(numbers)
        if not is_gripper(name) and np.isfinite([action, state]).all() and np.ptp(action) and np.ptp(state)
    ]
    if not changes or len(changes[0][0]) < 12:
        return None
    lags = range(-5, round(fps) + 1)
    found = [float(np.median([_correlation(a, s, by) for a, s in changes])) for by in lags]
    best = int(np.argmax(found))
    # A periodic motion, or one that hardly changes, fits any lag: the best must clearly beat none.
    return lags[best] if found[best] > 0.5 and found[best] > found[5] + 0.02 else None


def _correlation(action: np.ndarray, state: np.ndarray, by: int) -> float:
    """Correlation of the action and the state `by` frames later; 0 where there is too little."""
    if abs(by) >= len(action):
        return 0.0
    a, s = (action[: len(action) - by], state[by:]) if by >= 0 else (action[-by:], state[:by])
    if len(a) < 8 or not np.ptp(a) or not np.ptp(s):
        return 0.0
    return float(np.corrcoef(a, s)[0, 1])


def limits(numbers: Numbers, bounds: Mapping[str, Bounds], fps: float) -> Iterator[Finding]:
    """Numbers and speeds beyond the robot's limits. An excessive speed is only doubtful: a file may declare
    less than the robot can do."""
    for column in (STATE, ACTION):
        for name, values in numbers.series(column).items():
            if name not in bounds or not np.isfinite(values).all() or not len(values):
                continue
            own = bounds[name]
            beyond = np.maximum(own.low - values, values - own.high)
            k, size = int(np.argmax(beyond)), own.high - own.low
            if beyond[k] > 0.01 * size + 1e-3:
                severity = Severity.UNUSABLE if beyond[k] > 0.1 * size else Severity.DOUBTFUL
                has = f"the robot has {own.low:.4g} to {own.high:.4g}"
                text = f"{column} {name} is {values[k]:.4g} in frame {k}, {has}"
                yield Finding("limits", severity, text)
            speed = np.abs(np.diff(values)) * fps
            if len(speed) and (fastest := float(speed.max())) > 1.5 * own.speed:
                most = f"the robot with {own.speed:.3g} at most"
                text = f"{column} {name} moves with {fastest:.3g} a second, {most}"
                yield Finding("limits", Severity.DOUBTFUL, text)
