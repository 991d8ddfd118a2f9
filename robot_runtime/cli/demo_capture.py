"""`robot-runtime demo capture`: a person demonstrates without a robot, and a robot does as she did."""

import json
import shutil
import textwrap
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robot_runtime.cli.options import OutputFolder, check_option, need
from robot_runtime.errors import InvalidValueError
from robot_runtime.results import code, keep_text, result_json

if TYPE_CHECKING:
    from rich.progress import Progress

    from robot_runtime.cli.demo import Demo
    from robot_runtime.evaluation.result import Episode
    from sim.capture.loop import Session
    from sim.capture.performance import Performance
    from sim.capture.told import Told
    from sim.scene.task import EpisodeScore

TASK, DEMONSTRATIONS = "wipe", 6
STEPS, WIDTH = 1500, 64
"""Of the network: small, for two cores and a few minutes."""
SPLICE = "state-matching"
SENTENCE = (
    "A simulated person wipes a counter with a gripper in her hand. A camera at her chest and one at her "
    "wrist see it, each with a clock and an odometry of its own. What they recorded is anchored by a board "
    "that both looked at, and told as a base that drives and a hand in it. A robot is led along that, blind; "
    "and a small policy learns from a few such demonstrations and is tried at a counter new to it."
)


def show_capture(demo: "Demo", output: Path) -> int:
    """All of it, small. InvalidValueError: an option that means nothing here."""
    for name in ("tasks", "baseline", "duration_s"):
        if getattr(demo, name) is not None:
            option = "--" + name.replace("_", "-")
            raise InvalidValueError(
                f"demo capture takes --seed, --delay-ms, --output and --json, not {option}"
            )
    need("av", "matplotlib", "mujoco", "torch", "scipy", "cv2")
    from robot_runtime.cli.progress import counted

    check_option("--output", OutputFolder, output)
    output.mkdir(parents=True, exist_ok=True)
    kept = Kept(output)
    with counted(with_notes=True) as progress:
        clip = recorded(output / "session", range(DEMONSTRATIONS), kept, progress)
        session, told = _labelled(output / "session", progress)
        score, blind = _carried_out(told[0], clip, progress)
        episode = _learned(demo, output, told, kept, progress)
    table = [
        ["", "success", "done [s]"],
        ["the person", "yes" if clip.success else "no", f"{clip.duration_s:.1f}"],
        ["the robot, led along her labels", *_cells(score)],
        [f"the robot with a policy, {demo.delay_ms:g} ms late", *_cells(episode.result.score)],
    ]
    print(f"\n{textwrap.fill(SENTENCE, 80)}\n")
    for row in table:
        print(f"{row[0]:<44}{row[1]:>8}{row[2]:>10}")
    media = _draw(output, clip, session, told[0], blind, episode)
    if demo.json is not None:
        keep_text(demo.json, result_json({"table": table}, seeds=[demo.seed]))
    from sim.episodes.report import write_html

    page = output / "index.html"
    write_html(page, title="robot-runtime demo capture", introduction=SENTENCE, table=table, media=media)
    print(f"capture:  {output / 'session' / 'capture'}\nreport:   {page}")
    return 0


def _cells(score: "EpisodeScore") -> list[str]:
    return [
        "yes" if score.success else "no",
        "–" if score.completion_s is None else f"{score.completion_s:.1f}",
    ]


class Kept:
    """Which steps of a demo its folder holds already, in FOLDER/kept.json; none of another version's."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "kept.json"
        try:
            said = json.loads(self._path.read_text())
            self._steps = dict(said["steps"]) if said["version"] == self._version() else {}
        except (OSError, ValueError, KeyError, TypeError):
            self._steps = {}

    def get(self, step: str) -> Any:
        """What was noted of it; None: it is to be done."""
        return self._steps.get(step)

    def note(self, step: str, value: Any) -> None:
        """It is done; value: of JSON, not None."""
        self._steps[step] = value
        text = json.dumps({"version": self._version(), "steps": self._steps}, indent=1)
        keep_text(self._path, text + "\n")

    @staticmethod
    def _version() -> list[Any]:
        return [version("robot-runtime"), code()["commit"]]


def recorded(folder: Path, seeds: Sequence[int], kept: Kept, progress: "Progress") -> "Performance":
    """Her demonstrations, recorded by devices that err, in FOLDER/capture, unless they are there; the first
    that came off, as it truly was."""
    from sim.capture.loop import record_session
    from sim.capture.person import perform, person_of

    bar = progress.add_task("demonstrate and record", total=len(seeds) + 1, note="")
    if (there := kept.get("session")) is not None and (folder / "capture").is_dir():
        clip = perform(TASK, there["seed"], person=person_of(seeds[0] // 100), film=True)
        progress.update(bar, completed=len(seeds) + 1, note="kept")
        return clip
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier demo, or one that was interrupted
    clips = record_session(
        TASK, seeds, folder, film=True, on_demonstration=lambda each: progress.advance(bar)
    )
    progress.advance(bar)
    good = [clip for clip in clips if clip.kind == "demonstration" and clip.success]
    if not good:
        raise InvalidValueError("none of the demonstrations came off")
    kept.note("session", {"seed": good[0].seed})
    return good[0]


def _labelled(folder: Path, progress: "Progress") -> "tuple[Session, list[Told]]":
    """What the session says, and that told of a robot."""
    from sim.capture.loop import labelled, told_of

    bar = progress.add_task("anchor and label", total=1, note="")
    session = labelled(TASK, folder)
    told, why = told_of([session], kind="decoupled")
    progress.advance(bar)
    for line in why:
        progress.print(f"left out: {line}")
    if not told:
        raise InvalidValueError("none of the demonstrations can be learned from")
    return session, told


def _carried_out(told: "Told", clip: "Performance", progress: "Progress") -> "tuple[EpisodeScore, list]":
    """The robot led along the first demonstration, in the same rooms."""
    from sim.capture.carry_out import carry_out

    bar = progress.add_task("carry out", total=1, note="")
    trace: list = []
    score = carry_out(told, clip.seed, clip.x_WB[0], trace=trace)
    progress.advance(bar)
    return score, trace


def _learned(
    demo: "Demo", output: Path, told: "Sequence[Told]", kept: Kept, progress: "Progress"
) -> "Episode":
    """A small policy of all demonstrations, trained unless it is there, run once in rooms nobody has seen."""
    from policies.flow.recipes import make_recipe
    from policies.flow.train import TrainConfig, train
    from policies.load import load_policy
    from robot_runtime.cli.progress import report_steps
    from robot_runtime.core.method.table import METHODS
    from sim.capture.loop import samples_of
    from sim.demonstrations.training_data import by_labels
    from sim.episodes.evaluate import run_episode
    from sim.episodes.report import SNAPSHOT_PERIOD_NS
    from sim.lab.cells import CONTROL_PERIOD_NS

    data = by_labels(TASK, samples_of(told), "base", joints=False)
    config = TrainConfig(recipe=make_recipe("prefix"), steps=STEPS, width=WIDTH, features=data.features)
    bar = progress.add_task("train", total=STEPS, note="")
    folder = output / "policy"
    if kept.get("policy") and folder.is_dir():
        progress.update(bar, completed=STEPS, note="kept")
    else:
        train(
            data.demonstrations,
            config,
            schema=data.schema,
            action_spec=data.spec,
            folder=folder,
            on_step=report_steps(progress, bar),
        )
        kept.note("policy", {"steps": STEPS})
    bar = progress.add_task("run", total=1, note="")
    episode = run_episode(
        load_policy(str(folder)),
        task_name=TASK,
        method=METHODS[SPLICE],
        seed=demo.seed,
        delay_ns=round(demo.delay_ms * 1e6),
        control_period_ns=CONTROL_PERIOD_NS,
        snapshot_period_ns=SNAPSHOT_PERIOD_NS,
    )
    progress.advance(bar)
    return episode


def _draw(
    output: Path,
    clip: "Performance",
    session: "Session",
    told: "Told",
    blind: list,
    episode: "Episode",
) -> list[tuple[str, str]]:
    """Videos and the picture of the labels, as (file name, caption)."""
    from sim.capture.film import film
    from sim.capture.plots import plot_labels
    from sim.episodes.report import write_side_by_side
    from sim.scene.render import Renderer, RenderingUnavailableError, write_video
    from sim.scene.world import World
    from sim.tasks import make_task

    plot_labels(session.labels[0], clip, output / "labels.png")
    media = [("labels.png", "Labels of the first demonstration by its capture, and what was true.")]
    try:
        film([clip], output / "person.mp4")
        with Renderer(World(make_task(TASK)).model, size=(360, 480)) as renderer:
            pictures = (renderer.render(each, "overview").copy() for each in blind)
            write_video(output / "led.mp4", pictures, rate_hz=20)
        write_side_by_side(output / "policy.mp4", TASK, {SPLICE: episode}, insets=("chest", "wrist"))
    except RenderingUnavailableError as error:
        print(f"no videos: {error}")
        return media
    return [
        ("person.mp4", "The person, and what her chest camera sees."),
        *media,
        ("led.mp4", "The robot led along her labels, in the same rooms."),
        ("policy.mp4", "The robot with a policy that learned from her demonstrations, in other rooms."),
    ]
