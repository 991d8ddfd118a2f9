import threading
from pathlib import Path

import av
import numpy as np
import pytest

from sim.scene.clock import SimClock
from sim.scene.drivers import SimCamera
from sim.scene.render import Renderer, RenderingUnavailableError, write_video

MS = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def _needs_rendering(pick_place_world):
    try:
        Renderer(pick_place_world.model).close()
    except RenderingUnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("camera", ["overview", "wrist"])
def test_frame_is_not_blank(pick_place_world, camera):
    pick_place_world.reset(0)
    with Renderer(pick_place_world.model) as renderer:
        pixels = renderer.render(pick_place_world.snapshot(), camera)
    assert pixels.shape == (224, 224, 3)
    assert pixels.std() > 20.0


def test_renderer_survives_the_end_of_another(pick_place_world):
    pick_place_world.reset(0)
    with Renderer(pick_place_world.model) as renderer:
        before = renderer.render(pick_place_world.snapshot(), "overview")
        Renderer(pick_place_world.model).close()
        assert np.array_equal(renderer.render(pick_place_world.snapshot(), "overview"), before)


def test_camera_lives_in_another_thread_and_stamps_its_frames(pick_place_world):
    clock, images = SimClock(), []
    pick_place_world.reset(0)

    def take_pictures() -> None:
        camera = SimCamera(pick_place_world, clock, name="overview", rate_hz=20.0)
        images.extend(camera.read() for _ in range(3))
        camera.close()

    thread = threading.Thread(target=take_pictures)
    thread.start()
    thread.join(timeout=30)
    assert [image.t_ns for image in images] == [0, 50 * MS, 100 * MS]


def test_late_camera_skips_frames(pick_place_world):
    clock = SimClock()
    pick_place_world.reset(0)
    camera = SimCamera(pick_place_world, clock, name="wrist", rate_hz=10.0)
    clock.sleep_until_ns(350 * MS)
    assert [camera.read().t_ns, camera.read().t_ns] == [350 * MS, 400 * MS]
    camera.close()


def test_video_has_every_frame(tmp_path: Path):
    frames = [np.full((48, 64, 3), 20 * i, dtype=np.uint8) for i in range(10)]
    write_video(tmp_path / "episode.mp4", frames, rate_hz=20)
    with av.open(str(tmp_path / "episode.mp4")) as container:
        assert sum(1 for _ in container.decode(video=0)) == 10
