"""Turns marks into demonstrations: `spans_of` pairs beginnings with ends.

marks     begin     end   begin    discard   begin  begin      end
spans     [ demo 0  )     [ discarded )      ?      [ demo 1   )      ?: begun twice, reported
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calibration.capture.values import BEGIN, CLIPS, DISCARD, END, Mark


@dataclass(frozen=True, kw_only=True)
class Demonstration:
    """One demonstration's span [begin, end), chest's clock."""

    number: int
    """Number among the demonstrations that were kept, from 0."""
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Spans that the marks of a capture define."""

    demonstrations: tuple[Demonstration, ...]
    discarded: tuple[tuple[int, int], ...]
    clips: Mapping[str, tuple[tuple[int, int], ...]]
    """`anchor`, `sync`, `lean` -> spans (begin_ns, end_ns), chest's clock."""
    unpaired: tuple[Mark, ...]
    """Marks of spans that were begun and never ended, or ended and never begun."""


def spans_of(marks: Sequence[Mark]) -> Spans:
    """Pair marks in order of time; a span that is begun twice begins the second time."""
    demonstrations: list[Demonstration] = []
    discarded, unpaired = [], []
    clips: dict[str, list[tuple[int, int]]] = {clip: [] for clip in CLIPS}
    open_at: dict[str, Mark] = {}
    for mark in marks:
        name, is_begin = _name(mark.what)
        if is_begin:
            if name in open_at:
                unpaired.append(open_at[name])
            open_at[name] = mark
            continue
        begun = open_at.pop(name, None)
        if begun is None or begun.t_ns >= mark.t_ns:
            if mark.what == DISCARD and begun is None and demonstrations:  # the one just ended
                last = demonstrations.pop()
                discarded.append((last.begin_ns, last.end_ns))
                continue
            unpaired += [mark] if begun is None else [begun, mark]
        elif mark.what == DISCARD:
            discarded.append((begun.t_ns, mark.t_ns))
        elif name == "demonstration":
            number = len(demonstrations)
            demonstrations.append(Demonstration(number=number, begin_ns=begun.t_ns, end_ns=mark.t_ns))
        else:
            clips[name].append((begun.t_ns, mark.t_ns))
    return Spans(
        demonstrations=tuple(demonstrations),
        discarded=tuple(discarded),
        clips={name: tuple(spans) for name, spans in clips.items()},
        unpaired=(*unpaired, *open_at.values()),
    )


def _name(what: str) -> tuple[str, bool]:
    if what in (BEGIN, END, DISCARD):
        return "demonstration", what == BEGIN
    clip, _, edge = what.partition("_")
    return clip, edge == BEGIN
