"""Measures a camera's latency: this terminal turns white and black, and the camera looks at it."""

import sys
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import numpy as np

from robot_runtime.core.robot import Camera
from robot_runtime.mailbox import Mailbox
from robot_runtime.providers import provider

_NUM_CHANGES = 24
_SHORTEST_S, _LONGEST_S = 0.25, 0.55
_WHITE, _BLACK = "\x1b[?5h", "\x1b[?5l"
"""Reverse video on and off (DECSCNM), which changes the whole screen of any terminal."""
_MIDDLE = 4
"""The middle quarter of the image counts: 1 / _MIDDLE of it is cut off at each side."""


def measure_camera(camera: Camera, *, show: Callable[[bool], None] | None = None, seed: int = 0) -> Any:
    """Flash the screen; return the delay of the camera's stamps, a `calibration.flash.Delay`.

    show: turns the screen white (True) or black; None: this terminal.
    InvalidValueError: brightness does not follow the screen.
    """
    calibration = provider("calibration")
    seen: list[tuple[int, float]] = []
    first, stopping, failed = Event(), Event(), Mailbox[BaseException]()

    def look() -> None:
        try:
            while not stopping.is_set():
                image = camera.read()
                h, w = image.pixels.shape[:2]
                middle = image.pixels[h // _MIDDLE : h - h // _MIDDLE, w // _MIDDLE : w - w // _MIDDLE]
                if not seen or image.t_ns > seen[-1][0]:
                    seen.append((image.t_ns, float(middle.mean())))
                first.set()
        except Exception as error:
            failed.put(error)
            first.set()

    thread = Thread(target=look, name="camera", daemon=True)
    thread.start()
    first.wait(5.0)
    changes, rng = [], np.random.default_rng(seed)
    try:
        for i in range(_NUM_CHANGES):
            (show or _terminal)(i % 2 == 0)
            changes.append(calibration.Change(t_ns=time.monotonic_ns(), is_on=i % 2 == 0))
            time.sleep(float(rng.uniform(_SHORTEST_S, _LONGEST_S)))
        time.sleep(1.0)
    finally:
        (show or _terminal)(False)
        stopping.set()
    if (error := failed.take()) is not None:
        raise error
    stamps, brightness = zip(*seen, strict=True) if seen else ((), ())
    return calibration.delay_of(changes, stamps, brightness)


def _terminal(is_white: bool) -> None:
    sys.stdout.write(_WHITE if is_white else _BLACK)
    sys.stdout.flush()


SECONDS = _NUM_CHANGES * (_SHORTEST_S + _LONGEST_S) / 2 + 1.0
"""Duration of the measurement [s]."""
