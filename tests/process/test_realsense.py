"""A RealSense as Intel's own library has one without hardware: its software device."""

import threading
import time

import numpy as np
import pytest

from drivers.cameras import RealSenseCamera
from drivers.cameras.libraries import realsense
from robot_runtime.errors import DriverError, InvalidValueError

SIZE = (48, 64)
rs = realsense()


class SoftwareCamera:
    """A colour sensor of two sizes that gives a picture each time it is told to, or 50 a second."""

    def __init__(self) -> None:
        self.device = rs.software_device()
        self.device.register_info(rs.camera_info.serial_number, "123")
        self.sensor = self.device.add_sensor("RGB Camera")
        self.profiles = {size: self._profile(k, size) for k, size in enumerate((SIZE, (96, 128)))}
        self.domain, self.exposed_before_us = rs.timestamp_domain.global_time, 0
        self.stamped_ns: list[int] = []
        self._number = 0
        self.is_over = threading.Event()

    def give(self, pixels: np.ndarray | None = None) -> None:
        self._number += 1
        noise = np.random.default_rng(self._number).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
        frame, now_ns = rs.software_video_frame(), time.time_ns()
        frame.pixels, frame.stride, frame.bpp = noise if pixels is None else pixels, SIZE[1] * 3, 3
        frame.timestamp, frame.domain = now_ns / 1e6, self.domain
        frame.frame_number, frame.profile = self._number, self.profiles[SIZE].as_video_stream_profile()
        if self.exposed_before_us:
            known = rs.frame_metadata_value
            self.sensor.set_metadata(known.frame_timestamp, 10_000_000)
            self.sensor.set_metadata(known.sensor_timestamp, 10_000_000 - self.exposed_before_us)
        self.stamped_ns.append(time.monotonic_ns())
        self.sensor.on_video_frame(frame)

    def run(self) -> None:
        while not self.is_over.wait(0.02):
            self.give()

    def _profile(self, k: int, size: tuple[int, int]) -> object:
        stream = rs.video_stream()
        stream.type, stream.index, stream.uid, stream.fmt = rs.stream.color, 0, k + 1, rs.format.rgb8
        stream.height, stream.width, stream.fps, stream.bpp = *size, 30, 3
        return self.sensor.add_video_stream(stream)


@pytest.fixture
def software():
    software = SoftwareCamera()
    thread = threading.Thread(target=software.run, daemon=True)
    thread.start()
    yield software
    software.is_over.set()
    thread.join()


def quiet(software: SoftwareCamera) -> None:
    """From now on a picture only when it is told to."""
    software.is_over.set()
    time.sleep(0.1)


def test_its_pictures_come_with_the_times_at_which_the_device_stamped_them(software):
    camera = RealSenseCamera(device=software.device, capture_size=SIZE)
    assert camera.size == SIZE
    quiet(software)
    camera.read()
    for k in range(5):
        pixels = np.full((*SIZE, 3), (k, 100, 200), np.uint8)
        software.give(pixels)
        image = camera.read()
        np.testing.assert_array_equal(image.pixels, pixels)
        assert abs(image.t_ns - software.stamped_ns[-1]) < 5e6
    camera.close()
    camera.close()
    with pytest.raises(DriverError, match="was closed"):
        camera.read()


def test_captures_are_of_the_middle_of_exposure_where_the_metadata_say_when_that_was(software):
    software.exposed_before_us = 12_000
    camera = RealSenseCamera(device=software.device, capture_size=SIZE, latency_s=0.001)
    quiet(software)
    camera.read()
    software.give()
    assert camera.read().t_ns == pytest.approx(software.stamped_ns[-1] - 13e6, abs=5e6)
    camera.close()


def test_stamps_of_the_hardware_s_own_clock_say_nothing_here_and_the_arrival_counts(software):
    software.domain = rs.timestamp_domain.hardware_clock
    camera = RealSenseCamera(device=software.device, capture_size=SIZE, latency_s=0.02)
    quiet(software)
    camera.read()
    software.give()
    late_ns = camera.read().t_ns - software.stamped_ns[-1]
    assert -20e6 <= late_ns < -20e6 + 50e6
    camera.close()


def test_its_pictures_are_fitted_and_turned(software):
    camera = RealSenseCamera(device=software.device, capture_size=SIZE, size=(32, 24), fit="pad", rotate=90)
    assert camera.read().pixels.shape == (32, 24, 3)
    camera.close()


def test_it_can_be_opened_again_after_it_was_closed_and_not_twice_at_once(software):
    first = RealSenseCamera(device=software.device, capture_size=SIZE)
    with pytest.raises(DriverError):
        RealSenseCamera(device=software.device, capture_size=SIZE)
    first.read()
    first.close()
    second = RealSenseCamera(device=software.device, size=SIZE)
    second.read()
    second.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"size": (47, 64)}, r"no colour pictures of \(47, 64\).*it has \(48, 64\) at 30 Hz; \(96, 128\)"),
        ({"capture_size": SIZE, "fps": 29}, "at 29 Hz; it has"),
        ({}, r"no colour pictures of \(480, 640\)"),
        ({"capture_size": SIZE, "size": (10, 10)}, "declare how to fit it"),
        ({"capture_size": SIZE, "latency_s": 2.0}, "latency_s"),
    ],
)
def test_a_size_or_rate_that_it_has_not_got_is_refused_with_those_that_it_has(software, settings, said):
    with pytest.raises(InvalidValueError, match=said):
        RealSenseCamera(device=software.device, **settings)


def test_without_a_device_that_is_said_at_once():
    begin_s = time.monotonic()
    with pytest.raises(DriverError, match="no RealSense at this machine"):
        RealSenseCamera("234322070493")
    assert time.monotonic() - begin_s < 2.0
