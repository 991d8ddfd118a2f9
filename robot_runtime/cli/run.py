"""`robot-runtime run`: the robot's side, in real time, against a server that is already up."""

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from robot_runtime.cli.signals import Ended, own_handler
from robot_runtime.core.choose import DEFAULT, method_or_choice
from robot_runtime.core.method import Method
from robot_runtime.core.safety import Cause
from robot_runtime.errors import RobotStoppedError
from robot_runtime.keys import RobotKeys
from robot_runtime.transport.address import DEFAULT_ADDRESS

if TYPE_CHECKING:
    from robot_runtime.core.executor import Tick
    from sim.evaluate import Episode


@dataclass(frozen=True, kw_only=True)
class Run:
    """Drive the simulated Franka in real time with the policy of a running server.

    Start `robot-runtime serve --policy track` in another terminal first. Ctrl-C brings the robot to rest.
    """

    task: str = "track"
    """What the robot does: track, pick_place, strike, conveyor; on a base clear, drawer, fetch, wipe."""
    server: str = DEFAULT_ADDRESS
    """Where the server listens."""
    policy: str = ""
    """Which of the server's policies; not needed if it has one."""
    keys: Path | None = None
    """This robot's folder of `robot-runtime keys`, for a server that asks for keys."""
    method: str = DEFAULT
    """How chunks are run: a row of the README's table, default for what the policy was trained for, or auto
    to measure the server and pick one."""
    correction: str | None = None
    """For a2c2: the served policy's checkpoint folder, whose correction head the robot runs itself."""
    execution_horizon: int | None = None
    """Rows to run before asking again; the method's own default if not given."""
    seed: int = 10_000
    """Draws the scene, and the noise of the policy."""
    control_hz: float = 500.0
    """Ticks of the control loop per second."""
    duration_s: float | None = None
    """How long to run [s]; the task's own time limit if not given."""
    picture_size: tuple[int, int] | None = None
    """Height and width of the simulated cameras' pictures, as the policy needs them."""
    connect_timeout_s: float = 10.0
    """How long to wait for the server to be ready [s]."""
    json: Path | None = None
    """Write the results to this file."""

    def main(self) -> int:
        from policies.correction import head_for
        from sim.realtime import RealTimeConfig, run_real_time

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
                on_ready=lambda welcome: print(f"connected: policy {welcome.policy!r} at {self.server}"),
                on_measured=print,
            )
        report(episode)
        if self.json is not None:
            self.json.write_text(
                dumps({"result": asdict(episode.result), "loop": loop_figures(episode)}, indent=1)
            )
        if signals:
            raise Ended(signals[0])
        refuse_fault(episode)
        return 0


def refuse_fault(episode: "Episode") -> None:
    """RobotStoppedError if a run did not end because it was told to, or the robot never moved."""
    cause = episode.record.ticks[-1].cause
    if cause is not Cause.STOP_REQUESTED:
        raise RobotStoppedError(f"the robot stopped by itself: {cause.value}")
    if episode.record.fault:
        raise RobotStoppedError(episode.record.fault)


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
