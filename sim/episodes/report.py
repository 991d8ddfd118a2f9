"""Reports of runs: a side-by-side video and a page of HTML."""

import html
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from PIL import Image as PilImage
from PIL import ImageDraw, ImageFont

from robot_runtime.core.safety import Mode
from robot_runtime.core.values.action import NS_PER_S, BasePoseCommand
from robot_runtime.evaluation.result import Episode
from sim.scene.render import Renderer, write_video
from sim.scene.world import World
from sim.tasks import make_task
from sim.tasks.household import BackwardTravel

VIDEO_HZ = 25
SNAPSHOT_PERIOD_NS = NS_PER_S // VIDEO_HZ
FRAME_SIZE = (360, 480)
INSET_SIZE = (112, 112)
_HELD, _RUNS = (209, 73, 91), (42, 111, 151)


def write_side_by_side(
    path: Path,
    task_name: str,
    episodes: Mapping[str, Episode],
    *,
    insets: tuple[str, ...] = (),
    on_frame: Callable[[], object] = lambda: None,
) -> None:
    """Write runs side by side into one mp4, each with name, clock and a red bar while the robot holds.

    For a mobile robot, also show its base's backtracking so far. insets: cameras whose views are shown in the
    corner. on_frame: called for each frame. RenderingUnavailableError: this machine cannot render.
    """
    model = World(make_task(task_name)).model
    with Renderer(model, size=FRAME_SIZE) as renderer, Renderer(model, size=INSET_SIZE) as small:
        strips = [_frames(renderer, small, name, episode, insets) for name, episode in episodes.items()]
        write_video(path, each_told(_side_by_side(strips), on_frame), rate_hz=VIDEO_HZ)


def num_frames(episodes: Iterable[Episode]) -> int:
    """The number of frames of the video by `write_side_by_side`."""
    return max(len(each.snapshots) for each in episodes) + 1 + VIDEO_HZ


def each_told(frames: Iterable[np.ndarray], on_frame: Callable[[], object]) -> Iterator[np.ndarray]:
    """Yield the same frames and call `on_frame` after each."""
    for frame in frames:
        yield frame
        on_frame()


def _frames(
    renderer: Renderer, small: Renderer, name: str, episode: Episode, insets: tuple[str, ...]
) -> Iterator[np.ndarray]:
    ticks, travel, done = list(episode.record.ticks), BackwardTravel(), 0
    times = np.array([tick.now_ns for tick in ticks]) - ticks[0].now_ns
    for i, snapshot in enumerate(episode.snapshots):
        now = min(int(np.searchsorted(times, i * SNAPSHOT_PERIOD_NS)), len(ticks) - 1)
        for tick in ticks[done : now + 1]:
            if isinstance(tick.command.base, BasePoseCommand):
                travel.on_tick(tick.now_ns, tick.command.base.x_WB)
        done, is_mobile = now + 1, isinstance(ticks[now].command.base, BasePoseCommand)
        text = f"   backtracking {travel.metres():.2f} m" if is_mobile else ""
        pixels = renderer.render(snapshot, "overview").copy()
        for k, camera in enumerate(insets):
            _put_inset(pixels, small.render(snapshot, camera), k, camera)
        is_held = ticks[now].mode is not Mode.RUN
        yield _labelled(pixels, f"{name}   {i / VIDEO_HZ:4.1f} s{text}", is_held=is_held)
    verdict = "done" if episode.result.score.success else "not done"
    yield _labelled(pixels, f"{name}   {verdict}{text}", is_held=False)


def _put_inset(pixels: np.ndarray, view: np.ndarray, k: int, camera: str) -> None:
    """Draw the k-th small view into a frame, from the lower left corner on."""
    image = PilImage.fromarray(view)
    ImageDraw.Draw(image).text((4, 2), camera, fill="white", font=ImageFont.load_default(12))
    height, width = INSET_SIZE
    left, top = 8 + k * (width + 8), pixels.shape[0] - height - 8
    pixels[top : top + height, left : left + width] = np.asarray(image)


def _labelled(pixels: np.ndarray, text: str, *, is_held: bool) -> np.ndarray:
    image = PilImage.fromarray(pixels)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, image.width, 26), fill=_HELD if is_held else _RUNS)
    draw.text((8, 4), text + ("   HOLD" if is_held else ""), fill="white", font=ImageFont.load_default(16))
    return np.asarray(image)


def _side_by_side(strips: list[Iterator[np.ndarray]]) -> Iterator[np.ndarray]:
    """Join frames side by side; a finished strip keeps its last frame, up to a second after the longest."""
    current: list[np.ndarray | None] = [None] * len(strips)
    num_extra = 0
    while num_extra < VIDEO_HZ:
        fresh = [next(strip, None) for strip in strips]
        current = [old if new is None else new for old, new in zip(current, fresh, strict=True)]
        num_extra += all(new is None for new in fresh)
        yield np.concatenate([frame for frame in current if frame is not None], axis=1)


def write_html(
    path: Path, *, title: str, introduction: str, table: list[list[str]], media: list[tuple[str, str]]
) -> None:
    """Write a page: a table whose first row is its head, and images and videos as (file name, caption)."""
    head, *body = table
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in body
    )
    figures = "".join(_figure(name, caption) for name, caption in media)
    path.write_text(
        f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<style>
 body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto;
        padding: 0 1.5rem; color: #1d2b36; }}
 table {{ border-collapse: collapse; margin: 1rem 0; }}
 th, td {{ padding: .35rem .8rem; text-align: right; border-bottom: 1px solid #d8e2ea; }}
 th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) {{ text-align: left; }}
 figure {{ margin: 2rem 0; }} video, img {{ max-width: 100%; }} figcaption {{ color: #50606c; }}
</style></head><body>
<h1>{html.escape(title)}</h1><p>{html.escape(introduction)}</p>
<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>
{figures}</body></html>
"""
    )


def _figure(name: str, caption: str) -> str:
    source = html.escape(name)
    if name.endswith(".mp4"):
        medium = f'<video src="{source}" controls autoplay muted loop></video>'
    else:
        medium = f'<img src="{source}" alt="{html.escape(caption)}">'
    return f"<figure>{medium}<figcaption>{html.escape(caption)}</figcaption></figure>"
