"""Records a simulated person's session with a simulated rig: `record_session`.

person ─► rig (clocks, odometry that drifts, corners, glimpses) ─► raw zone
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from sim.capture.performance import Performance, load_performance, save_performance
from sim.capture.person import Person, perform
from sim.capture.rig import NOISY, Noise, RigConfig
from sim.capture.session import simulate_session
from sim.capture.takes import Take
from sim.capture.visit import Demonstrate, visit
from sim.tasks import make_task


def record_session(
    task: str,
    seeds: Sequence[int],
    folder: Path,
    *,
    noise: Noise = NOISY,
    film: bool = False,
    demonstrate: Demonstrate = perform,
    on_demonstration: Callable[[Performance], None] = lambda performance: None,
) -> list[Performance]:
    """Record one person's demonstrations, seed by seed, into FOLDER/capture; returns all clips.

    demonstrate: makes a demonstration; `performed_once` caches them.
    """
    clips = visit(task, seeds, film=film, demonstrate=demonstrate, on_demonstration=on_demonstration)
    config = RigConfig(noise=noise, seed=int(seeds[0]), task=make_task(task).instruction)
    simulate_session([Take.of(clip) for clip in clips], config, folder)
    return clips


def performed_once(folder: Path, task: str, seed: int, *, person: Person, film: bool) -> Performance:
    """Like `perform`, cached in a folder.

    The caller makes sure that cached files match this code, this person and `film`.
    """
    path = folder / f"{task}-{seed}.npz"
    if (stored := load_performance(path)) is None:
        stored = perform(task, seed, person=person, film=film)
        save_performance(stored, path)
    return stored
