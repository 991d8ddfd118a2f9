"""Compares capture times with the grid of frames: `stale`."""

from collections.abc import Iterator

import numpy as np

from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.dataset.check.episode import Numbers
from robot_runtime.dataset.check.finding import Finding, Severity
from robot_runtime.dataset.recording import CAPTURE
from robot_runtime.dataset.run_columns import NEXT_VALID, TIME

OLD_S, OLD_PERIODS = 0.5, 3.0
"""An image older than its frame does not show what the frame's action was for."""
FROZEN_S = 0.2


def stale(numbers: Numbers, fps: float) -> Iterator[Finding]:
    """Frames off the grid, images that are old, frozen or go back; nothing without such columns.

    fps: frames per second, as they were captured.
    """
    clocks = {
        name.removeprefix(f"{CAPTURE}."): values.ravel().astype(np.int64)
        for name, values in numbers.columns.items()
        if name.startswith(f"{CAPTURE}.")
    }
    state = clocks.pop("state", None)
    frames = numbers.columns[TIME].ravel().astype(np.int64) if TIME in numbers.columns else state
    if frames is None or len(frames) < 2:
        return
    yield from _off_the_grid(numbers, frames, fps)
    if state is not None and state is not frames:
        clocks["state"] = state
    for name, stamps in clocks.items():
        yield from _one_clock(name, stamps, frames, fps)


def _off_the_grid(numbers: Numbers, frames: np.ndarray, fps: float) -> Iterator[Finding]:
    """Gaps and another rate than declared; gaps that next_valid marks are known."""
    period = NS_PER_S / fps
    gaps = np.diff(frames) / period
    if (gaps <= 0).any():
        k = int(np.argmax(gaps <= 0))
        yield Finding("stale", Severity.UNUSABLE, f"frame {k + 1} was captured before frame {k}")
        return
    known: np.ndarray = np.zeros(len(gaps), bool)
    if NEXT_VALID in numbers.columns:
        known = ~numbers.columns[NEXT_VALID].ravel()[:-1].astype(bool)
    hidden = (gaps > 1.5) & ~known
    if hidden.any():
        k = int(np.argmax(np.where(hidden, gaps, 0)))
        text = f"{gaps[k] / fps:.2f} s between frames {k} and {k + 1}, not {1 / fps:.3f} s"
        yield Finding("stale", Severity.DOUBTFUL, text)
        return
    rate = (len(frames) - 1) * NS_PER_S / (frames[-1] - frames[0])
    if not known.any() and abs(rate / fps - 1) > 0.02 and abs(rate / fps - 1) * len(frames) > 1:
        text = f"captured at {rate:.2f} frames a second, not at {fps:g}"
        yield Finding("stale", Severity.DOUBTFUL, text)


def _one_clock(name: str, stamps: np.ndarray, frames: np.ndarray, fps: float) -> Iterator[Finding]:
    if (back := np.diff(stamps) < 0).any():
        text = f"the stamps of {name} go back after frame {int(np.argmax(back))}"
        yield Finding("stale", Severity.UNUSABLE, text)
        return
    age_s = (frames - stamps) / NS_PER_S
    old = age_s > OLD_S
    if old.mean() > 0.1:
        text = f"{name} is {age_s.max():.2f} s old at worst, {old.mean():.0%} of it older than {OLD_S:g} s"
        yield Finding("stale", Severity.UNUSABLE, text)
    elif age_s.max() > max(OLD_PERIODS / fps, 0.1):
        k = int(age_s.argmax())
        yield Finding("stale", Severity.DOUBTFUL, f"{name} is {age_s[k]:.2f} s old in frame {k}")
    elif age_s.min() < -1.5 / fps:
        k = int(age_s.argmin())
        text = f"{name} was captured {-age_s[k]:.2f} s after frame {k}, which it is shown with"
        yield Finding("stale", Severity.DOUBTFUL, text)
    longest, at = longest_run(np.diff(stamps) == 0)
    if longest > max(3, FROZEN_S * fps):
        text = f"{name} has one stamp for {longest + 1} frames from frame {at} on"
        yield Finding("stale", Severity.DOUBTFUL, text)


def longest_run(flags: np.ndarray) -> tuple[int, int]:
    """Length of the longest run of True, and its start."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    if not len(edges):
        return 0, 0
    starts, ends = edges[::2], edges[1::2]
    i = int(np.argmax(ends - starts))
    return int(ends[i] - starts[i]), int(starts[i])
