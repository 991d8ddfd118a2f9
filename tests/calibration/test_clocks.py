"""Two clocks are joined by how both devices turned, or it is said why they cannot be."""

import numpy as np
import pytest

from calibration.capture.values import Imu
from calibration.clocks import ClockFit, Turning, join
from robot_runtime.errors import InvalidValueError

S = 1_000_000_000
A0, B0 = 5_000 * S, 1_700_000_000 * S
LONG_S = 40.0
SYNCS = ((3.0, 9.0), (31.0, 37.0))


def turning(t_s: np.ndarray, seed: int, *, syncs=SYNCS, shared=7) -> np.ndarray:
    """(N, 3) [rad/s]: the same for all seeds in the sync spans, their own elsewhere."""

    def noise(of: int) -> np.ndarray:
        rng = np.random.default_rng(of)
        hz, phase, size = rng.uniform(0.3, 2.5, (4, 3)), rng.uniform(0, 6, (4, 3)), rng.normal(0, 1.4, (4, 3))
        return (size * np.sin(2 * np.pi * hz * t_s[:, None, None] + phase)).sum(axis=1)

    together = np.zeros(len(t_s), dtype=bool)
    for start, stop in syncs:
        together |= (t_s > start) & (t_s < stop)
    return np.where(together[:, None], noise(shared), 0.3 * noise(seed))


def devices(*, rate_b=200.0, noise=0.005, seed=1, skew=30e-6, jump_s=0.0, **how) -> tuple[Turning, Turning]:
    """A chest at 200 Hz; a hand whose clock is 0.3217 s and B0 - A0 ahead at A0, with a skew, and a jump."""
    rng = np.random.default_rng(seed)
    t_a, t_b = np.arange(0, LONG_S, 1 / 200), np.arange(0.003, LONG_S, 1 / rate_b)
    w_a, w_b = turning(t_a, 1, **how), turning(t_b, 2, **how)
    clock_b = t_b * (1 + skew) + 0.3217 + np.where(t_b > 20.0, jump_s, 0.0)
    out = []
    for base, t, w in ((A0, t_a, w_a), (B0, clock_b, w_b)):
        w = w + rng.normal(0, noise, w.shape)
        out.append(Turning.of_imu(Imu(t_ns=base + np.rint(t * S).astype(np.int64), w=w, a=w)))
    return out[0], out[1]


def spans(*, slop_s=0.5):
    return [(A0 + round((a - slop_s) * S), A0 + round((b + slop_s) * S)) for a, b in SYNCS]


def worst_ms(fit: ClockFit, *, skew=30e-6) -> float:
    t_s = np.linspace(0.0, LONG_S, 9)
    wanted = B0 + np.rint((t_s * (1 + skew) + 0.3217) * S).astype(np.int64)
    return float(np.abs(fit.b_of_a(A0 + np.rint(t_s * S).astype(np.int64)) - wanted).max()) / 1e6


@pytest.mark.parametrize(
    ("how", "most_ms"), [({}, 0.2), ({"noise": 0.05, "rate_b": 60.0}, 2.0)], ids=["gyros", "noisy, 60 Hz"]
)
def test_offset_and_skew_are_found_though_the_marks_are_half_a_second_off(how, most_ms):
    fit = join(*devices(**how), spans())
    assert worst_ms(fit) < most_ms
    assert fit.has_skew
    assert fit.sharpness > 0.1
    t_ns = A0 + np.arange(5, dtype=np.int64) * 7 * S
    assert np.abs(fit.a_of_b(fit.b_of_a(t_ns)) - t_ns).max() <= 1


def paced(seed: int) -> tuple[Turning, Turning]:
    """Two devices of 30 and 60 Hz whose rates tremble; frames of one lie anywhere between the other's."""
    rng = np.random.default_rng([seed, 1])
    t_a, t_b = np.arange(0, LONG_S, 1 / 30), np.arange(rng.uniform(0.0, 1 / 60), LONG_S, 1 / 60)
    out = []
    for t, base in ((t_a, A0), (t_b, B0)):
        speed = np.linalg.norm(turning(t, len(out) + 1), axis=1) + rng.normal(0.0, 0.15, len(t))
        out.append(Turning(t_ns=base + np.rint(t * S).astype(np.int64), speed=np.abs(speed)))
    return out[0], out[1]


@pytest.mark.long
def test_clocks_of_two_paces_are_joined_as_exactly_as_their_sigma_says_wherever_their_frames_lie():
    fits = [join(*paced(seed), spans()) for seed in range(40)]
    errors_ms = np.array([(fit.offset_ns - (B0 - A0)) / 1e6 for fit in fits])
    sigmas_ms = np.array([fit.sigma_ns / 1e6 for fit in fits])
    assert np.sqrt((errors_ms**2).mean()) < 1.0
    assert 0.5 < ((errors_ms / sigmas_ms) ** 2).mean() < 2.0


def test_one_span_gives_an_offset_and_no_skew():
    fit = join(*devices(skew=0.0), spans()[:1])
    assert not fit.has_skew
    assert fit.skew_ppm == 0.0
    assert worst_ms(fit, skew=0.0) < 0.2


@pytest.mark.parametrize(
    ("how", "marked", "said"),
    [
        ({}, [], "no sync span is marked"),
        ({"jump_s": 0.03}, spans(), "one of them jumped"),
        ({}, [(A0 + 13 * S, A0 + 19 * S)], "did not turn alike"),
        ({"syncs": ()}, spans(), "did not turn alike"),
        ({}, [(A0 - 20 * S, A0 - 10 * S)], "0.0 s of turning"),
    ],
    ids=["no span", "a jump of 30 ms", "another span", "never together", "before the recording"],
)
def test_what_does_not_fit_is_refused_with_a_reason(how, marked, said):
    with pytest.raises(InvalidValueError, match=said):
        join(*devices(**how), marked)


def test_devices_that_hardly_turn_are_told_to():
    a, b = devices()
    slow = Turning(t_ns=a.t_ns, speed=a.speed * 0.05)
    with pytest.raises(InvalidValueError, match="hardly turned"):
        join(slow, b, spans())


def test_a_clock_that_runs_away_within_a_span_is_refused_by_one_span_alone():
    with pytest.raises(InvalidValueError, match=r"drift apart within it by 1[0-9]{3} ppm"):
        join(*devices(skew=1.2e-3), spans()[:1])


@pytest.mark.parametrize("seed", range(6))
def test_usual_clocks_and_noise_are_not_taken_for_drift(seed):
    for noise, rate_b in ((0.005, 200.0), (0.05, 60.0)):
        fit = join(*devices(seed=seed, skew=50e-6, noise=noise, rate_b=rate_b), spans())
        assert not fit.failed
