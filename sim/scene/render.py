"""Renders images of a world's snapshots, offscreen by EGL, and writes videos."""

import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Self, final

import mujoco
import numpy as np
from jaxtyping import Float, UInt8

from robot_runtime.core.values.state import Image
from robot_runtime.errors import RobotRuntimeError
from sim.scene.world import World, show_snapshot
from sim.tasks import make_task


class RenderingUnavailableError(RobotRuntimeError):
    """This machine cannot render offscreen."""


def make_context(width: int, height: int):
    """Make an EGL context and make it current in this thread.

    Uses `mujoco.egl` directly: `mujoco.Renderer` chooses its backend from MUJOCO_GL when mujoco is imported,
    which is too early for a library to influence.
    """
    try:
        from mujoco.egl import GLContext

        context = GLContext(width, height)
        context.make_current()
    except Exception as error:
        raise RenderingUnavailableError(
            f"cannot draw offscreen: EGL gave {type(error).__name__}: {error}; "
            "install libegl1, libgl1, libegl-mesa0 and libgl1-mesa-dri, or run without cameras"
            f"{_set_in_environment()}"
        ) from error
    return context


def _set_in_environment() -> str:
    """Environment variables that choose another backend or device, as part of a message."""
    names = ("MUJOCO_GL", "PYOPENGL_PLATFORM", "MUJOCO_EGL_DEVICE_ID", "EGL_PLATFORM")
    found = [f"{name}={os.environ[name]}" for name in names if os.environ.get(name)]
    return f"; the environment sets {', '.join(found)}: unset it" if found else ""


class Offscreen:
    """Renders snapshots of one model; belongs to the thread that made it.

    Close it there: the garbage collector would free its buffers in whatever OpenGL context is current, and
    another renderer would go blank.
    """

    def __init__(
        self, model: mujoco.MjModel, size: tuple[int, int], *, samples: int, most_geoms: int
    ) -> None:
        """size: height, width [pixels]. samples: per pixel, for antialiasing; 0: one."""
        self._model, self._data, self._is_closed = model, mujoco.MjData(model), False
        self.height, self.width = size
        self._gl = make_context(self.width, self.height)
        vis = model.vis
        kept = vis.quality.offsamples, vis.global_.offwidth, vis.global_.offheight
        vis.quality.offsamples, vis.global_.offwidth, vis.global_.offheight = samples, self.width, self.height
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        vis.quality.offsamples, vis.global_.offwidth, vis.global_.offheight = kept
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(model, maxgeom=most_geoms)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 0
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = 0
        self._options, self._camera = mujoco.MjvOption(), mujoco.MjvCamera()

    def _show(self, snapshot: Float[np.ndarray, " P"]) -> None:
        """Update the scene to a snapshot, seen by the camera."""
        show_snapshot(self._model, self._data, snapshot)
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(
            self._model, self._data, self._options, None, self._camera, everything, self._scene
        )
        self._gl.make_current()

    def _pixels(self, size: tuple[int, int] | None = None) -> UInt8[np.ndarray, "h w 3"]:
        """Render the scene, RGB with row 0 on top; size: height and width, None: the whole buffer's."""
        height, width = (self.height, self.width) if size is None else size
        viewport = mujoco.MjrRect(0, 0, width, height)
        mujoco.mjr_render(viewport, self._scene, self._context)
        pixels = np.empty((height, width, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(pixels, None, viewport, self._context)
        return np.ascontiguousarray(pixels[::-1])

    def close(self) -> None:
        """Free the OpenGL context; the renderer cannot be used afterwards. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._gl.make_current()
        self._context.free()
        self._gl.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@final
class Renderer(Offscreen):
    """Renders the views of a model's own cameras.

    No shadows, reflections or multisampling: on a software renderer they cost more than the image.
    """

    def __init__(self, model: mujoco.MjModel, *, size: tuple[int, int] = (224, 224)) -> None:
        super().__init__(model, size, samples=0, most_geoms=500)
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED

    def render(self, snapshot: Float[np.ndarray, " P"], camera: str) -> UInt8[np.ndarray, "h w 3"]:
        """Render the named camera's view, RGB with row 0 on top."""
        self._camera.fixedcamid = self._model.camera(camera).id
        self._show(snapshot)
        return self._pixels()


def take_pictures(world: World, cameras: Mapping[str, tuple[int, int]]) -> dict[str, Image]:
    """Render all cameras now, in the world's thread; cameras: (height, width) by name [pixels]."""
    snapshot = world.snapshot()
    return {
        name: Image(t_ns=world.t_ns, pixels=_renderer(world.task.name, size).render(snapshot, name))
        for name, size in cameras.items()
    }


@cache
def _renderer(task_name: str, size: tuple[int, int]) -> Renderer:
    """One renderer per process for all worlds of a task, which differ only in poses; never closed."""
    return Renderer(World(make_task(task_name)).model, size=size)


def write_video(path: Path, frames: Iterable[UInt8[np.ndarray, "h w 3"]], *, rate_hz: int = 25) -> None:
    """Write RGB frames with even height and width as an mp4 (h264, or mpeg4 if that is missing)."""
    import av

    codec = "libx264" if "libx264" in av.codecs_available else "mpeg4"
    with av.open(str(path), mode="w") as container:
        stream = container.add_stream(codec, rate=Fraction(rate_hz))
        assert isinstance(stream, av.VideoStream)
        stream.pix_fmt = "yuv420p"
        for i, pixels in enumerate(frames):
            if i == 0:
                stream.height, stream.width = pixels.shape[:2]
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
