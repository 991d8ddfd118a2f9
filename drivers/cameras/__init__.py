"""Cameras: `OpenCvCamera` (V4L2, files, streams), `RealSenseCamera`, and `Fitted` around any other.

    Robot(arm=..., front=OpenCvCamera("/dev/video0", size=(224, 224), fit="pad"), limits=limits)

A camera moves nothing, so there is nothing to stop. The runtime detects missing or invalid images
(`robot_runtime.core.camera_watch`), and makes no request without one. No safety function.
"""

from drivers.cameras.fit import Fit, Fitted
from drivers.cameras.opencv import OpenCvCamera
from drivers.cameras.realsense import RealSenseCamera

__all__ = ["Fit", "Fitted", "OpenCvCamera", "RealSenseCamera"]
