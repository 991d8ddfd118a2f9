"""From a capture and its anchors to labels: `label`, `label_all`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pinocchio as pin

from calibration.anchor import Anchor
from calibration.capture.check import clock_fit
from calibration.capture.marks import Demonstration
from calibration.capture.raw import RawCapture
from calibration.labels.closure import note
from calibration.labels.demonstration import labels_of
from calibration.labels.graph import Tie
from calibration.labels.joined import HandClock, Joined, hand_of, join
from calibration.labels.values import LabelConfig, Labels
from calibration.store import fingerprint
from calibration.verdict import Verdict
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError


class AnchorLike(Protocol):
    """What labels ask of a `calibration.anchor.Anchor`."""

    @property
    def X_WcWh(self) -> pin.SE3: ...

    @property
    def X_WcB(self) -> pin.SE3: ...

    @property
    def covariance(self) -> np.ndarray: ...

    @property
    def chest_ns(self) -> int: ...

    @property
    def hand_ns(self) -> int: ...

    @property
    def verdict(self) -> Verdict: ...


def label(
    capture: RawCapture,
    anchors: Sequence[AnchorLike],
    demonstration: Demonstration,
    config: LabelConfig | None = None,
) -> Labels:
    """Labels of one demonstration; of several, `label_all` joins the devices only once.

    anchors: of this capture's odometries, in their order in time, at least one.
    InvalidValueError: clocks cannot be joined, an anchor was refused, or something needed is missing.
    """
    return labels_of(joined_by(capture, anchors, config or LabelConfig()), demonstration)


def label_all(
    capture: RawCapture, anchors: Sequence[AnchorLike], config: LabelConfig | None = None
) -> list[Labels]:
    """Labels of all demonstrations of a capture, in their order."""
    joined = joined_by(capture, anchors, config or LabelConfig())
    return [labels_of(joined, each) for each in capture.demonstrations()]


def joined_by(
    capture: RawCapture, anchors: Sequence[AnchorLike], config: LabelConfig, *, hand: str | None = None
) -> Joined:
    """A capture's devices in one room and on one clock. hand: which one; None: the one there is."""
    if not anchors:
        raise InvalidValueError(
            "labels need at least one anchor: both cameras look at the board (marks anchor_begin, anchor_end)"
        )
    role = hand_of(capture, hand)
    return joined_with(capture, anchors, config, clock_of(capture, role, config), role)


def joined_with(
    capture: RawCapture, anchors: Sequence[AnchorLike], config: LabelConfig, clock: HandClock, role: str
) -> Joined:
    """As `joined_by`, the clocks joined already. InvalidValueError: no anchor can be trusted."""
    good = [each for each in anchors if each.verdict.ok]
    if not good:
        raise InvalidValueError(
            "no anchor can be trusted:\n" + "\n".join(str(each.verdict) for each in anchors)
        )
    reasons = [
        note("anchor-refused", f"Anchor {i} was left out. {each.verdict.reasons[0]}", "Anchor with care.")
        for i, each in enumerate(anchors)
        if not each.verdict.ok
    ]
    hashes = {f"anchor_{i}": fingerprint(each) for i, each in enumerate(good) if isinstance(each, Anchor)}
    return join(capture, ties_of(good, clock), config, clock, hand=role, reasons=reasons, hashes=hashes)


def with_check(labels: Labels, *verdicts: Verdict) -> Labels:
    """With what `capture check` refuses it for: nobody learns from what the check does not believe."""
    known = set(labels.verdict.names)
    found = {reason.name: reason for each in verdicts for reason in each.reasons if reason.is_fatal}
    new = [reason for name, reason in found.items() if name not in known]
    return replace(labels, verdict=Verdict.of([*labels.verdict.reasons, *new])) if new else labels


def ties_of(anchors: Sequence[AnchorLike], clock: HandClock) -> list[Tie]:
    """In their order in time, on the chest's clock."""
    out = []
    for each in anchors:
        [hand_ns] = clock(np.array([each.hand_ns]))
        out.append(
            Tie(
                chest_ns=int(each.chest_ns),
                hand_ns=int(hand_ns),
                X_WcWh=each.X_WcWh,
                X_WcB=each.X_WcB,
                covariance=each.covariance,
            )
        )
    return sorted(out, key=lambda tie: tie.chest_ns)


def clock_of(capture: RawCapture, role: str, config: LabelConfig) -> HandClock:
    """The hand's clock by the sync spans; InvalidValueError: there is none, or they do not join."""
    if config.has_shared_clock or capture.setup.more.get("clock") == "shared":
        return HandClock(sigma_s=config.clock_sigma_s)
    fit = clock_fit(capture, role)
    share = 1e-6 * fit.skew_ppm / (1.0 + 1e-6 * fit.skew_ppm)
    return HandClock(
        offset_ns=-fit.offset_ns,
        skew_ppm=-1e6 * share,
        reference_ns=fit.at_ns + fit.offset_ns,
        sigma_s=max(config.clock_sigma_s, fit.sigma_ns / NS_PER_S),
    )
