"""Exports the log of a run as episodes of a dataset: `from_log`.

    run.mcap     trial 0          trial 1     ...      one LeRobot episode for each trial worth keeping
    ─────────────├───────────────┤├──────────┤──────

Pauses and takeovers stay in, and are marked: see `run_columns`. An episode is in the dataset completely or
not at all; what was exported before is not exported again, so an interrupted export is simply repeated.
"""

import gc
import getpass
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from robot_runtime.core.journal import PartCame, Ticked
from robot_runtime.core.orders import EpisodeMark, SetTask, TakenOrder
from robot_runtime.core.values.action import NS_PER_S, RowTiming
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.dataset import run_columns as run
from robot_runtime.dataset.dataset_folder import DatasetFolder
from robot_runtime.dataset.pictures import Camera, Filmed
from robot_runtime.dataset.recording import CAPTURE, LEROBOT_COLUMNS, SCENE, Recording
from robot_runtime.dataset.sampled import Sampler, Step, grid_ns, newest_at
from robot_runtime.dataset.whole_episode import camera_column, whole_episode
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.config import MAX_PERIOD_NS
from robot_runtime.log.entries import Sent
from robot_runtime.log.reader import RunLog

SHORTEST = 2
"""Maximum number of frames of an episode."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The result for one trial."""

    trial: int
    """Number of the trial in the run."""
    num_frames: int
    """0: it was left out."""
    num_repeated: Mapping[str, int] = field(default_factory=dict)
    """By camera, frames that repeat the image of the previous frame."""
    num_late: int = 0
    """Frames without a control tick in the last period and a half."""
    why: str = ""
    """Why it was left out."""


def from_log(
    log: RunLog,
    folder: Path,
    *,
    fps: int,
    cameras: Sequence[str] | None = None,
    operator: str = "",
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[Exported]:
    """Add the trials of a run to a dataset, which is made if it does not exist; returns a result for each.

    State and action of frame k are those of the newest control tick at or before start + k / fps, the action
    as it was sent; an image is the newest captured by then. Trials marked as not worth keeping are left out.

    cameras: all that gave images, if None. operator: pseudonym of the person who drove.
    progress: called with the number of trials done, and of all trials.
    InvalidValueError: the log or the folder does not fit. RecordingFailedError, OSError: it cannot be
        written; the earlier episodes are in the dataset.
    """
    names = log.cameras if cameras is None else tuple(cameras)
    films = {name: Camera(name, iter(log.images(name))) for name in names}
    marks = log.episodes()
    if not marks:
        raise InvalidValueError(f"{log.path} has no control step: nothing happened in that run")
    about = _Run.of(log, fps, {name: film.size for name, film in films.items()}, operator)
    steps, out = about.steps(), list[Exported]()
    with _without_collecting(), DatasetFolder(folder, resume=folder.exists()) as target:
        about.refuse_other(target)
        done = {each for each in target.column("trial_key") if each is not None}
        ahead: Step | None = None
        for trial, mark in enumerate(marks):
            inside, ahead = _inside(steps, ahead, mark)
            key = about.key(trial, mark)
            if (why := _why_not(log, mark, is_done=key in done)) != "":
                out.append(Exported(trial=trial, num_frames=0, why=why))
            else:
                out.append(_export(about, target, films, trial, mark, inside, key))
            progress(trial + 1, len(marks))
    return out


def _why_not(log: RunLog, mark: EpisodeMark, *, is_done: bool) -> str:
    """Why a trial is left out; empty: it is not."""
    if is_done:
        return "in the dataset already"
    if not mark.keep:
        return "marked as not worth keeping"
    return "the log is damaged in it" if log.has_hole(mark.start_ns, mark.end_ns) else ""


def natural_fps(log: RunLog, cameras: Sequence[str] | None = None) -> int:
    """Frame rate of the slowest camera, so that hardly an image is repeated or skipped; 20 without a
    camera."""
    rates = []
    for name in log.cameras if cameras is None else cameras:
        times_ns = [each.t_ns for each in itertools.islice(log.images(name), 200)]
        if len(times_ns) > 1:
            rates.append(NS_PER_S / float(np.median(np.diff(times_ns))))
    return max(1, round(min(rates))) if rates else 20


def _export(
    about: "_Run",
    target: DatasetFolder,
    films: Mapping[str, Camera],
    trial: int,
    mark: EpisodeMark,
    inside: Sequence[Step],
    key: str,
) -> Exported:
    """Write one trial."""
    start_ns = max([mark.start_ns, *(step.tick.now_ns for step in inside[:1])])
    for name, film in films.items():
        first_ns = film.first_ns(start_ns)
        if first_ns is None or first_ns >= mark.end_ns:
            return Exported(trial=trial, num_frames=0, why=f"camera {name!r} gave no image in it")
        start_ns = max(start_ns, first_ns)
    end_ns = min(mark.end_ns, inside[-1].tick.now_ns + 1) if inside else start_ns
    if end_ns - start_ns > len(inside) * MAX_PERIOD_NS:
        why = f"it has {len(inside)} control ticks in {(end_ns - start_ns) / NS_PER_S:.0f} s"
        return Exported(trial=trial, num_frames=0, why=why)
    times_ns = grid_ns(start_ns, end_ns, about.recording.fps)
    if len(times_ns) < SHORTEST:
        return Exported(trial=trial, num_frames=0, why=f"it has {len(times_ns)} frames")
    place = target.staging()
    place.mkdir()
    with _filming(films, place, times_ns, about.recording.fps) as under_way:
        frames = about.sampler.frames(times_ns, [*newest_at(times_ns, iter(inside))])
        filmed = {name: each.result() for name, each in under_way.items()}
    columns = dict(frames.columns)
    for name, shown in filmed.items():
        columns[f"{CAPTURE}.{name}"] = np.array(shown.times_ns)[:, None]
        old = np.array(times_ns) - np.array(shown.times_ns) > NS_PER_S // 2
        columns[run.TRAINABLE] = columns[run.TRAINABLE] & ~old[:, None]
    episode = whole_episode(
        features=about.features,
        fps=about.recording.fps,
        robot_type=about.recording.robot_type,
        columns=columns,
        tasks=[about.task_at(t_ns) for t_ns in times_ns],
        videos={camera_column(name): film.video for name, film in filmed.items()},
        samples={camera_column(name): film.samples for name, film in filmed.items()},
        about=about.of_episode(trial, mark, columns, key),
    )
    target.take(episode, {})
    return Exported(
        trial=trial,
        num_frames=len(times_ns),
        num_repeated={name: film.num_repeated for name, film in filmed.items()},
        num_late=frames.num_late,
    )


@contextmanager
def _filming(
    films: Mapping[str, Camera], place: Path, times_ns: Sequence[int], fps: int
) -> Iterator[dict[str, Future[Filmed]]]:
    """Film all cameras at once: each decodes and encodes in ffmpeg, in a thread of its own."""
    from lerobot.datasets.compute_stats import sample_indices

    sampled = sample_indices(len(times_ns))
    with ThreadPoolExecutor(max(len(films), 1)) as threads:
        yield {
            name: threads.submit(film.film, place / f"{number}.mp4", times_ns, fps, sampled)
            for number, (name, film) in enumerate(films.items())
        }


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Pause cycle collection: the ticks of a run are a million small values without cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _inside(steps: Iterator[Step], ahead: Step | None, mark: EpisodeMark) -> tuple[list[Step], Step | None]:
    """The ticks of a trial, and the first one after it."""
    out: list[Step] = []
    step = next(steps, None) if ahead is None else ahead
    while step is not None and step.tick.now_ns < mark.end_ns:
        if step.tick.now_ns >= mark.start_ns:
            out.append(step)
        step = next(steps, None)
    return out, step


@dataclass(frozen=True, kw_only=True, eq=False)
class _Run:
    """What is common to all episodes of a run."""

    log: RunLog
    recording: Recording
    sampler: Sampler
    features: Mapping[str, Any]
    operator: str
    tasks: list[tuple[int, str]]
    """Start time of each task text [ns], as far as `steps` has come."""
    delay_rows: dict[int, int]
    """Request -> how many rows late its answer came, as far as `steps` has come."""

    @classmethod
    def of(cls, log: RunLog, fps: int, sizes: Mapping[str, tuple[int, int]], operator: str) -> "_Run":
        info = log.info
        schema = replace(info.schema, cameras=dict(sizes), environment_state_dim=0)
        recording = Recording(schema=schema, fps=fps, robot_type=info.robot, timing=RowTiming.REACHED)
        first = next(iter(log.ticks()), None)
        if first is None:
            raise InvalidValueError(f"{log.path} has no control step: nothing happened in that run")
        action_names = [*recording.commanded_numbers(first.tick.sent or first.tick.command)]
        parts = list(dict.fromkeys(f.part for f in info.policy.action_spec.fields))
        delays = dict[int, int]()
        measured = _Measured(recording)
        measured(first.state)  # its error describes what does not fit
        sampler = Sampler(
            fps=fps,
            parts=parts,
            action_names=action_names,
            measured=measured,
            commanded=recording.commanded_numbers,
            policy=info.policy.name,
            has_policy=info.has_policy,
            offset_ns=info.offset_ns,
            delay_rows=delays,
        )
        features = recording.features(action_names) | run.run_features(action_names, parts)
        return cls(
            log=log,
            recording=recording,
            sampler=sampler,
            features=features,
            operator=operator,
            tasks=[(info.started_ns, info.task)],
            delay_rows=delays,
        )

    def steps(self) -> Iterator[Step]:
        """All control ticks, once; notes on the way which task was set and how late answers came."""
        dt_ns, number, step = self.log.info.policy.action_spec.dt_ns, 0, None
        for entry in self.log.entries():
            match entry:
                case Ticked(state=state, tick=tick):
                    if step is not None:
                        yield step
                    step, number = Step(number, state, tick), number + 1
                case Sent(command=command) if step is not None:
                    step = replace(step, tick=replace(step.tick, sent=command))
                case PartCame(splice=splice) if splice is not None:
                    self.delay_rows[splice.source.request_id] = math.ceil(splice.latency_ns / dt_ns)
                case TakenOrder(order=SetTask(task=task), refused="", done_ns=done_ns):
                    self.tasks.append((done_ns, task))
        if step is not None:
            yield step

    def refuse_other(self, target: DatasetFolder) -> None:
        """InvalidValueError: the dataset in the folder has other columns, another rate or robot."""
        if target.info is None:
            return
        there = target.info["features"]
        if (target.info["fps"], target.info.get("robot_type")) != (
            self.recording.fps,
            self.recording.robot_type,
        ):
            raise InvalidValueError(
                f"{target.root} is of {target.info.get('robot_type')!r} at {target.info['fps']} frames a "
                f"second, the run of {self.recording.robot_type!r} at {self.recording.fps}"
            )
        for name in sorted((there.keys() ^ self.features.keys()) - LEROBOT_COLUMNS):
            side = "the run" if name in self.features else "the dataset"
            raise InvalidValueError(
                f"only {side} has a column {name!r}: the run cannot go into {target.root}"
            )
        for name, feature in self.features.items():
            has = there[name]
            for what in ("dtype", "names", "shape"):
                one, two = (list(v) if isinstance(v := each[what], tuple) else v for each in (feature, has))
                if one != two:
                    raise InvalidValueError(
                        f"column {name!r} has {what} {two} in {target.root}, {one} in the run: is it another "
                        "robot's?"
                    )

    def key(self, trial: int, mark: EpisodeMark) -> str:
        """A key that identifies a trial even if the log is renamed."""
        return f"{self.log.info.started_wall_ns}-{trial}-{mark.start_ns}"

    def task_at(self, t_ns: int) -> str:
        return next(
            text for at_ns, text in reversed(self.tasks) if at_ns <= t_ns or at_ns == self.tasks[0][0]
        )

    def of_episode(
        self, trial: int, mark: EpisodeMark, columns: Mapping[str, np.ndarray], key: str
    ) -> dict[str, Any]:
        """Metadata of an episode, for meta/episodes."""
        info, outcome = self.log.info, mark.outcome.value
        human = columns[run.IS_INTERVENTION].ravel() > 0
        after = np.flatnonzero(human)[-1:] + 1
        is_driven_on = bool(after.size) and bool((columns[run.AUTHORITY][int(after[0]) :] == 0).any())
        configuration = f"{info.method} {info.control_period_ns} {info.schema.to_dict()}"
        return {
            run.SUCCESS: run.success_of(outcome),
            run.OUTCOME: outcome,
            "outcome_source": "" if outcome == "unknown" else "sim" if info.is_virtual else mark.source,
            "outcome_confidence": 0.0 if outcome == "unknown" else 1.0,
            "outcome_tick": int(columns[run.TICK][-1, 0]),
            "max_frames": len(human),
            "num_interventions": int(columns[run.INTERVENTION].max()) + 1,
            "continue_after_release": is_driven_on,
            "goal": self.task_at(mark.start_ns),
            "task_id": info.task,
            "scene_seed": int(info.seed),
            "policy_id": info.policy.name,
            "policy_sha": info.policy.weights or info.policy_hash,
            "policy_version": 0,
            "method": info.method,
            "configuration_sha": hashlib.sha256(configuration.encode()).hexdigest(),
            "calibration_sha": "",
            "manager_mode": "",
            "operator": self.operator,
            "run_log": self.log.path.name,
            "trial": trial,
            "trial_key": key,
            "trial_start_ns": mark.start_ns,
            "trial_end_ns": mark.end_ns,
        }


@dataclass(frozen=True)
class _Measured:
    """Computes the columns of a state."""

    recording: Recording

    def __call__(self, state: RobotState) -> dict[str, np.ndarray]:
        numbers = self.recording.measured_numbers(Observation(state=state))
        named = self.recording.named.items()
        return {
            column: np.array([numbers[name] for name in names]) for column, names in named if column != SCENE
        }


def operator_name() -> str:
    """Pseudonym of the user who is logged in."""
    try:
        return hashlib.sha256(getpass.getuser().encode()).hexdigest()[:12]
    except (KeyError, OSError):
        return ""
