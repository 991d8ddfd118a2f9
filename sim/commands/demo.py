"""`robot-runtime demo`: runs the same policy with two methods in real time, side by side."""

import logging
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from tyro.conf import Positional

from robot_runtime.cli.options import (
    Maybe,
    MethodName,
    Milliseconds,
    OutputFile,
    OutputFolder,
    Seconds,
    Seed,
    Some,
    Task,
    check_option,
    need,
)
from robot_runtime.commands.run import refuse_fault
from robot_runtime.core.method import DEFAULT
from robot_runtime.core.method.capabilities import Capabilities, resolve_method
from robot_runtime.core.method.choose import Auto, Default, default_for, method_or_choice
from robot_runtime.core.method.table import Method
from robot_runtime.results import keep_text, result_json
from sim.commands.demo_capture import show_capture
from sim.commands.demo_takeover import show_takeover
from sim.commands.log_file import WarningSummary, logged_to

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from robot_runtime.core.tick import Tick
    from robot_runtime.evaluation.result import Episode
    from robot_runtime.wire.messages import Welcome

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Show:
    """Contents of one demo."""

    tasks: tuple[str, ...]
    baseline: str
    """The method beside the asynchronous one."""
    duration_s: float
    insets: tuple[str, ...]
    """Cameras whose views are drawn into the video's corner."""
    columns: Mapping[str, tuple[tuple[str, ...], int]]
    """Title with unit -> names of the figures, digits."""
    sentence: str


SHOWS: Mapping[str, _Show] = MappingProxyType(
    {
        "table": _Show(
            tasks=("track", "pick_place"),
            baseline="synchronous",
            duration_s=20.0,
            insets=(),
            columns={
                "done [s]": (("completion_s",), 1),
                "stalled [s]": (("stalled_s",), 1),
                "reaction p50 / p95 [s]": (("reaction_p50_s", "reaction_p95_s"), 2),
                "seam jump [rad]": (("seam_jump_max",), 3),
            },
            sentence=(
                "Run synchronously, a whole chunk at a time, the robot stops while it waits; run "
                "asynchronously, it keeps moving."
            ),
        ),
        "mobile": _Show(
            tasks=("wipe", "clear"),
            baseline="naive",
            duration_s=40.0,
            insets=("chest", "wrist"),
            columns={
                "done [s]": (("completion_s",), 1),
                "backtracking [m]": (("led_backward_m",), 2),
                "stages": (("stage",), 0),
                "stalled [s]": (("stalled_s",), 1),
            },
            sentence=(
                "During inference, the base drives past the first waypoints of its plan. Started at row 0, "
                "the plan drives the robot back; ours continues from where the robot is."
            ),
        ),
    }
)

MAX_OWN_LATENCY_S = 0.25
"""Longest latency of answers besides the added delay, at the 0.95 quantile [s]. On two cores it is 0.03 s,
and 0.2 s beside another program that takes a whole core."""

MAX_LATE_TICKS = 0.2
"""Share of late ticks above which a demo is not a comparison of methods."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Watch a simulated robot keep moving while inference takes hundreds of milliseconds.

    A first look that needs no GPU, no robot and no data. Starts a server in its own process, runs each task
    in real time once with a baseline method and once with ours, and writes a table, videos, plots and a web
    page. Exit code 1 if a robot did not move, or stopped by itself.

    takeover: a policy fails to fetch a cup, a scripted person takes over, and the policy continues. It needs
    no server, and also writes the run's log and a dataset of it.
    capture: a person demonstrates without a robot, and a robot learns from it; it takes some minutes.
    """

    show: Positional[Literal["table", "mobile", "takeover", "capture"]] = "table"
    """Demo to run: table, the Franka on its table; mobile, the Franka on a mobile base; takeover; or capture.
    Of the options below, takeover takes --seed, --duration-s, --output and --json, and capture takes --seed,
    --delay-ms, --output and --json."""
    tasks: Maybe[Some[Task]] = None
    """Tasks. On the table: track, pick_place, strike, conveyor; the first two if not given. On the mobile
    robot: wipe, clear, drawer, fetch; the first two if not given."""
    delay_ms: Milliseconds = 300.0
    """Delay added to every answer of the server [ms]."""
    method: MethodName = DEFAULT
    baseline: Maybe[str] = None
    """Method to compare with; synchronous on the table and naive on the mobile robot if not given."""
    duration_s: Maybe[Seconds] = None
    """Time limit of each run [s]; 20 on the table and 40 on the mobile robot if not given. A run ends earlier
    when its task is done."""
    seed: Seed = 10_000
    """Seed of the scenes and of the policy's random numbers."""
    output: Maybe[OutputFolder] = None
    """Folder for the results; outputs/demo or outputs/demo-mobile if not given."""
    json: Maybe[OutputFile] = None
    """Also write the figures to this file, as JSON."""

    def main(self) -> int:
        if self.show == "takeover":
            return show_takeover(self, self.output or Path("outputs/demo-takeover"))
        if self.show == "capture":
            return show_capture(self, self.output or Path("outputs/demo-capture"))
        need("av", "matplotlib", "torch")
        show, tasks = SHOWS[self.show], self.tasks or _shipped_tasks(self.show)
        self._check(tasks)
        output = self.output or Path("outputs/demo" if self.show == "table" else f"outputs/demo-{self.show}")
        check_option("--output", OutputFolder, output)
        output.mkdir(parents=True, exist_ok=True)
        with logged_to(output / "log.txt") as log:
            episodes = {task: self._run_task(task, log) for task in tasks}
        table = [["task", "method", "success", *show.columns]]
        for task, by_method in episodes.items():
            table += [_row(show, task, name, episode) for name, episode in by_method.items()]
        runs = [episode for by_method in episodes.values() for episode in by_method.values()]
        latencies_s = [run.result.summary["latency_p95_s"] for run in runs]
        late_share = max(run.result.summary["stalls"] / max(run.record.num_ticks, 1) for run in runs)
        sentence = (
            too_slow(latencies_s, delay_s=self.delay_ms / 1000.0, late_share=late_share) or show.sentence
        )
        print(f"\n{textwrap.fill(sentence, 80)}\n")
        _print_table(table)
        media = [item for task in tasks for item in self._draw(output, task, episodes[task])]
        print(f"log:      {output / 'log.txt'}")
        if self.json is not None:
            keep_text(self.json, result_json(_figures(episodes), seeds=[self.seed]))
            print(f"figures:  {self.json}")
        self._write_page(output, sentence, table, media)
        for task, by_method in episodes.items():
            for name, episode in by_method.items():
                refuse_fault(episode.record, run=f"{task}, {name}")
        return 0

    def _check(self, tasks: Sequence[str]) -> None:
        """Raise InvalidValueError or others if a task or a method does not exist, or they do not fit."""
        from policies.correction import head_for
        from policies.load import load_policy
        from sim.tasks import make_task

        methods = [method_or_choice(name) for name in self._methods]
        for task in tasks:
            make_task(task)
        for task in tasks:
            can = load_policy(task).info.capabilities
            for method in methods:
                if isinstance(method, Method):
                    resolve_method(method, can, policy=task)
                    head_for(method, task, task=task)

    @property
    def _methods(self) -> tuple[str, str]:
        """Return the baseline, and the method shown beside it."""
        return self.baseline or SHOWS[self.show].baseline, self.method

    def _run_task(self, task: str, log: WarningSummary) -> "dict[str, Episode]":
        """Run each method in turn; print warnings of a run below its bar."""
        from robot_runtime.server.process import ServerProcess

        print(f"{task}: each answer of the server comes {self.delay_ms:g} ms late", flush=True)
        with ServerProcess(task, delay_ms=self.delay_ms) as server:
            return dict(self._run(task, name, server.address, log) for name in self._methods)

    def _run(self, task: str, name: str, server: str, log: WarningSummary) -> "tuple[str, Episode]":
        """Run a task once; return the run's label and the run."""
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        from robot_runtime.cli.console import plain_console
        from sim.episodes.report import SNAPSHOT_PERIOD_NS
        from sim.episodes.run_episode import run_real_time

        method, duration_s = method_or_choice(name), self.duration_s or SHOWS[self.show].duration_s
        columns = (TextColumn("  {task.description:<24}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=plain_console(), refresh_per_second=2) as progress:
            watch = _ProgressWatch(progress, progress.add_task(name, total=duration_s))

            def on_ready(welcome: "Welcome") -> None:
                watch.name(_label(name, method, welcome.info.capabilities))

            episode = run_real_time(
                task,
                policy=server,
                method=method,
                seed=self.seed,
                duration_s=duration_s,
                snapshot_period_ns=SNAPSHOT_PERIOD_NS,
                keep_ticks=None,
                on_ready=on_ready,
                on_tick=watch.on_tick,
            )
        for line in log.take():
            print(textwrap.fill(line, 80, initial_indent="    ", subsequent_indent="    "))
        return watch.label, episode

    def _draw(self, output: Path, task: str, episodes: "dict[str, Episode]") -> list[tuple[str, str]]:
        """Draw videos and plots of one task; return (file name, caption) pairs."""
        from policies.load import load_policy
        from sim.episodes.plots import plot_chunk_timelines
        from sim.episodes.report import write_side_by_side
        from sim.scene.render import RenderingUnavailableError

        media = []
        video = output / f"{task}.mp4"
        try:
            write_side_by_side(video, task, episodes, insets=SHOWS[self.show].insets)
            left, right = episodes
            media.append((video.name, f"{task}: {left} on the left, {right} on the right."))
            print(f"video:    {video}")
        except RenderingUnavailableError as error:
            print(f"no video: {error}")
        picture = output / f"{task}-timeline.png"
        spec = load_policy(task).info.action_spec
        plot_chunk_timelines(episodes, dt_ns=spec.dt_ns, horizon=spec.horizon, path=picture)
        print(f"timeline: {picture}")
        caption = f"{task}: every chunk from the capture of its observation, and its commands."
        return [*media, (picture.name, caption)]

    def _write_page(
        self, output: Path, sentence: str, table: list[list[str]], media: list[tuple[str, str]]
    ) -> None:
        from sim.episodes.report import write_html

        page = output / "index.html"
        write_html(
            page,
            title="robot-runtime demo",
            introduction=(
                f"The same flow policy, the same scene, {self.delay_ms:g} ms of injected latency. {sentence}"
            ),
            table=table,
            media=media,
        )
        print(f"page:     {page}")


def _shipped_tasks(show: str) -> tuple[str, ...]:
    """Return the default tasks of a demo; an installed wheel lacks the weights of some."""
    from policies.shipped import shipped_checkpoints

    tasks = SHOWS[show].tasks
    if left_out := sorted(set(tasks) - set(shipped_checkpoints())):
        print(f"{', '.join(left_out)}: left out, the weights are in the repository only")
    return tuple(task for task in tasks if task not in left_out)


def too_slow(latencies_s: Iterable[float], *, delay_s: float, late_share: float = 0.0) -> str:
    """Return a warning if answers or ticks were so late that the runs do not compare the methods; else empty.

    latencies_s: 0.95 quantile of each run. delay_s: delay that the server adds to each answer. late_share:
    largest share of ticks that came half a control period late or more.
    """
    late_s = max(latencies_s)
    if late_share > MAX_LATE_TICKS:
        return (
            "This machine did not keep up, so the table does not compare the methods: the physics of the "
            f"simulated robot held up {100 * late_share:.0f} % of the control loop's ticks. Close other "
            "programs and run the demo again, or use eval, whose time is virtual."
        )
    if late_s - delay_s <= MAX_OWN_LATENCY_S:
        return ""
    return (
        "This machine did not keep up, so the table does not compare the methods: 5 % of the answers took "
        f"{late_s:.2f} s or longer, of which the demo adds {delay_s:.2f} s. Close other programs and run "
        "the demo again."
    )


def _label(name: str, method: Method | Auto | Default, capabilities: Capabilities) -> str:
    """Return the label of a run; the default method gets its own name."""
    return default_for(method, capabilities).name if isinstance(method, Default) else name


class _ProgressWatch:
    """Names a progress bar, and moves it with the robot's time twice a second."""

    def __init__(self, progress: "Progress", bar: "TaskID") -> None:
        self._progress, self._bar = progress, bar
        self._start_ns: int | None = None
        self._next_ns = 0
        self.label = ""

    def name(self, label: str) -> None:
        """Set the run's label, once the server's policy is known."""
        self.label = label
        self._progress.update(self._bar, description=label)

    def on_tick(self, tick: "Tick") -> None:
        """Move the bar; the control loop calls it."""
        if self._start_ns is None:
            self._start_ns = tick.now_ns
        if tick.now_ns >= self._next_ns:
            self._next_ns = tick.now_ns + 500_000_000
            self._progress.update(self._bar, completed=(tick.now_ns - self._start_ns) / 1e9)


def _row(show: _Show, task: str, method: str, episode: "Episode") -> list[str]:
    figures = _episode_figures(episode)
    out = [task, method, "yes" if figures["success"] else "no"]
    for names, digits in show.columns.values():
        values = [figures.get(name) for name in names]
        out.append(" / ".join(f"{value:.{digits}f}" for value in values if value is not None) or "–")
    return out


def _episode_figures(episode: "Episode") -> dict:
    from robot_runtime.evaluation.statistics import summarise

    figures = summarise([episode.result])
    return {**figures, "completion_s": episode.result.score.completion_s}


def _figures(episodes: "dict[str, dict[str, Episode]]") -> dict:
    return {
        task: {
            method: {"figures": _episode_figures(episode), "result": asdict(episode.result)}
            for method, episode in by_method.items()
        }
        for task, by_method in episodes.items()
    }


def _print_table(table: list[list[str]]) -> None:
    """Print a table in 80 columns; a heading wraps to the width of its column."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from robot_runtime.cli.console import plain_console

    head, *rows = table
    out = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, (title, *cells) in enumerate(zip(head, *rows, strict=True)):
        width = max(len(text) for text in (*cells, *title.split()))
        name = textwrap.fill(title, width, break_long_words=False)
        out.add_column(Text(name), no_wrap=True, justify="left" if i < 2 else "right")
    for row in rows:
        out.add_row(*row)
    plain_console().print(out)
