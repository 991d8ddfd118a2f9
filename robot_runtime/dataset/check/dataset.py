"""Runs all checks of a dataset, one after the other: `check_dataset`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from robot_runtime.dataset.check import numbers as of_numbers
from robot_runtime.dataset.check import whole
from robot_runtime.dataset.check.episode import Bounds, Numbers, Span, numbers_of, spans_of
from robot_runtime.dataset.check.finding import Finding, Report, Severity, Verdict
from robot_runtime.dataset.check.pictures import Track, Tracks, among_the_numbers, look, pictures
from robot_runtime.dataset.check.reach import Reach, reach
from robot_runtime.dataset.check.stale import stale
from robot_runtime.dataset.recording import ACTION, LEROBOT_COLUMNS, STATE
from robot_runtime.dataset.stored import NUMBERS, StoredDataset, StoredEpisode


@dataclass(frozen=True, eq=False)
class Robot:
    """Known properties of the robot that was recorded."""

    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    """Bounds by the names of its numbers."""
    reach: Mapping[str, Reach] = field(default_factory=dict)
    """Reach by arm."""


def check_dataset(
    dataset: StoredDataset,
    robot: Robot = Robot(),
    *,
    with_pictures: bool = True,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Report:
    """
    with_pictures: decode the videos and check their images; otherwise only the numbers are checked.
    progress: called with the steps done, and of all steps: an episode's numbers are one, and so are each
        camera's images of it.
    """
    done, total = 0, len(dataset.episodes) * (1 + len(dataset.cameras) * with_pictures)

    def step(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    read: dict[int, Numbers] = {}
    unread: dict[int, str] = {}
    for episode in dataset.episodes:
        found = _read(dataset, episode)
        if isinstance(found, Numbers):
            read[episode.index] = found
        else:
            unread[episode.index] = found
        step(1)
    spans = {column: spans_of([*read.values()], column) for column in (STATE, ACTION)}
    whole_ones = [episode for episode in dataset.episodes if episode.index in read]
    tracks = look(dataset, whole_ones, step) if with_pictures else {}
    checks = _Checks(dataset, robot, spans, tracks, with_pictures)
    found_in = {index: _listed(checks.episode(numbers)) for index, numbers in read.items()}
    found_in |= {index: [Finding("rows", Severity.UNUSABLE, text)] for index, text in unread.items()}
    _against_the_others(dataset, read, spans, found_in)
    verdicts = tuple(
        Verdict(
            episode=episode.index,
            length=episode.length,
            seconds=episode.length / dataset.fps,
            findings=tuple(found_in[episode.index]),
        )
        for episode in dataset.episodes
    )
    of_all = [
        *_listed(whole.indices(dataset)),
        *_listed(whole.columns(dataset)),
        *_listed(whole.stats(dataset, [*read.values()])),
        *_listed(whole.dead(spans)),
    ]
    return Report(findings=tuple(of_all), verdicts=verdicts, fps=dataset.fps)


def _listed(findings: Iterator[Finding]) -> list[Finding]:
    """All findings; an exception in a check is one, too."""
    out = list[Finding]()
    try:
        out.extend(findings)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        out.append(Finding("metadata", Severity.UNUSABLE, f"it cannot be checked: {what:.200}"))
    return out


def _read(dataset: StoredDataset, episode: StoredEpisode) -> Numbers | str:
    """The numbers of an episode, or why they cannot be read."""
    try:
        numbers = numbers_of(dataset, episode)
    except FileNotFoundError:
        return f"{episode.file('data')}.parquet is missing"
    except Exception as error:  # pyarrow raises many kinds for damaged bytes
        return f"{episode.file('data')}.parquet cannot be read: {error!s:.200}"
    if missing := sorted((LEROBOT_COLUMNS | set(dataset.numbers)) - numbers.columns.keys()):
        return f"its rows have no {', '.join(missing)}"
    if words := [name for name in dataset.numbers if numbers.columns[name].dtype.kind not in NUMBERS]:
        return f"its rows have no numbers in {', '.join(words)}"
    if not numbers.num_rows:
        return f"no rows, meta/episodes declares {episode.length}"
    return numbers


@dataclass(frozen=True, eq=False)
class _Checks:
    dataset: StoredDataset
    robot: Robot
    spans: Mapping[str, dict[str, Span]]
    tracks: Tracks
    with_pictures: bool

    def episode(self, numbers: Numbers) -> Iterator[Finding]:
        fps = self.dataset.fps
        yield from of_numbers.rows(numbers, self.dataset)
        yield from of_numbers.time(numbers, self.dataset)
        yield from of_numbers.finite(numbers)
        yield from of_numbers.trainable(numbers)
        yield from of_numbers.jumps(numbers, self.spans)
        yield from of_numbers.gripper(numbers, self.spans, fps)
        yield from of_numbers.dead(numbers, self.spans)
        yield from of_numbers.lag(numbers, fps)
        yield from of_numbers.limits(numbers, self.robot.bounds, fps)
        yield from reach(numbers, self.robot.reach)
        yield from stale(numbers, self.dataset.capture_fps)
        if self.with_pictures:
            state = self.spans[STATE]
            for camera in self.dataset.cameras:
                track = self.tracks.get((numbers.episode.index, camera), Track())
                yield from pictures(numbers, camera, track, self.dataset, state)
            for column in self.dataset.pictures:
                track = among_the_numbers(self.dataset, numbers.episode, column)
                yield from pictures(numbers, column, track, self.dataset, state)


def _against_the_others(
    dataset: StoredDataset,
    read: Mapping[int, Numbers],
    spans: Mapping[str, Mapping[str, Span]],
    found_in: Mapping[int, list[Finding]],
) -> None:
    """Add findings that need other episodes: another lag, a repeated episode, one far shorter."""
    fps = dataset.fps
    lags = {index: of_numbers.lag_frames(numbers, fps) for index, numbers in read.items()}
    for index, text in whole.others(lags, "frames from action to state", max(3.0, 0.15 * fps)).items():
        found_in[index].append(Finding("lag", Severity.DOUBTFUL, text))
    for index, text in whole.repeated(read).items():
        found_in[index].append(Finding("repeated", Severity.DOUBTFUL, text))
    lengths = {episode.index: float(episode.length) for episode in dataset.episodes}
    middle = sorted(lengths.values())[len(lengths) // 2] if lengths else 0.0
    for index, length in lengths.items():
        if length < 0.2 * middle and not any(each.check == "tiny" for each in found_in[index]):
            text = f"{length:.0f} frames, most episodes have {middle:.0f}"
            found_in[index].append(Finding("tiny", Severity.DOUBTFUL, text))
