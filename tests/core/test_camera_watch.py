"""Which images of a camera are shown, by their pixels and stamps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_runtime.core.camera_watch import REMEMBERED, CameraFault, CameraLimits, CameraWatch
from robot_runtime.core.values.state import Image, Observation, RobotState
from tests.examples import examples

MS = 1_000_000
SIZE = (24, 40)
seeds = st.integers(0, 2**32 - 1)


def picture(t_ns: int, seed: int) -> Image:
    """A grey wall and the noise of a sensor: the lowest bit."""
    noise = np.random.default_rng(seed).integers(0, 2, (*SIZE, 3), dtype=np.uint8)
    return Image(t_ns=t_ns, pixels=120 + noise)


def torn(t_ns: int, new: Image, old: Image, *, first: int, at_top: bool) -> Image:
    """The top of one image and the rest of another."""
    a, b = (old, new) if at_top else (new, old)
    return Image(t_ns=t_ns, pixels=np.concatenate([a.pixels[:first], b.pixels[first:]]))


@given(seeds, st.lists(st.integers(1, 300), min_size=1, max_size=30), st.integers(-15, 15))
def test_pictures_of_a_still_scene_are_shown_at_any_rate_and_with_clocks_a_little_apart(seed, gaps, off):
    watch, now_ns = CameraWatch(SIZE, CameraLimits()), 0
    for k, gap in enumerate(gaps):
        now_ns += gap * MS
        assert watch.look(picture(now_ns + off * MS, seed + k), now_ns)
        assert watch.trouble is None
    assert not any(watch.counts.values())


@given(seeds, st.integers(10, 120), st.integers(1, 40), st.integers(0, 5))
def test_a_frozen_camera_is_noticed_200_ms_after_its_last_picture_or_with_the_next(
    seed, period, num_frozen, num_good
):
    watch, limits = CameraWatch(SIZE, CameraLimits()), CameraLimits()
    now_ns, shown = 0, picture(0, seed)
    for k in range(num_good + 1):
        now_ns, shown = k * period * MS, picture(k * period * MS, seed + k)
        assert watch.look(shown, now_ns)
    for _ in range(num_frozen):
        now_ns += period * MS
        assert not watch.look(Image(t_ns=now_ns, pixels=shown.pixels.copy()), now_ns)
        age_ns = now_ns - shown.t_ns
        is_blind = watch.why_blind(shown, now_ns) is CameraFault.FROZEN
        assert is_blind == (age_ns > limits.frozen_ns)
    assert watch.counts[CameraFault.FROZEN] == num_frozen
    assert watch.look(fresh := picture(now_ns + MS, seed + 99), now_ns + MS)
    assert watch.why_blind(fresh, now_ns + MS) is None


@given(seeds, st.integers(2, REMEMBERED), st.integers(1, 30))
def test_a_driver_that_goes_round_in_its_buffers_shows_each_of_them_once(seed, num_buffers, num_more):
    watch, shown = CameraWatch(SIZE, CameraLimits()), None
    for k in range(num_buffers + num_more):
        image = picture(k * 33 * MS, seed + k % num_buffers)
        assert watch.look(image, k * 33 * MS) == (k < num_buffers)
        shown = image if k < num_buffers else shown
    assert watch.counts[CameraFault.FROZEN] == num_more
    is_blind = watch.why_blind(shown, k * 33 * MS) is CameraFault.FROZEN
    assert is_blind == (num_more * 33 * MS > CameraLimits().frozen_ns)


@given(seeds, st.integers(501, 10_000))
def test_pictures_that_come_late_are_too_old_and_not_missing(seed, late_ms):
    watch = CameraWatch(SIZE, CameraLimits())
    for k in range(20):
        now_ns = (33 * k + late_ms) * MS
        assert not watch.look(picture(33 * k * MS, seed + k), now_ns)
        assert watch.why_blind(None, now_ns) is CameraFault.OLD
    assert watch.why_blind(None, now_ns + 600 * MS) is CameraFault.SILENT


@given(seeds, st.integers(SIZE[0] // 8, SIZE[0] - 1), st.booleans(), st.integers(1, 3))
def test_a_picture_that_is_half_the_one_before_is_not_shown_and_the_next_whole_one_is(
    seed, num_old, at_top, num_before
):
    watch = CameraWatch(SIZE, CameraLimits())
    for k in range(num_before + 1):
        last = picture(33 * k * MS, seed + k)
        assert watch.look(last, last.t_ns)
    now_ns = last.t_ns + 33 * MS
    first = num_old if at_top else SIZE[0] - num_old
    half = torn(now_ns, picture(now_ns, seed + 50), last, first=first, at_top=at_top)
    assert not watch.look(half, now_ns)
    assert watch.trouble is CameraFault.TORN
    assert watch.why_blind(last, now_ns) is None  # the one before is still of now
    assert watch.look(picture(now_ns + 33 * MS, seed + 51), now_ns + 33 * MS)


@given(seeds, st.integers(SIZE[0] // 8, SIZE[0] - 1), st.booleans())
def test_a_camera_of_which_half_is_frozen_is_noticed_as_one_of_which_all_is(seed, num_old, at_top):
    watch = CameraWatch(SIZE, CameraLimits())
    for k in range(6):
        last = picture(33 * k * MS, seed + k)
        assert watch.look(last, last.t_ns)
    first = num_old if at_top else SIZE[0] - num_old
    for k in range(6, 14):
        now_ns = 33 * k * MS
        half = torn(now_ns, picture(now_ns, seed + k), last, first=first, at_top=at_top)
        assert not watch.look(half, now_ns)
        assert watch.why_blind(last, now_ns) is (CameraFault.TORN if k >= 12 else None)


@given(seeds, st.floats(0.05, 0.95))
@examples(20)
def test_a_coder_that_smooths_away_the_noise_of_many_rows_tears_hardly_any_picture(seed, share):
    """Each row differs from image to image by chance, as in a still scene of which codecs leave little."""
    watch, rng = CameraWatch(SIZE, CameraLimits()), np.random.default_rng(seed)
    pixels, num_good = picture(0, seed).pixels.copy(), 0
    for k in range(100):
        new = rng.random(SIZE[0]) < share
        pixels[new] = picture(0, seed + k).pixels[new]
        pixels[0, 0, 0] = k  # something always does
        num_good += watch.look(Image(t_ns=33 * k * MS, pixels=pixels.copy()), 33 * k * MS)
    assert num_good >= 80


@given(seeds, st.sampled_from([0, 255]), st.integers(0, SIZE[0] - 1))
def test_what_becomes_as_dark_or_as_bright_as_can_be_makes_no_picture_torn(seed, value, num_rows):
    watch = CameraWatch(SIZE, CameraLimits())
    for k in range(9):
        pixels = picture(0, seed + k).pixels.copy()
        if k >= 3:
            pixels[:num_rows] = value
        assert watch.look(Image(t_ns=33 * k * MS, pixels=pixels), 33 * k * MS)


@given(seeds, st.integers(3, 8), st.integers(4, 11), st.booleans())
def test_a_picture_with_bars_around_it_can_be_torn_as_well(seed, bar, num_old, at_top):
    """As one that was fitted into another shape: the bars are more than what tells a torn one."""

    def barred(image: Image) -> Image:
        pixels = image.pixels.copy()
        pixels[:bar] = pixels[SIZE[0] - bar :] = 0
        return Image(t_ns=image.t_ns, pixels=pixels)

    watch = CameraWatch(SIZE, CameraLimits())
    for k in range(3):
        last = barred(picture(33 * k * MS, seed + k))
        assert watch.look(last, last.t_ns)
    now_ns = last.t_ns + 33 * MS
    first = bar + num_old if at_top else SIZE[0] - bar - num_old
    half = torn(now_ns, barred(picture(now_ns, seed + 50)), last, first=first, at_top=at_top)
    assert not watch.look(half, now_ns)
    assert watch.trouble in (CameraFault.TORN, CameraFault.FROZEN)  # all of it may be old


@given(seeds, st.integers(8, 400), st.floats(-0.2, 0.2), st.integers(4, 30))
def test_a_camera_that_gives_nothing_is_missed_after_200_ms_or_three_periods(seed, period, jitter, num_good):
    watch, rng, shown = CameraWatch(SIZE, CameraLimits()), np.random.default_rng(seed), None
    for k in range(num_good):
        now_ns = round((k + jitter * rng.random()) * period * MS)
        assert shown is None or watch.why_blind(shown, now_ns) is None
        shown = picture(now_ns, seed + k)
        assert watch.look(shown, now_ns)
    waited_ms = 200 if period < 50 else min(500, 3 * period * (1 - abs(jitter)))
    assert watch.why_blind(shown, now_ns + round(waited_ms) * MS) is None
    patience_ms = min(500, max(200, 3 * period * (1 + abs(jitter))))
    assert watch.why_blind(shown, now_ns + round(patience_ms + 1) * MS) is CameraFault.SILENT


def test_a_camera_that_slows_down_in_the_dark_is_not_missed_for_good():
    watch, shown = CameraWatch(SIZE, CameraLimits()), picture(0, 99)
    watch.look(shown, 0)
    blind = []
    for k, gap_ms in enumerate([33] * 30 + [220] * 20):
        now_ns = shown.t_ns + gap_ms * MS
        blind.append(watch.why_blind(shown, now_ns))
        shown = picture(now_ns, k)
        assert watch.look(shown, now_ns)
    assert blind == [None] * 30 + [CameraFault.SILENT] * 5 + [None] * 15


@given(seeds, st.integers(0, SIZE[0] - 1), st.integers(0, SIZE[0] - 1))
def test_bars_and_lettering_that_are_always_the_same_make_no_picture_torn(seed, num_top, num_bottom):
    watch = CameraWatch(SIZE, CameraLimits())
    lettering = np.random.default_rng(seed).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    for k in range(6):
        pixels = picture(0, seed + k).pixels.copy()
        pixels[: min(num_top, SIZE[0] // 2 - 1)] = lettering[: min(num_top, SIZE[0] // 2 - 1)]
        pixels[max(SIZE[0] - num_bottom, SIZE[0] // 2) :] = 0
        if num_bottom >= SIZE[0] // 2:
            pixels[SIZE[0] // 2] = picture(0, seed + k).pixels[SIZE[0] // 2]
        assert watch.look(Image(t_ns=33 * k * MS, pixels=pixels), 33 * k * MS)


@given(seeds, st.integers(1, 10_000))
def test_a_stamp_that_goes_back_or_lies_in_the_future_is_refused_and_the_next_good_one_taken(seed, off):
    watch, limits = CameraWatch(SIZE, CameraLimits()), CameraLimits()
    now_ns = 10_000_000 * MS
    assert watch.look(picture(now_ns, seed), now_ns)
    assert not watch.look(picture(now_ns - off * MS, seed + 1), now_ns)
    assert watch.trouble is CameraFault.BACK
    assert not watch.look(picture(now_ns + limits.ahead_ns + off, seed + 2), now_ns)
    assert watch.trouble is CameraFault.AHEAD
    assert watch.look(picture(now_ns + 1, seed + 3), now_ns + MS)


def test_a_picture_of_another_size_is_refused_and_named_when_the_last_good_one_is_too_old():
    watch, good = CameraWatch(SIZE, CameraLimits()), picture(0, 1)
    assert watch.look(good, 0)
    for k in range(1, 30):
        small = Image(t_ns=33 * k * MS, pixels=picture(0, k).pixels[::2])
        assert not watch.look(small, 33 * k * MS)
        blind = watch.why_blind(good, 33 * k * MS)
        assert blind is (CameraFault.MISSHAPEN if 33 * k > 500 else None)


def test_a_camera_that_gives_nothing_is_silent_whatever_was_wrong_before_and_one_that_failed_is_at_once():
    watch, good = CameraWatch(SIZE, CameraLimits()), picture(0, 1)
    assert watch.why_blind(None, 0) is CameraFault.SILENT
    watch.look(good, 0)
    watch.look(Image(t_ns=MS, pixels=good.pixels[::2]), MS)
    assert watch.why_blind(good, 400 * MS) is None
    assert watch.why_blind(good, 2000 * MS) is CameraFault.SILENT
    watch.fails(CameraFault.FAILED, 2001 * MS)
    assert watch.why_blind(picture(2001 * MS, 2), 2001 * MS) is CameraFault.FAILED


@given(seeds)
@examples(10)
def test_a_camera_without_noise_may_give_the_same_picture_as_long_as_the_scene_stands_still(seed):
    watch, still = CameraWatch(SIZE, CameraLimits(has_noise=False)), picture(0, seed).pixels
    for k in range(50):
        image = Image(t_ns=33 * k * MS, pixels=still.copy())
        assert watch.look(image, image.t_ns)
        assert watch.why_blind(image, image.t_ns) is None


@pytest.mark.parametrize("ages", [(), (0,), (40, 10), (-5,)])
def test_an_observation_is_as_old_as_its_oldest_part(ages):
    state = RobotState(t_ns=1000 * MS, q=np.zeros(1), dq=np.zeros(1))
    images = {str(i): picture((1000 - age) * MS, 0) for i, age in enumerate(ages)}
    observation = Observation(state=state, images=images)
    assert observation.t_obs_ns == 1000 * MS
    assert observation.t_oldest_ns == (1000 - max(0, *ages, 0)) * MS
