"""Which check of the pipeline refuses a capture, and why: `gates_of`."""

from dataclasses import dataclass
from pathlib import Path

from calibration.capture.check import check_capture
from calibration.capture.raw import RawCapture
from calibration.labels.anchors import anchors_of
from calibration.labels.demonstration import labels_of
from calibration.labels.joined import hand_of
from calibration.labels.label import clock_of, joined_by
from calibration.labels.values import LabelConfig
from calibration.verdict import Verdict
from robot_runtime.errors import RobotRuntimeError

READ, CHECK, ANCHOR, LABELS = "read", "capture check", "anchor", "labels"


@dataclass(frozen=True, kw_only=True)
class Caught:
    """One finding of a check."""

    gate: str
    names: tuple[str, ...]
    """Names of the reasons; `error` for an exception."""
    is_fatal: bool
    """Whether it refuses the capture or a demonstration of it; otherwise it is a warning."""
    words: str


def gates_of(path: Path, config: LabelConfig | None = None) -> list[Caught]:
    """Run a raw capture through all checks that a collector runs, up to the first fatal stage.

    Returns an empty list if everything passes.
    """
    config, out = config or LabelConfig(), []
    try:
        capture = RawCapture.open(path)
        report = check_capture(capture)
    except RobotRuntimeError as error:
        return [_error(READ, error)]
    out += _of(CHECK, report.verdict)
    for each in report.demonstrations:
        out += _of(CHECK, each.verdict)
    if not report.verdict.ok:
        return out
    try:
        role = hand_of(capture, None)
        clock = clock_of(capture, role, config)
        anchors = anchors_of(capture, role, clock)
    except RobotRuntimeError as error:
        return [*out, _error(ANCHOR, error)]
    for anchor in anchors:
        out += _of(ANCHOR, anchor.verdict)
    if not all(anchor.verdict.ok for anchor in anchors):
        return out
    again = check_capture(capture, anchors={role: anchors[0].X_WcWh}, with_checksums=False)
    known = {name for each in out for name in each.names}
    for each in again.demonstrations:
        out += [found for found in _of(CHECK, each.verdict) if not set(found.names) <= known]
    try:
        joined = joined_by(capture, anchors, config, clock)
        for demonstration in capture.demonstrations():
            out += _of(LABELS, labels_of(joined, demonstration).verdict)
    except RobotRuntimeError as error:
        out.append(_error(LABELS, error))
    return out


def _of(gate: str, verdict: Verdict) -> list[Caught]:
    return [
        Caught(gate=gate, names=(reason.name,), is_fatal=reason.is_fatal, words=str(reason))
        for reason in verdict.reasons
    ]


def _error(gate: str, error: RobotRuntimeError) -> Caught:
    return Caught(gate=gate, names=("error",), is_fatal=True, words=str(error).splitlines()[0])
