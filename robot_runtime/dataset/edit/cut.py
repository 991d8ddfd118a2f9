"""Cuts one episode out of a dataset, for another: `cut_episode`.

Its images are copied, packet by packet, and not encoded again, unless another encoder left no position to
cut.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from robot_runtime.dataset.staged_episode import StagedEpisode
from robot_runtime.dataset.stored import StoredDataset, StoredEpisode
from robot_runtime.errors import InvalidValueError


def cut_episode(dataset: StoredDataset, episode: StoredEpisode, place: Path) -> StagedEpisode:
    """
    place: an empty folder for its videos, on the disk of the target dataset.
    InvalidValueError, RecordingFailedError: it is damaged.
    """
    import pyarrow as pa

    data = dataset.table(episode)
    if data.num_rows != episode.length:
        raise InvalidValueError(
            f"episode {episode.index} of {dataset.root} has {data.num_rows} rows, meta/episodes declares "
            f"{episode.length}: see robot-runtime dataset check"
        )
    used, own = np.unique(data["task_index"].to_numpy(), return_inverse=True)
    if unknown := [int(i) for i in used if int(i) not in dataset.tasks]:
        raise InvalidValueError(f"task {unknown[0]} of episode {episode.index} is in no meta/tasks.parquet")
    i = data.schema.get_field_index("task_index")
    field = data.schema.field(i)
    data = data.set_column(i, field, pa.array(own, type=field.type))
    row, videos = dataset.row(episode), {}
    for number, camera in enumerate(dataset.cameras):
        videos[f"videos/{camera}"] = path = place / f"{number}.mp4"
        start_s, _ = episode.span_s(camera)
        copy_pictures(dataset.video(episode, camera), path, start_s, episode.length, dataset.fps)
        span = {"from_timestamp": 0.0, "to_timestamp": episode.length / dataset.fps}
        for name, value in span.items():
            i = row.schema.get_field_index(f"videos/{camera}/{name}")
            field = row.schema.field(i)
            row = row.set_column(i, field, pa.array([value], type=field.type))
    tasks = [dataset.tasks[int(i)] for i in used]
    return StagedEpisode(info=dataset.info, data=data, episode=row, tasks=tasks, videos=videos)


def copy_pictures(source: Path, target: Path, start_s: float, num: int, fps: float) -> bool:
    """Copy `num` images of a video from `start_s` on into a video of their own; whether the bytes are the
    same: False if they were encoded again. InvalidValueError: images are missing."""
    import av

    try:
        with av.open(str(source)) as file:
            stream = file.streams.video[0]
            times = [
                (float(packet.pts * packet.time_base), packet.is_keyframe)
                for packet in file.demux(stream)
                if packet.pts is not None
            ]
        half = 0.5 / fps
        inside = [i for i, (t_s, _) in enumerate(times) if start_s - half <= t_s < start_s + num / fps - half]
        if len(inside) != num:
            raise InvalidValueError(f"{source} has {len(inside)} images for {num} frames")
        if num == len(times):
            shutil.copyfile(source, target)
            return True
        first, last = inside[0], inside[-1]
        is_alone = inside == [*range(first, last + 1)] and times[first][1]
        is_alone = is_alone and all(t_s >= times[first][0] for t_s, _ in times[first : last + 1])
        (_copy_packets if is_alone else _encode_again)(source, target, set(inside), fps)
        return is_alone
    except av.error.FFmpegError as error:
        raise InvalidValueError(f"{source} cannot be read: {error}") from error


def _copy_packets(source: Path, target: Path, inside: set[int], fps: float) -> None:
    import av

    with av.open(str(source)) as file, av.open(str(target), "w") as out:
        stream = file.streams.video[0]
        copied = out.add_stream_from_template(stream, opaque=True)  # AV1 is decoded by another codec
        start: int | None = None
        number = 0
        for packet in file.demux(stream):
            if packet.pts is None:
                continue
            if number in inside:
                start = packet.pts if start is None else start
                packet.pts -= start
                packet.dts = None if packet.dts is None else packet.dts - start
                packet.stream = copied
                out.mux(packet)
            number += 1


def _encode_again(source: Path, target: Path, inside: set[int], fps: float) -> None:
    """Encode again images that depend on others which are left out."""
    import av

    from robot_runtime.dataset.video import VideoWriter

    with av.open(str(source)) as file:
        stream = file.streams.video[0]
        times = [float(p.pts * p.time_base) for p in file.demux(stream) if p.pts is not None]
        low, high = (pick(times[i] for i in inside) for pick in (min, max))
        file.seek(0)
        with VideoWriter(target, round(fps), (stream.height, stream.width)) as writer:
            for frame in file.decode(stream):
                if low - 1e-6 <= _seconds(frame) <= high + 1e-6:
                    writer.add(frame)


def _seconds(frame: Any) -> float:
    return float(frame.pts * frame.time_base)
