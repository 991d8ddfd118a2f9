"""`robot-runtime doctor`: see `Doctor`."""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from robot_runtime.cli.options import InputFolder, Maybe, OutputFile, PolicyAddress, Seconds, Several
from robot_runtime.commands.doctor.finding import Finding, Verdict, doubtful, fine, print_findings, wrong
from robot_runtime.errors import InvalidValueError, RobotRuntimeError, nearest
from robot_runtime.results import keep_text, result_json

if TYPE_CHECKING:
    from robot_runtime.robot_file import OpenRobot


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Check a robot, its machine and its server before anything moves.

    Checks kernel, rights, clocks, timers and disk. Prints which code robot.toml runs, then runs it: makes the
    robot's drivers, and measures the rate and age of their states. Asks the server what its policy needs, and
    measures the latency of its answers. Each finding is fine, doubtful or wrong, with the command that fixes
    it. Exit code 1 if something is wrong. Nothing moves except the parts of --measure-latency.
    """

    robot: Annotated[Maybe[str], Positional] = None
    """robot.toml, or anything that `run --robot` takes; only the machine is checked if not given."""
    set: Several[str] = ()
    """Values that override robot.toml, one or more, as in parts.arm.host=172.16.0.3."""
    policy: Maybe[PolicyAddress] = None
    """Address of the policy's server; no server is checked if not given."""
    keys: Maybe[InputFolder] = None
    """This robot's folder made by `robot-runtime keys`, for a server that requires keys."""
    measure_latency: Several[str] = ()
    """Parts and cameras to measure. One joint of a part moves to and fro by 0.05 rad: latency from command to
    motion [s]. A camera is pointed at this terminal, which flashes: latency from event to image stamp [s]."""
    yes: bool = False
    """Allow the robot to move for --measure-latency; asks on the terminal if not given."""
    seconds: Seconds = 2.0
    """How long to measure each device [s]."""
    json: Maybe[OutputFile] = None
    """Write the findings to this file, as JSON."""

    def main(self) -> int:
        """Print the findings; return the exit code."""
        from robot_runtime.commands.doctor.machine import look_at_machine

        found = self._shown("this machine", look_at_machine(self._control_hz()))
        if self.robot is not None:
            found += self._of_robot(self.robot)
        if self.json is not None:
            rows = [asdict(each) | {"verdict": each.verdict.value} for each in found]
            keep_text(self.json, result_json({"findings": rows}, seeds=[]))
        num_wrong = sum(each.verdict is Verdict.WRONG for each in found)
        num_doubtful = sum(each.verdict is Verdict.DOUBTFUL for each in found)
        print(f"{num_wrong} wrong, {num_doubtful} doubtful, {len(found) - num_wrong - num_doubtful} fine.")
        return 1 if num_wrong else 0

    def _control_hz(self) -> float:
        """Return the rate of the robot's file, if it can be read; its faults are reported later."""
        from robot_runtime.robot.config import RunConfig
        from robot_runtime.robot_file import RobotFile

        if self.robot is not None and self.robot.endswith(".toml"):
            with contextlib.suppress(RobotRuntimeError):
                return float(
                    RobotFile.load(self.robot, self.set).table.get("control_hz", RunConfig.control_hz)
                )
        return RunConfig.control_hz

    def _of_robot(self, robot: str) -> list[Finding]:
        from robot_runtime.robot_file import RobotFile, open_robot

        found: list[Finding] = []
        failed: dict[str, RobotRuntimeError] = {}
        try:
            if robot.endswith(".toml"):
                code = RobotFile.load(robot, self.set).code()
                found += self._shown(
                    f"code that {robot} runs",
                    [fine(f"{key} runs", str(each)) for key, each in code.items()],
                )
            with open_robot(robot, self.set, failed=failed) as opened:
                if failed:
                    found += self._shown(robot, map(_failed, *zip(*failed.items(), strict=True)))
                is_whole = all(key.startswith("operator.") for key in failed)
                for title, findings in self._looks(opened, is_whole):
                    found += self._shown(title, findings)
        except RobotRuntimeError as error:
            found += self._shown("robot", [wrong("robot", str(error))])
        return found

    def _looks(self, opened: "OpenRobot", is_whole: bool) -> Iterator[tuple[str, Iterable[Finding]]]:
        """Yield the checks in order: cameras last, as that check closes them."""
        from robot_runtime.commands.doctor.devices import look_at_cameras, look_at_operator, look_at_parts
        from robot_runtime.commands.doctor.server import look_at_server
        from robot_runtime.core.camera_watch import CameraLimits
        from robot_runtime.core.state_watch import StateLimits

        robot, options = opened.robot, dict(opened.options)
        has = (*robot.parts, *robot.cameras)
        if robot.parts or is_whole:
            limits = options.get("state_limits", StateLimits())
            yield "robot", look_at_parts(robot, limits, seconds=self.seconds, is_whole=is_whole)
        if {"arm", "hold_to_run"} & options.keys():
            yield "operator", look_at_operator(options)
        if self.policy is not None and is_whole:
            yield "server", look_at_server(robot, self.policy, self._with_keys(options))
        elif self.policy is not None:
            yield "server", [doubtful("server", "not asked: its policy wants the whole robot; see above")]
        for name in self.measure_latency:
            if name not in has:
                yield "latency", [wrong(name, f"no part and no camera {name}{nearest(name, has)}")]
            elif name in robot.cameras:
                yield f"what camera {name} sees, and when", self._seen(robot, name)
            elif not is_whole:
                yield "latency", [doubtful(name, "not moved: the robot is not whole; see above")]
            else:
                self._ask(name)
                yield f"command to motion of {name}", self._moved(robot, name)
        if robot.cameras:
            good = options.get("camera_limits", CameraLimits())
            yield "cameras", look_at_cameras(robot, good, seconds=self.seconds)

    def _with_keys(self, options: dict[str, Any]) -> dict[str, Any]:
        from robot_runtime.keys import RobotKeys

        return options | ({} if self.keys is None else {"keys": RobotKeys.load(self.keys)})

    def _moved(self, robot: Any, part: str) -> Iterable[Finding]:
        from robot_runtime.clock import MonotonicClock
        from robot_runtime.commands.doctor.motion import measure_motion

        try:
            found, joint = measure_motion(robot, part, clock=MonotonicClock(), control_hz=self._control_hz())
        except RobotRuntimeError as error:
            yield wrong(part, str(error))
            return
        yield fine(
            part,
            f"joint {joint + 1} follows after {1e3 * found.delay_s:.0f} ms, {100 * found.gain:.0f} % of the "
            f"motion; in its file: [parts.{part}] latency_s = {found.delay_s:.3f}",
        )

    def _seen(self, robot: Any, name: str) -> Iterable[Finding]:
        from robot_runtime.commands.doctor.screen import SECONDS, measure_camera

        if not sys.stdout.isatty():
            raise InvalidValueError(
                f"camera {name} has to look at a terminal that flashes, and there is none"
            )
        input(
            f"Point camera {name} at this terminal, full screen; it will flash for {SECONDS:.0f} s. Enter: "
        )
        try:
            delay = measure_camera(robot.cameras[name])
        except RobotRuntimeError as error:
            yield wrong(name, str(error))
            return
        yield fine(
            name,
            f"{1e3 * delay.median_s:.0f} ms after the screen was commanded to change, quartiles "
            f"{1e3 * delay.spread_s:.0f} ms apart, {delay.num_changes} changes; the screen's own delay "
            f"is in it; in its file: [cameras.{name}] latency_s, that much more",
        )

    def _ask(self, part: str) -> None:
        """Ask whether a part may move. InvalidValueError: it may not."""
        if self.yes:
            return
        if not sys.stdin.isatty():
            raise InvalidValueError(
                f"one joint of {part} would move: --yes allows it where there is no terminal to ask"
            )
        if (
            input(f"One joint of {part} will move by 0.05 rad, a few times. Go on? [y/N] ").strip().lower()
            != "y"
        ):
            raise InvalidValueError(f"{part} was not moved: the operator did not allow it")

    def _shown(self, title: str, findings: Iterable[Finding]) -> list[Finding]:
        from robot_runtime.cli.console import plain_console

        with plain_console(is_error=True).status(f"looking at {title}"):
            rows = list(findings)
        print_findings(title, rows)
        return rows


def _failed(key: str, error: RobotRuntimeError) -> Finding:
    """Return the finding on a key of the robot's file whose object could not be made."""
    from robot_runtime.robot_file.make import LacksDeviceError

    text = str(error).removeprefix(f"{key}: ")
    if isinstance(error, LacksDeviceError):
        return doubtful(key, f"not checked: {text}")
    return wrong(key, text)
