"""Computes labels of a capture: `label_capture`.

    capture ─► clocks ─► anchors ─► both in one world ─► the check, with the hand's pose ─► labels

Demonstrations that the check refuses get labels marked as unusable, so no policy learns from them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pinocchio as pin

from calibration.anchor import Anchor
from calibration.capture.check import CaptureReport, check_capture, clock_fit
from calibration.capture.raw import RawCapture
from calibration.labels.anchors import anchors_of
from calibration.labels.closure import Tie, note
from calibration.labels.demonstration import labels_of
from calibration.labels.joined import Joined, hand_of, join
from calibration.labels.values import HandClock, LabelConfig, Labels
from calibration.store import fingerprint
from calibration.verdict import Verdict
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError


@dataclass(frozen=True, kw_only=True, eq=False)
class CaptureLabels:
    """Labels of all demonstrations of a capture that could be labelled, each with a verdict."""

    joined: Joined
    labels: tuple[Labels, ...]
    """Labels in order of the demonstrations."""
    without: tuple[str, ...] = ()
    """Demonstrations without labels, and why."""
    report: CaptureReport | None = None
    """Findings of the check that the verdicts include."""

    def at_pace(self, slower: float) -> "CaptureLabels":
        """Labels of the same capture for a robot that takes `slower` times as long."""
        joined = replace(self.joined, config=replace(self.joined.config, slower=slower))
        assert self.report is not None
        return _labelled(joined, self.report)


def label_capture(
    capture: RawCapture,
    config: LabelConfig | None = None,
    *,
    anchors: Sequence[Anchor] | None = None,
    hand: str | None = None,
    X_HE: pin.SE3 | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> CaptureLabels:
    """Compute labels of all demonstrations of a capture; verdicts include those of `check_capture`.

    anchors: of this capture's odometries, in order of time; None: from the marked clips.
    hand: its role; None: the only one.
    X_HE: the TCP in its camera; None: as the capture declares.
    progress: called with (done, total) while the check searches videos for the board.
    InvalidValueError: clocks cannot be joined, no anchor can be trusted, or something needed is missing.
    """
    config = config or LabelConfig()
    role = hand_of(capture, hand)
    if X_HE is not None:
        capture.supply_tcp(role, X_HE)
    clock = clock_of(capture, role, config)
    if anchors is None:
        anchors = anchors_of(capture, role, clock)
    joined = joined_by(capture, anchors, config, clock, hand=role)
    report = check_capture(
        capture,
        anchors={role: joined.ties[0].X_WcWh},
        has_shared_clock=config.has_shared_clock,
        hand=role,
        progress=progress,
    )
    return _labelled(joined, report)


def _labelled(joined: Joined, report: CaptureReport) -> CaptureLabels:
    found: list[Labels] = []
    without: list[str] = []
    for each in report.demonstrations:
        try:
            labels = labels_of(joined, each.demonstration)
        except InvalidValueError as error:
            without.append(f"demonstration {each.demonstration.number}: {error}")
        else:
            found.append(_checked(labels, report.verdict, each.verdict))
    return CaptureLabels(joined=joined, labels=tuple(found), without=tuple(without), report=report)


def joined_by(
    capture: RawCapture,
    anchors: Sequence[Anchor],
    config: LabelConfig,
    clock: HandClock,
    *,
    hand: str | None = None,
) -> Joined:
    """Join a capture's devices in one world and on one clock. InvalidValueError: no trustworthy anchor."""
    if not anchors:
        raise InvalidValueError(
            "labels need at least one anchor: a clip in which both cameras look at the board (key a, or a "
            "line of --marks)"
        )
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
    hashes = {f"anchor_{i}": fingerprint(each) for i, each in enumerate(good)}
    return join(capture, ties_of(good, clock), config, clock, hand=hand, reasons=reasons, hashes=hashes)


def _checked(labels: Labels, *verdicts: Verdict) -> Labels:
    """Labels with the reasons of `capture check` added."""
    known = set(labels.verdict.names)
    found = {reason.name: reason for each in verdicts for reason in each.reasons if reason.is_fatal}
    new = [reason for name, reason in found.items() if name not in known]
    return replace(labels, verdict=Verdict.of([*labels.verdict.reasons, *new])) if new else labels


def ties_of(anchors: Sequence[Anchor], clock: HandClock) -> list[Tie]:
    """Ties in order of time, on the chest's clock."""
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
    """The hand's clock by the sync spans; InvalidValueError: there are none, or they do not join."""
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
