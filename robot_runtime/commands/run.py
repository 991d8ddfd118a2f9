"""`robot-runtime run`: runs a robot in real time against a policy server."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from robot_runtime.cli.background_console import BackgroundConsole
from robot_runtime.cli.options import (
    AnyFolder,
    Hertz,
    InputFolder,
    KeepText,
    Maybe,
    MethodName,
    OutputFile,
    PageAddress,
    Pixels,
    PolicyAddress,
    Rows,
    Seconds,
    Seed,
    Several,
    Within,
    need,
)
from robot_runtime.cli.signals import own_handler
from robot_runtime.core.method import DEFAULT
from robot_runtime.errors import InvalidValueError, RobotStoppedError
from robot_runtime.log import DEFAULT_FOLDER
from robot_runtime.providers import provider
from robot_runtime.results import keep_text, result_json
from robot_runtime.robot.orderly_end import SIGNALS
from robot_runtime.signals import Ended
from robot_runtime.transport.address import DEFAULT_ADDRESS

if TYPE_CHECKING:
    import numpy as np

    from robot_runtime.core.robot import Switch
    from robot_runtime.evaluation.result import Episode
    from robot_runtime.log.config import LogConfig
    from robot_runtime.robot.run import Session
    from robot_runtime.robot.telemetry import RunRecord
    from robot_runtime.robot_file import OpenRobot

UNITS = {
    **dict.fromkeys(("jerk_mean", "jerk_max"), "rad/s³ or m/s³"),
    **dict.fromkeys(("seam_jump_p50", "seam_jump_max", "behind_max"), "rad or m"),
}
"""Units of figures whose names do not have them."""
DEFAULT_TASK = "track"
"""Task of the simulated robot."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Run a robot in real time against a policy server.

    Drives the robot of --robot, or a simulated Franka. Start the server first, in another terminal:
    `robot-runtime serve --policy track`. A robot of --robot must be armed: it moves once chunks arrive in
    time and the operator has pressed the key a. Ctrl-C brings the robot to rest; a second Ctrl-C does not
    wait for that. Exit code 0: the robot moved and came to rest on command, whether or not the task succeeded
    (see --json) or the robot was stationary for much of the time (see the last line); 1: it did not move, or
    stopped by itself; 130: Ctrl-C, once the robot is at rest.
    """

    robot: Maybe[str] = None
    """Your own robot: a file that describes it, robot.toml; or a robot_runtime.Robot, or a function that
    returns one, as path/to/file.py:robot, package.module:robot, or the name of an entry point of the group
    robot_runtime.robots. A simulated Franka if not given."""
    set: Several[str] = ()
    """Values that override robot.toml, one or more, as in parts.arm.host=172.16.0.3."""
    home: bool = False
    """First move the parts to the home positions of robot.toml, at a fifth of their speed limits."""
    policy: Annotated[PolicyAddress, arg(aliases=("--server",))] = DEFAULT_ADDRESS
    """Address of the server, tcp://HOST:PORT or HOST:PORT; if it serves several policies, HOST:PORT/NAME."""
    teleop: Maybe[str] = None
    """Teleoperation device, with which the operator takes over the parts that it engages: keyboard, gamepad,
    spacemouse, webxr (a phone or a headset), lerobot (a leader arm), or file.py:Class; with options after a
    colon, as in gamepad:speed=0.3,yaw_deg=180. The device of robot.toml if not given."""
    no_policy: bool = False
    """Use no policy server: the operator drives alone, with --teleop."""
    yes: bool = False
    """Arm the robot of --robot from the start, without asking. For simulated robots."""
    task: Maybe[str] = None
    """Task: free text with --robot. The simulated robots' tasks have names: track, pick_place, strike and
    conveyor on a table; clear, drawer, fetch and wipe for the mobile robot; handover for two arms; track if
    not given."""
    keys: Maybe[InputFolder] = None
    """This robot's folder made by `robot-runtime keys`, for a server that requires keys."""
    method: MethodName = DEFAULT
    correction: Maybe[str] = None
    """For method a2c2: checkpoint folder of the served policy, whose correction head runs on the robot."""
    execution_horizon: Maybe[Rows] = None
    """Rows of a chunk to run before the next request; the method's own number if not given."""
    seed: Seed = 10_000
    """Seed of the simulated scene and of the policy's random numbers."""
    control_hz: Maybe[Hertz] = None
    """Ticks of the control loop per second; the value of robot.toml if not given, else 500."""
    duration_s: Maybe[Seconds] = None
    """How long to run once armed [s]; if not given, until the simulated task's time limit, or with --robot
    until Ctrl-C."""
    picture_size: Maybe[tuple[Pixels, Pixels]] = None
    """Height and width of the simulated cameras' images [pixels], if the policy needs another size."""
    orders: Maybe[str] = None
    """Source of operator commands, one a line: - for standard input, else a file or a named pipe. Commands:
    task TEXT, stop, reset, arm, take-over [PART ...], hand-back [PART ...], recover, correct, begin, success,
    failure, abort, discard, keep [SECONDS]."""
    connect_timeout_s: Annotated[float, Within(0, 86_400)] = 10.0
    """How long to wait for the server to be ready [s]."""
    log: AnyFolder = DEFAULT_FOLDER
    """Folder for the run's log, one file a run: see `robot-runtime log`."""
    no_log: bool = False
    """Write no log."""
    keep: KeepText = "all"
    """Part of the log to write: all, or last:30s for the newest seconds whenever the operator commands it, a
    fault happens or an episode fails."""
    page: PageAddress = None
    """Show the run in a browser, with buttons to stop, arm and take over, at this address; 127.0.0.1:8080 if
    the option has no value. Beyond this machine the page requires a token, which the printed address has."""
    json: Maybe[OutputFile] = None
    """Write the results to this file, as JSON."""

    def main(self) -> int:
        if (self.set or self.home) and self.robot is None:
            raise InvalidValueError("--set and --home are for --robot robot.toml")
        from robot_runtime.commands.order_file import check_source

        check_source(self.orders)
        if self.page is not None:
            need("viser")
        with BackgroundConsole() as console, Orders() as orders, ExitStack() as held:
            attend = partial(self._attend, orders=orders, console=console, held=held)
            if self.robot is not None:
                record, episode = self._own(orders, console, attend), None
            else:
                record, episode = self._simulated(orders, console, attend)
        with suppress(OSError):  # a pipe or a terminal that is gone
            report(record, episode)
            if self.keep != "all" and not (self.no_log or record.log_files or record.log_fault):
                print("no log: nothing happened that keeps one")
        if self.json is not None:
            keep_text(self.json, self._json(record, episode))
        if orders.signals:
            raise Ended(orders.signals[0])
        refuse_fault(record)
        return 0

    def _own(
        self, orders: "Orders", console: BackgroundConsole, attend: "Callable[[Session], None]"
    ) -> "RunRecord":
        """Drive the robot of --robot."""
        from robot_runtime.commands.teleop_option import teleop_options
        from robot_runtime.robot.run import Session
        from robot_runtime.robot_file import open_robot

        if self.picture_size is not None:
            raise InvalidValueError(
                "--picture-size is for the simulated robot: --robot has cameras of its own"
            )
        with open_robot(str(self.robot), self.set) as opened, ExitStack() as held:
            options = {**opened.options, **self.options(self.task or "", console)}
            options |= teleop_options(self.teleop, held, opened.options)
            options |= self._arming(opened, options.get("teleop"))
            if (arm := options["arm"]) is not None:
                held.callback(arm.close)
            if self.home:
                if not opened.home:
                    raise InvalidValueError(f"--home: {self.robot} says of no part where its home is")
                self.go_slowly(opened, opened.home, "home", arm, orders, console)
                orders.close()  # until the next tick nothing moves, and signals end the command at once
            with Session(opened.robot, task=self.task or "", **options) as session:
                attend(session)
                for _ in session:
                    pass
        return session.record

    def _attend(
        self, session: "Session", *, orders: "Orders", console: BackgroundConsole, held: ExitStack
    ) -> None:
        """Open the page and read operator commands from --orders, as long as the run lasts."""
        if self.page is not None:
            from robot_runtime.commands.live_page import open_page

            held.enter_context(open_page(session, self.page, say=console.say))
        if self.orders is not None:
            from robot_runtime.commands.order_file import read_orders

            read_orders(self.orders, session.post, say=console.say)
        orders.take_signals()

    def arm_switch(self, opened: "OpenRobot") -> "Switch | None":
        """Return the switch that arms the robot: that of its file, else a key; None with --yes."""
        arm: Switch | None = self._arming(opened, None)["arm"]
        return arm

    def _arming(self, opened: "OpenRobot", teleop: object) -> dict[str, Any]:
        from robot_runtime.commands.teleop_option import arming_options

        return arming_options(
            opened.options, teleop=teleop, is_unasked=self.yes, reads_orders=self.orders == "-"
        )

    def go_slowly(
        self,
        opened: "OpenRobot",
        places: "Mapping[str, Sequence[float] | np.ndarray]",
        where: str,
        arm: "Switch | None",
        orders: "Orders",
        console: BackgroundConsole,
    ) -> None:
        """Move joints without a policy, once the operator agrees. places: joint positions by part [rad]."""
        from robot_runtime.clock import MonotonicClock
        from robot_runtime.robot.joint_move import go_home
        from robot_runtime.robot.watched_switch import await_operator, is_held

        orders.take_signals()
        hold = opened.options.get("hold_to_run")
        who = ", ".join(places)
        await_operator(
            arm, hold, f"{who} goes {where} slowly", say=console.say, should_stop=lambda: bool(orders.signals)
        )
        if orders.signals:
            raise Ended(orders.signals[0])
        console.say(f"going {where}: {who}")
        go_home(
            opened.robot,
            places,
            clock=MonotonicClock(),
            control_hz=self.control_hz or opened.options.get("control_hz", 500.0),
            should_stop=lambda: bool(orders.signals) or not is_held(hold),
        )
        if orders.signals:
            raise Ended(orders.signals[0])

    def _simulated(
        self, orders: "Orders", console: BackgroundConsole, attend: "Callable[[Session], None]"
    ) -> "tuple[RunRecord, Episode]":
        """Drive the simulated robot, and score the episode."""
        from robot_runtime.commands.teleop_option import teleop_options

        task = self.task or DEFAULT_TASK
        with ExitStack() as held:
            episode = provider("simulation").run_real_time(
                task,
                picture_size=self.picture_size,
                on_session=attend,
                **self.options(task, console),
                **teleop_options(self.teleop, held, {}),
            )
        return episode.record, episode

    def options(self, task: str, console: BackgroundConsole) -> dict[str, Any]:
        """Return the session's options: all options here that it shares, except robot and task."""
        from robot_runtime.core.method.choose import method_or_choice
        from robot_runtime.core.method.table import Method
        from robot_runtime.keys import RobotKeys
        from robot_runtime.robot.config import RunConfig

        method = method_or_choice(self.method, execution_horizon=self.execution_horizon)
        names = {field.name for field in fields(RunConfig)} & {field.name for field in fields(self)}
        return {
            **{
                name: value
                for name in names - {"robot", "task", "log", "teleop"}
                if (value := getattr(self, name)) is not None
            },
            **({"policy": None} if self.no_policy else {}),
            "method": method,
            "log": self._log_config(),
            "correction_head": provider("policies").head_for(method, self.correction, task=task)
            if isinstance(method, Method)
            else None,
            **({} if self.keys is None else {"keys": RobotKeys.load(self.keys)}),
            "say": console.say,
        }

    def _log_config(self) -> "LogConfig | None":
        """Return the log's configuration; with --no-log a page still gets the data of a log."""
        from robot_runtime.log.config import LogConfig, Nothing, keep_of

        if self.no_log:
            return None if self.page is None else LogConfig(folder=self.log, keep=Nothing())
        return LogConfig(folder=self.log, keep=keep_of(self.keep))

    def _json(self, record: "RunRecord", episode: "Episode | None") -> str:
        if episode is None:
            result, seed = {"summary": record.summary()}, self.seed
        else:
            result, seed = asdict(episode.result), episode.result.seed
        return result_json({"result": result, "loop": loop_figures(record)}, seeds=[seed])


class Orders(ExitStack):
    """Takes Ctrl-C, Ctrl-Z, SIGTERM and a closed terminal once the robot moves, so that the command still
    prints its report. A session brings the robot to rest by itself, and passes the signal on when it ends."""

    def __init__(self) -> None:
        super().__init__()
        self.signals: list[int] = []
        self._is_moving = False

    def take_signals(self) -> None:
        """Take signals from now on, as the robot is about to move."""
        if not self._is_moving:
            self._is_moving = True
            self.enter_context(own_handler(self._take, also=SIGNALS))

    def close(self) -> None:
        """Restore the signals' handlers, as the robot is stationary."""
        super().close()
        self._is_moving = False

    def _take(self, number: int) -> None:
        if self.signals:
            raise Ended(number)  # a second Ctrl-C does not wait
        self.signals.append(number)


def refuse_fault(record: "RunRecord", *, run: str = "") -> None:
    """Raise RobotStoppedError if a run did not end on command, or the robot never moved.

    run: its name, where there are several.
    """
    of_run = f"{run}: " if run else ""
    from robot_runtime.core.safety import ENDS

    cause = record.ticks[-1].cause
    if cause not in ENDS:
        raise RobotStoppedError(f"{of_run}the robot stopped by itself: {cause.value}")
    if record.fault:
        raise RobotStoppedError(f"{of_run}{record.fault}")


def loop_figures(record: "RunRecord") -> dict[str, float]:
    """Return how well the control loop kept time, and how many chunks arrived, by the captures they saw."""
    return {
        "chunks_per_s": record.chunks_per_s,
        "ticks": record.lateness_ns.count,
        "ticks_skipped": record.num_skipped,
        "lateness_p50_ms": record.lateness_ns.quantile(0.5) / 1e6,
        "lateness_p99_ms": record.lateness_ns.quantile(0.99) / 1e6,
    }


def report(record: "RunRecord", episode: "Episode | None" = None) -> None:
    """Print a run's figures, except counts of zero, and the task's score if there is one."""
    from rich.table import Table

    from robot_runtime.cli.console import plain_console

    rows, title = {**record.summary(), **loop_figures(record)}, "run"
    counted = {*asdict(record.counts), "repeated_rows", "resent_rows", "refused_pictures", "reused_pictures"}
    rows = {name: value for name, value in rows.items() if value or name not in counted}
    if episode is not None:
        score = episode.result.score
        title = "success" if score.success else ": ".join(filter(None, ("no success", score.why)))
        rows = {**score.metrics, **rows}
        if score.completion_s is not None:
            rows = {"completion_s": score.completion_s, **rows}
    table = Table("figure", "value", "", title=title)
    for name, value in rows.items():
        table.add_row(name, f"{value:.4g}", UNITS.get(name, ""))
    plain_console().print(table)
    if why := record.why_it_stood():
        print(f"{why[0].upper()}{why[1:]}.")
    for path in record.log_files:
        print(f"log: {path}")
    if record.log_fault:
        print(f"ATTENTION: {record.log_fault}.")
