"""Colour cameras of Intel by their own library: `RealSenseCamera("123456")` (extra `realsense`).

    RealSenseCamera(size=(224, 224), fit="pad")                 the only one connected
    RealSenseCamera("234322070493", capture_size=(480, 640), fps=30, size=(224, 224), fit="crop")

Capture times are the device's own stamps in the global time domain, where it has one, converted to this
machine's monotonic clock; to the middle of exposure, where the frame's metadata have it. Else the arrival. In
both cases less `latency_s`. Nothing here moves, so there is nothing to stop. No safety function.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from drivers.cameras.feed import DeviceTime, Feed, Shot
from drivers.cameras.fit import Fit, Size, a_size
from drivers.cameras.fitted import FittedCamera
from drivers.cameras.libraries import realsense
from robot_runtime.errors import DriverError, InvalidValueError

USUAL: Size = (480, 640)
"""Default size of its images."""
FIRST_S = 5.0
"""How long a connected device may take to its first image [s]."""
POLL_S = 0.1
"""How often a silent device is checked for being connected [s]."""


class RealSenseCamera(FittedCamera):
    """The colour stream of a RealSense; only the newest image."""

    def __init__(
        self,
        serial: str | None = None,
        *,
        size: Size | None = None,
        fit: str | None = None,
        rotate: int = 0,
        crop: tuple[int, int, int, int] | None = None,
        capture_size: Size | None = None,
        fps: int = 30,
        latency_s: float = 0.0,
        has_noise: bool = True,
        device: Any = None,
    ) -> None:
        """
        serial: its number, as `rs-enumerate-devices` shows it; None: the only one.
        size, fit, rotate, crop: the fit of the images, see `drivers.cameras.fit`.
        capture_size: the size requested from the device, (height, width); None: `size` if nothing is fitted,
            else 480 x 640.
        fps: images per second, as the device offers them [Hz].
        latency_s: from the middle of exposure to the stamp [s].
        has_noise: whether two images of a still scene differ.
        device: a `pyrealsense2.device` that is used instead of looking for one.

        InvalidValueError: an invalid number, or the device has no such size and rate.
        DriverError: there is no such device, or it gives no image.
        """
        fitting = Fit(size=size, fit=fit, rotate=rotate, crop=crop)
        requested = a_size("capture_size", capture_size) if capture_size is not None else None
        source = requested or fitting.wanted or USUAL
        fitting.size_of(source)  # before the search for the device
        self.has_noise = bool(has_noise)
        stamps, rs = DeviceTime(latency_s), realsense()
        found = device if device is not None else the_device(rs, serial)
        sensor, profile = the_stream(rs, found, source, fps)
        feed = Feed(
            f"the RealSense {serial or ''}".rstrip(),
            lambda: _ColourStream(rs, found, sensor, profile, stamps),
            within_s=FIRST_S,
        )
        super().__init__(feed, fitting, source)


def the_device(rs: Any, serial: str | None) -> Any:
    """Find the device. DriverError: there is no such device, or more than one."""
    devices = {d.get_info(rs.camera_info.serial_number): d for d in rs.context().query_devices()}
    if not devices:
        raise DriverError("there is no RealSense at this machine; is its cable in a USB 3 socket?")
    there = ", ".join(f"{name} ({d.get_info(rs.camera_info.name)})" for name, d in devices.items())
    if serial is None and len(devices) > 1:
        raise DriverError(f"there are several RealSense, choose one by its serial: {there}")
    if serial is not None and str(serial) not in devices:
        raise DriverError(f"there is no RealSense {serial}; there are {there}")
    return devices[str(serial)] if serial is not None else next(iter(devices.values()))


def the_stream(rs: Any, device: Any, size: Size, fps: float) -> tuple[Any, Any]:
    """Return sensor and profile of the colour images of that size; InvalidValueError: there are none."""
    has: dict[tuple[int, int, int], tuple[Any, Any]] = {}
    for sensor in device.query_sensors():
        for profile in sensor.get_stream_profiles():
            if profile.stream_type() == rs.stream.color and profile.format() == rs.format.rgb8:
                video = profile.as_video_stream_profile()
                has[(video.height(), video.width(), video.fps())] = (sensor, profile)
    if not has:
        raise InvalidValueError("this RealSense has no colour pictures")
    if (*size, fps) not in has:
        offered = "; ".join(f"({h}, {w}) at {rate} Hz" for h, w, rate in sorted(has))
        raise InvalidValueError(
            f"the RealSense has no colour pictures of {size} (height, width) at {fps!r} Hz; it has "
            f"{offered}; "
            "size with fit = 'pad', 'crop' or 'stretch' makes others of them"
        )
    return has[(*size, int(fps))]


class _ColourStream:
    """A running sensor."""

    def __init__(self, rs: Any, device: Any, sensor: Any, profile: Any, stamps: DeviceTime) -> None:
        self._rs, self._device, self._sensor, self._stamps = rs, device, sensor, stamps
        if sensor.supports(rs.option.global_time_enabled):
            sensor.set_option(rs.option.global_time_enabled, 1)
        self._queue = rs.frame_queue(1)
        sensor.open(profile)
        try:
            sensor.start(self._queue)
        except RuntimeError:
            sensor.close()
            raise

    def take(self, wait: Callable[[float], bool]) -> Shot | None:
        has_come, frame = self._queue.try_wait_for_frame(round(POLL_S * 1e3))
        if not has_come:
            if not self._device.is_connected():
                raise DriverError("the RealSense is gone; was it unplugged?")
            return None
        arrival_ns = time.monotonic_ns()
        stamp_ns = self._stamp_ns(frame)
        video = frame.as_video_frame()
        if not video:
            raise ValueError("a frame that is no image")
        pixels = np.array(video.get_data(), np.uint8)  # a copy: the frame's memory is reused
        return Shot(pixels=pixels, t_ns=self._stamps.capture_ns(stamp_ns, arrival_ns))

    def close(self) -> None:
        self._sensor.stop()
        self._sensor.close()

    def _stamp_ns(self, frame: Any) -> int | None:
        """Return the middle of exposure, or the device's stamp, on the monotonic clock; None: neither."""
        rs = self._rs
        if frame.get_frame_timestamp_domain() == rs.timestamp_domain.hardware_clock:
            return None
        on_wall_ns = round(frame.get_timestamp() * 1e6)
        sent, exposed = rs.frame_metadata_value.frame_timestamp, rs.frame_metadata_value.sensor_timestamp
        if frame.supports_frame_metadata(sent) and frame.supports_frame_metadata(exposed):
            on_wall_ns -= 1000 * (frame.get_frame_metadata(sent) - frame.get_frame_metadata(exposed))
        return on_wall_ns - (time.time_ns() - time.monotonic_ns())
