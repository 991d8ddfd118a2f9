"""Cameras, control and network in threads of their own, against a real server and real rendering."""

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from toy import serving

from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from policies.scripted import FRANKA, HoldPolicy
from robot_runtime.cli.bench_cameras import POLICY, TASK, bare_round
from robot_runtime.client import PolicyClient
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.action import NS_PER_S
from robot_runtime.core.method import method_named
from robot_runtime.core.safety import Mode
from robot_runtime.core.state import Image, Observation
from robot_runtime.robot import Robot
from robot_runtime.runner import CAMERA_TIMEOUT_NS, CAMERAS_BACK, Runner, Setting
from robot_runtime.server.process import ServerProcess
from robot_runtime.telemetry import RunRecord
from sim.drivers import SimArm, SimCamera, SimGripper
from sim.render import Renderer, RenderingUnavailableError
from sim.tasks import make_task
from sim.world import World

SIZE = (96, 128)
PATIENT_NS = NS_PER_S
"""Heartbeats and age of pictures that a busy machine, which stops all threads for a while, keeps as well."""


def skip_where_nothing_can_be_drawn(world: World) -> None:
    try:
        Renderer(world.model, size=SIZE).close()
    except RenderingUnavailableError as error:
        pytest.skip(str(error))


class WatchingPolicy(HoldPolicy):
    """Holds, and remembers what it was shown."""

    def __init__(self, schema):
        super().__init__(schema)
        self.seen: list[Observation] = []

    def infer(self, observation, **question):
        if observation.state.t_ns > 0:  # not the warm-up
            images = {
                name: Image(t_ns=image.t_ns, pixels=image.pixels.copy())
                for name, image in observation.images.items()
            }
            self.seen.append(structs.replace(observation, images=images))
        return super().infer(observation, **question)


class FlatCamera:
    """Grey pictures at 50 Hz, but none for a while."""

    name, size = "wrist", SIZE

    def __init__(self, clock: MonotonicClock, *, silent_s: tuple[float, float]) -> None:
        self._clock, self._start_ns = clock, clock.now_ns()
        self._silent_ns = [self._start_ns + round(t * 1e9) for t in silent_s]
        self.first_ns = 0

    def read(self) -> Image:
        now_ns = self._clock.now_ns() + 20_000_000
        if self._silent_ns[0] <= now_ns < self._silent_ns[1]:
            now_ns = self._silent_ns[1]
        self._clock.sleep_until_ns(now_ns)
        self.first_ns = self.first_ns or now_ns
        return Image(t_ns=now_ns, pixels=np.full((*SIZE, 3), 128, np.uint8))

    def close(self) -> None: ...


def run_with(camera: FlatCamera, clock: MonotonicClock, *, duration_s: float) -> tuple[RunRecord, list]:
    """What happened on an ideal robot with one camera, and what the policy was shown."""
    schema = replace(FRANKA, cameras={"wrist": SIZE})
    setting = Setting(
        robot=Robot(arm=IdealArm(clock=clock), gripper=IdealGripper()),
        limits=FR3_LIMITS,
        method=method_named("time-aligned"),
        clock=clock,
        observe=lambda state: Observation(state=state),
        cameras={"wrist": camera},
    )
    policy = WatchingPolicy(schema)
    with (
        serving(policy, heartbeat_ns=PATIENT_NS) as server,
        PolicyClient(server.address, schema=schema) as client,
    ):
        runner = Runner(setting, client, client.wait_until_ready(10.0))
        record = runner.run(duration_s=duration_s)
    return record, policy.seen


def test_the_loop_starts_with_the_first_picture(monkeypatch):
    """What a camera does to get ready delays the start, and not a tick."""
    monkeypatch.setattr("robot_runtime.runner.CAMERA_TIMEOUT_NS", PATIENT_NS)
    clock = MonotonicClock()
    camera = FlatCamera(clock, silent_s=(0.0, 1.0))
    record, seen = run_with(camera, clock, duration_s=0.5)
    assert record.ticks[0].now_ns >= camera.first_ns
    assert seen
    assert not any("no picture" in text for _, text in record.log)


def test_the_loop_starts_without_a_camera_that_gives_no_picture_and_says_so(monkeypatch):
    monkeypatch.setattr("robot_runtime.runner.CAMERA_START_NS", 200_000_000)
    clock = MonotonicClock()
    record, seen = run_with(FlatCamera(clock, silent_s=(0.0, 1.2)), clock, duration_s=2.0)
    lines = [text for _, text in record.log]
    assert lines[0] == "no picture from wrist: nothing is asked"
    assert CAMERAS_BACK in lines
    assert seen


def test_a_camera_that_falls_silent_is_waited_for_and_said():
    """The plan runs to its end, the robot holds, and goes on when the camera does."""
    clock = MonotonicClock()
    record, seen = run_with(FlatCamera(clock, silent_s=(1.0, 4.5)), clock, duration_s=6.0)
    lines = [text for _, text in record.log]
    silent = lines.index("no picture from wrist: nothing is asked")
    assert "RUN -> HOLD: the plan ended before the next chunk came" in lines[silent:]
    again = lines.index(CAMERAS_BACK)
    assert silent < again
    assert "HOLD -> RUN: a fresh chunk arrived" in lines[again:]
    for observation in seen:
        assert observation.t_obs_ns - observation.images["wrist"].t_ns <= CAMERA_TIMEOUT_NS


@pytest.mark.parametrize("jpeg_quality", [None, 90], ids=["raw", "jpeg"])
def test_a_policy_is_shown_fresh_frames_of_the_cameras_it_needs_and_no_others(jpeg_quality):
    task, clock = make_task("track"), MonotonicClock()
    world = World(task, seed=1, t_start_ns=clock.now_ns())
    skip_where_nothing_can_be_drawn(world)
    offered = replace(task.schema, cameras={"overview": SIZE, "wrist": SIZE})
    policy = WatchingPolicy(replace(offered, cameras={"wrist": SIZE}))
    cameras = {name: SimCamera(world, clock, name=name, size=SIZE) for name in offered.cameras}
    setting = Setting(
        robot=Robot(arm=SimArm(world, clock), gripper=SimGripper(world, clock)),
        limits=FR3_LIMITS,
        method=method_named("time-aligned"),
        clock=clock,
        observe=lambda state: Observation(state=state, environment_state=task.environment_state(world)),
        cameras=cameras,
    )
    with (
        serving(policy, heartbeat_ns=PATIENT_NS) as server,
        PolicyClient(server.address, schema=offered, jpeg_quality=jpeg_quality) as client,
    ):
        record = Runner(setting, client, client.wait_until_ready(10.0)).run(duration_s=1.5)
    assert any(tick.mode is Mode.RUN for tick in record.ticks), record.log
    assert len(policy.seen) >= 5
    for observation in policy.seen:
        (image,) = observation.images.values()
        assert image.pixels.shape == (*SIZE, 3)
        assert image.t_ns <= observation.t_obs_ns
    assert len({image.t_ns for o in policy.seen for image in o.images.values()}) >= 3
    assert np.ptp(policy.seen[-1].images["wrist"].pixels) > 50  # a picture, not a blank


def test_a_bare_loop_beside_cameras_is_answered_by_a_policy_that_sees():
    skip_where_nothing_can_be_drawn(World(make_task(TASK)))
    with ServerProcess(POLICY) as server:
        measured = bare_round(server.address, 1, 50.0, name="bare", num_ticks=75, length_ns=1_000_000)
    assert measured.ticks == 75
    assert measured.chunks_per_s > 0.0
    assert measured.tick_ms > 0.0
