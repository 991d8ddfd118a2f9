"""`robot-runtime demo capture`: a person demonstrates without a robot, and a robot repeats the task."""

import shutil
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from robot_runtime.cli.options import OutputFolder, check_option, need
from robot_runtime.errors import InvalidValueError
from robot_runtime.results import keep_text, result_json
from sim.commands.demo_stages import Kept, Stages, kept_if_interrupted

if TYPE_CHECKING:
    from rich.progress import TaskID

    from calibration.labels.values import Labels
    from robot_runtime.evaluation.result import Episode
    from sim.capture.loop import Session
    from sim.capture.performance import Performance
    from sim.capture.retargeted import RetargetedDemonstration
    from sim.commands.demo import Demo
    from sim.scene.task import EpisodeScore

TASK, DEMONSTRATIONS = "wipe", 6
STAGES = 7
IMAGES = (96, 96)
"""Height and width of the cameras' images."""
STEPS, WIDTH, BATCH = 1000, 64, 32
"""Size of the training, small enough for two cores and a few minutes."""
_DEMONSTRATIONS, DATASET = "demonstrations", "dataset"
_CONTROL_PERIOD_NS = 10_000_000
SPLICE = "state-matching"
SETTLE_ROWS = 30
"""Rows for which the last label is held: fingers and cups need time to settle."""
SENTENCE = (
    "A simulated person wipes a counter with a hand-held gripper. A chest camera and a wrist camera record "
    "it, each with its own clock and odometry. Their recordings are anchored by a board that both saw, and "
    "labelled as motions of a base and of an end effector. A robot follows these labels open loop; and a "
    "small policy learns from the images of a few such demonstrations, and is tested at a counter that it "
    "has not seen."
)


def show_capture(demo: "Demo", output: Path) -> int:
    """Run the whole demo. InvalidValueError: an option does not apply to it."""
    for name in ("tasks", "baseline", "duration_s"):
        if getattr(demo, name) is not None:
            option = "--" + name.replace("_", "-")
            raise InvalidValueError(
                f"demo capture takes --seed, --delay-ms, --output and --json, not {option}"
            )
    need(
        *("av", "matplotlib", "mujoco", "torch", "scipy", "cv2", "lerobot"),
        extras=("sim", "policies", "calibration", "lerobot"),
    )
    from robot_runtime.cli.progress import counted

    check_option("--output", OutputFolder, output)
    output.mkdir(parents=True, exist_ok=True)
    kept = Kept(output)
    with kept_if_interrupted(output), counted(with_notes=True) as progress:
        stages = Stages(progress, STAGES)
        seeds = recorded(output / "session", range(DEMONSTRATIONS), kept, stages)
        session, labelled, without = _labelled(output, kept, stages)
        clip = _performance(output / "session", seeds[labelled[0].demonstration])
        score, blind = _carried_out(labelled[0], clip, stages)
        episode = _learned(demo, output, kept, stages)
        first = next(each for each in session.labels if each.demonstration == labelled[0].demonstration)
        media = _draw(output, clip, first, blind, episode, stages)
    table = [
        ["", "success", "done [s]"],
        ["the person", "yes" if clip.success else "no", f"{clip.duration_s:.1f}"],
        ["the robot, following the labels", *_cells(score)],
        [f"the robot with a policy, {demo.delay_ms:g} ms late", *_cells(episode.result.score)],
    ]
    counts = (
        f"{DEMONSTRATIONS} demonstrations were recorded, {len(seeds)} succeeded, and the policy has learned "
        f"from {len(labelled)}."
    )
    print(f"\n{textwrap.fill(SENTENCE, 80)}\n\n{counts}")
    for line in without:
        print(f"left out: {line}")
    print()
    for row in table:
        print(f"{row[0]:<44}{row[1]:>8}{row[2]:>10}")
    if demo.json is not None:
        keep_text(demo.json, result_json({"table": table}, seeds=[demo.seed]))
    from sim.episodes.report import write_html

    page = output / "index.html"
    write_html(
        page,
        title="robot-runtime demo capture",
        introduction=f"{SENTENCE} {counts}",
        table=table,
        media=media,
    )
    print(f"capture:  {output / 'session' / 'capture'}\ndataset:  {output / DATASET}\nreport:   {page}")
    return 0


def _cells(score: "EpisodeScore") -> list[str]:
    return [
        "yes" if score.success else "no",
        "–" if score.completion_s is None else f"{score.completion_s:.1f}",
    ]


def recorded(folder: Path, seeds: Sequence[int], kept: Kept, stages: Stages) -> list[int]:
    """Record demonstrations with imperfect devices into FOLDER/capture, unless they exist; return the seeds
    of those that succeeded, in order. An interrupted recording continues after the last one in
    FOLDER/demonstrations."""
    from sim.capture.session import performed_once, record_session

    bar = stages.begin("the person demonstrates", total=len(seeds))
    if (there := kept.get("session")) is not None and (folder / "capture").is_dir():
        stages.update(bar, len(seeds), len(seeds), "kept")
        stages.update(stages.begin("the cameras record it"), 1, 1, "kept")
        return list(there)
    if kept.get("demonstrations") is None:
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier demo
        kept.note("demonstrations", len(seeds))
    for half in ("capture", "truth"):
        shutil.rmtree(folder / half, ignore_errors=True)
    num_kept = len(list((folder / _DEMONSTRATIONS).glob("*.npz")))
    done: list[Performance] = []
    drawing: list[TaskID] = []

    def on_demonstration(clip: "Performance") -> None:
        done.append(clip)
        stages.update(bar, len(done), len(seeds), f"{num_kept} kept" if num_kept else "")
        if len(done) == len(seeds):
            drawing.append(stages.begin("the cameras record it"))

    record_session(
        TASK,
        seeds,
        folder,
        image_size=IMAGES,
        demonstrate=partial(performed_once, folder / _DEMONSTRATIONS),
        on_demonstration=on_demonstration,
        on_image=lambda: stages.advance(drawing[0]),
    )
    stages.update(drawing[0], 1, 1)
    good = [clip.seed for clip in done if clip.success]
    if not good:
        raise InvalidValueError("none of the demonstrations succeeded")
    kept.note("session", good)
    return good


def _labelled(
    output: Path, kept: Kept, stages: Stages
) -> "tuple[Session, list[RetargetedDemonstration], list[str]]":
    """Write the dataset of labels, unless it exists; return the session, its demonstrations retargeted to a
    robot, and why some are left out."""
    from calibration.commands.capture.reach import on_robot
    from calibration.labels.export_lerobot import Labelled, export_lerobot
    from sim.capture.loop import labelled, retargeted_of
    from sim.capture.robot import of_task

    bar = stages.begin("cameras joined by the board, labels made")
    session = labelled(TASK, output / "session")
    done, why = retargeted_of([session], kind="decoupled", with_things=False)
    if not done:
        raise InvalidValueError("none of the demonstrations can be learned from: " + "; ".join(why))
    if not kept.get("dataset"):
        shutil.rmtree(output / DATASET, ignore_errors=True)
        target, joined = of_task(TASK), session.joined
        assert joined is not None, "of a session that was just labelled"
        every = on_robot([Labelled(labels=each, joined=joined) for each in session.labels], target)
        export_lerobot(every, output / DATASET, robot_type=target.name)
        kept.note("dataset", len(every))
    stages.update(bar, len(done), len(done))
    return session, done, why


def _performance(folder: Path, seed: int) -> "Performance":
    """Return the demonstration to show; delete the others, which are not needed any more."""
    from sim.capture.person import person_of
    from sim.capture.session import performed_once

    clip = performed_once(folder / _DEMONSTRATIONS, TASK, seed, person=person_of(seed // 100), film=True)
    for path in (folder / _DEMONSTRATIONS).glob("*.npz"):
        if path.stem != f"{TASK}-{seed}":
            path.unlink()
    return clip


def _carried_out(
    first: "RetargetedDemonstration", clip: "Performance", stages: Stages
) -> "tuple[EpisodeScore, list]":
    """Drive the robot with physics along the first demonstration, open loop, in the same rooms.

    Returns its score and a snapshot of the world for every row. The robot's odometry, with its errors, counts
    from the person's start, as the rows do.
    """
    from itertools import pairwise

    import mujoco
    import numpy as np

    from robot_runtime.core.values.transforms import compose_planar, inverse_planar
    from sim.capture.samples import led_rows
    from sim.demonstrations.rollout_robot import execute_row, robot_rollout
    from sim.scene.kinematics import solve_down
    from sim.scene.mobile_base import P_BA
    from sim.scene.world import World
    from sim.tasks import make_task

    bar = stages.begin("the robot follows the first labels")
    world, rows = World(make_task(first.task)), led_rows(first)
    world.reset(clip.seed)
    world.place_base(clip.x_WB[0])
    yaw = np.arctan2(rows[0, 7], rows[0, 6])
    world.place_robot(solve_down(rows[:1, 3:6] - P_BA, np.array([yaw]))[0], float(first.width[0]))
    mujoco.mj_forward(world.model, world.data)
    scorer, robot = world.task.make_scorer(world), robot_rollout(world)
    here, start = np.asarray(robot.observe()[0].state.x_WB), inverse_planar(rows[0, :3])
    moved = np.array([compose_planar(here, compose_planar(start, row)) for row in rows[:, :3]])
    rows = np.hstack([moved, rows[:, 3:]])
    rows = np.vstack([rows, np.tile(rows[-1], (SETTLE_ROWS, 1))])
    trace: list = []
    for row, next_row in pairwise(rows):
        trace.append(world.snapshot())
        execute_row(robot, scorer, row, next_row)
        stages.update(bar, len(trace), len(rows) - 1)
        if scorer.is_done:
            break
    stages.update(bar, len(trace), len(trace))
    return scorer.score(), trace


def _learned(demo: "Demo", output: Path, kept: Kept, stages: Stages) -> "Episode":
    """Train a small policy on the dataset's images, unless it exists, and run it once in unseen rooms."""
    from policies.commands.train import Train
    from policies.load import load_policy
    from robot_runtime.core.method.table import METHODS
    from sim.episodes.evaluate import run_episode
    from sim.episodes.report import SNAPSHOT_PERIOD_NS

    bar = stages.begin("a small policy is trained", total=STEPS)
    folder = output / "policy"
    if not (kept.get("policy") and folder.is_dir()):
        shutil.rmtree(folder, ignore_errors=True)
        Train(dataset=(output / DATASET,), output=folder, steps=STEPS, width=WIDTH, batch_size=BATCH).main()
        kept.note("policy", {"steps": STEPS})
    stages.update(bar, STEPS, STEPS)
    bar = stages.begin("the policy is run in other rooms")
    policy = load_policy(str(folder))
    episode = run_episode(
        policy,
        task_name=TASK,
        method=METHODS[SPLICE],
        seed=demo.seed,
        delay_ns=round(demo.delay_ms * 1e6),
        control_period_ns=_CONTROL_PERIOD_NS,
        snapshot_period_ns=SNAPSHOT_PERIOD_NS,
    )
    stages.update(bar, 1, 1)
    return episode


def _draw(
    output: Path,
    clip: "Performance",
    labels: "Labels",
    blind: list,
    episode: "Episode",
    stages: Stages,
) -> list[tuple[str, str]]:
    """Draw the videos and the plot of the labels; return (file name, caption) pairs."""
    from sim.capture.film import frames, num_frames, plot_labels
    from sim.episodes import report
    from sim.scene.render import Renderer, RenderingUnavailableError, write_video
    from sim.scene.world import World
    from sim.tasks import make_task

    plot_labels(labels, clip, output / "labels.png")
    media = [("labels.png", "Labels of the first demonstration from its capture, and the ground truth.")]
    total = num_frames([clip]) + len(blind) + report.num_frames([episode])
    bar = stages.begin("videos are drawn", total=total)

    def on_frame() -> None:
        stages.advance(bar)

    try:
        write_video(output / "person.mp4", report.each_told(frames([clip]), on_frame))
        with Renderer(World(make_task(TASK)).model, size=(360, 480)) as renderer:
            pictures = (renderer.render(each, "overview").copy() for each in blind)
            write_video(output / "led.mp4", report.each_told(pictures, on_frame), rate_hz=20)
        report.write_side_by_side(
            output / "policy.mp4", TASK, {SPLICE: episode}, insets=("chest", "wrist"), on_frame=on_frame
        )
    except RenderingUnavailableError as error:
        print(f"no videos: {error}")
        return media
    return [
        ("person.mp4", "The person, and the view of the chest camera."),
        *media,
        ("led.mp4", "The robot following the labels, in the same rooms."),
        ("policy.mp4", "The robot with a policy that learned from the demonstrations, in other rooms."),
    ]
