"""`robot-runtime log export --dataset`: exports the trials of a run as episodes of a LeRobot dataset."""

from collections.abc import Sequence
from pathlib import Path

from robot_runtime.cli.options import need
from robot_runtime.cli.progress import advance, counted
from robot_runtime.commands.read_log import log_of
from robot_runtime.errors import InvalidValueError


def export_dataset(
    file: Path, folder: Path, *, fps: int | None, cameras: Sequence[str] | None, operator: str
) -> int:
    """Write the dataset and print the result for each trial; return the exit code."""
    need("lerobot", "av", extras=("lerobot",))
    from robot_runtime.dataset.from_log import from_log, natural_fps

    with log_of(file, needs_whole=False) as log, counted() as progress:
        rate = fps or natural_fps(log, cameras)
        bar = progress.add_task(f"export {file.name}", total=None)
        done = from_log(
            log, folder, fps=rate, cameras=cameras, operator=operator, progress=advance(progress, bar)
        )
    for each in done:
        if each.why:
            print(f"trial {each.trial}: left out, {each.why}")
            continue
        doubts = [f"{count} pictures of {name} twice" for name, count in each.num_repeated.items() if count]
        doubts += [f"{each.num_late} frames without a control step"] * bool(each.num_late)
        print(f"trial {each.trial}: {each.num_frames} frames" + "".join(f", {text}" for text in doubts))
    count = sum(not each.why for each in done)
    if not folder.exists():
        raise InvalidValueError(f"{file} has no trial that can be an episode: {folder} was not made")
    print(f"{folder}: {count} episodes of {len(done)} trials at {rate} frames a second")
    log.refuse_damage()
    return 0
