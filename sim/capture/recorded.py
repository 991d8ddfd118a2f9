"""A simulated person's session, recorded by a simulated rig: `record_session`.

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
    """One person's demonstrations, seed by seed, recorded into FOLDER/capture; returns all clips of it.

    demonstrate: what makes a demonstration: `performed_once` where they are kept.
    """
    clips = visit(task, seeds, film=film, demonstrate=demonstrate, on_demonstration=on_demonstration)
    config = RigConfig(noise=noise, seed=int(seeds[0]), task=make_task(task).instruction)
    simulate_session([Take.of(clip) for clip in clips], config, folder)
    return clips


def performed_once(folder: Path, task: str, seed: int, *, person: Person, film: bool) -> Performance:
    """As `perform`, kept in a folder: of one that is there already nothing is simulated again.

    Whoever keeps it says that it is of this code, this person and filmed as now.
    """
    path = folder / f"{task}-{seed}.npz"
    if (there := load_performance(path)) is None:
        there = perform(task, seed, person=person, film=film)
        save_performance(there, path)
    return there
