"""A policy that looks back, served over real sockets to a real control loop."""

from dataclasses import replace
from statistics import median

import numpy as np
import pytest

import robot_runtime as rr
from drivers.fr3 import FR3_LIMITS
from drivers.ideal import IdealArm, IdealGripper
from policies.scripted import FRANKA, HoldPolicy
from robot_runtime.clock import MonotonicClock
from robot_runtime.core.values.state import Image, Observation
from tests.process.toy import serving

pytestmark = pytest.mark.usefixtures("patient_time")

N_OBS_STEPS, SIZE, PERIOD_NS = 3, (48, 64), 20_000_000


def picture(t_ns: int) -> Image:
    """Whoever knows when it was taken knows its pixels."""
    return Image(t_ns=t_ns, pixels=np.random.default_rng(t_ns).integers(0, 255, (*SIZE, 3), np.uint8))


class Sensor:
    name, size = "wrist", SIZE

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock, self._next_ns = clock, clock.now_ns()

    def read(self) -> Image:
        self._next_ns = max(self._next_ns + PERIOD_NS, self._clock.now_ns())
        self._clock.sleep_until_ns(self._next_ns)
        return picture(self._next_ns)

    def close(self) -> None: ...


class LookingPolicy(HoldPolicy):
    """Holds, and keeps what it was shown."""

    def __init__(self) -> None:
        super().__init__(replace(FRANKA, cameras={"wrist": SIZE}))
        self.info = replace(self.info, n_obs_steps=N_OBS_STEPS)
        self.shown: list[tuple[Observation, ...]] = []

    def infer(self, request):
        observation = request.observation
        if observation.t_obs_ns > 0:  # not the warm-up
            frames = observation.frames(N_OBS_STEPS)
            images = [frame.images["wrist"] for frame in frames]
            if all(np.array_equal(image.pixels, picture(image.t_ns).pixels) for image in images):
                self.shown.append(frames)  # measuring the latency shows others
        return super().infer(request)


def test_the_robot_shows_frames_one_row_apart_with_the_pictures_of_their_times():
    policy, clock = LookingPolicy(), MonotonicClock()
    robot = rr.Robot(
        arm=IdealArm(clock=clock),
        gripper=IdealGripper(),
        limits=FR3_LIMITS,
        cameras={"wrist": Sensor(clock)},
    )
    with serving(policy) as server:
        record = rr.run(robot, policy=server.address, duration_s=2.0, control_hz=200.0, clock=clock)
    assert record.fault == ""
    dt_ns, asked = policy.info.action_spec.dt_ns, policy.shown
    assert len(asked) >= record.num_splices >= 3
    off = []
    for frames in asked:
        newest_ns = frames[-1].t_obs_ns
        off += [abs(newest_ns - k * dt_ns - f.t_obs_ns) for k, f in enumerate(reversed(frames))]
        assert [f.t_obs_ns for f in frames] == sorted(f.t_obs_ns for f in frames)
        assert all(f.images["wrist"].t_ns <= f.t_obs_ns + dt_ns for f in frames)
    assert median(off) <= dt_ns / 4
