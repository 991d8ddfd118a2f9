"""`robot-runtime demo`: the same policy run synchronously and asynchronously, in real time, side by side."""

from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from robot_runtime.core.choose import method_or_auto
from robot_runtime.core.method import DEFAULT_METHOD

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from robot_runtime.core.executor import Tick
    from sim.evaluate import Episode

COLUMNS = ["task", "method", "success", "completion", "stalled", "reaction p50 / p95", "seam jump"]


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Watch a simulated Franka keep working while inference takes hundreds of milliseconds.

    Starts the server as its own process, runs each task in real time once synchronously and once
    asynchronously, and leaves a table, a video, plots and a page behind.
    """

    tasks: tuple[str, ...] = ("track", "pick_place")
    """What the robot does."""
    delay_ms: float = 300.0
    """Latency injected on top of the real one [ms]."""
    method: str = DEFAULT_METHOD
    """The asynchronous method; auto measures the server and picks one."""
    duration_s: float = 20.0
    """Time limit of each run [s]; a run whose task is done ends earlier."""
    seed: int = 10_000
    """Draws the scenes, and the noise of the policy."""
    output: Path = Path("outputs/demo")
    """Where to leave the results."""
    json: Path | None = None
    """Also write the figures to this file."""

    def main(self) -> int:
        from sim.tasks import make_task

        method_or_auto(self.method)
        for task in self.tasks:
            make_task(task)
        self.output.mkdir(parents=True, exist_ok=True)
        episodes = {task: self._run_task(task) for task in self.tasks}
        table = [COLUMNS]
        for task, by_method in episodes.items():
            table += [_row(task, name, episode) for name, episode in by_method.items()]
        _print_table(table)
        media = [item for task in self.tasks for item in self._draw(task, episodes[task])]
        self._write_page(table, media)
        if self.json is not None:
            self.json.write_text(dumps(_figures(episodes), indent=1))
            print(f"figures: {self.json}")
        return 0

    def _run_task(self, task: str) -> "dict[str, Episode]":
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        from robot_runtime.server.process import ServerProcess
        from sim.realtime import RealTimeConfig, run_real_time
        from sim.report import SNAPSHOT_PERIOD_NS

        out = {}
        print(f"{task}: starting the server, +{self.delay_ms:g} ms per answer")
        with ServerProcess(task, delay_ms=self.delay_ms) as server:
            for method in ("synchronous", self.method):
                config = RealTimeConfig(
                    task=task,
                    method=method_or_auto(method),
                    server=server.address,
                    seed=self.seed,
                    duration_s=self.duration_s,
                    snapshot_period_ns=SNAPSHOT_PERIOD_NS,
                )
                columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
                with Progress(*columns, refresh_per_second=2) as progress:
                    bar = progress.add_task(f"  {method}", total=self.duration_s)
                    watch = _ProgressWatch(progress, bar)
                    out[method] = run_real_time(
                        config,
                        on_tick=watch.on_tick,
                        on_measured=lambda line: progress.print(f"  {line}"),
                    )
        return out

    def _draw(self, task: str, episodes: "dict[str, Episode]") -> list[tuple[str, str]]:
        """Videos and pictures of one task, as (file name, caption)."""
        from policies.loading import load_policy
        from sim.plots import plot_chunk_timelines
        from sim.render import RenderingUnavailableError
        from sim.report import write_side_by_side

        media = []
        video = self.output / f"{task}.mp4"
        try:
            write_side_by_side(video, task, episodes)
            media.append((video.name, f"{task}: synchronous on the left, {self.method} on the right."))
            print(f"video: {video}")
        except RenderingUnavailableError as error:
            print(f"no video: {error}")
        picture = self.output / f"{task}-timeline.png"
        spec = load_policy(task).action_spec
        plot_chunk_timelines(episodes, dt_ns=spec.dt_ns, horizon=spec.horizon, path=picture)
        print(f"timeline: {picture}")
        caption = f"{task}: every chunk from the capture of its observation, and the commands it led to."
        return [*media, (picture.name, caption)]

    def _write_page(self, table: list[list[str]], media: list[tuple[str, str]]) -> None:
        from sim.report import write_html

        page = self.output / "index.html"
        write_html(
            page,
            title="robot-runtime demo",
            introduction=(
                f"The same flow policy, the same scene, {self.delay_ms:g} ms of injected latency. Run "
                "synchronously, the robot stands still while it waits; run asynchronously, it goes on."
            ),
            table=table,
            media=media,
        )
        print(f"page: {page}")


class _ProgressWatch:
    """Moves a progress bar with the robot's time, twice a second."""

    def __init__(self, progress: "Progress", bar: "TaskID") -> None:
        self._progress, self._bar = progress, bar
        self._start_ns: int | None = None
        self._next_ns = 0

    def on_tick(self, tick: "Tick") -> None:
        if self._start_ns is None:
            self._start_ns = tick.now_ns
        if tick.now_ns >= self._next_ns:
            self._next_ns = tick.now_ns + 500_000_000
            self._progress.update(self._bar, completed=(tick.now_ns - self._start_ns) / 1e9)


def _row(task: str, method: str, episode: "Episode") -> list[str]:
    figures = _episode_figures(episode)

    def show(key: str, unit: str, digits: int) -> str:
        value = figures[key]
        return "-" if value is None else f"{value:.{digits}f} {unit}"

    reaction_p50, reaction_p95 = show("reaction_p50_s", "s", 2), show("reaction_p95_s", "s", 2)
    return [
        task,
        method,
        "yes" if figures["success"] else "no",
        show("completion_s", "s", 1),
        show("stalled_s", "s", 1),
        "-" if figures["reaction_p50_s"] is None else f"{reaction_p50} / {reaction_p95}",
        show("seam_jump_max", "rad", 3),
    ]


def _episode_figures(episode: "Episode") -> dict:
    from sim.statistics import summarise

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
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    head, *rows = table
    out = Table(*head, box=SIMPLE_HEAD, pad_edge=False)  # 80 columns hold the names so
    for column in out.columns[:2]:
        column.no_wrap = True
    for row in rows:
        out.add_row(*row)
    Console().print(out)
