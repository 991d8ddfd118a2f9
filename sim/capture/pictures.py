"""Images of a recording, with motion blur, rolling shutter and noise.

drawn at     ┆   ┆   ┆   ┆   ┆        instants from the first row's opening to the last row's closing
row v        └── mean of those within its own exposure ──┘
"""

from collections.abc import Callable, Iterator

import mujoco
import numpy as np
from jaxtyping import Float, UInt8

from robot_runtime.errors import InvalidValueError
from sim.capture.cameras import Camera
from sim.capture.devices import STREAMS, Device
from sim.capture.painter import Painter
from sim.capture.takes import Recording
from sim.capture.walks import STEP_NS

_EVERY_NS = 3_000_000
"""Approximate spacing of the instants of one image [ns]."""


def drawn(
    model: mujoco.MjModel, *, seed: int, on_picture: Callable[[], None] = lambda: None
) -> Callable[[Device, Recording], Iterator[UInt8[np.ndarray, "h w 3"]]]:
    """A renderer for `simulate_session(pictures=...)`, for takes made from filmed performances.

    model: a `build_scene` of their task. on_picture: called after each image.
    """

    def pictures(device: Device, recording: Recording) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
        rng = np.random.default_rng([seed, STREAMS[device.role], 10])
        with Painter(model, device.camera.lens) as painter:
            for t_ns in device.frames[device.kept].tolist():
                yield draw(painter, device, recording, t_ns, rng)
                on_picture()

    return pictures


def draw(
    painter: Painter, device: Device, recording: Recording, t_ns: int, rng: np.random.Generator
) -> UInt8[np.ndarray, "h w 3"]:
    """Draw one image whose middle row is in mid-exposure at a true time."""
    camera = device.camera
    offsets, weights = shutter(camera)
    light = np.zeros((*camera.lens.size, 3), dtype=np.float32)
    for k, offset in enumerate(offsets.tolist()):
        at = int(np.clip(t_ns + offset, device.X_W.t_ns[0], device.X_W.t_ns[-1]))
        view = painter.draw(snapshot_at(recording, at), device.X_W.at(at))
        light += weights[:, k, None, None] * view
    if camera.pixel_noise:
        light += rng.normal(0.0, camera.pixel_noise, light.shape).astype(np.float32)
    return np.clip(np.rint(light), 0, 255).astype(np.uint8)


def shutter(camera: Camera) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, "h K"]]:
    """Instants to draw at, from mid-exposure of the middle row [ns], and their weights in every row."""
    height = camera.lens.size[0]
    span = camera.exposure_ns + camera.readout_ns
    count = max(1, round(span / _EVERY_NS))
    offsets = ((np.arange(count) + 0.5) / count - 0.5) * span
    rows = (np.arange(height) - 0.5 * (height - 1)) / height * camera.readout_ns
    width = span / count
    opens, closes = rows - 0.5 * camera.exposure_ns, rows + 0.5 * camera.exposure_ns
    inside = np.minimum(closes[:, None], offsets + 0.5 * width) - np.maximum(
        opens[:, None], offsets - 0.5 * width
    )
    weights = np.clip(inside, 0.0, None)
    return np.rint(offsets), (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def snapshot_at(recording: Recording, t_ns: int) -> Float[np.ndarray, " P"]:
    """The snapshot at a true time; InvalidValueError: it was not filmed."""
    span = min(recording.spans, key=lambda each: max(each.start_ns - t_ns, t_ns - each.stop_ns + 1))
    performance = recording.takes[span.take].performance
    if performance is None or performance.snapshots is None:
        raise InvalidValueError(
            f"take {span.take} ({span.kind}) was not filmed: images need performances made with film=True"
        )
    at = np.clip((t_ns - span.start_ns) / STEP_NS, 0.0, len(performance.snapshots) - 1)
    i = min(int(at), len(performance.snapshots) - 2)
    a, b = performance.snapshots[i].astype(float), performance.snapshots[i + 1].astype(float)
    return a + (at - i) * (b - a)
