"""What becomes of a camera's picture on the way to a policy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PillowImage

from drivers.cameras.feed import DeviceTime
from drivers.cameras.fit import FITS, Fit, Fitted, inside, middle
from drivers.cameras.v4l2 import _FORMAT, _SIZE, listed
from robot_runtime.core.values.state import Image
from robot_runtime.errors import InvalidValueError

sides = st.integers(1, 300)
sizes = st.tuples(sides, sides)
MS = 1_000_000
OPENPI = [
    ((480, 640), (224, 224), (28, 0, 168, 224)),
    ((720, 1280), (224, 224), (49, 0, 126, 224)),
    ((640, 480), (224, 224), (0, 28, 224, 168)),
    ((481, 643), (224, 224), (28, 0, 167, 224)),
    ((100, 99), (224, 224), (0, 1, 224, 221)),
    ((1080, 1920), (256, 320), (38, 0, 180, 320)),
    ((224, 224), (224, 224), (0, 0, 224, 224)),
    ((375, 500), (224, 224), (28, 0, 168, 224)),
    ((97, 131), (64, 96), (0, 5, 64, 86)),
]
"""Size, target, and where openpi-client's resize_with_pad had put the picture: top, left, height, width."""


def smooth(size: tuple[int, int], seed: int = 0) -> np.ndarray:
    """A picture without black and without fine patterns."""
    small = np.random.default_rng(seed).integers(60, 255, (5, 6, 3), dtype=np.uint8)
    return np.asarray(PillowImage.fromarray(small).resize(size[::-1], PillowImage.Resampling.BILINEAR))


@pytest.mark.parametrize(("source", "target", "place"), OPENPI)
def test_a_padded_picture_is_where_openpi_puts_it_and_as_pillow_shrinks_it(source, target, place):
    top, left, height, width = place
    assert inside(source, target) == place
    pixels = smooth(source)
    out = Fit(size=target, fit="pad")(pixels)
    kept = out[top : top + height, left : left + width]
    how = PillowImage.Resampling.BILINEAR
    shrunk = np.asarray(PillowImage.fromarray(pixels).resize((width, height), how))
    assert np.abs(kept.astype(int) - shrunk).max() <= 3
    assert kept.min() > 0
    assert out.sum() == kept.sum(dtype=np.int64)  # all else is black


@given(sizes, sizes)
def test_a_padded_picture_touches_two_sides_and_keeps_its_shape(source, target):
    top, left, height, width = inside(source, target)
    touches = target[0] - height <= 1 or target[1] - width <= 1  # openpi rounds a side of its own size down
    assert touches or 1 in (height, width)
    assert 0 <= top <= target[0] - height
    assert 0 <= left <= target[1] - width
    assert abs((target[0] - height) - 2 * top) <= 1
    assert abs((target[1] - width) - 2 * left) <= 1
    scale = min(target[0] / source[0], target[1] / source[1])
    assert height <= source[0] * scale + 1e-9 or height == 1
    assert height >= source[0] * scale - 1 - 1e-9


@given(sizes, sizes)
def test_the_middle_part_has_the_shape_of_the_target_and_lies_in_the_middle(source, target):
    top, left, height, width = middle(source, target)
    assert height == source[0] or width == source[1]
    assert abs((source[0] - height) - 2 * top) <= 1
    assert abs((source[1] - width) - 2 * left) <= 1
    assert abs(height * target[1] - width * target[0]) <= 0.5 * max(target) or 1 in (height, width)


@given(sizes, sizes, st.sampled_from(FITS), st.sampled_from([0, 90, 180, 270]))
def test_every_picture_becomes_one_of_the_size_that_was_declared(source, target, fit, rotate):
    pixels = np.random.default_rng(0).integers(0, 256, (*source, 3), dtype=np.uint8)
    fitting = Fit(size=target, fit=fit, rotate=rotate)
    out = fitting(pixels)
    assert out.shape == (*target, 3)
    assert out.dtype == np.uint8
    assert fitting.size_of(source) == target


def test_a_turn_is_clockwise_and_comes_after_the_crop():
    pixels = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    fit = Fit(rotate=90, crop=(1, 2, 2, 3))
    cut = pixels[1:3, 2:5]
    assert fit.size_of((4, 5)) == (3, 2)
    np.testing.assert_array_equal(fit(pixels)[0], cut[::-1, 0])  # its left column, from below, is on top
    np.testing.assert_array_equal(Fit(rotate=180)(pixels), pixels[::-1, ::-1])
    np.testing.assert_array_equal(Fit(rotate=270)(Fit(rotate=90)(pixels)), pixels)


def test_what_is_not_fitted_has_to_have_the_size():
    assert Fit(size=(4, 5)).wanted == (4, 5)
    assert Fit(size=(4, 5), rotate=90).wanted == (5, 4)
    assert Fit(size=(4, 5), fit="pad").wanted is None
    with pytest.raises(InvalidValueError, match="declare how to fit it"):
        Fit(size=(4, 5)).size_of((5, 4))


class Grey:
    """A camera of 480 x 640."""

    size = (480, 640)

    def read(self) -> Image:
        return Image(t_ns=1, pixels=np.zeros((480, 640, 3), np.uint8))

    def close(self) -> None: ...


def test_a_camera_whose_pictures_are_resized_says_so_once_with_both_sizes(caplog):
    with caplog.at_level("INFO", "drivers.cameras.fit"):
        camera = Fitted(Grey(), size=(224, 224), fit="stretch", rotate=90, crop=(0, 0, 480, 600))
        for _ in range(3):
            assert camera.read().pixels.shape == (224, 224, 3)
        Fitted(Grey(), size=(640, 480), fit="pad", rotate=90)
    assert caplog.messages == ["Grey: pictures of 600 x 480 are resized to 224 x 224: stretch"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"fit": "pad"}, "needs a size"),
        ({"fit": "PAD", "size": (2, 2)}, "one of 'pad', 'crop', 'stretch'"),
        ({"size": (0, 2)}, "height, width"),
        ({"size": (2.0, 2)}, "height, width"),
        ({"size": 224}, "height, width"),
        ({"size": (2, 2, 3)}, "height, width"),
        ({"rotate": 45}, "0, 90, 180 or 270"),
        ({"crop": (0, 0, 2)}, "top, left, height, width"),
        ({"crop": (-1, 0, 2, 2)}, "top, left, height, width"),
        ({"crop": (0, 0, 0, 2)}, "top, left, height, width"),
    ],
)
def test_a_fit_that_makes_no_sense_is_refused(settings, said):
    with pytest.raises(InvalidValueError, match=said):
        Fit(**settings)


@given(st.integers(0, 10**18), st.integers(-(10**10), 10**10), st.integers(-1000, 1000))
def test_a_capture_is_never_after_the_arrival_and_stamps_that_cannot_be_are_none(arrival, age, latency_ms):
    times = DeviceTime(latency_ms / 1000)
    capture_ns = times.capture_ns(arrival - age, arrival)
    assert capture_ns <= arrival
    known = arrival - age if 0 <= age <= DeviceTime.MAX_AGE_NS else arrival
    assert capture_ns == min(arrival, known - latency_ms * MS)


def test_the_sizes_of_a_camera_are_those_that_the_kernel_lists():
    """Two formats: one of single sizes, one of any size in a range."""
    discrete, stepwise = 1, 3
    formats = [b"YUYV", b"MJPG"]
    kernel = {
        b"YUYV": [(discrete, 640, 480, 0, 0, 0, 0), (discrete, 320, 240, 0, 0, 0, 0)],
        b"MJPG": [(stepwise, 64, 1920, 2, 48, 1080, 2)],
    }

    def ioctl(request: int, argument: bytes) -> bytes:
        if request == 0xC0405602:
            index = _FORMAT.unpack(argument)[0]
            if index >= len(formats):
                raise OSError
            code = int.from_bytes(formats[index], "little")
            return _FORMAT.pack(index, 1, 0, b"", code, 0, 0, 0, 0)
        index, code = _SIZE.unpack(argument)[:2]
        has = kernel[code.to_bytes(4, "little")]
        if index >= len(has):
            raise OSError
        return _SIZE.pack(index, code, *has[index], 0, 0)

    assert _FORMAT.size == 64  # sizeof(struct v4l2_fmtdesc), which is in the request's number
    assert _SIZE.size == 44
    assert listed(ioctl) == [(48, 64), (240, 320), (480, 640), (1080, 1920)]


def test_a_device_that_is_no_camera_lists_none():
    def ioctl(request: int, argument: bytes) -> bytes:
        raise OSError(25, "inappropriate ioctl")

    assert listed(ioctl) == []
