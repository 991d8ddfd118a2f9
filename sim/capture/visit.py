"""A session of one person: calibration, demonstrations, calibration again.

anchor  sync  lean  | demonstration | walk | demonstration | ... | sync  anchor
       walks between all of them, without jumps: devices record from the first to the last clip
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pinocchio as pin
from jaxtyping import Float

from sim.capture.clips import (
    BOARD_EDGES,
    anchor_clip,
    board_before,
    lean_clip,
    sync_clip,
    walk_between,
)
from sim.capture.performance import Performance
from sim.capture.person import Person, perform, person_of
from sim.capture.scene import PersonScene
from sim.tasks import make_task


class Demonstrate(Protocol):
    """`perform`, or a cache of it."""

    def __call__(self, task: str, seed: int, *, person: Person, film: bool) -> Performance: ...


def visit(
    task: str,
    seeds: Sequence[int],
    *,
    person: Person | None = None,
    anchor_every: int = 5,
    edges: tuple[float, float] = BOARD_EDGES,
    film: bool = False,
    demonstrate: Demonstrate = perform,
    on_demonstration: Callable[[Performance], None] = lambda performance: None,
) -> list[Performance]:
    """The clips of a session, in order; one demonstration for every seed, including failed ones.

    person: None: another one for every hundred seeds. anchor_every: view the board again after this many
    demonstrations. edges: of the board along its x and y [m]. film: keep snapshots for images.
    demonstrate: what makes a demonstration. ValueError: no seeds.
    """
    if not len(seeds):
        raise ValueError("expected at least one demonstration in a session, got no seeds")
    person = person_of(seeds[0] // 100) if person is None else person
    scene = PersonScene(make_task(task), board_half=(edges[0] / 2, edges[1] / 2))
    x = _start(scene, seeds)
    board = board_before(x, edges)

    def anchor(i: int) -> Performance:
        return anchor_clip(scene, person, 1000 * seeds[0] + i, x=list(x), board=board, edges=edges, film=film)

    clips = [anchor(0), sync_clip(scene, person, seeds[0], x=list(x), film=film)]
    clips.append(lean_clip(scene, person, seeds[0], x=list(x), film=film))
    for i, seed in enumerate(seeds):
        if i and i % anchor_every == 0:
            clips.append(anchor(i))
        clips.append(demonstrate(task, seed, person=person, film=film))
        on_demonstration(clips[-1])
    clips.append(sync_clip(scene, person, seeds[0] + 1, x=list(x), film=film))
    clips.append(anchor(len(seeds)))
    return _joined(scene, person, clips, film=film)


def _start(scene: PersonScene, seeds: Sequence[int]) -> Float[np.ndarray, "3"]:
    """The person's pose during calibration (x, y, yaw)."""
    scene.reset(seeds[0])
    return scene.x_WB.copy()


def _joined(
    scene: PersonScene, person: Person, clips: Sequence[Performance], *, film: bool
) -> list[Performance]:
    out = [clips[0]]
    for after in clips[1:]:
        if _differ(out[-1].X_WC[-1], after.X_WC[0]) or _differ(out[-1].X_WE[-1], after.X_WE[0]):
            out.append(walk_between(scene, person, out[-1], after, film=film))
        out.append(after)
    return out


def _differ(a: pin.SE3, b: pin.SE3) -> bool:
    return bool(np.linalg.norm(pin.log6(a.inverse() * b).vector) > 1e-6)
