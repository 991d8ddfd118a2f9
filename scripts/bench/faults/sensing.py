"""Rows 7 and 12: faulty cameras and odometry."""

import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from robot_runtime.clock import MonotonicClock
from robot_runtime.core.plan.limits import Limits, MotionLimits
from robot_runtime.core.policy import ChunkRequest
from robot_runtime.core.robot import BaseState
from robot_runtime.core.safety import ENDS, Cause, Mode
from robot_runtime.core.values.action import NS_PER_MS, NS_PER_S, BasePoseCommand
from robot_runtime.core.values.state import Image
from robot_runtime.robot.robot import Robot
from scripts.bench.faults.rig import ORDINARY, Running, ideal_robot, run, surprises
from scripts.bench.faults.servers import CAMERA, SIZE, Drive, Looking, PolicyProcess
from scripts.bench.faults.table import Injection, fault

# ---- 7: cameras --------------------------------------------------------------------------------------------

FRAME_NS = NS_PER_S // 30
BLINDING = ("none at all", "same picture", "old pictures", "another size", "stamps that go back")
WAYS = (*BLINDING, "one in three torn")
SPOILT_S, GOOD_S = 0.7, 0.35


class FaultyCamera:
    """Camera with 30 noisy images per second, all different; `way` is the current fault."""

    size = SIZE

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock, self._due_ns = clock, clock.now_ns()
        self._rng = np.random.default_rng(7)
        self._count = 0
        self._last: np.ndarray = np.zeros((*SIZE, 3), np.uint8)
        self._shown: list[np.ndarray] = []
        self.way = ""
        self.since_ns = 0
        """When the first faulty image came or was due [ns]; 0: none was."""
        self.faulty: set[int] = set()
        """Stamps of faulty images [ns]."""

    def read(self) -> Image:
        while True:
            self._due_ns = max(self._due_ns + FRAME_NS, self._clock.now_ns())
            self._clock.sleep_until_ns(self._due_ns)
            way, t_ns = self.way, self._clock.now_ns()
            if way and not self.since_ns:
                self.since_ns = t_ns
            if way != "none at all":
                break
        self._count += 1
        pixels = self._rng.integers(0, 255, (*SIZE, 3), dtype=np.uint8)
        if not way or (way == WAYS[-1] and self._count % 3):
            self._last = pixels
            self._shown = [*self._shown[-3:], pixels]
            return Image(t_ns=t_ns, pixels=pixels)
        t_ns = 2 * self.since_ns - t_ns - 2 * FRAME_NS if way == "stamps that go back" else t_ns
        self.faulty.add(t_ns)
        return Image(t_ns=t_ns, pixels=self._made_faulty(pixels, way))

    def _made_faulty(self, pixels: np.ndarray, way: str) -> np.ndarray:
        half = SIZE[0] // 2
        match way:
            case "same picture":
                return self._last.copy()
            case "old pictures":
                return self._shown[self._count % len(self._shown)].copy()
            case "one in three torn":
                return np.concatenate([pixels[:half], self._last[half:]])
            case "another size":
                return pixels[::2, ::2]
        return pixels

    def close(self) -> None: ...


@fault(
    7,
    "camera frozen or gone",
    how="a camera of 30 pictures a second that gives none, the same, old ones, another size, stamps that "
    "go back, or torn ones",
    behaviour="such pictures are left out, nothing is asked; the plan ends, then HOLD until it is back",
    figures={
        **{f"noticed, {way} [ms]": 200.0 for way in BLINDING},
        "asked with a spoilt picture": 0.0,
    },
)
def break_cameras(times: int) -> Iterator[Injection]:
    """Run once for each fault, and inject it into the camera several times."""
    with PolicyProcess(Looking) as server:
        for i, way in enumerate(WAYS):
            num = times // len(WAYS) + (i < times % len(WAYS))
            if num:
                yield from faulty_camera(server.address, way, num)


def faulty_camera(address: str, way: str, times: int) -> Iterator[Injection]:
    """Measure the time from the first faulty image to the last request, and count requests with faulty
    images."""
    cameras: list[FaultyCamera] = []
    shown: list[int] = []
    noticed_ms: list[float] = []

    def make_robot(clock: MonotonicClock) -> Robot:
        cameras.append(FaultyCamera(clock))
        ideal = ideal_robot(clock)
        return Robot(ideal.parts, cameras={CAMERA: cameras[0]}, limits=ideal.limits)

    def see(request: ChunkRequest) -> None:
        shown.append(request.observation.images[CAMERA].t_ns)

    def interfere(running: Running) -> None:
        assert running.wait_until_it_moves(10.0)
        (camera,), asks = cameras, running.watch_asking()
        for _ in range(times):
            assert running.wait_until_it_moves(10.0)
            time.sleep(GOOD_S)
            camera.since_ns, camera.way = 0, way
            running.wait(lambda: camera.since_ns > 0 and not asks.can, SPOILT_S)
            stopped_ns, can = asks.since_ns, asks.can
            if not can:
                noticed_ms.append((stopped_ns - camera.since_ns) / NS_PER_MS)
            running.wait_until_it_stands(1.0)
            camera.way = ""
        assert running.wait_until_it_moves(10.0)

    of = run(address, interfere, make_robot=make_robot, on_request=see)
    bad = sum(t_ns in cameras[0].faulty for t_ns in shown)
    name = f"noticed, {way}"
    yield Injection(figures={"asked with a spoilt picture": float(bad)}, surprises=surprises(of), count=0)
    for value in noticed_ms:
        yield Injection(figures={name: value})
    if way not in BLINDING:
        yield Injection(count=times)
    elif len(noticed_ms) < times:
        yield Injection(surprises=(f"{way}: not noticed in {SPOILT_S} s",), count=times - len(noticed_ms))


# ---- 12: odometry ------------------------------------------------------------------------------------------

SPEED = np.array([0.6, 0.6, 1.5])
BASE_LIMITS = Limits(base=MotionLimits(speed=SPEED, acceleration=2.0 * SPEED, jerk=40.0 * SPEED))


class WrongBase:
    """Base that follows commands exactly; `way` is the fault of its odometry."""

    def __init__(self, clock: MonotonicClock) -> None:
        self._clock = clock
        self._x_WB: np.ndarray = np.zeros(3)
        self._V: np.ndarray = np.zeros(3)
        self._offset: np.ndarray = np.zeros(3)
        self._next_offset: np.ndarray = self._offset
        self._sent_ns = clock.now_ns()
        self._rng = np.random.default_rng(12)
        self._frozen: BaseState | None = None
        self._where: np.ndarray = np.zeros(3)
        self.way = ""

    def read(self) -> BaseState:
        t_ns, self._offset = self._clock.now_ns(), self._next_offset
        if self.way not in ("frozen", "stuck"):
            self._frozen = BaseState(t_ns=t_ns, x_WB=np.add(self._x_WB, self._offset), V_WB_B=self._V)
            self._where = self._x_WB + self._offset
            return self._frozen
        assert self._frozen is not None
        noise = 1e-5 * self._rng.standard_normal(3) if self.way == "stuck" else np.zeros(3)
        return BaseState(t_ns=t_ns, x_WB=np.add(self._where, noise), V_WB_B=0.0 * self._V)

    def write(self, command: BasePoseCommand) -> None:
        now_ns = self._clock.now_ns()
        x_WB = np.subtract(command.x_WB, self._offset)
        self._V = (x_WB - self._x_WB) / max(
            (now_ns - self._sent_ns) / NS_PER_S, 1e-4
        )  # it drives straight on
        self._x_WB, self._sent_ns = x_WB, now_ns

    def jump(self, by: float) -> None:
        """Shift the odometry from the next reading on [m]; the base does not move.

        A shift between a reading and the command made from it would move the base by as much.
        """
        self._next_offset = self._offset + np.array([by, 0.0, 0.0])

    def stop(self) -> None: ...


NOTICED_S = 2.0


@fault(
    12,
    "odometry frozen, stuck or jumping",
    how="a base driven at 0.4 m/s whose odometry stays the same, trembles in its place, or is elsewhere",
    behaviour="STOP where it does not move; HOLD after a jump, the plan void, and RUN on a new answer",
    figures={
        "frozen to STOP [ms]": 450.0,
        "stuck to STOP [ms]": 1250.0,
        "STOP to rest [ms]": None,
        "jumped to HOLD [ms]": 10.0,
        "answers from before a jump run": 0.0,
    },
)
def wrong_odometry(times: int) -> Iterator[Injection]:
    """Run once for each frozen or stuck odometry, which ends in STOP; once for all jumps."""
    with PolicyProcess(Drive) as server:
        num_ending = max(2, times * 2 // 5)
        for i in range(num_ending):
            yield no_odometry(server.address, ("frozen", "stuck")[i % 2])
        yield from jumps(server.address, times - num_ending)


def _robot(bases: list[WrongBase], clock: MonotonicClock) -> Robot:
    from robot_runtime.core.values.fields import BasePose

    bases.append(WrongBase(clock))
    return Robot(base=bases[0], limits=BASE_LIMITS, actions=(BasePose(),))


def no_odometry(address: str, way: str) -> Injection:
    """Measure the times from the first missing motion to STOP, and from STOP to rest."""
    bases: list[WrongBase] = []

    def interfere(running: Running) -> None:
        assert running.wait_until_it_moves()
        time.sleep(0.4)
        running.mark("wrong")
        bases[0].way = way
        if running.wait(lambda: running.mode is Mode.STOP, NOTICED_S):
            running.wait_until_it_stands()

    of = run(address, interfere, make_robot=partial(_robot, bases))
    (wrong_ns,) = of.moments["wrong"]
    stopped = of.first_tick(wrong_ns, lambda tick: tick.mode is Mode.STOP)
    assert stopped is not None
    if stopped.cause in ENDS:
        return Injection(surprises=(f"{way} odometry: not noticed in {NOTICED_S:g} s",))
    return Injection(
        figures={
            f"{way} to STOP": (stopped.now_ns - wrong_ns) / NS_PER_MS,
            "STOP to rest": (of.record.ticks[-1].now_ns - stopped.now_ns) / NS_PER_MS,
        },
        surprises=surprises(of, causes=ORDINARY | {Cause.ODOMETRY_FROZEN}),
    )


def jumps(address: str, times: int) -> Iterator[Injection]:
    """Measure the time from the jump to HOLD, and whether an answer from before the jump was run."""
    bases: list[WrongBase] = []

    def interfere(running: Running) -> None:
        for i in range(times):
            assert running.wait_until_it_moves()
            time.sleep(0.25)
            running.mark("jumped")
            bases[0].jump((-1.0) ** i * (0.2 + 0.02 * i))
            assert running.wait(lambda: running.mode is Mode.HOLD, 1.0), "jumped: not noticed in 1 s"
        assert running.wait_until_it_moves()

    of = run(address, interfere, make_robot=partial(_robot, bases))
    for jumped_ns in of.moments["jumped"]:
        held = of.first_tick(jumped_ns, lambda tick: tick.mode is Mode.HOLD)
        assert held is not None
        resumed = of.first_tick(held.now_ns, lambda tick: tick.mode is Mode.RUN)
        assert resumed is not None
        assert resumed.source is not None
        yield Injection(
            figures={
                "jumped to HOLD": (held.now_ns - jumped_ns) / NS_PER_MS,
                "answers from before a jump run": float(resumed.source.t_obs_ns < jumped_ns),
            }
        )
    yield Injection(surprises=surprises(of, causes=ORDINARY | {Cause.ODOMETRY_JUMPED}), count=0)
