"""`robot-runtime replay`: a log's inputs through the executor again, which must reach the same commands."""

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
    """Feed what went into a run through the executor again, and compare every command to the last bit.

    For whoever has changed the runtime, or wants to know why a robot did what it did: any log is a regression
    test. Moves nothing. Exit code 0: all is equal; 1: something differs, and the first of it is shown, or the
    log was cut or is damaged, and is replayed up to there.
    With --on, move a robot along what was recorded, true to time, from a slow approach.
    """

    file: Annotated[InputFile, Positional]
    """The log, a file that ends in .mcap."""
    robot: Maybe[str] = None
    """The robot of the run, if it has Python functions of its own, which a log cannot hold: robot.toml, or
    path/to/file.py:robot."""
    set: Several[str] = ()
    """Over what robot.toml says: parts.arm.host=172.16.0.3, one or more."""
    on: Maybe[str] = None
    """What to move along a recorded episode: robot.toml, or sim, the task of the log with the same scene."""
    episode: AnyCount = 0
    """With --on: which episode of the log."""
    video: Maybe[OutputFile] = None
    """With --on sim: draw it into this file, .mp4."""
    yes: bool = False
    """With --on robot.toml: ask nobody, as for run. For robots that are simulated."""
    correction: Maybe[str] = None
    """The head that corrected the run, if it was one of your own: path/to/file.py:head."""

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
