"""`python -m scripts.bench log`: measures the cost of a run's log for the control loop, with two cameras.

    bare      no cameras, no log
    cameras   two cameras of 480 x 640 pixels, 30 pictures a second each, which the policy is shown; no log
    log       the same, and everything logged
    page      the same, and shown on a page that one browser looks at; with --page

Rounds of them alternate, in the same minutes; the figure is the last over the second.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated

import numpy as np
from rich.progress import track

from robot_runtime.cli.options import AnyCount, Count, Hertz, Maybe, OutputFile, Some, Within
from robot_runtime.clock import MonotonicClock
from robot_runtime.commands.live_page import open_page
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.state import Image
from robot_runtime.log.config import LogConfig
from robot_runtime.log.publish import Subscription
from robot_runtime.log.reader import RunLog
from robot_runtime.log.replay import replay_log
from robot_runtime.robot.robot import Robot
from robot_runtime.robot.run import Session
from scripts.bench.faults.servers import PolicyProcess, Swing
from scripts.harness import finish

SIZE, FPS = (480, 640), 30
CAMERAS = ("chest", "wrist")
CASES = ("bare", "cameras", "log")
PAGE = "page"


class Seeing(Swing):
    """Swings, and gets two images."""

    def __init__(self) -> None:
        super().__init__()
        self.info = replace(self.info, schema=replace(self.info.schema, cameras=dict.fromkeys(CAMERAS, SIZE)))


class NoisyCamera:
    """Pictures of noise over a slope, as hard to encode as a real scene, at a fixed rate."""

    has_noise = False  # it has so few that they come again

    def __init__(self, clock: MonotonicClock, seed: int) -> None:
        self.size, self._clock, self._due_ns = SIZE, clock, clock.now_ns()
        slope = np.linspace(0, 200, SIZE[1])[None, :, None] + np.zeros((*SIZE, 3))
        rng = np.random.default_rng(seed)
        self._frames = [
            (slope + rng.normal(0, 6, slope.shape)).clip(0, 255).astype(np.uint8) for _ in range(6)
        ]
        for frame in self._frames:
            frame.flags.writeable = False
        self._count = 0

    def read(self) -> Image:
        """The next one, when it is due."""
        self._due_ns = max(self._due_ns + 1_000_000_000 // FPS, self._clock.now_ns())
        self._clock.sleep_until_ns(self._due_ns)
        self._count += 1
        return Image(t_ns=self._clock.now_ns(), pixels=self._frames[self._count % len(self._frames)])

    def close(self) -> None:
        """It has no device."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One run."""

    case: str
    rate_hz: float
    ticks: int
    lost: int
    """Deadlines that passed unserved."""
    took_p50_ms: float
    """From the begin of a tick to its end."""
    took_p99_ms: float
    late_p99_ms: float
    """From its deadline to its begin."""


@dataclass(frozen=True, kw_only=True)
class BenchLog:
    """Measure the cost of the log for the control loop: ticks with two cameras, with and without the log.

    The last log is replayed, too, and must give the same commands to the last bit.
    """

    rounds: Count = 5
    """How often the cases are run, in turn."""
    seconds: Annotated[float, Within(1, 3600)] = 5.0
    """Length of each run [s]."""
    rates_hz: Some[Hertz] = (100.0, 500.0)
    """Control rates to measure."""
    subscribers: AnyCount = 0
    """Processes that receive all messages of the log, as the page of a run does."""
    page: bool = False
    """Also measure with the page of a run and one viewer."""
    json: Maybe[OutputFile] = None
    """Write the results to this file, as JSON."""

    def main(self) -> int:
        from scripts.tables.runs import log_cost

        rounds = list[Round]()
        cases = (*CASES, PAGE) if self.page else CASES
        order = [(rate, case) for rate in self.rates_hz for _ in range(self.rounds) for case in cases]
        with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
            plain = servers.enter_context(PolicyProcess(Swing)).address
            seeing = servers.enter_context(PolicyProcess(Seeing)).address
            for rate, case in track(order, description="runs"):
                address = plain if case == "bare" else seeing
                rounds.append(self._round(address, case, rate, Path(folder)))
            line = _replayed(Path(folder))
        figures = {"rounds": [asdict(each) for each in rounds]}
        return finish(figures, self.json, log_cost(figures), line)

    def _round(self, address: str, case: str, rate_hz: float, folder: Path) -> Round:
        from drivers.fr3 import FR3_LIMITS
        from drivers.ideal import IdealArm, IdealGripper

        clock, took_ns = MonotonicClock(), list[int]()
        cameras = {} if case == "bare" else {name: NoisyCamera(clock, i) for i, name in enumerate(CAMERAS)}
        robot = Robot(arm=IdealArm(clock=clock), gripper=IdealGripper(), limits=FR3_LIMITS, cameras=cameras)
        session = Session(
            robot,
            policy=address,
            duration_s=self.seconds,
            control_hz=rate_hz,
            clock=clock,
            log=LogConfig(folder=folder) if case in ("log", PAGE) else None,
            say=lambda line: None,
        )
        with session, self._heard(session, folder), _looked_at(session) if case == PAGE else nullcontext():
            for tick in session:
                took_ns.append(_since(tick))
        took_ms = np.quantile(np.array(took_ns) / 1e6, [0.5, 0.99])
        return Round(
            case=case,
            rate_hz=rate_hz,
            ticks=session.record.num_ticks,
            lost=session.record.num_skipped,
            took_p50_ms=float(took_ms[0]),
            took_p99_ms=float(took_ms[1]),
            late_p99_ms=session.record.lateness_ns.quantile(0.99) / 1e6,
        )

    @contextmanager
    def _heard(self, session: Session, folder: Path) -> Iterator[None]:
        """Processes listen to the log, if it has one."""
        log = session.runner.run_log
        if log is None or not self.subscribers:
            yield
            return
        address = f"ipc://{folder}/messages"
        log.subscribe(address)
        context = get_context("spawn")
        processes, ready = list[SpawnProcess](), [context.Event() for _ in range(self.subscribers)]
        for each in ready:
            processes.append(context.Process(target=_hear, args=(address, each), daemon=True))
            processes[-1].start()
        try:
            for each in ready:  # what it takes to begin is no cost of listening
                each.wait(60.0)
            yield
        finally:
            for process in processes:
                process.kill()
                process.join()


@contextmanager
def _looked_at(session: Session) -> Iterator[None]:
    """The page of a run, and a process that takes what a browser is sent."""
    url = SimpleQueue[str]()
    with open_page(session, (), say=lambda line: url.put(line.removeprefix("page: "))):
        browser = get_context("spawn").Process(target=_look, args=(url.get(timeout=60.0),), daemon=True)
        browser.start()
        try:
            yield
        finally:
            browser.kill()
            browser.join()


def _look(url: str) -> None:
    """Take everything that comes for a page, for as long as it comes."""
    from websockets.sync.client import connect

    with connect(url.replace("http", "ws", 1) + "feed", max_size=None) as feed:
        for _ in feed:
            pass


def _hear(address: str, is_ready: Event) -> None:
    """Take every message, for as long as the run lasts."""
    subscription = Subscription(address)
    is_ready.set()
    for _ in subscription.messages(3600.0):
        pass


def _since(tick: Tick) -> int:
    return time.monotonic_ns() - tick.now_ns


def _replayed(folder: Path) -> str:
    """What the replay of the last log came to."""
    done = replay_log(RunLog.open(max(folder.glob("*.mcap"))))
    if done.difference is not None:
        return f"REPLAY DIFFERS at control step {done.difference.tick}: {done.difference.what}"
    return f"replay of the last log: {done.ticks} control steps, equal to the last bit"
