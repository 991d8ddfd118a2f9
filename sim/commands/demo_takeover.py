"""`robot-runtime demo takeover`: a policy fails, a scripted person corrects it, the policy continues."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from robot_runtime.cli.options import OutputFolder, check_option, need
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError
from robot_runtime.results import keep_text, result_json

if TYPE_CHECKING:
    from sim.commands.demo import Demo
    from sim.takeover.episode import Takeover

FPS = 20
"""Frames per second of the dataset."""
MODEL = "task:fetch"
PATIENCE_S = 15.0
"""Time in which a machine without a GPU draws the page [s]."""
_HEAD = ["", "success", "done [s]", "takeovers", "driven by person"]
ALONE, HELPED = "the policy alone", "with a person"
SENTENCE = (
    "The policy sees the cup nearer than it is, and its fingers close on nothing. The person watches for a "
    "while, takes over, grasps the cup, and hands back; the policy brings it to the other room."
)


def show_takeover(demo: "Demo", output: Path) -> int:
    """Run both episodes and write their results. InvalidValueError: an option does not apply to it."""
    _refuse_others(demo)
    need("matplotlib", "mujoco")
    check_option("--output", OutputFolder, output)
    output.mkdir(parents=True, exist_ok=True)
    runs = _run(demo.seed, output, demo.duration_s)
    table = [_HEAD, *(_row(*each) for each in runs.items())]
    _print(table)
    log = _newest_log(output)
    print(f"log:      {log}")
    media = [*_draw(output, runs), *_picture_of_page(log, output / "page.png", runs[HELPED])]
    _export(log, output / "dataset")
    if demo.json is not None:
        keep_text(demo.json, result_json(_figures(runs), seeds=[demo.seed]))
        print(f"figures:  {demo.json}")
    _write_page(output, table, media)
    return 0


def _refuse_others(demo: "Demo") -> None:
    for name in ("tasks", "baseline"):
        if getattr(demo, name) is not None:
            option = "--" + name.replace("_", "-")
            raise InvalidValueError(
                f"demo takeover takes --seed, --duration-s, --output and --json, not {option}"
            )


def _run(seed: int, output: Path, episode_s: float | None) -> "dict[str, Takeover]":
    """Run the same scene twice, under the virtual clock."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from robot_runtime.cli.console import plain_console
    from robot_runtime.log.config import LogConfig
    from sim.episodes.report import SNAPSHOT_PERIOD_NS
    from sim.episodes.task_env import TaskEnv
    from sim.takeover.episode import PERIOD_NS, bad_policy, run_takeover

    policy, out = bad_policy(), {}
    columns = (TextColumn("  {task.description:<24}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=plain_console(), refresh_per_second=2) as progress:
        for name, has_person in ((ALONE, False), (HELPED, True)):
            bar = progress.add_task(name, total=None)
            env = TaskEnv(
                "fetch",
                control_period_ns=PERIOD_NS,
                snapshot_period_ns=SNAPSHOT_PERIOD_NS,
                episode_s=episode_s,
            )
            log = LogConfig(folder=output / "runs") if has_person else None
            out[name] = run_takeover(policy, seed, has_person=has_person, env=env, log=log)
            progress.update(bar, total=1, completed=1)
    for line in (f"the person took over: {why}" for why in out[HELPED].reasons[: out[HELPED].num_takeovers]):
        print(f"    {line}")
    print(f"\n{textwrap.fill(SENTENCE, 80)}\n")
    return out


def _row(name: str, run: "Takeover") -> list[str]:
    done = run.episode.result.score.completion_s
    return [
        name,
        "yes" if run.success else "no",
        "–" if done is None else f"{done:.1f}",
        str(run.num_takeovers),
        f"{100 * run.human_share:.0f} %",
    ]


def _print(table: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        cells = (
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells))
    print()


def _newest_log(output: Path) -> Path:
    return max((output / "runs").glob("*.mcap"), key=lambda path: path.stat().st_mtime_ns)


def _export(path: Path, folder: Path) -> None:
    """Export the run as an episode of a LeRobot dataset, with columns on who drove each part."""
    try:
        need("pyarrow")
    except ModuleNotFoundError as error:
        print(f"no dataset: {error}")
        return
    import shutil

    from robot_runtime.dataset.from_log import from_log
    from robot_runtime.log.reader import RunLog

    shutil.rmtree(folder, ignore_errors=True)  # of an earlier demo: its log is another one
    [exported] = from_log(RunLog.open(path), folder, fps=FPS, operator="scripted person")
    print(f"dataset:  {folder}, {exported.num_frames} frames{exported.why}")


def _draw(output: Path, runs: "dict[str, Takeover]") -> list[tuple[str, str]]:
    from sim.episodes.report import write_side_by_side
    from sim.scene.render import RenderingUnavailableError
    from sim.takeover.plots import plot_takeover

    episodes = {name: run.episode for name, run in runs.items()}
    picture = output / "takeover.png"
    plot_takeover(episodes, picture)
    print(f"picture:  {picture}")
    media = [(picture.name, "Who drove, the commands, and what the policy asked for.")]
    try:
        need("av")
        video = output / "takeover.mp4"
        write_side_by_side(video, "fetch", episodes, insets=("chest", "wrist"))
        print(f"video:    {video}")
        media.insert(0, (video.name, f"{ALONE} on the left, {HELPED} on the right."))
    except (RenderingUnavailableError, ModuleNotFoundError) as error:
        print(f"no video: {error}")
    return media


def _picture_of_page(log: Path, picture: Path, run: "Takeover") -> list[tuple[str, str]]:
    """Take a picture of the live page during the takeover; empty without a page or a browser."""
    from robot_runtime.commands.page import recorded_page
    from robot_runtime.core.authority import Authority
    from robot_runtime.page.picture import NoBrowserError, picture_of

    ticks = run.episode.record.ticks
    human_ns = [tick.now_ns for tick in ticks if Authority.HUMAN in tick.authority.values()]
    at_s = (human_ns[len(human_ns) // 2] if human_ns else ticks[-1].now_ns) / NS_PER_S
    try:
        need("viser")
        with recorded_page(log, "127.0.0.1:0", MODEL) as url:
            picture_of(url, picture, at_s=at_s, wait_s=PATIENCE_S)
    except (NoBrowserError, ModuleNotFoundError) as error:
        print(f"no picture of the page: {error}")
        return []
    print(f"page:     {picture}, as it looked; robot-runtime page {log} --model {MODEL} shows all of it")
    return [(picture.name, f"The live page {at_s:.1f} s after the episode began.")]


def _figures(runs: "dict[str, Takeover]") -> dict:
    return {
        name: {
            "success": run.success,
            "completion_s": run.episode.result.score.completion_s,
            "takeovers": run.num_takeovers,
            "human_share": run.human_share,
            "reasons": list(run.reasons),
            "orders": [str(taken) for taken in run.episode.record.orders],
        }
        for name, run in runs.items()
    }


def _write_page(output: Path, table: list[list[str]], media: list[tuple[str, str]]) -> None:
    from sim.episodes.report import write_html

    page = output / "index.html"
    write_html(page, title="robot-runtime demo takeover", introduction=SENTENCE, table=table, media=media)
    print(f"report:   {page}")
