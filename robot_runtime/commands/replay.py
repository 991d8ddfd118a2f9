"""`robot-runtime replay`: runs a log's inputs through the executor again and compares the commands."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from robot_runtime.cli.options import AnyCount, InputFile, Maybe, OutputFile, Several
from robot_runtime.commands.log import counting
from robot_runtime.commands.read_log import log_of
from robot_runtime.errors import InvalidValueError, RobotRuntimeError
from robot_runtime.providers import provider

if TYPE_CHECKING:
    from robot_runtime.log.reader import RunLog
    from robot_runtime.robot.robot import Robot


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Replay a run's inputs through the executor and compare every command bit by bit.

    Makes any log a regression test of the runtime, and shows why a robot did what it did. Moves nothing. Exit
    code 0: all commands are equal; 1: a command differs, and the first one is shown, or the log was cut or is
    damaged, and is replayed up to there.
    With --on, a robot approaches the start of the recording slowly and then follows it in real time.
    """

    file: Annotated[InputFile, Positional]
    """The log, a file that ends in .mcap."""
    robot: Maybe[str] = None
    """The robot of the run, if it has its own Python functions, which a log cannot hold: robot.toml, or
    path/to/file.py:robot."""
    set: Several[str] = ()
    """Values that override robot.toml, one or more, as in parts.arm.host=172.16.0.3."""
    on: Maybe[str] = None
    """Robot to move along a recorded episode: robot.toml, or sim for the log's task in the same scene."""
    episode: AnyCount = 0
    """With --on: which episode of the log."""
    video: Maybe[OutputFile] = None
    """With --on sim: write a video to this .mp4 file."""
    yes: bool = False
    """With --on robot.toml: arm the robot without asking, as for run. For simulated robots."""
    correction: Maybe[str] = None
    """The correction head of the run, if it was your own: path/to/file.py:head."""

    def main(self) -> int:
        with log_of(self.file, needs_whole=False) as log:
            if self.on is None:
                return self._replayed(log)
            print(self._moved(log, self.on))
        log.refuse_damage()
        return 0

    def _replayed(self, log: "RunLog") -> int:
        from robot_runtime.log.replay import replay_log

        if self.episode or self.yes or self.video is not None:
            raise InvalidValueError("--episode, --video and --yes are for --on")
        with counting("control steps") as on_tick:
            done = self._with_robot(
                lambda robot: replay_log(log, robot=robot, correction_head=self._head(), on_tick=on_tick)
            )
        if done.difference is not None:
            at = done.difference
            seconds = (at.now_ns - log.info.started_ns) / 1e9
            raise RobotRuntimeError(
                f"control step {at.tick}, {seconds:.3f} s after the log began, differs: {at.what} "
                f"(the {done.ticks} steps before it do not)"
            )
        replayed = f"{done.ticks} control steps and {done.requests} requests"
        if log.damage:
            raise RobotRuntimeError(
                f"only the first {replayed} were replayed; what follows cannot be compared: {log.damage}"
            )
        print(f"{replayed}, equal to the last bit")
        return 0

    def _moved(self, log: "RunLog", on: str) -> str:
        from robot_runtime.commands.replay_on import on_robot

        if on == "sim":
            text: str = provider("simulation").replay_log(log, self.episode, video=self.video)
            return text if self.video is None else f"video: {self.video}\n{text}"
        if self.video is not None:
            raise InvalidValueError("--video is for --on sim")
        return on_robot(log, self.episode, robot=on, settings=self.set, yes=self.yes)

    def _with_robot(self, work: Any) -> Any:
        if self.robot is None:
            return work(None)
        from robot_runtime.robot_file import open_robot

        with open_robot(self.robot, self.set) as opened:
            robot: Robot = opened.robot
            return work(robot)

    def _head(self) -> Any:
        if self.correction is None:
            return None
        from robot_runtime.core.plan.correction import ResidualHead
        from robot_runtime.load_object import load_object

        found = load_object(self.correction, group="robot_runtime.corrections", what="correction head")
        if not isinstance(found, ResidualHead):
            raise InvalidValueError(f"{self.correction} is no correction head: {type(found).__name__}")
        return found
