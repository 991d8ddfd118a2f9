"""Marks from a table: spans in seconds from the beginning of the chest's recording.

what,begin_s,end_s
sync,1.5,8.0
anchor,10,16
demonstration,20.0,31.5
discard,35,40
"""

from pathlib import Path

from calibration.capture.sources.axes import LATEST_NS, text_of
from calibration.capture.values import BEGIN, CLIPS, DISCARD, END, Mark
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.errors import InvalidValueError

HEADER = "what,begin_s,end_s"
DEMONSTRATION = "demonstration"
SLACK_NS = NS_PER_S
"""How far a mark may lie outside the recording [ns]."""


def read_marks(path: Path, start_ns: int, by: str = "file", *, end_ns: int | None = None) -> list[Mark]:
    """Read marks on the chest's clock; start_ns, end_ns: of its recording. Errors name the line."""
    out: list[Mark] = []
    spans: dict[str, list[tuple[int, int, int]]] = {}
    lines = text_of(path).splitlines()
    if not lines or lines[0].replace(" ", "") != HEADER:
        raise InvalidValueError(
            f"{path}, line 1: expected {HEADER}, got {lines[0][:80] if lines else 'nothing'}"
        )
    for i, line in enumerate(lines[1:], start=2):
        if not line.strip() or line.startswith("#"):
            continue
        what, *times = [cell.strip() for cell in line.split(",")]
        begin, end = span_marks(f"{path}, line {i}", what, times, start_ns, by)
        if end_ns is not None and (begin.t_ns < start_ns - SLACK_NS or end.t_ns > end_ns + SLACK_NS):
            raise InvalidValueError(
                f"{path}, line {i}: {what} from {times[0]} to {times[1]} s lies outside of the chest's "
                f"recording, 0 to {(end_ns - start_ns) / NS_PER_S:.1f} s"
            )
        kind = DEMONSTRATION if what == DISCARD else what
        for a_ns, b_ns, line_of in spans.setdefault(kind, []):
            if begin.t_ns < b_ns and a_ns < end.t_ns:
                raise InvalidValueError(
                    f"{path}, line {i}: this {what} overlaps that of line {line_of}: "
                    "end one before the next begins"
                )
        spans[kind].append((begin.t_ns, end.t_ns, i))
        out += [begin, end]
    return sorted(out, key=lambda mark: (mark.t_ns, mark.what.endswith(BEGIN)))


def span_marks(where: str, what: str, times: list[str], start_ns: int, by: str) -> list[Mark]:
    """The two marks of one span; where: prefix of errors."""
    known = (DEMONSTRATION, DISCARD, *CLIPS)
    if what not in known or len(times) != 2:
        raise InvalidValueError(
            f"{where}: expected {HEADER} with one of {', '.join(known)}, got {what} {times}"
        )
    try:
        begin_s, end_s = map(float, times)
    except ValueError:
        raise InvalidValueError(f"{where}: expected seconds, got {times}") from None
    if not begin_s < end_s or not max(-begin_s, end_s) < LATEST_NS / 4e9:
        raise InvalidValueError(f"{where}: expected a begin before its end, got {begin_s:g} and {end_s:g} s")
    begin_ns, end_ns = start_ns + round(begin_s * 1e9), start_ns + round(end_s * 1e9)
    own = {DEMONSTRATION: (BEGIN, END), DISCARD: (BEGIN, DISCARD)}
    begins, ends = own.get(what, (f"{what}_begin", f"{what}_end"))
    return [Mark(t_ns=begin_ns, what=begins, by=by), Mark(t_ns=end_ns, what=ends, by=by)]
