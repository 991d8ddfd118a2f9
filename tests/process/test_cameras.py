"""Cameras, control and network in threads of their own, against a real server and real rendering."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from toy import serving

from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from policies.scripted import FRANKA, HoldPolicy
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.camera_watch import CameraLimits
from robot_runtime.core.method.table import method_named
from robot_runtime.core.safety import Mode
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Image, Observation
from robot_runtime.robot.cameras import CAMERAS_BACK, camera_threads
from robot_runtime.robot.client import PolicyClient
from robot_runtime.robot.config import RunConfig
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.runner import Runner
from robot_runtime.robot.telemetry import RunRecord
from robot_runtime.server.process import ServerProcess
from scripts.bench.cameras import POLICY, TASK, bare_round
from sim.scene.drivers import SimArm, SimCamera, SimGripper
from sim.scene.render import Renderer, RenderingUnavailableError
from sim.scene.world import World
from sim.tasks import make_task

pytestmark = pytest.mark.usefixtures("patient_time")

SIZE = (96, 128)
NOTICED_NS = CameraLimits().frozen_ns + 20_000_000
"""How old a picture may be of a camera that has given nothing good since: and a period of it."""
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

    def infer(self, request):
        observation = request.observation
        if observation.state.t_ns > 0:  # not the warm-up
            images = {
                name: Image(t_ns=image.t_ns, pixels=image.pixels.copy())
                for name, image in observation.images.items()
            }
            self.seen.append(structs.replace(observation, images=images))
        return super().infer(request)


class Sensor:
    """Grey noise at 50 Hz, no picture like one before; `spoilt` says what becomes of them for a while."""

    name, size = "wrist", SIZE

    def __init__(
        self,
        clock: MonotonicClock,
        *,
        between_s: tuple[float, float] = (0.0, 0.0),
        period_ns: int = 20_000_000,
    ) -> None:
        self._clock, self._start_ns, self._period_ns = clock, clock.now_ns(), period_ns
        self.faulty_ns = [self._start_ns + round(t * 1e9) for t in between_s]
        self._rng = np.random.default_rng(0)
        self._count = 0
        self._last = np.zeros((*SIZE, 3), np.uint8)
        self.first_ns = self.num_spoilt = 0

    def read(self) -> Image:
        now_ns = self._clock.now_ns() + self._period_ns
        is_spoilt = self.faulty_ns[0] <= now_ns < self.faulty_ns[1]
        self._clock.sleep_until_ns(now_ns)
        self.first_ns = self.first_ns or now_ns
        good = Image(t_ns=now_ns, pixels=self._rng.integers(100, 103, (*SIZE, 3), dtype=np.uint8))
        self._count += 1
        self.num_spoilt += is_spoilt
        out = self.spoilt(good, self._last) if is_spoilt else good
        self._last = out.pixels
        return out

    def spoilt(self, image: Image, last: np.ndarray) -> Image:
        return image

    def close(self) -> None: ...


class SilentSensor(Sensor):
    """Gives none."""

    def spoilt(self, image: Image, last: np.ndarray) -> Image:
        self._clock.sleep_until_ns(self.faulty_ns[1])
        return Image(t_ns=self._clock.now_ns(), pixels=image.pixels)


class FrozenSensor(Sensor):
    """The same picture with new stamps."""

    def spoilt(self, image: Image, last: np.ndarray) -> Image:
        return Image(t_ns=image.t_ns, pixels=last.copy())


class TornSensor(Sensor):
    """Half old, half new, one picture in three."""

    def spoilt(self, image: Image, last: np.ndarray) -> Image:
        if self._count % 3:
            self.num_spoilt -= 1
            return image
        half = SIZE[0] // 2
        return Image(t_ns=image.t_ns, pixels=np.concatenate([image.pixels[:half], last[half:]]))


class SmallSensor(Sensor):
    """Another size."""

    def spoilt(self, image: Image, last: np.ndarray) -> Image:
        return Image(t_ns=image.t_ns, pixels=image.pixels[::2, ::2])


class FloatSensor(Sensor):
    """Another type, which `Image` does not take."""

    def spoilt(self, image: Image, last: np.ndarray) -> Image:
        return Image(t_ns=image.t_ns, pixels=image.pixels / 255.0)


class DyingSensor(Sensor):
    """Its driver raises, and that was that."""

    error: BaseException = OSError("the cable is out")

    def spoilt(self, image: Image, last: np.ndarray) -> Image:
        raise self.error


class ExitingSensor(DyingSensor):
    error = SystemExit("no such device")


def run_with(
    camera: Sensor, clock: MonotonicClock, *, duration_s: float, limits: CameraLimits | None = None
) -> tuple[RunRecord, list]:
    """What happened on an ideal robot with one camera, and what the policy was shown."""
    schema = replace(FRANKA, cameras={"wrist": SIZE})
    setting = RunConfig(
        Robot(
            arm=IdealArm(clock=clock), gripper=IdealGripper(), cameras={"wrist": camera}, limits=FR3_LIMITS
        ),
        duration_s=duration_s,
        clock=clock,
        camera_limits=limits or CameraLimits(),
    )
    policy = WatchingPolicy(schema)
    with (
        serving(policy, heartbeat_ns=PATIENT_NS) as server,
        PolicyClient(server.address, schema=schema) as client,
    ):
        welcome = client.wait_until_ready(10.0)
        record = Runner(setting, client, welcome, method=method_named("time-aligned")).run()
    return record, policy.seen


def test_the_loop_starts_with_the_first_picture():
    """What a camera does to get ready delays the start, and not a tick."""
    clock = MonotonicClock()
    camera = SilentSensor(clock, between_s=(0.0, 1.0))
    patient = CameraLimits(timeout_ns=PATIENT_NS, frozen_ns=PATIENT_NS)
    record, seen = run_with(camera, clock, duration_s=0.5, limits=patient)
    assert record.ticks[0].now_ns >= camera.first_ns
    assert seen
    assert not any("nothing is asked" in text for _, text in record.log)


def test_the_loop_starts_without_a_camera_that_gives_no_picture_and_says_so():
    clock, hasty = MonotonicClock(), CameraLimits(start_ns=200_000_000)
    camera = SilentSensor(clock, between_s=(0.0, 1.2))
    record, seen = run_with(camera, clock, duration_s=2.0, limits=hasty)
    lines = [text for _, text in record.log]
    assert lines[0] == "camera wrist gives no picture: nothing is asked"
    assert CAMERAS_BACK in lines
    assert seen


@pytest.mark.long
def test_a_camera_that_falls_silent_is_waited_for_and_said():
    """The plan runs to its end, the robot holds, and goes on when the camera does."""
    clock = MonotonicClock()
    record, seen = run_with(SilentSensor(clock, between_s=(1.0, 4.5)), clock, duration_s=6.0)
    lines = [text for _, text in record.log]
    silent = lines.index("camera wrist gives no picture: nothing is asked")
    assert "RUN -> HOLD: the plan ended before the next chunk came" in lines[silent:]
    again = lines.index(CAMERAS_BACK)
    assert silent < again
    assert "HOLD -> RUN: a fresh chunk arrived" in lines[again:]
    for observation in seen:
        assert observation.t_obs_ns - observation.images["wrist"].t_ns <= NOTICED_NS


@pytest.mark.parametrize(
    ("sensor", "said"),
    [
        (FrozenSensor, "gives the same picture again, with new stamps"),
        (SmallSensor, "gave a picture of another size or type"),
        (FloatSensor, "gave a picture of another size or type"),
    ],
)
@pytest.mark.long
def test_nothing_is_asked_with_what_is_no_picture_of_now(sensor, said):
    """It is said once and counted, the plan runs to its end, the robot goes on when pictures come again."""
    clock = MonotonicClock()
    camera = sensor(clock, between_s=(1.0, 4.0))
    record, seen = run_with(camera, clock, duration_s=5.5)
    lines = [text for _, text in record.log]
    blind = [line for line in lines if line.startswith(f"camera wrist {said}: nothing is asked")]
    assert len(blind) == 1
    if "another size" in said:
        came = {SmallSensor: "uint8, its size says (96, 128, 3) uint8", FloatSensor: "(96, 128, 3) float64"}
        assert any(f"{said}: " in line and came[sensor] in line for line in lines)
    first, end_ns = lines.index(blind[0]), camera.faulty_ns[1]
    assert "RUN -> HOLD: the plan ended before the next chunk came" in lines[first:]
    again = lines.index(CAMERAS_BACK)
    assert "HOLD -> RUN: a fresh chunk arrived" in lines[again:]
    assert record.refused_pictures == camera.num_spoilt >= 10
    assert f"{record.refused_pictures} times: camera wrist {said}" in lines
    shown = [o for o in seen if camera.faulty_ns[0] < o.t_obs_ns < end_ns]
    assert all(o.t_obs_ns - camera.faulty_ns[0] < NOTICED_NS for o in shown)


def test_torn_pictures_are_left_out_and_the_robot_goes_on_with_the_others():
    clock = MonotonicClock()
    camera = TornSensor(clock, between_s=(0.5, 2.5))
    record, seen = run_with(camera, clock, duration_s=2.5)
    half = SIZE[0] // 2
    pictures = [o.images["wrist"].pixels for o in seen]
    assert not any(
        np.array_equal(a[half:], b[half:]) and not np.array_equal(a, b)
        for a, b in itertools.combinations(pictures, 2)
    )
    lines = [text for _, text in record.log]
    assert not any("nothing is asked" in line for line in lines)
    torn = "camera wrist gave a picture that is half the one before"
    assert lines.count(torn) == 1
    assert f"{record.refused_pictures} times: {torn}" in lines
    assert 0 <= camera.num_spoilt - record.refused_pictures <= 1  # the last one comes when the loop has ended
    assert record.refused_pictures >= 5
    assert record.summary()["stalled_s"] < 0.5


@pytest.mark.parametrize("sensor", [DyingSensor, ExitingSensor])
def test_a_camera_that_dies_ends_no_motion_and_is_said(sensor):
    clock = MonotonicClock()
    record, seen = run_with(sensor(clock, between_s=(1.0, 9.0)), clock, duration_s=3.5)
    lines = [text for _, text in record.log]
    assert lines.count("camera wrist has failed") == 1
    dead = lines.index("camera wrist has failed: nothing is asked")
    assert "RUN -> HOLD: the plan ended before the next chunk came" in lines[dead:]
    assert record.ticks[-1].mode is Mode.STOP
    assert seen


@pytest.mark.long
def test_a_camera_slower_than_it_is_asked_is_said_and_counted_and_its_age_is_in_the_delay():
    clock = MonotonicClock()
    record, seen = run_with(Sensor(clock, period_ns=400_000_000), clock, duration_s=3.0)
    lines = [text for _, text in record.log]
    assert lines.count("camera wrist is slower than it is asked: a request shows a picture again") == 1
    assert record.reused_pictures > 0
    for splice in record.splices:
        shown = next(o for o in seen if o.t_oldest_ns == splice.source.t_obs_ns)
        assert shown.images["wrist"].t_ns == splice.source.t_obs_ns
        assert splice.latency_ns >= splice.picture_age_ns
    assert record.summary()["picture_age_p95_s"] > 0.1


@pytest.mark.parametrize("jpeg_quality", [None, 90], ids=["raw", "jpeg"])
@pytest.mark.long
def test_a_policy_is_shown_fresh_frames_of_the_cameras_it_needs_and_no_others(jpeg_quality):
    task, clock = make_task("track"), MonotonicClock()
    world = World(task, seed=1, t_start_ns=clock.now_ns())
    skip_where_nothing_can_be_drawn(world)
    offered = replace(task.schema, cameras={"overview": SIZE, "wrist": SIZE})
    policy = WatchingPolicy(replace(offered, cameras={"wrist": SIZE}))
    cameras = {name: SimCamera(world, clock, name=name, size=SIZE) for name in offered.cameras}
    setting = RunConfig(
        Robot(
            arm=SimArm(world, clock),
            gripper=SimGripper(world, clock),
            cameras=cameras,
            limits=FR3_LIMITS,
        ),
        duration_s=1.5,
        clock=clock,
        observe=lambda state: Observation(state=state, environment_state=task.environment_state(world)),
    )
    with (
        serving(policy, heartbeat_ns=PATIENT_NS) as server,
        PolicyClient(server.address, schema=offered, jpeg_quality=jpeg_quality) as client,
    ):
        welcome = client.wait_until_ready(10.0)
        record = Runner(setting, client, welcome, method=method_named("time-aligned")).run()
    assert any(tick.mode is Mode.RUN for tick in record.ticks), record.log
    assert len(policy.seen) >= 5
    for observation in policy.seen:
        (image,) = observation.images.values()
        assert image.pixels.shape == (*SIZE, 3)
        assert image.t_ns <= observation.t_obs_ns
    assert len({image.t_ns for o in policy.seen for image in o.images.values()}) >= 3
    assert np.ptp(policy.seen[-1].images["wrist"].pixels) > 50  # a picture, not a blank


@pytest.mark.long
def test_a_bare_loop_beside_cameras_is_answered_by_a_policy_that_sees():
    skip_where_nothing_can_be_drawn(World(make_task(TASK)))
    with ServerProcess(POLICY) as server:
        measured = bare_round(server.address, 1, 50.0, name="bare", num_ticks=75, length_ns=1_000_000)
    assert measured.ticks == 75
    assert measured.chunks_per_s > 0.0
    assert measured.tick_ms > 0.0


@pytest.mark.long
def test_a_camera_that_gives_an_array_is_told_what_it_has_to_give():
    class Bare:
        size = SIZE

        def read(self):
            return np.zeros((*SIZE, 3), np.uint8)

        def close(self):
            pass

    with camera_threads({"front": Bare()}, MonotonicClock()) as cameras:
        cameras.await_first()
        ((name, fault, _),) = cameras.newly_refused()[:1] or [("front", *cameras.newest(0)[1].values(), 0)]
        assert cameras.said(name, fault).endswith(
            "read() returned ndarray, expected Image(t_ns=..., pixels=...)"
        )
