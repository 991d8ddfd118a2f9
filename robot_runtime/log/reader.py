"""A logged run: `RunLog` reads a file that was closed, cut, or is still being written.

    with RunLog.open("outputs/runs/...mcap") as log: ...
    for row in log.ticks(): row.state, row.tick.command, row.tick.sent, row.tick.mode

All times are of the run's own clock [ns], as everywhere else; `info.offset_ns` converts to calendar time.
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace as replaced

from robot_runtime.core.configuration import Configuration
from robot_runtime.core.journal import Asked, Began, Entry, Looked, PartCame, Ticked
from robot_runtime.core.orders import EpisodeMark, Outcome, TakenOrder
from robot_runtime.core.plan.answers import Splice
from robot_runtime.core.tick import Tick
from robot_runtime.core.values.action import NS_PER_S
from robot_runtime.core.values.state import Observation, RobotState
from robot_runtime.errors import InvalidValueError
from robot_runtime.log.config import RunInfo
from robot_runtime.log.entries import Fault, Line, LogEntry, Sent, Timed
from robot_runtime.log.file import END, INFO, PROFILE
from robot_runtime.log.forms import FormError, Forms
from robot_runtime.log.foxglove import jpeg_of
from robot_runtime.log.records import FOR_EVER_NS, LOST, ChunkReader, Layout, RawMessage, scan
from robot_runtime.log.ring import JOURNAL

logger = logging.getLogger(__name__)
CAMERA = "/camera/"
_OUTCOMES = MappingProxyType({"True": Outcome.SUCCESS, "False": Outcome.FAILURE})


class _Lost(msgspec.Struct, frozen=True):
    """A part that could not be read: the calendar times around it [ns], and its size."""

    since_ns: int = 0
    until_ns: int = FOR_EVER_NS
    bytes: int = 0


_LOST = msgspec.json.Decoder(_Lost)


@dataclass(frozen=True, eq=False)
class LoggedTick:
    """One control tick: what was measured, and the command that followed. `tick.sent` is what the drivers
    made of it, and other measured numbers than those of parts are in `state.measured`."""

    state: RobotState
    tick: Tick
    timed: Timed | None = None
    """Timing of the control loop; None under a simulation's clock."""


@dataclass(frozen=True, eq=False)
class LoggedRequest:
    """A request to the policy, and its answer."""

    asked_ns: int
    """When it was made [ns]."""
    observation: Observation
    """What the policy saw; its images have only their times, `RunLog.images` has the pixels."""
    request_id: int
    parts: tuple[PartCame, ...]
    """The parts of the answer, in order."""


@dataclass(frozen=True)
class LoggedImage:
    """An image of a camera."""

    t_ns: int
    """Capture time [ns]."""
    jpeg: bytes


class RunLog:
    """Reads one file. Every method reads it anew, up to where it ends."""

    def __init__(self, path: Path, layout: Layout, info: RunInfo) -> None:
        """See `open`."""
        self.path, self.layout, self.info = path, layout, info
        self._forms, self._gaps = Forms(), dict[int, _Lost]()

    @classmethod
    def open(cls, path: str | Path) -> "RunLog":
        """InvalidValueError: there is no such file, it is not one of our logs, or of another version."""
        path = Path(path)
        layout = scan(path)
        about = layout.metadata.get(INFO, {}).get("json")
        if layout.profile != PROFILE or about is None:
            raise InvalidValueError(
                f"{path} is not the log of a robot-runtime run, or was cut at its very beginning"
            )
        return cls(path, layout, RunInfo.from_json(about))

    # ---- contents --------------------------------------------------------------------------------

    @property
    def is_finished(self) -> bool:
        """Whether the log was closed; one that was cut, killed or damaged is read as far as it goes."""
        return self.layout.is_finished

    @property
    def end(self) -> dict[str, str]:
        """The result of the run: `fault`, or `error`; empty if nothing was wrong or it was cut."""
        return self.layout.metadata.get(END, {})

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras with images."""
        found = dict.fromkeys(each.topic for each in self.messages() if each.topic.startswith(CAMERA))
        return tuple(topic.removeprefix(CAMERA) for topic in found)

    def messages(self, *topics: str) -> Iterator[RawMessage]:
        """Messages of some topics, or of all, in the order of the file; `log_ns` is calendar time. Unreadable
        parts are left out, and `damage` reports them."""
        return (each for each in self.messages_and_gaps(*topics) if each.topic != LOST)

    def messages_and_gaps(self, *topics: str) -> Iterator[RawMessage]:
        """The same, with a message of topic `LOST` in place of each part that cannot be read."""
        reader = ChunkReader(self.path, self.layout)
        wanted = frozenset((LOST, *topics)) if topics else None
        for message in reader.messages(self.layout.chunks, wanted):
            if message.topic == LOST:
                self.note_gap(message)
            yield message

    def note_gap(self, message: RawMessage) -> None:
        """Add a message of `LOST` to `damage`. InvalidValueError: the message itself is damaged."""
        try:
            lost = _LOST.decode(message.data)
        except msgspec.DecodeError as error:
            raise InvalidValueError(
                f"{self.path}: what it says of its damage cannot be read: {error}"
            ) from error
        if lost.until_ns < FOR_EVER_NS and not self._gaps:
            logger.warning("%s is damaged: reading resumes behind the damage", self.path)
        self._gaps[lost.since_ns] = lost

    @property
    def damage(self) -> str:
        """What is missing, in a sentence; empty: nothing. It covers what has been read so far."""
        gaps = self._gaps.values()
        holes = [each for each in gaps if each.until_ns < FOR_EVER_NS]
        is_cut = len(holes) < len(gaps) or not self.is_finished
        if not gaps and not is_cut:
            return ""
        what = [f"is damaged in {len(holes)} place{'s' * (len(holes) > 1)}"] * bool(holes)
        what += ["was cut, or is still being written"] * is_cut
        missing = sum(each.until_ns - each.since_ns for each in holes if each.since_ns) / NS_PER_S
        lost = max(sum(self.layout.lost.values()), sum(each.bytes for each in gaps))
        return (
            f"{self.path} {' and '.join(what)}: {lost} of {self.layout.size} bytes could not be read"
            + f", which hold {missing:.2f} s" * (missing > 0.0)
        )

    def refuse_damage(self) -> None:
        """InvalidValueError: something was missing in what has been read."""
        if self.damage:
            raise InvalidValueError(self.damage)

    def has_hole(self, start_ns: int, end_ns: int) -> bool:
        """Whether something is missing between two times, as far as it has been read [ns]; what lies behind
        the end of a log that was cut does not count."""
        return self.is_missing(start_ns, end_ns, until_ns=FOR_EVER_NS)

    def is_missing(self, start_ns: int, end_ns: int, *, until_ns: int = 2**64) -> bool:
        """Whether something is missing between two times, as far as it has been read [ns].

        until_ns: gaps that last up to then or longer do not count.
        """
        offset_ns = self.info.offset_ns
        return any(
            each.since_ns - offset_ns <= end_ns
            and each.until_ns - offset_ns >= start_ns
            and each.until_ns < until_ns
            for each in self._gaps.values()
        )

    # ---- the journal -----------------------------------------------------------------------------

    def entries(self, *, is_unbroken: bool = False) -> Iterator[Entry | LogEntry]:
        """All entries, in order.

        is_unbroken: ends where something is missing, instead of resuming behind it.
        InvalidValueError: a value is damaged, or of another version of this program.
        """
        for message in self.messages_and_gaps(JOURNAL):
            if message.topic == LOST:
                if is_unbroken:
                    return
                continue
            yield from self.entries_of(message)

    def entries_of(self, message: RawMessage) -> tuple[Entry | LogEntry, ...]:
        """The entries in a message of the journal. InvalidValueError: as of `entries`."""
        try:
            found = self._forms.decode(message.data)
        except FormError as error:
            raise InvalidValueError(
                f"{self.path}: its journal is damaged, or was written by another version of robot-runtime: "
                f"{error}"
            ) from error
        if type(found) is not tuple or not all(isinstance(each, Entry | LogEntry) for each in found):
            raise InvalidValueError(f"{self.path}: expected entries in its journal, got {found!r:.100}")
        return found

    def journal(self, *, is_unbroken: bool = False) -> Iterator[Entry]:
        """The inputs of the executor, in order: `core.journal`. is_unbroken: as of `entries`."""
        for entry in self.entries(is_unbroken=is_unbroken):
            if not isinstance(entry, LogEntry):
                yield entry

    @property
    def configuration(self) -> Configuration:
        """The configuration of the executor. InvalidValueError: the log was cut before it."""
        for entry in self.entries():
            if isinstance(entry, Began):
                return entry.configuration
        raise InvalidValueError(f"{self.path} was cut before anything happened")

    def ticks(self) -> Iterator[LoggedTick]:
        """Every control tick."""
        row: LoggedTick | None = None
        for entry in self.entries():
            match entry:
                case Ticked(state=state, tick=tick):
                    if row is not None:
                        yield row
                    row = LoggedTick(state, tick)
                case Sent(command=command) if row is not None:
                    row = replace(row, tick=replace(row.tick, sent=command))
                case Timed() if row is not None:
                    row = replace(row, timed=entry)
        if row is not None:
            yield row

    def requests(self) -> Iterator[LoggedRequest]:
        """Every request with its answer, in the order in which they were made."""
        asked: dict[int, tuple[int, Observation]] = {}
        parts: dict[int, list[PartCame]] = {}
        now_ns = self.info.started_ns
        for entry in self.journal():
            match entry:
                case Looked(now_ns=now_ns):
                    pass
                case Asked(observation=seen, request=request):
                    asked[request.request_id] = now_ns, seen
                case PartCame(part=part):
                    parts.setdefault(part.request_id, []).append(entry)
        for request_id, (asked_ns, seen) in asked.items():
            yield LoggedRequest(asked_ns, seen, request_id, tuple(parts.get(request_id, ())))

    def splices(self) -> Iterator[Splice]:
        """Every splice of an answer into the plan."""
        for entry in self.journal():
            if isinstance(entry, PartCame) and entry.splice is not None:
                yield entry.splice

    # ---- beside the journal ----------------------------------------------------------------------

    def images(self, camera: str) -> Iterator[LoggedImage]:
        """Every image of a camera. InvalidValueError: it has none, or data that is not an image."""
        found = False
        for message in self.messages(CAMERA + camera):
            found = True
            try:
                jpeg = jpeg_of(message.data)
            except ValueError as error:
                raise InvalidValueError(f"{self.path}: an image of camera {camera!r}: {error}") from error
            yield LoggedImage(message.log_ns - self.info.offset_ns, jpeg)
        if not found:
            have = ", ".join(self.cameras) or "none"
            raise InvalidValueError(f"{self.path} has no images of camera {camera!r}, only of {have}")

    def lines(self) -> Iterator[Line]:
        """The lines of the run's log."""
        return (entry for entry in self.entries() if isinstance(entry, Line))

    def orders(self) -> Iterator[TakenOrder]:
        """Operator commands, executed and refused."""
        return (entry for entry in self.entries() if isinstance(entry, TakenOrder))

    def episodes(self) -> list[EpisodeMark]:
        """The episodes: those that an operator marked, or the whole run as one; if something is missing in
        one, its outcome is unknown."""
        marks, start_ns, end_ns = list[EpisodeMark](), None, self.info.started_ns
        for entry in self.entries():
            if isinstance(entry, EpisodeMark):
                marks.append(entry)
            elif isinstance(entry, Ticked):
                start_ns = entry.tick.now_ns if start_ns is None else start_ns
                end_ns = entry.tick.now_ns
        return self.episodes_of(marks, start_ns, end_ns)

    def episodes_of(self, marks: list[EpisodeMark], start_ns: int | None, end_ns: int) -> list[EpisodeMark]:
        """The same, of what has been read. start_ns, end_ns: of the first control tick, and of the last."""
        if marks or start_ns is None:
            return [
                replaced(mark, outcome=Outcome.UNKNOWN) if self.has_hole(mark.start_ns, mark.end_ns) else mark
                for mark in marks
            ]
        is_whole = not self.is_missing(start_ns, end_ns)
        outcome = _OUTCOMES.get(self.end.get("success", ""), Outcome.UNKNOWN) if is_whole else Outcome.UNKNOWN
        return [EpisodeMark(start_ns=start_ns, end_ns=end_ns + 1, outcome=outcome, source="sim")]

    def faults(self) -> Iterator[Fault]:
        """What should not have happened."""
        return (entry for entry in self.entries() if isinstance(entry, Fault))

    def shown(self, topic: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """The messages of a topic such as /mode or /chunk: time [ns], and values by name."""
        for message in self.messages(topic):
            try:
                shown = json.loads(message.data)
            except (ValueError, RecursionError) as error:
                raise InvalidValueError(f"{self.path}: a message of {topic} is no JSON: {error}") from error
            if not isinstance(shown, dict):
                raise InvalidValueError(
                    f"{self.path}: expected names and values in {topic}, got {shown!r:.60}"
                )
            yield message.log_ns - self.info.offset_ns, shown
