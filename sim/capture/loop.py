"""From a recorded session to training samples, along the path that a collector's own data takes.

raw zone (`sim.capture.session`) ─► clocks, anchors, labels ─► retargeted to a robot ─► samples
                                                    `labelled`                            `learnable`
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from calibration.capture.raw import RawCapture
from calibration.labels.joined import Joined
from calibration.labels.label import label_capture
from calibration.labels.values import LabelConfig, Labels
from policies.flow.demonstrations import StoredDemonstration
from robot_runtime.core.values.transforms import compose_planar, inverse_planar
from robot_runtime.errors import InvalidValueError
from sim.capture.person import Person, perform, person_of
from sim.capture.retargeted import (
    Kind,
    RetargetedDemonstration,
    fit_offset,
    from_ground_truth,
    from_labels,
    in_world,
)
from sim.capture.samples import samples
from sim.tasks import make_task

BESIDE, OFF_PLAN, MISSED = 2, 1, 3
"""Extra copies of each frame displaced, and off its plan; and of frames around a grip with the end effector
beside it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Session:
    """The labels of one session's capture."""

    task: str
    labels: tuple[Labels, ...]
    without: tuple[str, ...] = ()
    """Demonstrations that could not be labelled, and why."""
    joined: Joined | None = None
    """What the labels were made from."""


def labelled(task: str, folder: Path, *, slower: float = 1.0) -> Session:
    """Label a recorded session. InvalidValueError: its capture cannot be used, and why.

    slower: the robot's duration divided by the person's.
    """
    found = label_capture(RawCapture.open(folder / "capture"), LabelConfig(slower=slower))
    if not found.labels:
        raise InvalidValueError("; ".join(found.without) or "no demonstration is marked")
    return Session(task=task, labels=found.labels, without=found.without, joined=found.joined)


def learnable(
    sessions: Sequence[Session], *, kind: Kind, most: int, seed: int = 0
) -> tuple[list[StoredDemonstration], list[str]]:
    """Samples of at most `most` demonstrations, and why others cannot be used.

    InvalidValueError: none is left.
    """
    demonstrations, why = retargeted_of(sessions, kind=kind)
    return samples_of(demonstrations[:most], seed), why


def retargeted_of(
    sessions: Sequence[Session], *, kind: Kind, with_things: bool = True
) -> tuple[list[RetargetedDemonstration], list[str]]:
    """Demonstrations retargeted to the robot, each from its start, and why others cannot be.

    with_things: with positions of things, which captures with images lack.
    """
    demonstrations: list[RetargetedDemonstration] = []
    why: list[str] = []
    for session in sessions:
        why += session.without
        x_GB = fit_offset(session.labels, task=session.task)
        words = make_task(session.task).instruction
        for labels in session.labels:
            if not labels.verdict.ok:
                why.append(f"demonstration {labels.demonstration}: {labels.verdict.reasons[0]}")
                continue
            try:
                one = from_labels(
                    labels, x_GB, task=session.task, words=words, kind=kind, with_things=with_things
                )
            except InvalidValueError as error:
                why.append(f"demonstration {labels.demonstration}: {error}")
                continue
            demonstrations.append(from_start(one))
    return demonstrations, why


def from_start(demonstration: RetargetedDemonstration) -> RetargetedDemonstration:
    """The same demonstration in the robot's odometry frame: its base starts at the origin."""
    back = np.tile(inverse_planar(demonstration.x_WB[0]), (len(demonstration), 1))
    x = np.array([compose_planar(back[0], each) for each in demonstration.x_WB])
    x[:, 2] = np.unwrap(x[:, 2])
    return replace(
        demonstration,
        x_WB=x,
        p_WE=in_world(back, demonstration.p_WE),
        things={name: in_world(back, p) for name, p in demonstration.things.items()},
    )


def truly_meant(
    task: str,
    seeds: Sequence[int],
    *,
    most: int,
    seed: int = 0,
    slower: float = 1.0,
    person: Callable[[int], Person] = person_of,
) -> list[StoredDemonstration]:
    """The same demonstrations from ground truth: the expert's own labels, without devices."""
    demonstrations: list[RetargetedDemonstration] = []
    for each in seeds:
        if len(demonstrations) == most:
            break
        performance = perform(task, each, person=person(each // 100), film=False)
        if performance.success:
            demonstrations.append(from_start(from_ground_truth(performance, slower=slower)))
    return samples_of(demonstrations, seed)


def samples_of(
    demonstrations: Sequence[RetargetedDemonstration],
    seed: int = 0,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> list[StoredDemonstration]:
    """Every frame: unchanged, displaced and off its plan. InvalidValueError: there is none.

    progress: called with (demonstrations done, in all).
    """
    rng = np.random.default_rng([seed, 0x5A])
    out: list[StoredDemonstration] = []
    for number, one in enumerate(demonstrations, start=1):
        out += samples(one, rng, beside=BESIDE, off_plan=OFF_PLAN, missed=MISSED)
        progress(number, len(demonstrations))
    if not out:
        raise InvalidValueError("no demonstration can be learned from")
    return out
