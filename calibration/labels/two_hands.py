"""Labels of two hands on one base and one grid of rows: `label_both`.

X_WE of the left = X_WC of the right's labels * X_CE of the left: both hands as the one chest saw them, so
one base carries both. The right hand's labels give the base, the chest's path and the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from calibration.anchor import Anchor
from calibration.capture.raw import Demonstration, RawCapture
from calibration.labels.demonstration import in_base, labels_of
from calibration.labels.export_lerobot import Labelled
from calibration.labels.label import CaptureLabels, label_capture
from calibration.labels.values import LabelConfig, Labels
from calibration.trajectory import Trajectory, multiplied
from calibration.verdict import Verdict
from robot_runtime.errors import InvalidValueError

RIGHT, LEFT = "right_hand", "left_hand"


def label_both(
    capture: RawCapture,
    config: LabelConfig,
    *,
    anchors: Mapping[str, Sequence[Anchor]] | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> tuple[list[Labelled], list[str]]:
    """Label both hands; returns the demonstrations with both, and why others have none.

    anchors: of each hand; None: from the marked clips.
    InvalidValueError: the capture does not have two hands, or one of them cannot be labelled.
    """
    if missing := {RIGHT, LEFT} - set(capture.devices):
        raise InvalidValueError(
            f"{capture.path} has no {' and no '.join(sorted(missing))}: --hand both needs two hands"
        )
    right, left = (
        label_capture(
            capture, config, hand=role, anchors=None if anchors is None else anchors[role], progress=progress
        )
        for role in (RIGHT, LEFT)
    )
    others = {each.demonstration: each for each in left.labels}
    out, without = [], [*right.without, *left.without]
    for each in right.labels:
        if (other := others.get(each.demonstration)) is not None:
            try:
                out.append(_both(each, other, right, left))
            except InvalidValueError as error:
                without.append(f"demonstration {each.demonstration}: {error}")
    return out, without


def _both(labels: Labels, other: Labels, right: CaptureLabels, left: CaptureLabels) -> Labelled:
    low, high = left.joined.span_ns
    t_ns = labels.t_ns[(labels.t_ns >= low) & (labels.t_ns <= high)]
    if len(t_ns) < 2:
        raise InvalidValueError(f"{LEFT} has no poses in it")
    demonstration = next(
        each for each in right.joined.capture.demonstrations() if each.number == labels.demonstration
    )
    main = labels if len(t_ns) == len(labels) else _on_rows(labels, right, demonstration, t_ns)
    aside = _on_rows(other, left, demonstration, t_ns)
    X_WE = _from_chest(main.X_WC, aside.X_CE)
    aside = replace(aside, X_WE=X_WE, X_GE=in_base(main.x_WG, X_WE), x_WG=main.x_WG, X_WC=main.X_WC)
    return Labelled(labels=main, joined=right.joined, other=Labelled(labels=aside, joined=left.joined))


def _on_rows(labels: Labels, found: CaptureLabels, demonstration: Demonstration, t_ns: np.ndarray) -> Labels:
    """The same labels at other times, with all that was found against them."""
    again = labels_of(found.joined, demonstration, t_ns=t_ns)
    known = set(again.verdict.names)
    rest = [reason for reason in labels.verdict.reasons if reason.name not in known]
    return replace(again, verdict=Verdict.of([*again.verdict.reasons, *rest]))


def _from_chest(X_WC: Trajectory, X_CE: Trajectory) -> Trajectory:
    """X_WC * X_CE, row by row."""
    p = X_WC.p + np.einsum("nij,nj->ni", X_WC.R, X_CE.p)
    return Trajectory(t_ns=X_CE.t_ns, p=p, q=multiplied(X_WC.q, X_CE.q), tracking=X_CE.tracking)
