"""The rig that a person wears: two cameras with odometry, and the error model of each part."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from calibration.camera import KannalaBrandt, Pinhole
from sim.capture.cameras import Camera
from sim.capture.faults import Fault
from sim.capture.scene import CHEST_FOVY, WRIST_FOVY
from sim.capture.sensors import ImuErrors, Vio

CHEST_LENS = Pinhole(size=(960, 1280), fx=640.0, fy=640.0, cx=641.7, cy=478.2)
WRIST_LENS = KannalaBrandt(
    size=(960, 1280), fx=455.0, fy=455.0, cx=637.9, cy=481.1, k1=0.021, k2=-0.008, k3=0.003, k4=-0.0007
)


@dataclass(frozen=True, kw_only=True)
class DeviceErrors:
    """Errors of one device: its clock, odometry, inertial sensor.

    offset_s, skew_ppm: largest of the clock, either sign. jitter_ms: of frame times; stamp_ms: of their
    stamps. share_dropped: of frames.
    """

    offset_s: float = 0.5
    skew_ppm: float = 50.0
    jitter_ms: float = 0.0
    stamp_ms: float = 0.0
    share_dropped: float = 0.0
    vio: Vio = field(default_factory=Vio)
    imu: ImuErrors = field(default_factory=ImuErrors)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Errors of a rig without faults."""

    device: DeviceErrors
    corner_px: float
    blur: bool
    """Whether there is motion blur and a rolling shutter."""
    width_m: float
    """Noise of a measured gripper width [m]."""
    glimpse_m: float
    """Noise of a thing's observed position at 1 m; proportional to distance [m]."""
    pixel_noise: float = 0.0
    """Noise of drawn images [grey levels]."""

    def cameras(self) -> Mapping[str, Camera]:
        exposure, readout = (6_000_000, 12_000_000) if self.blur else (1_000_000, 0)
        lenses = {"chest": (CHEST_LENS, 30.0), "hand": (WRIST_LENS, 60.0)}
        return {
            role: Camera(
                lens=lens,
                rate_hz=rate,
                exposure_ns=exposure,
                readout_ns=readout,
                corner_noise_px=self.corner_px,
                pixel_noise=self.pixel_noise,
            )
            for role, (lens, rate) in lenses.items()
        }


CLEAN = Noise(
    device=DeviceErrors(
        vio=Vio(walk_m=0.0004, walk_deg=0.01, noise_m=0.0001, noise_deg=0.005),
        imu=ImuErrors(gyro_noise=0.001, gyro_bias=0.001, accelerometer_noise=0.01, accelerometer_bias=0.01),
    ),
    corner_px=0.1,
    blur=False,
    width_m=0.0001,
    glimpse_m=0.001,
)
"""Nearly ground truth: shows whether the mathematics is right."""
NOISY = Noise(
    device=DeviceErrors(
        jitter_ms=1.0,
        stamp_ms=0.3,
        share_dropped=0.005,
        vio=Vio(
            walk_m=0.004,
            walk_deg=0.10,
            noise_m=0.0006,
            noise_deg=0.03,
            tilt_deg=0.05,
            jumps_per_min=0.1,
            limited_per_min=0.3,
            lost_per_min=0.05,
        ),
        imu=ImuErrors(gyro_noise=0.01, gyro_bias=0.01, accelerometer_noise=0.05, accelerometer_bias=0.05),
    ),
    corner_px=0.3,
    blur=True,
    width_m=0.0007,
    glimpse_m=0.008,
    pixel_noise=4.0,
)
"""Typical errors of phones and action cameras."""


SMALL_RATE_HZ = 20.0


def small_cameras(size: tuple[int, int]) -> Mapping[str, Camera]:
    """Cameras with the robot's fields of view and small images (height, width), for training data.

    Boards cannot be found in images of this size: set `RigConfig.corners`, for corners as accurate as those
    of the large lenses.
    """
    out = {}
    for role, fovy, lens in (("chest", CHEST_FOVY, CHEST_LENS), ("hand", WRIST_FOVY, WRIST_LENS)):
        height, width = size
        f = 0.5 * height / math.tan(0.5 * math.radians(fovy))
        small = Pinhole(size=size, fx=f, fy=f, cx=0.5 * (width - 1), cy=0.5 * (height - 1))
        out[role] = Camera(
            lens=small,
            rate_hz=SMALL_RATE_HZ,
            exposure_ns=3_000_000,
            corner_noise_px=0.3 * f / lens.fx,
            pixel_noise=4.0,
            worst_blur_px=8.0 * f / lens.fx,
        )
    return out


@dataclass(frozen=True, kw_only=True)
class RigConfig:
    """Configuration of a recorded session; the same seed gives the same bits."""

    noise: Noise = NOISY
    faults: tuple[Fault, ...] = ()
    seed: int = 0
    task: str = ""
    person: str = "simulated"
    glimpses: bool = True
    tags: bool = True
    """Whether the chest camera finds the tags on the gripper."""
    imu: bool = True
    measured: Mapping[str, float] = field(default_factory=dict)
    """What the person measured with a tape: `board_height_m`, `chest_height_m` [m]; empty: the height of a
    board that lies flat."""
    cameras: Mapping[str, Camera] = field(default_factory=dict)
    """Cameras by role that replace those of `noise`."""
    corners: bool = False
    """Whether corners and tags are written beside images that are too small to find them in."""

    def camera(self, role: str) -> Camera:
        return self.cameras.get(role) or self.noise.cameras()[role]

    def rng(self, *what: int) -> np.random.Generator:
        """Random generator of one part, independent of what the others draw."""
        return np.random.default_rng([self.seed, *what])
