"""`robot-runtime teleop`: records demonstrations of a person, or corrections of a policy, as a dataset.

begin ──► drive ──► success, failure: kept      every run has its log; a separate process copies kept
               └──► discard: not kept           episodes from there into the dataset
"""

import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from robot_runtime.cli.background_console import BackgroundConsole
from robot_runtime.cli.options import (
    AnyFolder,
    Count,
    FramesPerSecond,
    Maybe,
    OutputFolder,
    PageAddress,
    Pixels,
    PolicyAddress,
    Seed,
    Several,
    Task,
    need,
)
from robot_runtime.commands.teleop_export import Exporter
from robot_runtime.commands.teleop_keys import OrderKeys
from robot_runtime.commands.teleop_option import arming_options, reads_terminal, teleop_options
from robot_runtime.core.arming import ArmingRules
from robot_runtime.core.orders import BeginEpisode, EndEpisode, EpisodeMark, Order, Outcome
from robot_runtime.core.teleop import Lead, LeadableParts, LedRun, Teleoperator
from robot_runtime.errors import InvalidValueError
from robot_runtime.log import DEFAULT_FOLDER
from robot_runtime.log.config import LogConfig
from robot_runtime.providers import provider
from robot_runtime.signals import Ended

if TYPE_CHECKING:
    from robot_runtime.robot.run import Session

_STATUS_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Teleop:
    """Record teleoperated demonstrations, or corrections of a policy, as a LeRobot v3 dataset.

    The operator drives a simulated robot, or the one of --robot. With --policy, that policy drives until the
    operator takes over. The keys n, y, f and x begin an episode, end it as success or failure, and discard
    it. Every run writes its log, from which the dataset is made. Finished episodes survive any end of the
    command; --resume continues after them.

    Example: robot-runtime teleop gamepad --task fetch --output outputs/mine
    """

    device: Annotated[str, Positional]
    """Teleoperation device: keyboard, gamepad, spacemouse, webxr (a phone or a headset), lerobot (a leader
    arm), or file.py:Class; with options after a colon, as in gamepad:speed=0.3,yaw_deg=180."""
    task: Task = "fetch"
    """Task: one of the simulated robots' tasks, or free text with --robot."""
    robot: Maybe[str] = None
    """Your own robot, as for run; a simulated one if not given."""
    set: Several[str] = ()
    """Values that override robot.toml, one or more, as in parts.arm.host=172.16.0.3."""
    yes: bool = False
    """Arm the robot of --robot from the start, without asking."""
    policy: Maybe[PolicyAddress] = None
    """Address of a server, tcp://HOST:PORT, whose policy drives until the operator takes over."""
    output: OutputFolder = Path("outputs/dataset")
    """Folder of the dataset; without --resume it must not exist yet."""
    resume: bool = False
    """Continue that dataset after its last episode."""
    episodes: Count = 10
    """Number of episodes to keep, including existing ones with --resume."""
    fps: FramesPerSecond = 20
    """Frames per second of the dataset."""
    cameras: Maybe[tuple[str, ...]] = None
    """Cameras to record; the robot's own if not given."""
    size: tuple[Pixels, Pixels] = (96, 96)
    """Height and width of the simulated cameras' images [pixels]."""
    seed: Seed = 0
    """Seed of the simulated scenes."""
    pedal: Maybe[str] = None
    """Input device, such as a pedal, whose key alternately begins an episode and ends it as success:
    /dev/input/by-id/...-event-kbd, or with the key, DEVICE:KEY_B."""
    beep: bool = False
    """Beep once when an episode is discarded, twice when it is kept."""
    page: PageAddress = None
    """Show the run in a browser, as run --page does; in simulation each episode has its own page at the same
    address."""
    log: AnyFolder = DEFAULT_FOLDER
    """Folder for the runs' logs."""

    def main(self) -> int:
        from robot_runtime.commands.run import Orders

        already = self._checked()
        with BackgroundConsole() as console, Orders() as signals, ExitStack() as held:
            exporter = Exporter(self.output, fps=self.fps, cameras=self.recorded, say=console.say)
            held.callback(exporter.finish)
            recording = _Recording(self, console, exporter, signals, already=already)
            if self.robot is None:
                recording.simulated(held)
            else:
                recording.real(held)
            if exporter.is_busy:
                console.say("writing what is left")
            exporter.finish()
        kept = recording.num_kept - exporter.num_left_out
        print(
            f"{self.output}: {kept} of {self.episodes} episodes of {self.task}, by {recording.name}; "
            f"logs: {self.log}"
        )
        if signals.signals:
            raise Ended(signals.signals[0])
        if exporter.fault:
            raise InvalidValueError(exporter.fault)
        return 0

    def _checked(self) -> int:
        """Return the dataset's number of episodes. InvalidValueError: the options do not go together."""
        from robot_runtime.transport.address import address_to_connect, server_and_name

        if self.policy is not None:
            address_to_connect(server_and_name(self.policy)[0])
        need("lerobot")
        if self.page is not None:
            need("viser")
        return episodes_in(self.output, self.episodes, resume=self.resume)

    @property
    def recorded(self) -> tuple[str, ...] | None:
        """Cameras of --cameras; else those of a simulated robot, or None, all cameras of a real one."""
        if self.cameras is not None or self.robot is not None:
            return self.cameras
        has = provider("simulation").make_task(self.task).schema.cameras
        return tuple(name for name in has if name != "overview")


def episodes_in(output: Path, wanted: int, *, resume: bool) -> int:
    """Return how many episodes a dataset has before more are added.

    InvalidValueError: it exists without `resume`, or has enough.
    """
    from robot_runtime.dataset.dataset_folder import DatasetFolder

    if not output.exists():
        return 0
    if not resume:
        raise InvalidValueError(f"--output: {output} exists (--resume goes on in one)")
    with DatasetFolder(output, resume=True) as folder:
        already = folder.num_episodes
    if already >= wanted:
        raise InvalidValueError(f"{output} has {already} episodes already: --episodes is of all")
    return already


class _Recording:
    """One recording: the state that its runs share."""

    def __init__(
        self, what: Teleop, console: BackgroundConsole, exporter: Exporter, signals: Any, *, already: int
    ) -> None:
        self.what, self.console, self.exporter, self.signals = what, console, exporter, signals
        self.num_kept, self.name = already, ""
        self._session: Session | None = None
        self._next_s = 0.0
        self._num_marks = 0

    # ---- in simulation, on a robot -------------------------------------------------------------------

    def simulated(self, held: ExitStack) -> None:
        """Record each episode in its own run and scene; repeat a discarded one."""
        options = self._opened(held, {})
        with self._keys(options) as keys:
            while self.num_kept < self.what.episodes and not self.signals.signals:
                if not self._one_scene(options, keys, self.what.seed + self.num_kept):
                    return

    def _one_scene(self, options: dict[str, Any], keys: OrderKeys, seed: int) -> bool:
        """Run one scene; return whether to go on."""
        from robot_runtime.clock import MonotonicClock

        what = self.what
        scene = provider("simulation").teleop_scene(
            what.task,
            seed=seed,
            clock=MonotonicClock(),
            cameras=what.recorded,
            picture_size=what.size,
            **options,
        )
        session, is_judged = scene.session, False
        with session, self._page(session):
            scene.begin()
            self.signals.take_signals()
            ticks = iter(session)  # prints the keys, or fails if there are none
            self._begin(session, begins_itself=what.policy is not None)
            while (tick := next(ticks, None)) is not None:
                success = scene.judge(tick)
                if success is not None and self._is_open and not is_judged:
                    is_judged = True
                    outcome = Outcome.SUCCESS if success else Outcome.FAILURE
                    session.post(EndEpisode(outcome), "the task's own judge")
                if self._look(session, keys):
                    session.stop()
        self._export(session)
        return bool(session.record.episodes)

    def real(self, held: ExitStack) -> None:
        """Record all episodes in one run; the operator marks them."""
        from robot_runtime.robot.run import Session
        from robot_runtime.robot_file import open_robot

        opened = held.enter_context(open_robot(str(self.what.robot), self.what.set))
        options = {**opened.options, **self._opened(held, opened.options)}
        arming = arming_options(
            opened.options, teleop=options["teleop"].inside, is_unasked=self.what.yes, reads_orders=False
        )
        if isinstance(arming["arm"], _key_switch()):
            arming = {"arm": None, "arming": ArmingRules()}  # the key a is read here
        with self._keys(options) as keys:
            session = Session(opened.robot, task=self.what.task, **(options | arming))
            with session, self._page(session):
                self.signals.take_signals()
                ticks = iter(session)  # prints the keys, or fails if there are none
                self._begin(session, begins_itself=False)
                while next(ticks, None) is not None:
                    self._look(session, keys)
                    if self.num_kept >= self.what.episodes or self.exporter.fault:
                        session.stop()

    def _opened(self, held: ExitStack, of_file: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of every session; the teleoperator is closed at the end, not by each session.

        of_file: options of the robot's file.
        """
        what = self.what
        options = teleop_options(what.device, held, of_file)
        kept = KeptOpen(options["teleop"])
        self.name = kept.name
        return {
            **options,
            "teleop": kept,
            "policy": what.policy,
            "log": LogConfig(folder=what.log),
            "all_cameras": True,
            "say": self.console.say,
        }

    def _page(self, session: "Session") -> AbstractContextManager[object]:
        """Return the page of a session that has been entered."""
        if self.what.page is None:
            return nullcontext()
        from robot_runtime.commands.live_page import open_page

        return open_page(session, self.what.page, say=self.console.say)

    def _keys(self, options: dict[str, Any]) -> OrderKeys:
        from robot_runtime.robot_file.names import shipped_driver

        pedal = None
        if self.what.pedal is not None:
            device, _, code = self.what.pedal.partition(":")
            pedal = shipped_driver("input-device")(device, code or "KEY_B")
        is_read = reads_terminal(options["teleop"].inside)
        return OrderKeys(self._post, reads_terminal=not is_read, pedal=pedal)

    def _post(self, order: Order, by: str) -> None:
        if self._session is not None:
            self._session.post(order, by)

    # ---- while it runs -------------------------------------------------------------------------------

    def _begin(self, session: "Session", *, begins_itself: bool) -> None:
        self._session, self._num_marks = session, 0
        if begins_itself:
            session.post(BeginEpisode(), "record")
        else:
            self.console.say(
                f"episode {self.num_kept + 1} of {self.what.episodes}: begin it, key n or a button"
            )

    @property
    def _is_open(self) -> bool:
        assert self._session is not None
        return self._session.runner.episodes.begun_ns is not None

    def _look(self, session: "Session", keys: OrderKeys) -> bool:
        """Show the progress; return whether an episode has ended."""
        marks = session.record.episodes
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _STATUS_S
            self.exporter.look()
            self._show(session)
        if len(marks) == self._num_marks:
            return False
        self._num_marks = len(marks)
        keys.ended()
        self._took(marks[-1])
        if self.what.robot is not None and marks[-1].keep:
            self._export(session)
        return True

    def _took(self, mark: EpisodeMark) -> None:
        seconds = (mark.end_ns - mark.start_ns) / 1e9
        self.num_kept += mark.keep
        what = f"kept, {mark.outcome.value}" if mark.keep else "discarded"
        self.console.say(f"episode of {seconds:.1f} s {what}; {self.num_kept} of {self.what.episodes}")
        self._beep(2 if mark.keep else 1)
        if self.what.robot is not None and self.num_kept < self.what.episodes:
            self.console.say(
                f"episode {self.num_kept + 1} of {self.what.episodes}: begin it, key n or a button"
            )

    def _export(self, session: "Session") -> None:
        marks = session.record.episodes
        run_log = session.runner.run_log
        if marks and marks[-1].keep and run_log is not None:
            self.exporter.add(run_log.files[-1], marks[-1].end_ns)

    def _show(self, session: "Session") -> None:
        if not sys.stdout.isatty():
            return
        begun_ns = session.runner.episodes.begun_ns
        doing = "not begun" if begun_ns is None else f"{(session.clock.now_ns() - begun_ns) / 1e9:.1f} s"
        latency_ms = 1e3 * session.record.lead_latency_s.quantile(0.5)
        driven = ", ".join(session.runner.teleop.led if session.runner.teleop else ())
        self.console.status(
            f"episode {self.num_kept + 1} of {self.what.episodes}  {doing}  {self.what.fps} fps  "
            f"latency {latency_ms:.1f} ms  operator drives {driven or 'nothing'}"
        )

    def _beep(self, times: int) -> None:
        if self.what.beep:
            self.console.write("\a" * times)


class KeptOpen:
    """Teleoperator that several sessions share, and that none of them closes."""

    def __init__(self, inside: Teleoperator) -> None:
        self.inside = inside
        self.name = str(getattr(inside, "name", "") or type(inside).__name__)
        self._has_helped = False

    @property
    def buttons(self) -> tuple[str, str] | None:
        """Buttons of the teleoperator."""
        return getattr(self.inside, "buttons", None)

    @property
    def help(self) -> str:
        """Help of the teleoperator, the first time only."""
        has_helped, self._has_helped = self._has_helped, True
        return "" if has_helped else str(getattr(self.inside, "help", "") or "")

    def open(self, parts: LeadableParts) -> None:
        """Open the teleoperator."""
        if callable(begin := getattr(self.inside, "open", None)):
            begin(parts)

    def read(self) -> Lead:
        """Read the teleoperator."""
        return self.inside.read()

    def show_run(self, run: LedRun) -> None:
        """Pass the state of the run on."""
        if callable(show := getattr(self.inside, "show_run", None)):
            show(run)

    def close(self) -> None:
        """Do nothing: the owner closes the teleoperator."""


def _key_switch() -> type:
    from robot_runtime.robot.terminal_key import KeySwitch

    return KeySwitch
