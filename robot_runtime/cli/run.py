"""`robot-runtime run`: the robot's side, in real time, against a server that is already up."""

from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from robot_runtime.cli.options import (
    Hertz,
    InputFolder,
    Maybe,
    MethodName,
    OutputFile,
    Pixels,
    PolicyAddress,
    Rows,
    Seconds,
    Seed,
    Within,
)
from robot_runtime.cli.signals import Ended, own_handler
from robot_runtime.core.method.choose import DEFAULT, method_or_choice
from robot_runtime.core.method.table import Method
from robot_runtime.core.safety import Cause
from robot_runtime.errors import InvalidValueError, RobotStoppedError
from robot_runtime.keys import RobotKeys
from robot_runtime.results import keep_text, result_json
from robot_runtime.transport.address import DEFAULT_ADDRESS

if TYPE_CHECKING:
    from robot_runtime.core.tick import Tick
    from robot_runtime.evaluation.result import Episode
    from robot_runtime.robot.telemetry import RunRecord

UNITS = {
    **dict.fromkeys(("jerk_mean", "jerk_max"), "rad/s³ or m/s³"),
    **dict.fromkeys(("seam_jump_p50", "seam_jump_max", "behind_max"), "rad or m"),
}
"""Of the figures that do not say it in their names."""
DEFAULT_TASK = "track"
"""Of the simulated robot."""
ROBOTS = "robot_runtime.robots"
"""Group of the entry points that name robots."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Run the robot's side in real time, with the policy of a server that is already up.

    Drives the robot of --robot, or a simulated Franka. Start `robot-runtime serve --policy track` in another
    terminal first. Ctrl-C brings the robot to rest; a second one does not wait for that. Exit code 0: the
    robot moved and came to rest when it was told to, whether or not the task succeeded (--json says that) or
    it stood still for much of the time (the last line says that); 1: it did not move, or stopped by itself.
    """

    robot: Maybe[str] = None
    """Your own robot, a robot_runtime.Robot or a function that makes one: path/to/file.py:robot,
    package.module:robot, or the name of an entry point of the group robot_runtime.robots. A simulated Franka
    if not given."""
    policy: Annotated[PolicyAddress, arg(aliases=("--server",))] = DEFAULT_ADDRESS
    """Address of the server, tcp://HOST:PORT or HOST:PORT; of one of its policies, if it has several,
    HOST:PORT/NAME."""
    task: Maybe[str] = None
    """What to do: in words, with --robot. The simulated robot's tasks have names: track, pick_place, strike,
    conveyor on a table, clear, drawer, fetch, wipe for the mobile one, handover for two arms; track if not
    given."""
    keys: Maybe[InputFolder] = None
    """This robot's folder of `robot-runtime keys`, for a server that asks for keys."""
    method: MethodName = DEFAULT
    correction: Maybe[str] = None
    """For method a2c2: checkpoint folder of the served policy, whose correction head the robot runs
    itself."""
    execution_horizon: Maybe[Rows] = None
    """Rows of a chunk to run before the policy is asked again; as the method has it if not given."""
    seed: Seed = 10_000
    """Decides the simulated scene and the policy's random numbers."""
    control_hz: Hertz = 500.0
    """Ticks of the control loop per second."""
    duration_s: Maybe[Seconds] = None
    """How long to run [s]; if not given, the simulated task's own time limit, with --robot until Ctrl-C."""
    picture_size: Maybe[tuple[Pixels, Pixels]] = None
    """Height and width of the simulated cameras' pictures [pixels], if the policy needs other ones."""
    connect_timeout_s: Annotated[float, Within(0, 86_400)] = 10.0
    """How long to wait for the server to be ready [s]."""
    json: Maybe[OutputFile] = None
    """Write the results to this file, as JSON."""

    def main(self) -> int:
        with Orders() as orders:
            record, episode = self._own(orders) if self.robot is not None else self._simulated(orders)
        report(record, episode)
        if self.json is not None:
            keep_text(self.json, self._json(record, episode))
        if orders.signals:
            raise Ended(orders.signals[0])
        refuse_fault(record)
        return 0

    def _own(self, orders: "Orders") -> "tuple[RunRecord, None]":
        """Drive the robot that was named."""
        from robot_runtime.cli.load_object import load_made
        from robot_runtime.robot.robot import Robot
        from robot_runtime.robot.run import Session

        if self.picture_size is not None:
            raise InvalidValueError(
                "--picture-size is for the simulated robot: --robot has cameras of its own"
            )
        robot = load_made(
            str(self.robot), group=ROBOTS, what="robot", is_one=lambda found: isinstance(found, Robot)
        )
        assert isinstance(robot, Robot)
        options = self._options(self.task or "")
        with Session(robot, task=self.task or "", **options) as session:
            for _ in session:
                orders.on_tick()
                if orders.signals:
                    session.stop()
        return session.record, None

    def _simulated(self, orders: "Orders") -> "tuple[RunRecord, Episode]":
        """Drive the simulated Franka, and score what it does."""
        from sim.episodes.run_episode import run_real_time

        task = self.task or DEFAULT_TASK
        episode = run_real_time(
            task,
            picture_size=self.picture_size,
            on_tick=orders.on_tick,
            should_stop=lambda: bool(orders.signals),
            **self._options(task),
        )
        return episode.record, episode

    def _options(self, task: str) -> dict[str, Any]:
        """Of the session: all options here that it has too, but robot and task."""
        from policies.correction import head_for
        from robot_runtime.robot.config import RunConfig

        method = method_or_choice(self.method, execution_horizon=self.execution_horizon)
        names = {field.name for field in fields(RunConfig)} & {field.name for field in fields(self)}
        return {
            **{name: getattr(self, name) for name in names - {"robot", "task"}},
            "method": method,
            "correction_head": head_for(method, self.correction, task=task)
            if isinstance(method, Method)
            else None,
            "keys": None if self.keys is None else RobotKeys.load(self.keys),
            "say": partial(print, flush=True),
        }

    def _json(self, record: "RunRecord", episode: "Episode | None") -> str:
        if episode is None:
            result, seed = {"summary": record.summary()}, self.seed
        else:
            result, seed = asdict(episode.result), episode.result.seed
        return result_json({"result": result, "loop": loop_figures(record)}, seeds=[seed])


class Orders(ExitStack):
    """Ctrl-C and SIGTERM, once the robot moves: the first is an order to come to rest."""

    def __init__(self) -> None:
        super().__init__()
        self.signals: list[int] = []
        self._is_moving = False

    def on_tick(self, tick: "Tick | None" = None) -> None:
        """The robot moves: from here on signals are orders."""
        if not self._is_moving:
            self._is_moving = True
            self.enter_context(own_handler(self._take))

    def _take(self, number: int) -> None:
        if self.signals:
            raise Ended(number)  # a second Ctrl-C does not wait
        self.signals.append(number)


def refuse_fault(record: "RunRecord", *, run: str = "") -> None:
    """RobotStoppedError if a run did not end because it was told to, or the robot never moved.

    run: which one, where there are several.
    """
    of_run = f"{run}: " if run else ""
    cause = record.ticks[-1].cause
    if cause is not Cause.STOP_REQUESTED:
        raise RobotStoppedError(f"{of_run}the robot stopped by itself: {cause.value}")
    if record.fault:
        raise RobotStoppedError(f"{of_run}{record.fault}")


def loop_figures(record: "RunRecord") -> dict[str, float]:
    """How well the control loop kept time, and how often it got an answer, by the captures they saw."""
    return {
        "chunks_per_s": record.chunks_per_s,
        "ticks": record.lateness_ns.count,
        "ticks_skipped": record.num_skipped,
        "lateness_p50_ms": record.lateness_ns.quantile(0.5) / 1e6,
        "lateness_p99_ms": record.lateness_ns.quantile(0.99) / 1e6,
    }


def report(record: "RunRecord", episode: "Episode | None" = None) -> None:
    """Print a run's figures, but for what never happened, and how its task went if somebody judged that."""
    from rich.console import Console
    from rich.table import Table

    rows, title = {**record.summary(), **loop_figures(record)}, "run"
    counted = {*asdict(record.counts), "repeated_rows", "resent_rows", "refused_pictures", "reused_pictures"}
    rows = {name: value for name, value in rows.items() if value or name not in counted}
    if episode is not None:
        score = episode.result.score
        rows, title = {**score.metrics, **rows}, "success" if score.success else "no success"
        if score.completion_s is not None:
            rows = {"completion_s": score.completion_s, **rows}
    table = Table("figure", "value", "", title=title)
    for name, value in rows.items():
        table.add_row(name, f"{value:.4g}", UNITS.get(name, ""))
    Console().print(table)
    if why := record.why_it_stood():
        print(f"{why[0].upper()}{why[1:]}.")
