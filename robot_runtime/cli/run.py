"""`robot-runtime run`: the robot's side, in real time, against a server that is already up."""

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from robot_runtime.cli.options import (
    Hertz,
    InputFolder,
    Maybe,
    MethodName,
    OutputFile,
    Pixels,
    Rows,
    Seconds,
    Seed,
    ServerAddress,
    Task,
    Within,
)
from robot_runtime.cli.signals import Ended, own_handler
from robot_runtime.core.method.choose import DEFAULT, method_or_choice
from robot_runtime.core.method.table import Method
from robot_runtime.core.safety import Cause
from robot_runtime.errors import RobotStoppedError
from robot_runtime.keys import RobotKeys
from robot_runtime.results import keep_text, result_json
from robot_runtime.transport.address import DEFAULT_ADDRESS

if TYPE_CHECKING:
    from robot_runtime.core.executor import Tick
    from robot_runtime.evaluation.result import Episode


@dataclass(frozen=True, kw_only=True)
class Run:
    """Run the robot's side in real time: a simulated Franka, with the policy of a server that is already up.

    Start `robot-runtime serve --policy track` in another terminal first. Ctrl-C brings the robot to rest; a
    second one does not wait for that. Exit code 0: the robot moved and came to rest when it was told to,
    whether or not the task succeeded (--json says that); 1: it did not move, or stopped by itself.
    """

    task: Task = "track"
    server: ServerAddress = DEFAULT_ADDRESS
    """Address of the server, tcp://HOST:PORT or HOST:PORT."""
    policy: Annotated[str, arg(help_behavior_hint="(optional)")] = ""
    """Name of one of the server's policies; needed only if it has several."""
    keys: Maybe[InputFolder] = None
    """This robot's folder of `robot-runtime keys`, for a server that asks for keys."""
    method: MethodName = DEFAULT
    correction: Maybe[str] = None
    """For method a2c2: checkpoint folder of the served policy, whose correction head the robot runs
    itself."""
    execution_horizon: Maybe[Rows] = None
    """Rows of a chunk to run before the policy is asked again; as the method has it if not given."""
    seed: Seed = 10_000
    """Decides the scene and the policy's random numbers."""
    control_hz: Hertz = 500.0
    """Ticks of the control loop per second."""
    duration_s: Maybe[Seconds] = None
    """How long to run [s]; the task's own time limit if not given."""
    picture_size: Maybe[tuple[Pixels, Pixels]] = None
    """Height and width of the simulated cameras' pictures [pixels], if the policy needs other ones."""
    connect_timeout_s: Annotated[float, Within(0, 86_400)] = 10.0
    """How long to wait for the server to be ready [s]."""
    json: Maybe[OutputFile] = None
    """Write the results to this file, as JSON."""

    def main(self) -> int:
        from policies.correction import head_for
        from sim.episodes.run_episode import RealTimeConfig, run_real_time

        method = method_or_choice(self.method, execution_horizon=self.execution_horizon)
        head = head_for(method, self.correction, task=self.task) if isinstance(method, Method) else None
        config = RealTimeConfig(
            task=self.task,
            method=method,
            correction_head=head,
            server=self.server,
            seed=self.seed,
            control_hz=self.control_hz,
            duration_s=self.duration_s,
            picture_size=self.picture_size,
            connect_timeout_s=self.connect_timeout_s,
            policy=self.policy,
            keys=None if self.keys is None else RobotKeys.load(self.keys),
        )
        signals: list[int] = []
        is_moving = False
        say = partial(print, flush=True)

        def come_to_rest(number: int) -> None:
            if signals:
                raise Ended(number)  # a second Ctrl-C does not wait
            signals.append(number)

        with ExitStack() as while_it_moves:

            def on_tick(tick: "Tick") -> None:
                nonlocal is_moving
                if not is_moving:
                    is_moving = True
                    while_it_moves.enter_context(own_handler(come_to_rest))

            episode = run_real_time(
                config,
                on_tick=on_tick,
                should_stop=lambda: bool(signals),
                on_ready=lambda welcome: say(f"connected: policy {welcome.policy!r} at {self.server}"),
                on_measured=say,
            )
        report(episode)
        if self.json is not None:
            figures = {"result": asdict(episode.result), "loop": loop_figures(episode)}
            keep_text(self.json, result_json(figures, seeds=[episode.result.seed]))
        if signals:
            raise Ended(signals[0])
        refuse_fault(episode)
        return 0


def refuse_fault(episode: "Episode", *, run: str = "") -> None:
    """RobotStoppedError if a run did not end because it was told to, or the robot never moved.

    run: which one, where there are several.
    """
    of_run = f"{run}: " if run else ""
    cause = episode.record.ticks[-1].cause
    if cause is not Cause.STOP_REQUESTED:
        raise RobotStoppedError(f"{of_run}the robot stopped by itself: {cause.value}")
    if episode.record.fault:
        raise RobotStoppedError(f"{of_run}{episode.record.fault}")


def loop_figures(episode: "Episode") -> dict[str, float]:
    """How well the control loop kept time, and how often it got an answer, by the captures they saw."""
    record = episode.record
    return {
        "chunks_per_s": record.chunks_per_s,
        "ticks": record.lateness_ns.count,
        "ticks_skipped": record.num_skipped,
        "lateness_p50_ms": record.lateness_ns.quantile(0.5) / 1e6,
        "lateness_p99_ms": record.lateness_ns.quantile(0.99) / 1e6,
    }


def report(episode: "Episode") -> None:
    """Print one run's figures."""
    from rich.console import Console
    from rich.table import Table

    result = episode.result
    table = Table("figure", "value", title="success" if result.score.success else "no success")
    rows = {**result.score.metrics, **result.summary, **loop_figures(episode)}
    if result.score.completion_s is not None:
        rows = {"completion_s": result.score.completion_s, **rows}
    for name, value in rows.items():
        table.add_row(name, f"{value:.4g}")
    Console().print(table)
