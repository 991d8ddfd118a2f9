"""Checks of a dataset's images: decoded, counted, and compared with those before them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robot_runtime.dataset.check.episode import Numbers, Span
from robot_runtime.dataset.check.finding import Finding, Severity
from robot_runtime.dataset.check.stale import longest_run
from robot_runtime.dataset.recording import STATE, camera_of
from robot_runtime.dataset.stored import StoredDataset, StoredEpisode

UNCHANGED, ALIKE = 0.35, 2.0
"""Maximum difference of grey levels (of 256) between repeats of one image: half of the mean differences from
one to the next are smaller, and no block is farther from the first. An encoder makes small differences out of
nothing, anew at every keyframe; the noise of a live camera is larger, and motion adds up."""
BLOCKS = 16
"""Number of blocks of an image, in each direction."""
FROZEN_S, LOOK_S = 1.0, 0.3
"""Duration of an unchanged image while the robot moves that is wrong; that is doubtful."""
MOVES = 0.03
"""Share of a number's span that the robot moves meanwhile."""
PLAIN = 2.0
"""Standard deviation of an image that shows nothing [grey levels]."""


@dataclass(eq=False)
class Track:
    """The images of one camera in one episode."""

    times_s: list[float] = field(default_factory=list)
    """Times from the episode's start."""
    changes: list[float] = field(default_factory=list)
    """Mean difference of each image from the one before it; one fewer than there are images."""
    blocks: list[np.ndarray] = field(default_factory=list)
    """The mean brightness of each block of each image."""
    contrasts: list[float] = field(default_factory=list)
    """Standard deviation of each."""
    error: str = ""
    last: np.ndarray | None = None

    def add(self, grey: np.ndarray, t_s: float) -> None:
        self.times_s.append(t_s)
        self.contrasts.append(float(grey[::4, ::4].std()))
        self.blocks.append(_blocks(grey))
        if self.last is not None and self.last.shape == grey.shape:
            self.changes.append(float(np.abs(grey.astype(np.int16) - self.last).mean()))
        elif self.last is not None:
            self.changes.append(np.inf)
        self.last = grey


_GREY_FIRST = {"yuv420p", "yuvj420p", "yuv422p", "yuvj422p", "yuv444p", "yuvj444p", "nv12", "gray"}
"""ffmpeg's formats whose first plane has a byte of brightness for each pixel."""
Tracks = dict[tuple[int, str], Track]


def look(
    dataset: StoredDataset, episodes: Sequence[StoredEpisode], progress: Callable[[int], object]
) -> Tracks:
    """Decode every image of the episodes, once.

    progress: called with the number of episodes whose images of a camera are done.
    """
    out: Tracks = {}
    for camera in dataset.cameras:
        files: dict[Any, list[StoredEpisode]] = {}
        for episode in episodes:
            files.setdefault(dataset.video(episode, camera), []).append(episode)
        for path, inside in files.items():
            tracks = {episode.index: Track() for episode in inside}
            try:
                _decode(path, camera, inside, tracks, dataset.fps)
            except Exception as error:  # PyAV has one for every error of ffmpeg
                fault = "is missing" if not path.is_file() else f"cannot be decoded: {error}"
                for track in tracks.values():
                    track.error = f"{path.relative_to(dataset.root)} {fault:.200}"
            for index, track in tracks.items():
                out[index, camera] = track
            progress(len(inside))
    return out


def _decode(
    path: Any, camera: str, inside: Sequence[StoredEpisode], tracks: dict[int, Track], fps: float
) -> None:
    import av

    spans = sorted((episode.span_s(camera), episode.index) for episode in inside)
    at, half = 0, 0.5 / fps
    with av.open(str(path)) as file:
        stream = file.streams.video[0]
        stream.thread_type = "AUTO"
        for frame in file.decode(stream):
            if frame.pts is None or frame.time_base is None:
                raise ValueError("an image has no time")
            t_s = float(frame.pts * frame.time_base)
            while at + 1 < len(spans) and t_s >= spans[at + 1][0][0] - half:
                at += 1
            (start_s, end_s), index = spans[at]
            if start_s - half <= t_s < end_s - half:
                tracks[index].add(_grey(frame), t_s - start_s)


def _grey(frame: Any) -> np.ndarray:
    """The brightness of an image (h, w), uint8, without conversion if it is a plane of its own."""
    if frame.format.name in _GREY_FIRST:
        plane = frame.planes[0]
        rows = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
        return rows[:, : frame.width].copy()
    grey: np.ndarray = frame.to_ndarray(format="gray")
    return grey


def among_the_numbers(dataset: StoredDataset, episode: StoredEpisode, column: str) -> Track:
    """Images that are stored among the numbers: their bytes show whether they change."""
    track, last = Track(), None
    for k, each in enumerate(dataset.table(episode)[column].to_pylist()):
        content = each.get("bytes") if isinstance(each, dict) else each
        track.times_s.append(k / dataset.fps)
        is_same = content == last and content is not None
        if k:
            track.changes.append(0.0 if is_same else np.inf)
        track.blocks.append(track.blocks[-1] if is_same else np.full(1, 10.0 * k))
        last = content
    return track


def pictures(
    numbers: Numbers, camera: str, track: Track, dataset: StoredDataset, spans: dict[str, Span]
) -> Iterator[Finding]:
    """As many images as rows, on the grid, showing something, and changing while the robot moves."""
    name, fps = camera_of(camera), dataset.fps
    if track.error:
        yield Finding("pictures", Severity.UNUSABLE, track.error)
        return
    num = len(track.times_s)
    if num != numbers.num_rows:
        text = f"camera {name} has {num} images for {numbers.num_rows} rows"
        yield Finding("pictures", Severity.UNUSABLE, text)
        return
    off = np.abs(np.array(track.times_s) - np.arange(num) / fps)
    if num and off.max() > 1e-3:
        text = f"image {int(off.argmax())} of camera {name} is {off.max():.3f} s off the grid"
        yield Finding("pictures", Severity.UNUSABLE, text)
    if track.contrasts and (share := float((np.array(track.contrasts) < PLAIN).mean())) > 0.1:
        text = f"camera {name} shows nothing in {share:.0%} of its images: all of one colour"
        yield Finding("plain", Severity.DOUBTFUL, text)
    yield from _frozen(numbers, name, _still(track), fps, spans)


def _frozen(
    numbers: Numbers, name: str, still: np.ndarray, fps: float, spans: dict[str, Span]
) -> Iterator[Finding]:
    """The longest run of unchanged images during which the robot moves.

    still: whether each image repeats the one before it.
    """
    moves = _moves(numbers, spans)
    if moves is not None:
        still = still & _near(moves, len(still), round(0.5 * fps))
    longest, at = longest_run(still)
    seconds = longest / fps
    if seconds >= LOOK_S and moves is not None:
        severity = Severity.UNUSABLE if seconds >= FROZEN_S else Severity.DOUBTFUL
        text = f"camera {name} is frozen for {seconds:.1f} s from frame {at} on, while the robot moves"
        yield Finding("frozen", severity, text)
    elif moves is None and len(still) and still.all():
        yield Finding("frozen", Severity.DOUBTFUL, f"camera {name} shows one image all the time")


def _still(track: Track) -> np.ndarray:
    """Whether each image repeats the one before it; one fewer than there are images."""
    changes, out, start = np.array(track.changes), np.zeros(len(track.changes), bool), 0
    for k in range(1, len(track.blocks) + 1):
        is_over = k == len(track.blocks) or np.abs(track.blocks[k] - track.blocks[start]).max() > ALIKE
        if is_over:
            if k - start > 1 and np.median(changes[start : k - 1]) < UNCHANGED:
                out[start : k - 1] = True
            start = k
    return out


def _blocks(grey: np.ndarray) -> np.ndarray:
    h, w = (max(1, side // BLOCKS) for side in grey.shape)
    rows, columns = grey.shape[0] // h * h, grey.shape[1] // w * w
    out: np.ndarray = grey[:rows, :columns].reshape(rows // h, h, columns // w, w).mean((1, 3))
    return out


def _moves(numbers: Numbers, spans: dict[str, Span]) -> np.ndarray | None:
    """Speed of the robot from each frame to the next: the largest share of its span that a number moves."""
    shares = [
        np.abs(np.diff(np.nan_to_num(values))) / spans[name].size
        for name, values in numbers.series(STATE).items()
        if name in spans and spans[name].size > 1e-6 and not name.endswith(".velocity")
    ]
    return np.max(shares, axis=0) if shares else None


def _near(speeds: np.ndarray, num: int, around: int) -> np.ndarray:
    """Whether within this many frames of each a number moves by a share `MOVES`."""
    path = np.concatenate([[0.0], np.cumsum(speeds[:num])])
    k = np.arange(num)
    return path[np.minimum(k + around, num)] - path[np.maximum(k - around, 0)] > MOVES
