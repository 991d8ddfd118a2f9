"""Joins two devices' clocks by their rotation rates while they were held together: `join`.

    chest's clock   ──┬──[ sync ]───────────────────────────────[ sync ]──►
    hand's clock    ──────┬──[ sync ]───────────────────────────────[ sync ]──►
                      |<->| offset                              offset, a little more: skew

The magnitude of the rotation rate is the same everywhere on a rigid body, however each device is oriented.
That of a sync span is searched in the other's whole recording, so clocks may be unrelated; then the peak is
refined between samples by a parabola (`calibration.correlation`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.capture.values import Imu
from calibration.correlation import alike, along, between, even
from calibration.trajectory import LOST, Trajectory
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import readonly
from robot_runtime.errors import InvalidValueError

LEAST_CORRELATION = 0.8
"""Least correlation of both rotation rates at the best lag; devices held together reach 0.95 and more."""
MOST_OF_SECOND = 0.95
"""Largest share of the best peak that the second may reach."""
LEAST_TURN = 0.5
"""Least rms rate of a sync span [rad/s]."""
MOST_SKEW_PPM = 200.0
"""Largest skew between two quartz clocks; 50 each is usual. Beyond it, one of them jumped."""
_RATE_HZ = 100.0
_NEAR_S = 0.15
"""Lags this near to the best belong to the same peak; shaking is no faster than 3 Hz."""
_FINE_S, _REACH_S = 0.001, 0.025
_QUIET = 1.2
"""Width of the smoothing, in periods of the slower device."""
_PEAK_STEPS = 4
"""Steps of _FINE_S to both sides of a peak; nearer to it, noise would distort the parabola."""
_BLOCKS = 5
_MOST_SPAN_SKEW_PPM, _SURE_SKEW = 500.0, 6.0
"""Drift within one span, and in standard deviations of the scatter of its parts."""
_LEAST_SPAN_S = 2.0
_LEAST_READINGS = 10
_MOST_OFF, _OFF_FLOOR = 4.0, 0.02
"""Robust standard deviations [-] and [rad/s] below which the rates of both agree."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Turning:
    """Rotation rate of a device about any axis."""

    t_ns: np.ndarray
    """(N,) int64, rising, the device's clock."""
    speed: np.ndarray
    """(N,) [rad/s]."""

    def __post_init__(self) -> None:
        t_ns, speed = np.asarray(self.t_ns), np.asarray(self.speed, float)
        if t_ns.ndim != 1 or t_ns.shape != speed.shape or len(t_ns) < 2 or (np.diff(t_ns) <= 0).any():
            raise InvalidValueError(
                f"a turning has at least two rising times and a speed each, got {t_ns.shape}, {speed.shape}"
            )
        object.__setattr__(self, "t_ns", readonly(t_ns, dtype=np.int64))
        object.__setattr__(self, "speed", readonly(speed))

    @classmethod
    def of(cls, poses: Trajectory, imu: Imu | None) -> "Turning":
        """From its gyroscope, or from its poses where the gyroscope has too few samples."""
        return cls.of_poses(poses) if imu is None or len(imu) < _LEAST_READINGS else cls.of_imu(imu)

    @classmethod
    def of_imu(cls, imu: Imu) -> "Turning":
        """From its gyroscope."""
        return cls(t_ns=imu.t_ns, speed=np.linalg.norm(imu.w, axis=1))

    @classmethod
    def of_poses(cls, poses: Trajectory) -> "Turning":
        """From its poses that are not lost."""
        known = poses.tracking != LOST
        if known.sum() < 3:
            raise InvalidValueError(f"only {known.sum()} poses are not lost, expected 3 for its rotation")
        t_ns, speed = poses.taken(known).angular_speed()
        return cls(t_ns=t_ns, speed=speed)


@dataclass(frozen=True, kw_only=True)
class SpanFit:
    """Clock offset from one sync span."""

    at_ns: int
    """Its middle, a's clock."""
    offset_ns: int
    """b's clock minus a's, there."""
    sigma_ns: int
    """Standard deviation, from the parts of the span taken alone."""
    correlation: float
    """Correlation at the best lag; 1: identical rates."""
    second: float
    """Second peak as a share of the best; near 1, the lag is ambiguous."""


@dataclass(frozen=True, kw_only=True)
class ClockFit:
    """b's clock as a function of a's: t_b = t_a + offset_ns + skew (t_a - at_ns)."""

    at_ns: int
    """Where `offset_ns` holds, a's clock."""
    offset_ns: int
    """b's clock minus a's."""
    skew_ppm: float
    """Relative rate by which b's clock runs faster; 0 if only one span is usable."""
    sigma_ns: int
    """Standard deviation of the offset between the spans. Simulated sessions err by 1 to 1.5 times as much
    in the mean of squares (scripts/bench/clocks.py)."""
    spans: tuple[SpanFit, ...]
    failed: tuple[str, ...] = ()
    """Why spans were unusable; the others suffice."""

    @property
    def sharpness(self) -> float:
        """Margin of the best lag over the next one, of the worst span: 1 perfect, 0 none."""
        return 1.0 - max(span.second for span in self.spans)

    @property
    def has_skew(self) -> bool:
        """Whether spans at the start and the end determine the skew."""
        return len(self.spans) > 1

    def b_of_a(self, t_ns: np.ndarray) -> np.ndarray:
        """Convert a's times (N,) int64 to b's clock, to the nanosecond."""
        t_ns = np.asarray(t_ns, dtype=np.int64)
        return t_ns + self.offset_ns + np.rint(1e-6 * self.skew_ppm * (t_ns - self.at_ns)).astype(np.int64)

    def a_of_b(self, t_ns: np.ndarray) -> np.ndarray:
        """Convert b's times (N,) int64 to a's clock, to the nanosecond."""
        since = np.asarray(t_ns, dtype=np.int64) - self.at_ns - self.offset_ns
        share = 1e-6 * self.skew_ppm / (1.0 + 1e-6 * self.skew_ppm)
        return self.at_ns + since - np.rint(share * since).astype(np.int64)


def join(a: Turning, b: Turning, spans: Sequence[tuple[int, int]]) -> ClockFit:
    """Fit b's clock to a's.

    spans: (start_ns, stop_ns) on a's clock in which both were held together and turned, at the start and at
        the end of a recording; their edges may be wrong by a second.
    InvalidValueError: no span; none in which both turned alike; a skew that no real clock has.
    """
    if not spans:
        raise InvalidValueError(
            "no sync span is marked: hold both devices together and turn them for 6 to 10 s, at the start "
            "and at the end (clip sync: key s, or a line of --marks)"
        )
    found, failed = [], []
    for span in spans:
        try:
            found.append(_span(a, b, *span))
        except InvalidValueError as error:
            failed.append(error)
    if not found:
        raise failed[0]
    fits = tuple(sorted(found, key=lambda fit: fit.at_ns))
    at_ns = sum(fit.at_ns for fit in fits) // len(fits)
    # From five parts a span's own sigma is off by up to a factor of two: half of it is the pooled estimate.
    own = np.array([float(fit.sigma_ns) ** 2 for fit in fits])
    weights = 2.0 / (own + own.mean())
    degrees = (_BLOCKS - 1) * len(fits)
    base_ns = fits[0].offset_ns
    offsets = np.array([fit.offset_ns - base_ns for fit in fits], dtype=float)
    since = np.array([fit.at_ns - at_ns for fit in fits], dtype=float)
    skew = 0.0
    if len(fits) > 1:
        centre = since - (weights @ since) / weights.sum()
        skew = float((weights * centre) @ offsets / ((weights * centre) @ centre))
    offset = float(weights @ (offsets - skew * since) / weights.sum())
    _refuse_jumps(fits, skew, offsets - offset - skew * since)
    return ClockFit(
        at_ns=at_ns,
        offset_ns=base_ns + round(offset),
        skew_ppm=1e6 * skew,
        sigma_ns=max(1, round(float(np.sqrt(degrees / (degrees - 2) / weights.sum())))),
        spans=fits,
        failed=tuple(map(str, failed)),
    )


def _refuse_jumps(fits: Sequence[SpanFit], skew: float, rest_ns: np.ndarray) -> None:
    if abs(skew) * 1e6 > MOST_SKEW_PPM:
        apart_s = (fits[-1].at_ns - fits[0].at_ns) / NS_PER_S
        apart_ms = (fits[-1].offset_ns - fits[0].offset_ns) / 1e6
        raise InvalidValueError(
            f"from the first sync to the last, {apart_s:.1f} s, the clocks drift apart by {apart_ms:.1f} ms "
            f"({1e6 * skew:.0f} ppm; real clocks stay below {MOST_SKEW_PPM:.0f}): one of them jumped, or was "
            "set, in between; record again with automatic time setting off"
        )
    allowed = np.array([max(5.0 * fit.sigma_ns, 3e6) for fit in fits])
    if (np.abs(rest_ns) > allowed).any():
        i = int(np.argmax(np.abs(rest_ns) / allowed))
        raise InvalidValueError(
            f"sync span {i + 1} of {len(fits)} lies {rest_ns[i] / 1e6:.1f} ms off the line through all of "
            "them: one of the clocks jumped, or the devices moved against each other there"
        )


class _Smooth:
    """Rotation rate between samples, by cubics: linear interpolation would bias the peak to whole samples."""

    def __init__(self, turning: Turning, start_ns: int, stop_ns: int, sigma_s: float) -> None:
        """Covers the span plus a second on both sides; sigma_s: see `_quiet`."""
        from scipy.interpolate import CubicSpline

        rows = slice(*map(int, np.searchsorted(turning.t_ns, (start_ns - NS_PER_S, stop_ns + NS_PER_S))))
        t_ns = turning.t_ns[rows]
        if len(t_ns) < 2 * _BLOCKS:
            raise InvalidValueError("the other device has a gap where both were held together")
        self.start_ns, self.stop_ns = int(t_ns[0]), int(t_ns[-1])
        at_s, speed = _quiet((t_ns - self.start_ns) / NS_PER_S, turning.speed[rows], sigma_s)
        self._speed = CubicSpline(at_s, speed)

    def __call__(self, t_ns: np.ndarray) -> np.ndarray:
        return self._speed((t_ns - self.start_ns) / NS_PER_S)


def _period_s(t_ns: np.ndarray) -> float:
    return float(np.median(np.diff(t_ns))) / NS_PER_S


def _quiet(at_s: np.ndarray, speed: np.ndarray, sigma_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Resample to even times, smoothed by a Gaussian of that width [s].

    Noise is less between samples than at them, which would bias the peak to where one device's samples lie
    between the other's: with images at 30 and 60 Hz by 2 ms, the same throughout a session.
    """
    from scipy.ndimage import gaussian_filter1d

    step_s = float(np.median(np.diff(at_s)))
    even_s = np.arange(at_s[0], at_s[-1], step_s)
    return even_s, gaussian_filter1d(np.interp(even_s, at_s, speed), sigma_s / step_s, mode="nearest")


def _span(a: Turning, b: Turning, start_ns: int, stop_ns: int) -> SpanFit:
    rows = slice(*map(int, np.searchsorted(a.t_ns, (start_ns, stop_ns))))
    t_ns, speed = a.t_ns[rows], a.speed[rows]
    where = f"the sync span from {start_ns} to {stop_ns} ns"
    long_s = (t_ns[-1] - t_ns[0]) / NS_PER_S if len(t_ns) > 2 else 0.0
    if long_s < _LEAST_SPAN_S:
        raise InvalidValueError(f"{where} has {long_s:.1f} s of turning in it, {_LEAST_SPAN_S:g} are needed")
    turn = float(np.sqrt(np.mean(speed**2)))
    if turn < LEAST_TURN:
        raise InvalidValueError(
            f"{where}: they hardly turned, at {np.rad2deg(turn):.0f} degrees/s; hold them together and turn "
            f"them briskly, at {np.rad2deg(LEAST_TURN):.0f} at least"
        )
    lag_ns, best, second = _coarse(t_ns, speed, b)
    if best < LEAST_CORRELATION:
        raise InvalidValueError(
            f"{where}: they did not turn alike (correlation {best:.2f} at best, {LEAST_CORRELATION} is "
            "needed): hold both firmly together for the whole span; or they are not of one recording"
        )
    if second > MOST_OF_SECOND:
        raise InvalidValueError(
            f"{where}: the motion repeats itself, another lag fits almost as well ({second:.2f}): "
            "turn irregularly, about all axes"
        )
    sigma_s = _QUIET * max(_period_s(t_ns), _period_s(b.t_ns))
    other = _Smooth(b, int(t_ns[0]) + lag_ns, int(t_ns[-1]) + lag_ns, sigma_s)
    speed = _Smooth(a, int(t_ns[0]), int(t_ns[-1]), sigma_s)(t_ns)
    held = _held(t_ns, speed, other, lag_ns)
    fine_ns, correlation = _fine(t_ns[held], speed[held], other, lag_ns)
    blocks = np.array_split(np.flatnonzero(held), _BLOCKS)
    parts = [_fine(t_ns[part], speed[part], other, fine_ns)[0] for part in blocks]
    _refuse_drift(where, np.array([_middle(t_ns[part]) for part in blocks]), np.array(parts))
    sigma_ns = float(np.std(parts, ddof=1)) / np.sqrt(_BLOCKS)
    return SpanFit(
        at_ns=_middle(t_ns[held]),
        offset_ns=fine_ns,
        sigma_ns=max(10_000, round(sigma_ns)),
        correlation=correlation,
        second=second,
    )


def _refuse_drift(where: str, at_ns: np.ndarray, lags_ns: np.ndarray) -> None:
    """Refuse a span in which the clocks drift apart by far more than its parts scatter."""
    at, lags = at_ns - at_ns.mean(), lags_ns - lags_ns.mean()
    skew = float(at @ lags / (at @ at))
    scatter = float(np.sqrt(((lags - skew * at) ** 2).sum() / (len(at) - 2) / (at @ at)))
    if 1e6 * abs(skew) > _MOST_SPAN_SKEW_PPM and abs(skew) > _SURE_SKEW * scatter:
        raise InvalidValueError(
            f"{where}: the clocks drift apart within it by {1e6 * abs(skew):.0f} ppm (real clocks stay below "
            f"{MOST_SKEW_PPM:.0f}): record again with automatic time setting off"
        )


def _middle(t_ns: np.ndarray) -> int:
    return int(t_ns[0]) + round(float((t_ns - t_ns[0]).mean()))


def _coarse(t_ns: np.ndarray, speed: np.ndarray, b: Turning) -> tuple[int, float, float]:
    """(b's clock minus a's [ns], correlation there, the next peak's share of it), over all lags."""
    step_ns = round(NS_PER_S / _RATE_HZ)
    template = even(t_ns, speed, step_ns)
    long = even(b.t_ns, b.speed, step_ns)
    n = len(template)
    if len(long) + 2 * (n // 2) < n:
        raise InvalidValueError(
            f"the other device recorded {len(long) / _RATE_HZ:.1f} s only, the sync span is "
            f"{n / _RATE_HZ:.1f} s"
        )
    correlation = along(template, long)
    i = int(np.argmax(correlation))
    best = float(correlation[i])
    near = round(_NEAR_S * _RATE_HZ)
    others = np.concatenate([correlation[: max(0, i - near)], correlation[i + near + 1 :]])
    second = float(others.max()) / best if others.size and best > 0.0 else 0.0
    return int(b.t_ns[0]) + (i - n // 2) * step_ns - int(t_ns[0]), best, max(0.0, second)


def _held(t_ns: np.ndarray, speed: np.ndarray, b: _Smooth, lag_ns: int) -> np.ndarray:
    """(N,) bool: samples of a span in which both turned alike; marks may be too wide, and hands slip."""
    inside = _covered(t_ns, b, lag_ns)
    for _ in range(3):
        if inside.sum() < 8 * _BLOCKS:
            raise InvalidValueError(
                "the devices turned alike only for a moment: hold them together throughout"
            )
        lag_ns, _ = _fine(t_ns[inside], speed[inside], b, lag_ns)
        there = _covered(t_ns, b, lag_ns)
        rest = np.zeros(len(t_ns))
        rest[there] = speed[there] - b(t_ns[there] + lag_ns)
        rest -= np.median(rest[inside])
        spread = 1.4826 * float(np.median(np.abs(rest[inside])))
        off = np.abs(rest) > max(_MOST_OFF * spread, _OFF_FLOOR)
        near = int(max(1, _NEAR_S / 3 / max(float(np.median(np.diff(t_ns))) / NS_PER_S, 1e-6)))
        inside = there & (np.convolve(off, np.ones(2 * near + 1), mode="same") < 0.5)
    return inside


def _fine(t_ns: np.ndarray, speed: np.ndarray, b: _Smooth, lag_ns: int) -> tuple[int, float]:
    """(b's clock minus a's [ns], correlation), refined between samples near a lag."""
    steps_ns = np.arange(-_REACH_S, _REACH_S + _FINE_S / 2, _FINE_S) * NS_PER_S
    for _ in range(2):  # the second round is centred on the first one's peak
        inside = _covered(t_ns, b, lag_ns, margin_ns=int(_REACH_S * NS_PER_S))
        t, x = t_ns[inside], speed[inside]
        if len(t) < 8:
            return lag_ns, 0.0
        found = np.array([alike(x, b(t + lag_ns + round(step))) for step in steps_ns])
        i = int(np.argmax(found))
        lag_ns += round(steps_ns[i] + between(found, i, reach=_PEAK_STEPS) * _FINE_S * NS_PER_S)
    return lag_ns, float(found[i])


def _covered(t_ns: np.ndarray, b: _Smooth, lag_ns: int, *, margin_ns: int = 0) -> np.ndarray:
    return (t_ns + lag_ns - margin_ns >= b.start_ns) & (t_ns + lag_ns + margin_ns <= b.stop_ns)
